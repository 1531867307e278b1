package calendar

import (
	"log/slog"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// Config is everything the calendar service is told. All fields are needed;
// package sut reads them from the environment.
type Config struct {
	DatabaseURL string
	PoolSize    int    // database connections in all, at least 4
	Replica     string // name in logs and database sessions
	TestMode    bool   // lets clients move the clock

	CalendarURL     string
	CalendarTimeout time.Duration // one call of the provider, machine time

	// Server time, but for who waits for a refresh: that is machine time.
	SyncInterval      time.Duration // between two looks at the outbox
	SyncBackoff       time.Duration // after a first failure; doubles up to a minute
	SyncClaim         time.Duration // how long whoever synchronises an appointment keeps the others away
	ReconcileInterval time.Duration // between two looks at one calendar
	Horizon           time.Duration // how far ahead appointments may be
	RefreshLease      time.Duration // how long a token refresh keeps the others waiting
	ParkAfter         int           // failed attempts

	LockTimeout      time.Duration // wait for any lock
	StatementTimeout time.Duration
	Tries            int           // of a transaction that deadlocked or could not be serialised
	RetryWindow      time.Duration // how long a retry gets the stored answer, in server time
	Retention        time.Duration // how long a result is kept, in server time

	Clock *clock.Clock
	Log   *slog.Logger
}
