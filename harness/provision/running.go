package provision

import (
	"strings"
	"sync/atomic"

	"github.com/overbook/overbook/harness/proc"
)

// running is what all parts have in common: what they are, and how they end.
type running struct {
	name      string        // in messages
	describe  string        // version and where from
	process   *proc.Process // nil unless local
	container *container    // nil unless Docker
	closing   atomic.Bool   // the end is ours
}

// Describe says version and where from, in one line; of Postgres also whether
// commits are durable.
func (r *running) Describe() string { return r.describe }

// Done is closed when the server has died or was stopped; never for a URL.
func (r *running) Done() <-chan struct{} {
	switch {
	case r.process != nil:
		return r.process.Exited()
	case r.container != nil:
		return r.container.done
	}
	return nil
}

// Died says how the server ended when it ended on its own; nil while it runs,
// after Close, and for a URL.
func (r *running) Died() error {
	switch {
	case r.closing.Load():
		return nil
	case r.process != nil:
		select {
		case <-r.process.Exited():
			return &Problem{
				What: r.name + " died during the run", Why: r.process.ExitText() + "; its last output:\n    " + strings.Join(r.process.Tail(10), "\n    "),
				Fix: "results since then are not to be trusted; look for memory pressure (dmesg) and run again",
			}
		default:
		}
	case r.container != nil:
		return r.container.died(r.name)
	}
	return nil
}
