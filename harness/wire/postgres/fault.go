package pgwire

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

const (
	strikesKept    = 1000
	actionDeadline = 60 * time.Second // of Kill and Stop
)

// A fault is one that is in place.
type fault struct {
	harness.Fault
	wire    *Wire
	pattern *regexp.Regexp
	healed  chan struct{}
	heal    func()

	seen int // units that matched; guarded by interceptors.mu

	mu      sync.Mutex
	strikes []harness.Strike // the first of them
	last    harness.Strike
	count   int
	told    int           // by Await
	news    chan struct{} // closed and made anew with each strike
}

var _ interface {
	interceptor
	harness.Injected
} = (*fault)(nil)

// Inject puts a fault in place. It meets units that arrive from now on. A
// fault that is none, or at a moment of another wire, or one that needs Kill
// or Stop where the wire has none, is a mistake and panics.
//
// Faults are tried in the order in which they were injected; the first that
// matches acts. Each counts the units that it matches for itself, whether or
// not another one acted on them.
func (w *Wire) Inject(f harness.Fault) harness.Injected {
	if err := f.Check(); err != nil {
		panic(fmt.Sprintf("Postgres wire: fault %q: %v", f, err))
	}
	if !f.At.OnPostgres() {
		panic(fmt.Sprintf("Postgres wire: fault %q: %s is no moment of this wire", f, f.At))
	}
	if f.Action == harness.ActionKill && w.config.Kill == nil || f.Action == harness.ActionStop && w.config.Stop == nil {
		panic(fmt.Sprintf("Postgres wire: fault %q: the wire was started without the means to do it", f))
	}
	in := &fault{
		Fault: f, wire: w, pattern: regexp.MustCompile("(?i)" + f.Match),
		healed: make(chan struct{}), news: make(chan struct{}),
	}
	in.heal = sync.OnceFunc(func() {
		w.interceptors.remove(in)
		close(in.healed)
		if w.config.OnHeal != nil {
			w.config.OnHeal(f)
		}
	})
	w.interceptors.add(in)
	return in
}

// Heal takes the fault back and lets go what it holds.
func (f *fault) Heal() { f.heal() }

func (f *fault) wants(e encounter) bool {
	if f.Nth != 0 && f.seen >= f.Nth {
		return false
	}
	_, ok := f.matches(e)
	return ok
}

func (f *fault) matches(e encounter) (statement int, ok bool) {
	if f.Action == harness.ActionError && e.aborted {
		return 0, false // it fails by itself
	}
	if f.At != e.moment || f.Server != "" && f.Server != e.session.name {
		return 0, false
	}
	return e.match(f.pattern.MatchString)
}

func (f *fault) meet(e encounter, taken bool) (do response, takes bool) {
	statement, ok := f.matches(e)
	if !ok {
		return nil, false
	}
	if f.seen++; taken || f.Nth != 0 && f.seen != f.Nth {
		return nil, false
	}
	return func(ctx context.Context) verdict { return f.strike(ctx, e, statement) }, true
}

// strike does what the fault is there for.
func (f *fault) strike(ctx context.Context, e encounter, statement int) verdict {
	l := &f.wire.ledger
	s := harness.Strike{At: l.now(), Server: e.session.name, What: e.unit.line(statement)}
	l.note(e.unit.record, func(r *harness.Unit) {
		s.Unit, s.Op = r.Seq, r.Op
		if r.Fault != "" {
			r.Fault += ", "
		}
		r.Fault += f.String()
	})
	if f.wire.config.OnStrike != nil {
		f.wire.config.OnStrike(f.Fault, s)
	}
	switch f.Action {
	case harness.ActionKill:
		s.Err = f.run(f.wire.config.Kill, e.session.name) //nolint:contextcheck // ctx ends with the connection, which this ends
		l.ended(e.unit.record, f.String())
		e.session.sever(f.String())
		f.wire.abandon(e.session.name)
	case harness.ActionStop:
		s.Err = f.run(f.wire.config.Stop, e.session.name) //nolint:contextcheck // as above
	case harness.ActionDrop:
		l.ended(e.unit.record, f.String())
		e.session.sever(f.String())
	case harness.ActionError, harness.ActionDelay, harness.ActionHold:
	}
	f.tell(s) // of a kill or a drop once it is done, of the others before
	switch f.Action {
	case harness.ActionError:
		return verdict{code: f.Code, statement: statement}
	case harness.ActionDelay:
		f.wait(ctx, f.Delay)
	case harness.ActionHold:
		f.wait(ctx, 0)
	case harness.ActionKill, harness.ActionStop, harness.ActionDrop:
	}
	return verdict{}
}

// run does something to the server process, whatever becomes of the
// connection meanwhile: killing it ends the connection.
func (f *fault) run(do func(context.Context, string) error, server string) error {
	ctx, cancel := context.WithTimeout(f.wire.ctx, actionDeadline)
	defer cancel()
	if err := do(ctx, server); err != nil {
		return fmt.Errorf("fault %q: %s %s: %w", f, f.Action, server, err)
	}
	return nil
}

// wait waits until the fault is healed, at most so long; 0 is for ever.
func (f *fault) wait(ctx context.Context, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-f.healed:
	case <-ctx.Done():
	}
}

func (f *fault) tell(s harness.Strike) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	f.last = s
	if len(f.strikes) < strikesKept {
		f.strikes = append(f.strikes, s)
	}
	close(f.news)
	f.news = make(chan struct{})
}

// Strikes gives those that there were, at most the first 1000.
func (f *fault) Strikes() []harness.Strike {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]harness.Strike(nil), f.strikes...)
}

// Await waits for the next strike. One that came before is the next one, if
// it has not been awaited yet.
func (f *fault) Await(ctx context.Context, deadline time.Duration) (harness.Strike, error) {
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	for {
		s, ok, news := f.next()
		if ok {
			return s, s.Err
		}
		select {
		case <-news:
		case <-timer.C:
			return harness.Strike{}, &clock.DeadlineError{What: fmt.Sprintf("fault %q to strike", f), Last: f.state(), In: deadline}
		case <-ctx.Done():
			return harness.Strike{}, fmt.Errorf("wait for fault %q to strike: %w", f, context.Cause(ctx))
		case <-f.wire.ctx.Done():
			return harness.Strike{}, fmt.Errorf("wait for fault %q to strike: %w", f, errors.New(whyClosed))
		}
	}
}

func (f *fault) next() (s harness.Strike, ok bool, news <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told >= f.count {
		return s, false, f.news
	}
	f.told++
	if f.told <= len(f.strikes) {
		return f.strikes[f.told-1], true, nil
	}
	return f.last, true, nil
}

// state says what the fault has seen, for the error of a wait in vain.
func (f *fault) state() string {
	f.wire.interceptors.mu.Lock()
	seen := f.seen
	f.wire.interceptors.mu.Unlock()
	return fmt.Sprintf("%d units came to %s and matched", seen, f.At)
}
