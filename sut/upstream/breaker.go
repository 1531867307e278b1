package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/overbook/overbook/sut/clock"
)

// serverFaultError is a 5xx answer, a failure to the breaker but an answer to us.
type serverFaultError int

func (s serverFaultError) Error() string { return fmt.Sprintf("status %d", int(s)) }

// guardError is our own guard's objection to making a call.
type guardError struct{ why error }

func (g *guardError) Error() string { return "call not made: " + g.why.Error() }
func (g *guardError) Unwrap() error { return g.why }

// newBreaker opens after consecutive failures: no answer, or 5xx. A 4xx is an
// ordinary answer of a healthy system. What says nothing about pyxis at all
// (our caller gave up, our own guard said no) is not counted.
func newBreaker(cfg Config) *gobreaker.CircuitBreaker[answer] {
	return gobreaker.NewCircuitBreaker[answer](gobreaker.Settings{
		Name:        "pyxis",
		MaxRequests: uint32(max(cfg.BreakerProbes, 1)), //nolint:gosec // bounded by configuration
		Timeout:     cfg.BreakerOpen,
		ReadyToTrip: func(n gobreaker.Counts) bool { return int(n.ConsecutiveFailures) >= cfg.BreakerFailures },
		IsExcluded: func(err error) bool {
			own := (*guardError)(nil)
			return errors.Is(err, context.Canceled) || errors.As(err, &own)
		},
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if cfg.OnBreaker != nil {
				cfg.OnBreaker(from.String(), to.String())
			}
		},
	})
}

// BreakerState is "closed", "half-open" or "open".
func (c *Client) BreakerState() string { return c.breaker.State().String() }

func nowMono() time.Duration { return clock.Mono() }
