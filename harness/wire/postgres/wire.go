package pgwire

import (
	"context"
	"errors"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// A Config says what a wire connects.
type Config struct {
	Clock   clock.Clock // of the run; stamps are its offsets
	Target  string      // postgres:// URL of the database behind
	Servers []string    // replica names; each gets a listener of its own on 127.0.0.1:0

	// Kill and Stop do what ActionKill and ActionStop want. They run to their
	// end before anything else happens to the unit.
	Kill, Stop func(ctx context.Context, server string) error

	OnStrike func(f harness.Fault, s harness.Strike) // told of each strike, before the action; may be nil
	OnHeal   func(f harness.Fault)                   // told when a fault is taken back; may be nil

	UnitLimit int  // most units recorded; 0 takes 500,000; beyond it Err says that the record is not whole
	Split     bool // implicit transactions are always split, also where no fault or meeting asks for it
	_         struct{}
}

// A Wire is a running proxy.
type Wire struct{}

var _ harness.PostgresWire = (*Wire)(nil)

var errNotYet = errors.New("the Postgres wire is not built yet")

// Start listens for each server and passes connections on to the target.
func Start(_ context.Context, _ Config) (*Wire, error) { return nil, errNotYet }

// URL is the DATABASE_URL for a replica.
func (w *Wire) URL(_ string) string { panic(errNotYet) }

// Inject puts a fault in place.
func (w *Wire) Inject(_ harness.Fault) harness.Injected { panic(errNotYet) }

// Units gives what has gone over the wire so far, in order of arrival.
func (w *Wire) Units() []harness.Unit { panic(errNotYet) }

// OpenTransactions gives the transactions that are open now.
func (w *Wire) OpenTransactions(_ string) []harness.Transaction { panic(errNotYet) }

// Meet arranges a meeting.
func (w *Wire) Meet(_ harness.Meeting) (wait func(context.Context) (harness.MeetingReport, error), cancel func()) {
	panic(errNotYet)
}

// AwaitGone waits until no backend of an ended connection is left.
func (w *Wire) AwaitGone(_ context.Context) error { return errNotYet }

// Retarget sends new connections to another database.
func (w *Wire) Retarget(_ string) error { return errNotYet }

// Heal takes every fault and meeting back.
func (w *Wire) Heal() { panic(errNotYet) }

// Err says why the record is not whole.
func (w *Wire) Err() error { return errNotYet }

// Close ends the wire.
func (w *Wire) Close() error { return errNotYet }
