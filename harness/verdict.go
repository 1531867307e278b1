package harness

import (
	"cmp"
	"fmt"
	"slices"
)

// A Status is the judgement itself. The zero Status is invalid, so that a
// check that forgot to decide cannot look like a pass.
type Status uint8

// The three statuses, in order of severity: FAIL > UNKNOWN > PASS.
const (
	Pass    Status = iota + 1 // held, and it was observed
	Unknown                   // not observed well enough to say
	Failed                    // violated
)

var statusNames = map[Status]string{Pass: "PASS", Unknown: "UNKNOWN", Failed: "FAIL"}

// String gives PASS, UNKNOWN or FAIL.
func (s Status) String() string {
	if n, ok := statusNames[s]; ok {
		return n
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// MarshalText refuses the zero Status.
func (s Status) MarshalText() ([]byte, error) { return marshalName(statusNames, s, "status") }

// UnmarshalText reads what MarshalText wrote.
func (s *Status) UnmarshalText(b []byte) error { return unmarshalName(statusNames, s, b, "status") }

// Worst gives the most severe of the statuses. No status at all, or an
// invalid one among them, is Unknown: what was not judged did not pass.
func Worst(statuses ...Status) Status {
	worst := Status(0)
	for _, s := range statuses {
		if _, ok := statusNames[s]; !ok {
			s = Unknown
		}
		worst = max(worst, s)
	}
	return cmp.Or(worst, Unknown)
}

// A Reason says why a verdict is Unknown.
type Reason string

// The reasons for Unknown.
const (
	ReasonVacuous     Reason = "vacuous"            // the race did not take place: no overlap was witnessed
	ReasonDisagree    Reason = "observers-disagree" // ledger and WireMock count differently
	ReasonUndelivered Reason = "not-delivered"      // load not sent as planned
	ReasonTimeout     Reason = "timeout"            // not settled, or the checker gave up
	ReasonAssumption  Reason = "assumption"         // e.g. database not empty at the start
	ReasonEnvironment Reason = "environment"        // Postgres, WireMock or the server died under us
	ReasonInterrupted Reason = "interrupted"        // stopped by the user before the end
	ReasonLeak        Reason = "leak"               // something was left running or locked
	ReasonChecker     Reason = "checker-error"      // the check itself could not be carried out
)

// Evidence is something a person can look at: rows, operations, calls.
type Evidence struct {
	Text string   `json:"text"`          // one line or a small block, ready to print
	Ops  []string `json:"ops,omitempty"` // ids of the operations it is about
	_    struct{}
}

// A Verdict is one check's judgement.
type Verdict struct {
	ID       string     `json:"id"` // of the check: "L-I3"
	Status   Status     `json:"verdict"`
	Summary  string     `json:"summary"`          // one sentence, no full stop
	Reason   Reason     `json:"reason,omitempty"` // for Unknown
	Rule     string     `json:"rule,omitempty"`   // where the rule is written
	Evidence []Evidence `json:"evidence"`
	_        struct{}
}

// Passed makes a passing verdict with a sentence that says what was seen.
func Passed(summary string, args ...any) Verdict {
	return Verdict{Status: Pass, Summary: fmt.Sprintf(summary, args...), Evidence: []Evidence{}}
}

// Violated makes a failing verdict with its evidence.
func Violated(evidence []Evidence, summary string, args ...any) Verdict {
	return Verdict{Status: Failed, Summary: fmt.Sprintf(summary, args...), Evidence: append([]Evidence{}, evidence...)}
}

// Undecided makes an Unknown verdict.
func Undecided(reason Reason, summary string, args ...any) Verdict {
	return Verdict{Status: Unknown, Reason: reason, Summary: fmt.Sprintf(summary, args...), Evidence: []Evidence{}}
}

// WorstOf gives the most severe status of the verdicts.
func WorstOf(verdicts []Verdict) Status {
	statuses := make([]Status, 0, len(verdicts))
	for _, v := range verdicts {
		statuses = append(statuses, v.Status)
	}
	return Worst(statuses...)
}

// A Check judges a record. It must be a pure function of it.
type Check struct {
	ID   string // "L-I3", "tally"
	Doc  string // the sentence printed with the verdict
	Rule string // where it is written: "scenarios/library/invariants/one_winner.sql"

	// SQL, when not empty, is a query that the conductor asks after settling
	// and stores in the record under the check's ID.
	SQL string

	// NeedsSettled marks checks that only hold once the system is quiescent.
	// They are Unknown when the run had trouble.
	NeedsSettled bool

	// Judge decides. Package check fills ID and Rule of the verdict.
	Judge func(Record) Verdict
	_     struct{}
}

// marshalName and unmarshalName store enumerations by their names.
func marshalName[T comparable](names map[T]string, v T, what string) ([]byte, error) {
	n, ok := names[v]
	if !ok {
		return nil, fmt.Errorf("marshal %s: %v is not a valid value", what, v)
	}
	return []byte(n), nil
}

func unmarshalName[T comparable](names map[T]string, v *T, b []byte, what string) error {
	for k, n := range names {
		if n == string(b) {
			*v = k
			return nil
		}
	}
	valid := make([]string, 0, len(names))
	for _, n := range names {
		valid = append(valid, n)
	}
	slices.Sort(valid)
	return fmt.Errorf("unmarshal %s: %q is none of %v", what, b, valid)
}
