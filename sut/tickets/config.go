package tickets

import (
	"log/slog"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// What becomes of a seat whose hold ends while a payment is in flight.
const (
	policyQuarantine = "quarantine" // it stays off sale until the payment resolves
	policyRelease    = "release"    // back on sale at once; a late capture goes back
)

// Config is everything the tickets service is told. All fields are needed;
// package sut reads them from the environment.
type Config struct {
	DatabaseURL string
	PoolSize    int    // database connections in all, at least 4
	Replica     string // name in logs and database sessions
	TestMode    bool   // lets clients move the clock

	PaymentsURL    string
	CallbackSecret string
	CallbackWindow time.Duration // how far a signature may be from server time, both ways
	Policy         string        // of shows that don't say: "quarantine" or "release"

	// Server time.
	Hold           time.Duration // life of a hold
	HardTimeout    time.Duration // from when a charge was sent: then it is given up
	Tick           time.Duration // between two looks at what has run out
	ReconcileAfter time.Duration // a charge in flight for so long is asked about
	ReconcileEvery time.Duration // between two questions about one charge
	RefundBackoff  time.Duration // after a refund's first failure; doubles up to a minute

	PaymentTimeout  time.Duration // one call of the provider, machine time
	RefundParkAfter int           // failed attempts

	LockTimeout      time.Duration // wait for any lock
	StatementTimeout time.Duration
	Tries            int // of a transaction that deadlocked or could not be serialised

	Clock *clock.Clock
	Log   *slog.Logger
}
