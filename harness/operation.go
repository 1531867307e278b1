package harness

import (
	"encoding/json"
	"fmt"
	"time"
)

// An Outcome says what the client may conclude about an operation.
// Info is not an error: a POST that timed out may have booked the seat.
type Outcome uint8

// The outcomes. The zero Outcome is invalid.
const (
	OK   Outcome = iota + 1 // took effect
	Fail                    // certainly did not take effect
	Info                    // unknown; stays open until the end of the history
)

var outcomeNames = map[Outcome]string{OK: "ok", Fail: "fail", Info: "info"}

// String gives the field's word: ok, fail or info.
func (o Outcome) String() string {
	if s, ok := outcomeNames[o]; ok {
		return s
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// MarshalText refuses the zero Outcome, so that an unjudged operation cannot be stored.
func (o Outcome) MarshalText() ([]byte, error) { return marshalName(outcomeNames, o, "outcome") }

// UnmarshalText reads what MarshalText wrote.
func (o *Outcome) UnmarshalText(b []byte) error { return unmarshalName(outcomeNames, o, b, "outcome") }

// A Request is one HTTP call that a client is going to make.
type Request struct {
	Kind    string            `json:"kind"`              // what it is to the scenario: "prepare", "confirm"
	Process int               `json:"process"`           // the client that makes it; a client never overlaps itself
	Caller  string            `json:"caller,omitempty"`  // who the client is to the server: "member-7"; for checks, not sent
	Server  string            `json:"server,omitempty"`  // replica it goes to, "" for spreading over all in order
	Method  string            `json:"method"`            // GET, POST, ...
	Path    string            `json:"path"`              // absolute path with query
	Header  map[string]string `json:"header,omitempty"`  // beside the ones the wire adds (Host, X-Overbook-Op, traceparent)
	Body    json.RawMessage   `json:"body,omitempty"`    // sent as application/json when not empty
	Timeout time.Duration     `json:"timeout,omitempty"` // from the release or send; 0 takes the run's default
	Lose    Lose              `json:"lose,omitempty"`    // the client goes away; not in bursts
	_       struct{}
}

// Lose says when a client goes away without its answer.
type Lose string

// The instants at which a client can go away.
const (
	LoseNothing   Lose = ""
	LoseAfterSend Lose = "after-send" // the whole request is sent and acknowledged
	LoseAnswer    Lose = "answer"     // the first byte of the answer is here; it is not read
)

// An Operation is one call by one process, with everything a checker may ask of it.
// The stamps are offsets from the run's epoch on one monotonic clock. Zero
// Sent means that nothing was sent; zero Answered that no whole answer came.
type Operation struct {
	ID       string            `json:"id"`               // unique in the run; travels as X-Overbook-Op
	Process  int               `json:"process"`          // client
	Kind     string            `json:"kind"`             // the scenario's word
	Caller   string            `json:"caller,omitempty"` // as in the request
	Key      string            `json:"key,omitempty"`    // Idempotency-Key that was sent
	Burst    string            `json:"burst,omitempty"`  // the burst it was part of
	Load     string            `json:"load,omitempty"`   // the open loop it was part of
	Server   string            `json:"server,omitempty"` // replica it went to
	Method   string            `json:"method"`
	Path     string            `json:"path"`
	Input    json.RawMessage   `json:"input,omitempty"`  // the body; one that is no JSON as a string
	Status   int               `json:"status,omitempty"` // HTTP status, 0 when there was no answer
	Header   map[string]string `json:"header,omitempty"` // Content-Type, Location, Retry-After, Idempotency-Replayed of the answer
	Output   string            `json:"output,omitempty"` // body of the answer as received, capped at 16 KiB
	Intended time.Duration     `json:"intended_ns"`      // when it should have started (a burst: the release)
	Sent     time.Duration     `json:"sent_ns,omitempty"`
	Answered time.Duration     `json:"answered_ns,omitempty"` // last byte of the answer
	Outcome  Outcome           `json:"outcome"`
	Err      string            `json:"err,omitempty"`
	_        struct{}
}

// Decode unmarshals the answer's body into v.
func (o Operation) Decode(v any) error {
	if err := json.Unmarshal([]byte(o.Output), v); err != nil {
		return fmt.Errorf("operation %s (%s %s -> %d): decode answer: %w", o.ID, o.Method, o.Path, o.Status, err)
	}
	return nil
}

// ResponseTime is intended start to last byte of the answer, in which waiting
// to be sent counts; 0 when there was no answer.
func (o Operation) ResponseTime() time.Duration {
	if o.Answered == 0 {
		return 0
	}
	return o.Answered - o.Intended
}

// ServiceTime is from the actual send to the last byte of the answer; 0 when
// there was no answer.
func (o Operation) ServiceTime() time.Duration {
	if o.Answered == 0 {
		return 0
	}
	return o.Answered - o.Sent
}

// A Technique names how a burst holds its requests back and lets them go.
type Technique string

// Techniques, best first. Auto takes the best that the machine allows.
const (
	Auto             Technique = ""
	H1LastHeaderByte Technique = "h1-last-header-byte" // one io_uring submission, else one locked thread
	H2SinglePacket   Technique = "h2-single-packet"    // last frames of all streams in one write
)

// A Burst is N requests released at one barrier.
type Burst struct {
	Name      string
	Requests  []Request
	Technique Technique
	Timeout   time.Duration // for each answer, from the release; 0 takes the run's default
	_         struct{}
}

// A BurstReport says how a burst really went; it is the witness of a race on the client wire.
type BurstReport struct {
	Name         string        `json:"name"`
	Technique    string        `json:"technique"`                  // e.g. "h1-last-header-byte/io_uring"
	Requests     int           `json:"requests"`                   // planned
	Ready        int           `json:"ready"`                      // connected and sent but for the held part, before the release
	Sent         int           `json:"sent"`                       // held part handed to the kernel
	Answered     int           `json:"answered"`                   // whole answers
	Early        int           `json:"early"`                      // answers readable before the release: more than 0 fails the burst
	Released     time.Duration `json:"released_ns"`                // offset of the release
	Spread       time.Duration `json:"spread_ns"`                  // first to last held part handed to the kernel
	MaxInFlight  int           `json:"max_in_flight"`              // most requests sent and not yet answered at one instant
	ServerSpread time.Duration `json:"server_spread_ns,omitempty"` // arrival spread where the server reports it, else 0
	_            struct{}
}
