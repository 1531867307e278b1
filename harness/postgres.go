package harness

import (
	"context"
	"slices"
	"time"
)

// A Unit is what a session sent to Postgres up to a Sync, a Query or a Flush,
// with the answer to it: the least that can be held, ordered or lost. Zero
// stamps mean that the step did not happen. Stamps as in [Operation].
type Unit struct {
	Seq        int           `json:"seq"`                    // order of arrival over all sessions, from 1
	Session    int           `json:"session"`                // connection, from 1
	Server     string        `json:"server"`                 // replica, known by the listener it called
	PID        int           `json:"pid,omitempty"`          // backend
	Statements []Statement   `json:"statements,omitempty"`   // that are executed in it; none: preparing, or an empty query
	Op         string        `json:"op,omitempty"`           // operation that it belongs to, where that is certain
	Tx         int           `json:"tx,omitempty"`           // transaction that it ran in, numbered over all sessions, from 1
	Before     string        `json:"before"`                 // transaction status before it: I idle, T open, E failed
	After      string        `json:"after,omitempty"`        // and after it
	Committed  bool          `json:"committed,omitempty"`    // it ended a transaction, explicit or implicit, with success
	Arrived    time.Duration `json:"arrived_ns"`             // whole unit read
	Forwarded  time.Duration `json:"forwarded_ns,omitempty"` // handed to Postgres
	Answered   time.Duration `json:"answered_ns,omitempty"`  // whole answer read from Postgres
	Delivered  time.Duration `json:"delivered_ns,omitempty"` // handed to the server
	Fault      string        `json:"fault,omitempty"`        // what we did to it
	Err        string        `json:"err,omitempty"`          // why it ended without a whole answer
	_          struct{}
}

// A Statement is one execution in a unit.
type Statement struct {
	SQL    string   `json:"sql"`              // as the server wrote it, capped at 4 KiB
	Params []string `json:"params,omitempty"` // text form, "\\x..." for binary ones of unknown type, capped at 256 bytes each; null as NULL
	Tag    string   `json:"tag,omitempty"`    // "INSERT 0 1"
	Code   string   `json:"code,omitempty"`   // SQLSTATE of its error
	Text   string   `json:"text,omitempty"`   // message of its error
	_      struct{}
}

// Step reports whether the unit executes something: preparing does not, nor
// does an empty query.
func (u Unit) Step() bool { return len(u.Statements) > 0 }

// A Transaction is what units of one session did between BEGIN and its end, or
// one implicit transaction.
type Transaction struct {
	Number   int
	Session  int
	PID      int
	Server   string
	Op       string
	Units    []Unit        // in order
	Open     time.Duration // it is certainly open from here on: the answer to what began it came
	Closing  time.Duration // until here: what ended it was handed to Postgres; 0 while it is open at the end of the record
	Ended    time.Duration // its end was answered, or its connection ended
	Outcome  string        // "commit", "rollback", "lost" (its connection ended before Postgres answered), "" while open
	Implicit bool          // one unit, without BEGIN
	_        struct{}
}

// Transactions gathers the units' transactions, in the order of their numbers.
func Transactions(units []Unit) []Transaction {
	byNumber := map[int]int{}
	var list []Transaction
	for _, u := range units {
		if u.Tx == 0 {
			continue
		}
		i, known := byNumber[u.Tx]
		if !known {
			i = len(list)
			byNumber[u.Tx] = i
			list = append(list, Transaction{Number: u.Tx, Session: u.Session, PID: u.PID, Server: u.Server, Open: u.Answered})
		}
		list[i].add(u)
	}
	slices.SortFunc(list, func(a, b Transaction) int { return a.Number - b.Number })
	return list
}

func (t *Transaction) add(u Unit) {
	t.Units = append(t.Units, u)
	if u.Op != "" {
		t.Op = u.Op
	}
	switch {
	case u.Committed: // also where the next one was begun with it
		t.Closing, t.Ended, t.Outcome = u.Forwarded, u.Answered, "commit"
	case u.After == "I": // Postgres' answer was read, whether or not it was delivered
		t.Closing, t.Ended, t.Outcome = u.Forwarded, u.Answered, "rollback"
	case u.Err != "":
		t.Closing, t.Ended, t.Outcome = max(u.Forwarded, u.Arrived), max(u.Answered, u.Forwarded, u.Arrived), "lost"
	}
	t.Implicit = len(t.Units) == 1 && u.Before == "I" && u.After == "I"
}

// A Meeting holds sessions at a moment until so many of them are there, and
// then lets them go together: the barrier, one wire further in.
type Meeting struct {
	At       Moment        // of the Postgres wire
	Match    string        // as in [Fault]
	Sessions int           // how many must be there
	Within   time.Duration // from the first one's arrival; then they are let go all the same
	_        struct{}
}

// A MeetingReport says how a meeting went; it is a witness of a race.
type MeetingReport struct {
	Want int           // sessions that it waited for
	Met  int           // that were there together when it let go
	At   time.Duration // when it let go
	_    struct{}
}

// PostgresWire is the proxy between the servers and Postgres, as a scenario
// sees it.
type PostgresWire interface {
	// Units gives what has gone over the wire so far, in order of arrival.
	// Units that are under way are in it with the stamps they have.
	Units() []Unit

	// OpenTransactions gives the transactions that are open now, of one
	// replica or of all (""). Implicit ones are not among them.
	OpenTransactions(server string) []Transaction

	// Meet arranges a meeting. wait waits for it to be over; cancel calls it
	// off and lets go who is held.
	Meet(m Meeting) (wait func(ctx context.Context) (MeetingReport, error), cancel func())

	// AwaitGone waits until no backend of a connection that has ended on this
	// wire is left in Postgres: only then is what it left undone rolled back.
	AwaitGone(ctx context.Context) error
}
