package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/lease"
)

func TestZeroLeaseHasRunOut(t *testing.T) {
	var expired *lease.ExpiredError
	if err := (lease.Lease{}).Require(0); !errors.As(err, &expired) {
		t.Errorf("Require on the zero lease = %v, want ExpiredError", err)
	}
}

func TestLeaseRunsOutByEitherClock(t *testing.T) {
	tests := []struct {
		name  string
		after func(*clock.Clock)
		need  time.Duration
		ok    bool
	}{
		{"fresh", func(*clock.Clock) {}, 5 * time.Second, true},
		{"exactly enough", func(*clock.Clock) { time.Sleep(10 * time.Second) }, 5 * time.Second, true},
		{"too little left", func(*clock.Clock) { time.Sleep(11 * time.Second) }, 5 * time.Second, false},
		{"over", func(*clock.Clock) { time.Sleep(15 * time.Second) }, 0, false},
		{"server clock turned on", func(c *clock.Clock) { c.Set(time.Minute) }, 0, false},
		{"server clock turned back while stopped", func(c *clock.Clock) { time.Sleep(time.Minute); c.Set(-time.Hour) }, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clock.New(0)
				l := lease.Take(c, 1, c.Now().Add(15*time.Second), clock.Mono(), 15*time.Second)
				tt.after(c)
				if err := l.Require(tt.need); (err == nil) != tt.ok {
					t.Errorf("Require(%v) = %v, want ok=%v (left %v)", tt.need, err, tt.ok, l.Left())
				}
			})
		})
	}
}
