package clock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

const (
	soon  = 20 * time.Millisecond
	pause = time.Millisecond
	long  = time.Minute // never reached
)

func TestClockCountsForward(t *testing.T) {
	before := clock.Wall()
	c := clock.New()
	last := time.Duration(0)
	for range 10_000 {
		now := c.Now()
		if now <= 0 || now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
	if e := c.Epoch(); e.Before(before) || e.After(clock.Wall()) {
		t.Errorf("epoch %s is not between %s and now", e, before)
	}
	if got := c.At(c.Epoch().Add(time.Second)); got != time.Second {
		t.Errorf("a second after the epoch is at %s", got)
	}
	if got := c.At(c.Epoch().Add(-time.Second)); got != -time.Second {
		t.Errorf("a second before the epoch is at %s", got)
	}
	if c.At(c.Epoch()) == 0 {
		t.Error("the epoch itself has the stamp of what did not happen")
	}
}

func TestAwaitAsksUntilItHolds(t *testing.T) {
	asked := 0
	err := clock.Await(t.Context(), "three", long, pause, func(context.Context) (bool, string, error) {
		asked++
		return asked == 3, "", nil
	})
	if err != nil || asked != 3 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

func TestAwaitDeadline(t *testing.T) {
	asked := 0
	err := clock.Await(t.Context(), "every intent is terminal", soon, pause, func(ctx context.Context) (bool, string, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the question has no deadline of its own")
		}
		if asked++; asked > 1 {
			return false, "", nil // the last state that was seen is kept
		}
		return false, "2 left", nil
	})
	var late *clock.DeadlineError
	if !errors.As(err, &late) || late.In != soon || err.Error() != "every intent is terminal: not within 20ms (last seen: 2 left)" {
		t.Error(err)
	}
	if asked == 0 {
		t.Error("never asked")
	}
	if got := (&clock.DeadlineError{What: "x", In: soon}).Error(); got != "x: not within 20ms" {
		t.Error(got)
	}
}

// A question that the deadline interrupts is late, not broken.
func TestAwaitDeadlineInTheMiddleOfAQuestion(t *testing.T) {
	err := clock.Await(t.Context(), "rows", soon, pause, func(ctx context.Context) (bool, string, error) {
		<-ctx.Done()
		return false, "", ctx.Err()
	})
	if _, late := errors.AsType[*clock.DeadlineError](err); !late {
		t.Error(err)
	}
}

func TestAwaitEndsWithAnError(t *testing.T) {
	broken := errors.New("no such table")
	asked := 0
	err := clock.Await(t.Context(), "rows", long, pause, func(context.Context) (bool, string, error) {
		asked++
		return true, "", broken // an error is believed more than the answer
	})
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "rows: ") || asked != 1 {
		t.Errorf("%v after %d questions", err, asked)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	stopped := errors.New("stopped by the user")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := clock.Await(ctx, "rows", long, pause, func(context.Context) (bool, string, error) {
		cancel(stopped)
		return false, "", nil
	})
	var late *clock.DeadlineError
	if !errors.Is(err, stopped) || errors.As(err, &late) {
		t.Error(err)
	}
}

// TestPausesGrow: what comes soon is seen soon, and what takes long is asked for
// at the longest pause.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = 5 * time.Millisecond
		began := time.Now()
		var asked []time.Duration
		err := clock.Await(t.Context(), "rows", time.Hour, longest, func(context.Context) (bool, string, error) {
			asked = append(asked, time.Since(began))
			return len(asked) == 12, "", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if first := asked[1] - asked[0]; first > longest/4 {
			t.Errorf("the first pause was %s, of at most %s", first, longest)
		}
		for i := 2; i < len(asked); i++ {
			if pause, before := asked[i]-asked[i-1], asked[i-1]-asked[i-2]; pause < before || pause > longest {
				t.Errorf("pause %d was %s, the one before %s, the longest is to be %s", i, pause, before, longest)
			}
		}
		if last := asked[11] - asked[10]; last != longest {
			t.Errorf("the last pause was %s, want %s", last, longest)
		}
	})
}
