package upstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
)

// faults holds what is installed, in order.
type faults struct {
	mu        sync.Mutex
	installed []*fault
}

type fault struct {
	harness.UpstreamFault
	seen   int // matching calls; guarded by faults.mu
	healed chan struct{}
}

func (s *faults) install(f harness.UpstreamFault) (heal func()) {
	in := &fault{UpstreamFault: f, healed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.installed = append(s.installed, in)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.installed = slices.DeleteFunc(s.installed, func(o *fault) bool { return o == in })
		close(in.healed)
	})
}

// at gives the fault that a call meets at a moment, nil for none.
func (s *faults) at(m harness.Moment, c harness.UpstreamCall) *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var met *fault
	for _, f := range s.installed {
		if !f.matches(m, c) {
			continue
		}
		f.seen++
		if met == nil && (f.Nth == 0 || f.Nth == f.seen) {
			met = f
		}
	}
	return met
}

func (f *fault) matches(m harness.Moment, c harness.UpstreamCall) bool {
	return f.At == m &&
		(f.Method == "" || f.Method == c.Method) &&
		(f.Path == "" || f.Path == c.Path) &&
		(f.Caller == "" || f.Caller == c.Caller)
}

// label is what the ledger says about a call that met the fault.
func (f *fault) label() string {
	if f.Name != "" {
		return f.Name
	}
	return "unnamed fault at " + string(f.At)
}

// run does what the fault does, up to its Drop, which is the caller's affair.
func (f *fault) run(ctx context.Context, c harness.UpstreamCall) {
	if f.Do != nil {
		f.Do(ctx, c)
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-f.healed:
		case <-ctx.Done():
		}
	}
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-f.healed:
		case <-ctx.Done():
		}
	}
}
