// Package clock owns the harness's only access to the machine's time: one
// monotonic clock per run, whose stamps are offsets from the run's epoch, and
// tickers for conditions that can only be asked again and again.
//
// It must not be used to wait for a state without asking for the state: every
// wait here has a condition and a deadline.
package clock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// A Clock counts from its epoch on the monotonic clock, so that a step of the
// wall clock in the middle of a run cannot reorder a history.
type Clock struct {
	epoch time.Time
}

// New starts a clock at this instant.
func New() Clock { return Clock{epoch: time.Now()} }

// Now is the offset from the epoch. It is never zero, so that a zero stamp
// can mean "did not happen".
func (c Clock) Now() time.Duration { return max(time.Since(c.epoch), 1) }

// Epoch is the wall-clock instant of offset zero.
func (c Clock) Epoch() time.Time { return c.epoch }

// At converts an instant into an offset; negative before the epoch, and like
// Now never zero.
func (c Clock) At(t time.Time) time.Duration { return cmp.Or(t.Sub(c.epoch), 1) }

// Wall is the wall-clock time now, for names and headings.
func Wall() time.Time { return time.Now() }

// A DeadlineError says what was waited for in vain.
type DeadlineError struct {
	What string        // the condition
	Last string        // the last state seen
	In   time.Duration // the deadline
}

// Error names the condition, the deadline and the last state.
func (e *DeadlineError) Error() string {
	if e.Last == "" {
		return fmt.Sprintf("%s: not within %s", e.What, e.In)
	}
	return fmt.Sprintf("%s: not within %s (last seen: %s)", e.What, e.In, e.Last)
}

// Await asks holds until it says true, with pauses between the questions: short
// ones first, as most of what is waited for is there in no time, and then ones
// as long as pause, so that asking takes little from those who are waited for.
// holds gives a short text on the state it saw. An error of holds ends the
// wait. When the deadline passes first the error is a [*DeadlineError].
func Await(ctx context.Context, what string, deadline, pause time.Duration, holds func(context.Context) (bool, string, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, errDeadline)
	defer cancel()
	next := max(pause/firstPause, 1)
	timer := time.NewTimer(next)
	defer timer.Stop()
	last := ""
	for {
		ok, state, err := holds(ctx)
		if state != "" {
			last = state
		}
		switch {
		case err == nil && ok:
			return nil
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("%s: %w", what, err)
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errDeadline) {
				return &DeadlineError{What: what, Last: last, In: deadline}
			}
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-timer.C:
		}
		next = min(next*3/2+1, pause)
	}
}

// firstPause is which part of the longest pause the first one is.
const firstPause = 5

var errDeadline = errors.New("deadline passed")
