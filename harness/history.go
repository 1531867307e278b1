package harness

import "time"

// An Event is anything in a history that is not a client's operation: a
// fault, a process death, a phase, a note. Stamps as in [Operation].
type Event struct {
	At      time.Duration     `json:"at_ns"`
	Until   time.Duration     `json:"until_ns,omitempty"` // end, for events that last
	Kind    EventKind         `json:"kind"`
	Subject string            `json:"subject,omitempty"` // "sut-1", "postgres", "burst round-3"
	Text    string            `json:"text,omitempty"`    // one sentence
	Attrs   map[string]string `json:"attrs,omitempty"`
	_       struct{}
}

// An EventKind sorts events into lanes of the timeline.
type EventKind string

// The kinds of events.
const (
	EventPhase   EventKind = "phase"   // up, setup, drive, settle, collect
	EventFault   EventKind = "fault"   // injected by the scenario
	EventHeal    EventKind = "heal"    // and taken back
	EventProcess EventKind = "process" // start, ready, signal, exit
	EventBurst   EventKind = "burst"   // release
	EventPoint   EventKind = "point"   // a crash point: the fault, and what came of it
	EventNote    EventKind = "note"    // whatever the scenario wants remembered
)

// A History is all operations and events of one run on one clock.
type History struct {
	Operations []Operation
	Events     []Event
	Bursts     []BurstReport
	Loads      []OpenLoopReport
	_          struct{}
}

// OfKind gives the operations of one kind, in the order they were recorded.
func (h History) OfKind(kind string) []Operation {
	var ops []Operation
	for _, op := range h.Operations {
		if op.Kind == kind {
			ops = append(ops, op)
		}
	}
	return ops
}

// An UpstreamCall is one line of the ledger that our proxy keeps in front of
// an upstream system. Zero stamps mean that the step did not happen.
type UpstreamCall struct {
	Seq       int           `json:"seq"`
	Upstream  string        `json:"upstream"` // "pyxis"
	Caller    string        `json:"caller"`   // the replica, known by the listener it called
	Method    string        `json:"method"`
	Path      string        `json:"path"` // without the query
	Query     string        `json:"query,omitempty"`
	Op        string        `json:"op,omitempty"`           // X-Overbook-Op, when the server passes it on
	TraceID   string        `json:"trace_id,omitempty"`     // of traceparent, when the server passes it on
	Request   string        `json:"request,omitempty"`      // body, capped at 16 KiB
	Status    int           `json:"status,omitempty"`       // the upstream's, also when the answer was lost on purpose
	Response  string        `json:"response,omitempty"`     // body, capped at 16 KiB
	Received  time.Duration `json:"received_ns"`            // whole request read
	Forwarded time.Duration `json:"forwarded_ns,omitempty"` // sent to the upstream
	Accepted  time.Duration `json:"accepted_ns,omitempty"`  // the upstream's answer is here, not passed on yet
	Answered  time.Duration `json:"answered_ns,omitempty"`  // answer passed on to the caller
	Fault     string        `json:"fault,omitempty"`        // what we did to it
	Err       string        `json:"err,omitempty"`          // why it ended without an answer
	_         struct{}
}

// A Row is one row of a query's answer, by column name.
type Row map[string]any

// Rows is the answer of one named query, read after settling.
type Rows struct {
	Query string `json:"query"`           // name: "L-I3", "table:library_reservation_intents"
	SQL   string `json:"sql,omitempty"`   // text
	Rows  []Row  `json:"rows"`            // never nil when the query was answered
	Error string `json:"error,omitempty"` // why there is no answer
	_     struct{}
}

// UpstreamCount is what one observer counted for one method and path.
type UpstreamCount struct {
	Upstream string `json:"upstream"`
	Method   string `json:"method"`
	Path     string `json:"path"`
	Key      string `json:"key,omitempty"` // value of the field counted by; "" for the total
	Ledger   int    `json:"ledger"`
	WireMock int    `json:"wiremock"`        // -1 when it could not be read; the counts then do not agree
	Error    string `json:"error,omitempty"` // why it could not be read
	_        struct{}
}

// A Record is everything a run left behind; checks judge it, reports draw it.
type Record struct {
	Plan     Plan
	History  History
	Upstream []UpstreamCall
	Postgres []Unit // what went over the Postgres wire; nil when it was not in the path
	Counts   []UpstreamCount
	Rows     map[string]Rows
	Activity []ActivitySample
	Witness  []Witness
	Measured map[string]float64
	Trouble  []Trouble // what went wrong in the run itself
	_        struct{}
}

// An ActivitySample is one look at the database sessions of the servers under
// test. What it saw was so at some instant from At to Until.
type ActivitySample struct {
	At    time.Duration     `json:"at_ns"`
	Until time.Duration     `json:"until_ns"`
	Open  []OpenTransaction `json:"open,omitempty"` // sessions idle in a transaction
	_     struct{}
}

// An OpenTransaction is a session that is idle in a transaction.
type OpenTransaction struct {
	Replica string        `json:"replica"`          // application_name
	PID     int           `json:"pid"`              // backend
	Period  string        `json:"period,omitempty"` // when it fell idle by the database's clock: the same text is the same period
	Since   time.Duration `json:"since_ns"`         // it fell idle at this instant or earlier
	Query   string        `json:"query"`            // its last statement
	_       struct{}
}

// A Witness is evidence that the race a scenario is about took place.
type Witness struct {
	Kind string  `json:"kind"`  // "max_in_flight", "killed_after_accept"
	Want float64 `json:"want"`  // the least value that counts as a race
	Got  float64 `json:"value"` // the value seen
	Text string  `json:"text,omitempty"`
	_    struct{}
}

// Holds reports whether the witness saw what it needed. One without a kind,
// or that needs nothing, is no evidence of anything and never holds.
func (w Witness) Holds() bool { return w.Kind != "" && w.Want > 0 && w.Got >= w.Want }

// Trouble is a reason why a run may not be judged as a pass, found by the conductor.
type Trouble struct {
	Reason Reason `json:"reason"`
	Text   string `json:"text"`
	_      struct{}
}

// Find gives the rows of a named query and whether they were read.
func (r Record) Find(query string) (Rows, bool) {
	rows, ok := r.Rows[query]
	return rows, ok && rows.Error == "" && rows.Rows != nil
}

// Calls gives the ledger's calls to one upstream, method and path.
func (r Record) Calls(upstream, method, path string) []UpstreamCall {
	var calls []UpstreamCall
	for _, c := range r.Upstream {
		if c.Upstream == upstream && c.Method == method && c.Path == path {
			calls = append(calls, c)
		}
	}
	return calls
}
