package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

func TestNowAddsTheOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New(time.Hour)
		if got := time.Until(c.Now()).Round(time.Millisecond); got != time.Hour {
			t.Errorf("offset of Now = %v, want 1h", got)
		}
		c.Set(3 * time.Minute)
		if got := time.Until(c.Now()).Round(time.Millisecond); got != 3*time.Minute {
			t.Errorf("offset of Now after Set = %v, want 3m: Set gives the whole offset, not an increment", got)
		}
	})
}

func TestSleepEndsAtServerTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New(0)
		before := time.Now()
		if err := c.Sleep(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(before).Round(time.Millisecond); got != time.Minute {
			t.Errorf("slept %v of machine time, want 1m", got)
		}
	})
}

func TestSetEndsSleepersWhoseTimeHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New(0)
		slept := make(chan time.Duration, 2)
		for _, d := range []time.Duration{time.Minute, time.Hour} {
			go func() {
				before := time.Now()
				if err := c.Sleep(t.Context(), d); err == nil {
					slept <- time.Since(before).Round(time.Second)
				}
			}()
		}
		synctest.Wait()
		c.Set(10 * time.Minute)
		if got := <-slept; got != 0 {
			t.Errorf("the one-minute sleeper slept on for %v after ten minutes had passed at once", got)
		}
		if got := <-slept; got != 50*time.Minute {
			t.Errorf("the one-hour sleeper slept %v, want the 50m that were left", got)
		}
	})
}

func TestTurningBackDoesNotLengthenSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New(time.Hour)
		slept := make(chan time.Duration, 1)
		go func() {
			before := time.Now()
			_ = c.Sleep(t.Context(), time.Minute)
			slept <- time.Since(before).Round(time.Second)
		}()
		synctest.Wait()
		c.Set(0)
		if got := <-slept; got != time.Minute {
			t.Errorf("slept %v, want the minute that was asked for", got)
		}
	})
}

func TestPauseIsMachineTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := time.Now()
		if err := clock.Pause(t.Context(), time.Second); err != nil || time.Since(before) != time.Second {
			t.Errorf("Pause = %v after %v, want a second", err, time.Since(before))
		}
	})
}

func TestSleepEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := clock.New(0).Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Sleep = %v, want the context's error", err)
		}
	})
}

func TestStopHasTimeStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New(0)
		at := c.Now().Add(8 * time.Minute)
		c.Stop(at, 8*time.Minute)
		if err := clock.Pause(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if !c.Now().Equal(at) || !c.StoppedAt().Equal(at) {
			t.Errorf("Now is %v, stopped at %v, want both %v", c.Now(), c.StoppedAt(), at)
		}
		before := time.Now()
		if err := c.Sleep(t.Context(), time.Second); err != nil || time.Since(before) != time.Second {
			t.Errorf("a periodic job slept %v, want 1s of machine time: %v", time.Since(before), err)
		}
		c.Set(8 * time.Minute)
		if got := c.Now().Sub(at); got < time.Hour || !c.StoppedAt().IsZero() {
			t.Errorf("going on, it shows %v after where it stood, want the hour that has passed", got)
		}
	})
}
