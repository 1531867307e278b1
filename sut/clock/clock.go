// Package clock is the one source of time of the reference server: the
// machine's time plus an offset that a test may change while the server runs,
// so that minutes pass at once and every replica agrees on what time it is; or
// one instant at which a test has it stand still.
//
// Two kinds of time are kept apart. Validity (leases, expiry, suppression,
// backoff, intervals) is server time: [Clock.Now], [Clock.Sleep]. Waiting for
// somebody on a network (deadlines of calls, how long a client waits) is
// machine time: [Mono], [Pause], context deadlines.
//
// What must not happen here: anything but time. Nobody else in the server
// calls time.Now.
package clock

import (
	"context"
	"sync"
	"time"
)

// A Clock gives server time. Safe for concurrent use.
type Clock struct {
	mu      sync.Mutex
	offset  time.Duration
	stopped time.Time     // where it stands still; zero while it runs
	changed chan struct{} // closed and replaced when offset or stopped change
}

// New gives a clock that runs offset ahead of the machine.
func New(offset time.Duration) *Clock {
	return &Clock{offset: offset, changed: make(chan struct{})}
}

// Now is server time in UTC, cut to microseconds, which is what the database
// stores: a stamp read back equals the stamp written.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().UTC().Truncate(time.Microsecond)
}

// now is server time; c.mu is held.
func (c *Clock) now() time.Time {
	if !c.stopped.IsZero() {
		return c.stopped
	}
	return time.Now().Add(c.offset)
}

// Offset is how far the clock runs ahead of the machine.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// Set replaces the whole offset, has the clock run, and wakes every sleeper, so
// that those whose time has come by the new offset go on.
func (c *Clock) Set(offset time.Duration) { c.set(offset, time.Time{}) }

// Stop has the clock stand still at a time until the next Set, which is with
// the given offset, too. Periodic jobs go on: see [Clock.Sleep].
func (c *Clock) Stop(at time.Time, offset time.Duration) { c.set(offset, at) }

// StoppedAt is where the clock stands still; zero while it runs.
func (c *Clock) StoppedAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

func (c *Clock) set(offset time.Duration, stopped time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset, c.stopped = offset, stopped
	close(c.changed)
	c.changed = make(chan struct{})
}

// Sleep waits until d of server time has passed since the call, but never for
// more than d of machine time: a clock that is turned on ends it early, one
// that is turned back does not make a periodic job stand still. It gives the
// context's error when that ends first.
func (c *Clock) Sleep(ctx context.Context, d time.Duration) error {
	return c.sleepUntil(ctx, c.Now().Add(d), Mono()+d)
}

// Pause waits for d of machine time, whatever the clock does: for retries. It
// gives the context's error when that ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sleepUntil waits for whichever comes first: server time t, machine time end.
func (c *Clock) sleepUntil(ctx context.Context, t time.Time, end time.Duration) error {
	for {
		left, changed := c.left(t)
		left = min(left, end-Mono())
		if left <= 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// left gives the server time that remains until t and the channel that closes
// when that is no longer true.
func (c *Clock) left(t time.Time) (time.Duration, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.Sub(c.now()), c.changed
}

var started = time.Now()

// Mono is the time since the process started on the machine's monotonic
// clock. It knows no offset and never jumps, but it does go on while the
// process is stopped, which is what lease guards need.
func Mono() time.Duration { return time.Since(started) }
