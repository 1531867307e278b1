package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
)

// strikesMost bounds the strikes that one fault remembers.
const strikesMost = 1000

// injected is a fault on an upstream wire or on the client wire. It implements
// [harness.Injected].
type injected struct {
	fault harness.Fault
	held  chan struct{} // closed by Heal
	heal  func()

	mu      sync.Mutex
	matched int
	strikes []harness.Strike
	taken   int
	more    chan struct{} // closed and replaced at each strike
}

func newInjected(f harness.Fault) *injected {
	return &injected{fault: f, held: make(chan struct{}), more: make(chan struct{}), heal: func() {}}
}

// matches counts one more that fits and says whether the fault acts on it.
func (i *injected) matches() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.matched++
	return i.fault.Nth == 0 || i.fault.Nth == i.matched
}

func (i *injected) struck(s harness.Strike) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.strikes) < strikesMost {
		i.strikes = append(i.strikes, s)
	}
	close(i.more)
	i.more = make(chan struct{})
}

// Await is of [harness.Injected].
func (i *injected) Await(ctx context.Context, deadline time.Duration) (harness.Strike, error) {
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	for {
		i.mu.Lock()
		if i.taken < len(i.strikes) {
			s := i.strikes[i.taken]
			i.taken++
			i.mu.Unlock()
			return s, s.Err
		}
		more := i.more
		i.mu.Unlock()
		select {
		case <-more:
		case <-timer.C:
			return harness.Strike{}, fmt.Errorf("%q did not strike within %s", i.fault, deadline)
		case <-ctx.Done():
			return harness.Strike{}, fmt.Errorf("%q has not struck: %w", i.fault, context.Cause(ctx))
		}
	}
}

// Strikes is of [harness.Injected].
func (i *injected) Strikes() []harness.Strike {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.strikes)
}

// Heal is of [harness.Injected].
func (i *injected) Heal() { i.heal() }

// Inject is of [harness.Env].
func (e *env) Inject(f harness.Fault) harness.Injected {
	if err := f.Check(); err != nil {
		panic(fmt.Sprintf("scenario %s: fault %q: %v", e.s.scenario.Name, f, err))
	}
	switch {
	case f.At.OnPostgres():
		return e.s.wire().Inject(f)
	case f.At == harness.BeforeResponse:
		return e.s.injectResponse(f)
	default:
		return e.s.injectUpstream(f)
	}
}

// injectUpstream puts the fault on every upstream wire: its match says which
// call it is about.
func (s *session) injectUpstream(f harness.Fault) *injected {
	if len(s.upstreams) == 0 {
		panic(fmt.Sprintf("scenario %s: fault %q: its topology has no upstream", s.scenario.Name, f))
	}
	i := newInjected(f)
	method, path, _ := strings.Cut(f.Match, " ")
	var heals []func()
	for _, d := range s.upstreams {
		heals = append(heals, d.Inject(harness.UpstreamFault{
			Name: f.String(), Method: method, Path: path, Caller: f.Server, Nth: f.Nth, At: f.At, Delay: f.Delay,
			Hold: holdOf(i), Drop: f.Action == harness.ActionDrop || f.Action == harness.ActionKill,
			Do: func(ctx context.Context, c harness.UpstreamCall) {
				i.struck(harness.Strike{
					At: s.rec.clock.Now(), Server: c.Caller, Call: c.Seq, Op: c.Op, What: c.Method + " " + c.Path,
					Err: s.act(ctx, f.Action, c.Caller),
				})
			},
		}))
	}
	i.heal = sync.OnceFunc(func() {
		close(i.held)
		for _, heal := range heals {
			heal()
		}
	})
	return i
}

func holdOf(i *injected) <-chan struct{} {
	if i.fault.Action != harness.ActionHold {
		return nil
	}
	return i.held
}

// act does to a server process what the action says; other actions are the wire's own.
func (s *session) act(ctx context.Context, a harness.Action, server string) error {
	switch a {
	case harness.ActionKill:
		return s.kill(ctx, server)
	case harness.ActionStop:
		return s.stop(ctx, server)
	default:
		return nil
	}
}

func (s *session) kill(ctx context.Context, server string) error {
	r, err := s.replicaNamed(server)
	if err != nil {
		return err
	}
	return r.Kill(ctx)
}

func (s *session) stop(ctx context.Context, server string) error {
	r, err := s.replicaNamed(server)
	if err != nil {
		return err
	}
	return r.Signal(ctx, "STOP")
}

func (s *session) replicaNamed(name string) (*replica, error) {
	for _, r := range s.servers {
		if r.name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("no server %q", name)
}

// injectResponse puts the fault on answers to our own calls that are not part
// of a burst.
func (s *session) injectResponse(f harness.Fault) *injected {
	i := newInjected(f)
	s.faultsMu.Lock()
	defer s.faultsMu.Unlock()
	s.responseFaults = append(s.responseFaults, i)
	s.rec.event(harness.Event{Kind: harness.EventNote, Subject: "clients", Text: "in place: " + f.String()})
	i.heal = sync.OnceFunc(func() {
		s.faultsMu.Lock()
		defer s.faultsMu.Unlock()
		s.responseFaults = slices.DeleteFunc(s.responseFaults, func(o *injected) bool { return o == i })
		close(i.held)
		s.rec.event(harness.Event{Kind: harness.EventHeal, Subject: "clients", Text: f.String()})
	})
	return i
}

// responseFault finds what is to be done at the answer of a request; nil for nothing.
func (s *session) responseFault(r harness.Request) func(context.Context, harness.Operation) {
	s.faultsMu.Lock()
	defer s.faultsMu.Unlock()
	for _, i := range s.responseFaults {
		f := i.fault
		if (f.Match != "" && f.Match != r.Kind) || (f.Server != "" && f.Server != r.Server) || !i.matches() {
			continue
		}
		return func(ctx context.Context, op harness.Operation) {
			s.rec.event(harness.Event{Kind: harness.EventFault, Subject: op.Server, Text: f.String() + ": " + op.Method + " " + op.Path})
			i.struck(harness.Strike{
				At: s.rec.clock.Now(), Server: op.Server, Op: op.ID, What: op.Method + " " + op.Path, Err: s.act(ctx, f.Action, op.Server),
			})
		}
	}
	return nil
}

// healResponses takes back what Drive left on the client wire.
func (s *session) healResponses() {
	s.faultsMu.Lock()
	left := slices.Clone(s.responseFaults)
	s.faultsMu.Unlock()
	for _, i := range left {
		i.Heal()
	}
}
