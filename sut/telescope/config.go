package telescope

import (
	"log/slog"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// Config is everything the telescope service is told. All fields are needed
// unless said otherwise; package sut reads them from the environment.
type Config struct {
	DatabaseURL string
	PoolSize    int    // database connections in all, at least 4
	Replica     string // name in logs and database sessions
	TestMode    bool   // lets clients move the clock

	EmailURL string         // "" for no emails
	TimeZone *time.Location // of the observatory: month of a quota, day of a schedule

	LockTimeout        time.Duration // wait for any lock
	StatementTimeout   time.Duration
	Tries              int           // of a transaction that deadlocked or could not be serialised
	RetryWindow        time.Duration // how long a retry gets the stored answer, in server time
	Retention          time.Duration // how long a result is kept, in server time
	ProjectionInterval time.Duration
	EmailInterval      time.Duration
	EmailTimeout       time.Duration // one call of the provider
	EmailParkAfter     int           // failed attempts

	Clock *clock.Clock
	Log   *slog.Logger
}
