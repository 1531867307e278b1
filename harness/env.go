package harness

import (
	"context"
	"encoding/json"
	"time"
)

// Env is the world as a scenario's Drive sees it: clients, server processes,
// upstream wires, the database, and a notebook. Whatever it does is recorded
// in the history. Implemented by the conductor (package run).
type Env interface {
	Plan() Plan
	Params() Params

	// Now is the offset from the run's epoch, the stamp of all records.
	Now() time.Duration

	// Do makes one call on a connection of its own and records it. Whatever
	// happens to the call is in the operation, never an error of Do.
	Do(ctx context.Context, r Request) Operation

	// DoAll makes the calls with at most limit in flight, not at a barrier:
	// for preparing. The operations come in the order of the requests.
	DoAll(ctx context.Context, requests []Request, limit int) []Operation

	// Burst releases the requests at one barrier. The error says why there
	// was no burst (could not connect, an answer before the release); what
	// became of each request is in its operation, in the order of the requests.
	Burst(ctx context.Context, b Burst) (BurstReport, []Operation, error)

	// Load lets clients arrive by a schedule, on connections that are kept, and
	// returns when all of them are gone. The error is trouble of the
	// environment (interrupted); what became of each call is in its operation,
	// by client and in the order of its calls. A load that makes no sense is a
	// mistake of the scenario and panics, and so does a panic of a client.
	Load(ctx context.Context, l OpenLoop) (OpenLoopReport, []Operation, error)

	// Inject puts a fault in place, on whatever wire its moment is. A fault
	// that is none, or on a wire that the topology lacks, is a mistake of the
	// scenario and panics. What is left at the end of Drive is healed.
	Inject(f Fault) Injected

	Servers() []Server
	Upstream(name string) Upstream
	Redis() Cuttable
	Postgres() PostgresWire // of a topology with PostgresWire
	Pair() Pair             // of a topology with a pair of clusters
	Database() Database

	// Advance moves the server's clock (reference server's test mode).
	Advance(ctx context.Context, by time.Duration) error

	// StopClock has the servers' clock stand still at a time, not before what
	// it shows, so that all that happens until it goes on happens at that very
	// instant. Going on it has caught up. Servers that start meanwhile run on.
	StopClock(ctx context.Context, at time.Time) (goOn func(context.Context) error, err error)

	// Await asks the condition until it holds. The error, when the deadline
	// passes first, names what was waited for and the last state seen.
	Await(ctx context.Context, what string, deadline time.Duration, holds func(context.Context) (bool, string, error)) error

	Record(e Event)                                      // At is filled in when zero
	Measure(name string, value float64)                  // a figure for the result; "figure@column" stands beside the same figure of other columns
	Witness(kind string, want, got float64, text string) // evidence that the race took place
}

// A Server is one server process (replica) under test.
type Server interface {
	Name() string                                 // "sut-1"
	URL() string                                  // base URL; "" when not running
	Start(ctx context.Context) error              // start (again) and wait until it is ready
	Kill(ctx context.Context) error               // SIGKILL, then wait until it is gone
	Terminate(ctx context.Context) error          // SIGTERM, then wait until it is gone
	Signal(ctx context.Context, sig string) error // "STOP", "CONT", "TERM", without waiting
}

// An Upstream is the wire in front of one upstream system and the double behind it.
type Upstream interface {
	// Calls gives the ledger so far, in order of arrival.
	Calls() []UpstreamCall

	// Inject installs a fault; heal takes it back. Faults are tried in the
	// order in which they were installed; the first that matches is used.
	Inject(f UpstreamFault) (heal func())

	// Configure sets the double's behaviour; what v may hold is the double's word.
	Configure(ctx context.Context, v any) error

	// Ledger gives the double's own account of what it did, as JSON.
	Ledger(ctx context.Context) (json.RawMessage, error)
}

// An UpstreamFault is something done to upstream calls at a moment.
type UpstreamFault struct {
	Name   string
	Method string // "" for any
	Path   string // exact path, "" for any
	Caller string // replica, "" for any
	Nth    int    // only the n-th matching call, from 1; 0 for every one
	At     Moment

	// At the moment, in this order:
	Do    func(ctx context.Context, c UpstreamCall) // e.g. kill the caller; runs to its end before the call goes on
	Delay time.Duration                             // wait this long
	Hold  <-chan struct{}                           // wait until closed, at most until the run ends
	Drop  bool                                      // close the caller's connection (reset) instead of going on
	_     struct{}
}

// Cuttable is a wire that can be cut and mended: every connection is closed
// and new ones are refused while it is cut.
type Cuttable interface {
	Cut() (mend func())
	Refused() int // connections that cuts have broken or refused so far
}

// Database reads and writes the database of the scenario from outside the server.
type Database interface {
	Query(ctx context.Context, sql string, args ...any) ([]Row, error)
	Exec(ctx context.Context, sql string, args ...any) (affected int64, err error)

	// Session opens a connection that keeps its state: for holding locks.
	Session(ctx context.Context) (DatabaseSession, error)
}

// A DatabaseSession is one connection to the scenario's database. Ending it
// rolls back what it left open. It is ended with the drive at the latest.
type DatabaseSession interface {
	PID() int // backend
	Query(ctx context.Context, sql string, args ...any) ([]Row, error)
	Exec(ctx context.Context, sql string, args ...any) (affected int64, err error)
	End() error
}

// A Pair is two Postgres clusters of which the standby streams from the
// primary. The servers reach the primary through the Postgres wire.
type Pair interface {
	// KillPrimary sends SIGKILL to every process of the primary.
	KillPrimary(ctx context.Context) error

	// Promote makes the standby the primary; from then on the wire and
	// Database lead to it.
	Promote(ctx context.Context) error

	// StartOld starts the killed primary again, fenced: as a standby, which
	// takes no writes. The database reaches it directly, not through the wire.
	StartOld(ctx context.Context) (Database, error)
}
