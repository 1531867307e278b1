package sut

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	_ "time/tzdata" // observatories and offices are where they are, whatever the machine knows

	"github.com/overbook/overbook/sut/calendar"
	"github.com/overbook/overbook/sut/library"
	"github.com/overbook/overbook/sut/telescope"
	"github.com/overbook/overbook/sut/tickets"
)

// A service is one replica of a design's server, without its HTTP listener.
type service interface {
	// Handler serves the design's calls.
	Handler() http.Handler
	// Drain ends background work in good order, for at most the context.
	Drain(ctx context.Context) error
	// Close stops everything at once and closes all connections.
	Close()
}

// A design is one of the servers that this process can be.
type design struct {
	name      string
	variables []variable                  // its own; setting them fills what start works with
	faults    func(commonConfig) []string // of settings that are fit one by one but not together
	migrate   func(ctx context.Context, databaseURL string) (version int32, err error)
	start     func(ctx context.Context, c commonConfig) (service, error)
}

// designs are all designs, with empty settings. A new one is added here and
// nowhere else in this package.
func designs() []design {
	return []design{libraryDesign(), telescopeDesign(), ticketsDesign(), calendarDesign()}
}

// designNamed gives a design; false when there is none of that name.
func designNamed(name string) (design, bool) {
	for _, d := range designs() {
		if d.name == name {
			return d, true
		}
	}
	return design{}, false
}

// started makes a design's own Start fit [design].
func started[S service](s S, err error) (service, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func designNames() string {
	var names []string
	for _, d := range designs() {
		names = append(names, d.name)
	}
	return strings.Join(names, ", ")
}

func libraryDesign() design {
	c := &library.Config{}
	d := design{name: "library", migrate: library.Migrate}
	d.variables = []variable{
		text("REDIS_URL", "", "a Redis URL, or nothing for no seat lock", "redis://127.0.0.1:6379/0", optional(schemes("redis", "rediss")), &c.RedisURL),
		text("REDIS_PREFIX", "overbook:", "the beginning of every Redis key", "overbook:", anything, &c.RedisPrefix),
		text("PYXIS_URL", "", "the HTTP address of pyxis (required)", "http://127.0.0.1:8090", schemes("http", "https"), &c.PyxisURL),
		text("LIBRARY_PATH", "intent", "direct or intent", "intent", oneOf("direct", "intent"), &c.Path),
		choice("LIBRARY_WAKE", "commit", "tick", &c.WakeByTick),
		positive("LIBRARY_TICK", "250ms", &c.Tick),
		positive("LIBRARY_ACTION_TTL", "2m", &c.ActionTTL),
		positive("LIBRARY_CONFIRM_WAIT", "10s", &c.ConfirmWait),
		positive("LIBRARY_UPSTREAM_TIMEOUT", "5s", &c.UpstreamTimeout),
		positive("LIBRARY_LEASE", "15s", &c.Lease),
		positive("LIBRARY_REAPER_INTERVAL", "500ms", &c.ReaperInterval),
		positive("LIBRARY_WAIT_BACKOFF", "1s", &c.WaitBackoff),
		positive("LIBRARY_SEAT_LOCK_TTL", "10s", &c.SeatLockTTL),
		count("LIBRARY_WORKERS", 8, 1, 1000, &c.Workers),
		positive("LIBRARY_CACHE_TTL", "500ms", &c.CacheTTL),
		count("LIBRARY_BREAKER_FAILURES", 5, 1, 1_000_000, &c.BreakerFailures),
		positive("LIBRARY_BREAKER_OPEN", "5s", &c.BreakerOpen),
		count("LIBRARY_BREAKER_PROBES", 1, 1, 1000, &c.BreakerProbes),
	}
	d.faults = func(common commonConfig) []string {
		if c.Lease > c.UpstreamTimeout || common.testMode {
			return nil
		}
		return []string{fmt.Sprintf("LIBRARY_LEASE=%q: want more than LIBRARY_UPSTREAM_TIMEOUT (%v), so that a lease is never decided while its call is under way, e.g. LIBRARY_LEASE=%v (TEST_MODE=true allows less)",
			c.Lease, c.UpstreamTimeout, 3*c.UpstreamTimeout)}
	}
	d.start = func(ctx context.Context, common commonConfig) (service, error) {
		c.DatabaseURL, c.PoolSize, c.Replica = common.databaseURL, common.poolSize, common.replica
		c.TestMode, c.Clock, c.Log = common.testMode, common.clock, common.log
		return started(library.Start(ctx, *c))
	}
	return d
}

func telescopeDesign() design {
	c := &telescope.Config{}
	d := design{name: "telescope", migrate: telescope.Migrate}
	d.variables = []variable{
		text("EMAIL_URL", "", "the HTTP address of the email provider, or nothing for no emails", "http://127.0.0.1:8091", optional(schemes("http", "https")), &c.EmailURL),
		zone("TELESCOPE_TIME_ZONE", "Pacific/Honolulu", &c.TimeZone),
		positive("TELESCOPE_LOCK_TIMEOUT", "2s", &c.LockTimeout),
		positive("TELESCOPE_STATEMENT_TIMEOUT", "5s", &c.StatementTimeout),
		count("TELESCOPE_TRIES", 5, 1, 100, &c.Tries),
		positive("TELESCOPE_RETRY_WINDOW", "24h", &c.RetryWindow),
		positive("TELESCOPE_RETENTION", "168h", &c.Retention),
		positive("TELESCOPE_PROJECTION_INTERVAL", "1s", &c.ProjectionInterval),
		positive("TELESCOPE_EMAIL_INTERVAL", "100ms", &c.EmailInterval),
		positive("TELESCOPE_EMAIL_TIMEOUT", "2s", &c.EmailTimeout),
		count("TELESCOPE_EMAIL_PARK_AFTER", 10, 1, 1_000_000, &c.EmailParkAfter),
	}
	d.faults = func(commonConfig) []string {
		var faults []string
		if c.LockTimeout >= c.StatementTimeout {
			faults = append(faults, fmt.Sprintf("TELESCOPE_LOCK_TIMEOUT=%q: want less than TELESCOPE_STATEMENT_TIMEOUT (%v), or no wait for a lock ends as one, e.g. TELESCOPE_LOCK_TIMEOUT=%v",
				c.LockTimeout, c.StatementTimeout, c.StatementTimeout/2))
		}
		if c.RetryWindow > c.Retention {
			faults = append(faults, fmt.Sprintf("TELESCOPE_RETRY_WINDOW=%q: want at most TELESCOPE_RETENTION (%v), as a result that is gone can't be given again, e.g. TELESCOPE_RETRY_WINDOW=%v",
				c.RetryWindow, c.Retention, c.Retention))
		}
		return faults
	}
	d.start = func(ctx context.Context, common commonConfig) (service, error) {
		c.DatabaseURL, c.PoolSize, c.Replica = common.databaseURL, common.poolSize, common.replica
		c.TestMode, c.Clock, c.Log = common.testMode, common.clock, common.log
		return started(telescope.Start(ctx, *c))
	}
	return d
}

func ticketsDesign() design {
	c := &tickets.Config{}
	d := design{name: "tickets", migrate: tickets.Migrate}
	d.variables = []variable{
		text("PAYMENTS_URL", "", "the HTTP address of the payment provider (required)", "http://127.0.0.1:8092", schemes("http", "https"), &c.PaymentsURL),
		secret("TICKETS_CALLBACK_SECRET", 16, &c.CallbackSecret),
		positive("TICKETS_CALLBACK_WINDOW", "5m", &c.CallbackWindow),
		text("TICKETS_POLICY", "quarantine", "quarantine or release", "quarantine", oneOf("quarantine", "release"), &c.Policy),
		positive("TICKETS_HOLD", "8m", &c.Hold),
		positive("TICKETS_HARD_TIMEOUT", "15m", &c.HardTimeout),
		positive("TICKETS_TICK", "100ms", &c.Tick),
		positive("TICKETS_RECONCILE_AFTER", "1m", &c.ReconcileAfter),
		positive("TICKETS_RECONCILE_EVERY", "30s", &c.ReconcileEvery),
		positive("TICKETS_PAYMENT_TIMEOUT", "5s", &c.PaymentTimeout),
		positive("TICKETS_REFUND_BACKOFF", "1s", &c.RefundBackoff),
		count("TICKETS_REFUND_PARK_AFTER", 20, 1, 1_000_000, &c.RefundParkAfter),
		positive("TICKETS_LOCK_TIMEOUT", "2s", &c.LockTimeout),
		positive("TICKETS_STATEMENT_TIMEOUT", "5s", &c.StatementTimeout),
		count("TICKETS_TRIES", 5, 1, 100, &c.Tries),
	}
	d.faults = func(common commonConfig) []string { return ticketsFaults(c, common.testMode) }
	d.start = func(ctx context.Context, common commonConfig) (service, error) {
		c.DatabaseURL, c.PoolSize, c.Replica = common.databaseURL, common.poolSize, common.replica
		c.TestMode, c.Clock, c.Log = common.testMode, common.clock, common.log
		return started(tickets.Start(ctx, *c))
	}
	return d
}

// ticketsFaults are the settings that don't fit together. What is safe, only
// not sensible, tests may have.
func ticketsFaults(c *tickets.Config, testMode bool) []string {
	var faults []string
	if c.LockTimeout >= c.StatementTimeout {
		faults = append(faults, fmt.Sprintf("TICKETS_LOCK_TIMEOUT=%q: want less than TICKETS_STATEMENT_TIMEOUT (%v), or no wait for a lock ends as one, e.g. TICKETS_LOCK_TIMEOUT=%v",
			c.LockTimeout, c.StatementTimeout, c.StatementTimeout/2))
	}
	if testMode {
		return faults
	}
	if c.ReconcileAfter <= c.PaymentTimeout {
		faults = append(faults, fmt.Sprintf("TICKETS_RECONCILE_AFTER=%q: want more than TICKETS_PAYMENT_TIMEOUT (%v), as until then the answer itself may come, e.g. TICKETS_RECONCILE_AFTER=%v (TEST_MODE=true allows less)",
			c.ReconcileAfter, c.PaymentTimeout, 12*c.PaymentTimeout))
	}
	if c.HardTimeout <= c.ReconcileAfter {
		faults = append(faults, fmt.Sprintf("TICKETS_HARD_TIMEOUT=%q: want more than TICKETS_RECONCILE_AFTER (%v), or a charge is given up before anybody has asked about it, e.g. TICKETS_HARD_TIMEOUT=%v (TEST_MODE=true allows less)",
			c.HardTimeout, c.ReconcileAfter, 15*c.ReconcileAfter))
	}
	return faults
}

func calendarDesign() design {
	c := &calendar.Config{}
	d := design{name: "calendar", migrate: calendar.Migrate}
	d.variables = []variable{
		text("CALENDAR_URL", "", "the HTTP address of the calendar provider (required)", "http://127.0.0.1:8093", schemes("http", "https"), &c.CalendarURL),
		positive("CALENDAR_TIMEOUT", "2s", &c.CalendarTimeout),
		positive("CALENDAR_SYNC_INTERVAL", "100ms", &c.SyncInterval),
		positive("CALENDAR_SYNC_BACKOFF", "1s", &c.SyncBackoff),
		positive("CALENDAR_SYNC_CLAIM", "30s", &c.SyncClaim),
		count("CALENDAR_PARK_AFTER", 50, 1, 1_000_000, &c.ParkAfter),
		positive("CALENDAR_RECONCILE_INTERVAL", "1s", &c.ReconcileInterval),
		positive("CALENDAR_HORIZON", "17520h", &c.Horizon),
		positive("CALENDAR_REFRESH_LEASE", "5s", &c.RefreshLease),
		positive("CALENDAR_LOCK_TIMEOUT", "2s", &c.LockTimeout),
		positive("CALENDAR_STATEMENT_TIMEOUT", "5s", &c.StatementTimeout),
		count("CALENDAR_TRIES", 5, 1, 100, &c.Tries),
		positive("CALENDAR_RETRY_WINDOW", "24h", &c.RetryWindow),
		positive("CALENDAR_RETENTION", "168h", &c.Retention),
	}
	d.faults = func(common commonConfig) []string { return calendarFaults(c, common.testMode) }
	d.start = func(ctx context.Context, common commonConfig) (service, error) {
		c.DatabaseURL, c.PoolSize, c.Replica = common.databaseURL, common.poolSize, common.replica
		c.TestMode, c.Clock, c.Log = common.testMode, common.clock, common.log
		return started(calendar.Start(ctx, *c))
	}
	return d
}

// calendarFaults are the settings that don't fit together. What is safe, only
// not sensible, tests may have.
func calendarFaults(c *calendar.Config, testMode bool) []string {
	var faults []string
	if c.LockTimeout >= c.StatementTimeout {
		faults = append(faults, fmt.Sprintf("CALENDAR_LOCK_TIMEOUT=%q: want less than CALENDAR_STATEMENT_TIMEOUT (%v), or no wait for a lock ends as one, e.g. CALENDAR_LOCK_TIMEOUT=%v",
			c.LockTimeout, c.StatementTimeout, c.StatementTimeout/2))
	}
	if c.RetryWindow > c.Retention {
		faults = append(faults, fmt.Sprintf("CALENDAR_RETRY_WINDOW=%q: want at most CALENDAR_RETENTION (%v), as a result that is gone can't be given again, e.g. CALENDAR_RETRY_WINDOW=%v",
			c.RetryWindow, c.Retention, c.Retention))
	}
	if testMode {
		return faults
	}
	if c.SyncClaim <= 10*c.CalendarTimeout {
		faults = append(faults, fmt.Sprintf("CALENDAR_SYNC_CLAIM=%q: want more than ten CALENDAR_TIMEOUT (%v), so that a claim outlasts the calls of one attempt, e.g. CALENDAR_SYNC_CLAIM=%v (TEST_MODE=true allows less)",
			c.SyncClaim, c.CalendarTimeout, 15*c.CalendarTimeout))
	}
	if c.RefreshLease <= 2*c.CalendarTimeout {
		faults = append(faults, fmt.Sprintf("CALENDAR_REFRESH_LEASE=%q: want more than two CALENDAR_TIMEOUT (%v), so that nobody else refreshes while the answer may still come, e.g. CALENDAR_REFRESH_LEASE=%v (TEST_MODE=true allows less)",
			c.RefreshLease, c.CalendarTimeout, 3*c.CalendarTimeout))
	}
	return faults
}
