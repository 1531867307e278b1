// Package clock is the one source of time of the reference server: the
// machine's time plus an offset that a test may change while the server runs,
// so that minutes pass at once and every replica agrees on what time it is.
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
	changed chan struct{} // closed and replaced when the offset changes
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
	return time.Now().Add(c.offset).UTC().Truncate(time.Microsecond)
}

// Offset is how far the clock runs ahead of the machine.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// Set replaces the whole offset and wakes every sleeper, so that those whose
// time has come by the new offset go on.
func (c *Clock) Set(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
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
	return t.Sub(time.Now().Add(c.offset)), c.changed
}

var started = time.Now()

// Mono is the time since the process started on the machine's monotonic
// clock. It knows no offset and never jumps, but it does go on while the
// process is stopped, which is what lease guards need.
func Mono() time.Duration { return time.Since(started) }
