package library

import (
	"log/slog"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// Config is everything the library service is told. All fields are needed
// unless said otherwise; package sut reads them from the environment.
type Config struct {
	DatabaseURL string
	PoolSize    int    // database connections in all, at least 4
	Replica     string // name in rows, logs and database sessions
	RedisURL    string // "" for no seat lock
	RedisPrefix string
	PyxisURL    string
	TestMode    bool // lets clients move the clock

	Path            string // "direct" or "intent"
	WakeByTick      bool   // the worker is woken by its tick alone
	Tick            time.Duration
	ActionTTL       time.Duration
	ConfirmWait     time.Duration
	UpstreamTimeout time.Duration
	Lease           time.Duration
	ReaperInterval  time.Duration
	WaitBackoff     time.Duration
	SeatLockTTL     time.Duration
	Workers         int
	CacheTTL        time.Duration
	BreakerFailures int
	BreakerOpen     time.Duration
	BreakerProbes   int

	Clock *clock.Clock
	Log   *slog.Logger
}

// leaseNeed is how much of a lease must be left when a reserve call begins:
// the whole call must fit into it, so that a reaper that reads after the lease
// reads after the call. A lease that is shorter than a call, which test mode
// allows, only needs half of it.
func (c Config) leaseNeed() time.Duration {
	if c.Lease > c.UpstreamTimeout {
		return c.UpstreamTimeout
	}
	return c.Lease / 2
}

// backoff of a wait after looks fruitless looks.
func (c Config) backoff(looks int) time.Duration {
	return c.WaitBackoff << min(max(looks, 0), 5)
}
