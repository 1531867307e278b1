package harness

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Moment is a named instant in the life of what goes over a wire.
type Moment string

// The moments of an upstream call, of a statement, of a transaction and of a
// client's answer.
const (
	MomentReceived Moment = "upstream-received" // the server's request is here, not forwarded yet
	MomentAccepted Moment = "upstream-accepted" // the upstream has done its work and answered; the answer is not forwarded yet

	BeforeStatement Moment = "before-statement" // a matching statement is here, Postgres has not seen it
	AfterStatement  Moment = "after-statement"  // Postgres has executed it; the server has not heard of it, and it is not committed by it
	BeforeCommit    Moment = "before-commit"    // the COMMIT (or the end of an implicit transaction) is here, Postgres has not seen it
	AfterCommit     Moment = "after-commit"     // Postgres has committed; the server has not heard of it

	BeforeResponse Moment = "before-response" // the first byte of the HTTP answer is here, the client has not got it
)

var moments = []Moment{MomentReceived, MomentAccepted, BeforeStatement, AfterStatement, BeforeCommit, AfterCommit, BeforeResponse}

// OnPostgres reports whether the Postgres wire sees the moment.
func (m Moment) OnPostgres() bool {
	return m == BeforeStatement || m == AfterStatement || m == BeforeCommit || m == AfterCommit
}

// An Action is what is done at a moment.
type Action string

// The actions. At each of them what was about to go on is held; after a drop
// or a kill it never goes on.
const (
	ActionKill  Action = "kill"  // SIGKILL to the server process whose wire it is, then its connections are closed
	ActionStop  Action = "stop"  // SIGSTOP; then it goes on, and waits in the stopped server's buffers
	ActionDrop  Action = "drop"  // both sides of the connection are closed with a reset
	ActionError Action = "error" // Postgres answers with an error instead (before-*): Code
	ActionDelay Action = "delay" // it goes on after Delay
	ActionHold  Action = "hold"  // it goes on when the fault is healed
)

var actions = []Action{ActionKill, ActionStop, ActionDrop, ActionError, ActionDelay, ActionHold}

// A Fault is one thing done at one moment, on whatever wire that moment is.
// Its text form is what configurations and reports use:
//
//	kill at after-commit
//	drop at before-statement(insert into active_reservations, 2)
//	error 40001 at before-commit
//	delay 200ms at upstream-accepted(POST /messages)
type Fault struct {
	Action Action
	Code   string        // SQLSTATE of an error: 40001, 40P01, 53300, 57P01, ...
	Delay  time.Duration // of a delay
	At     Moment

	// Match says which: a regular expression, not case sensitive, over the
	// statement's text with its white space made single; of a commit, over the
	// statements of its transaction. For upstream moments "METHOD /path". For
	// before-response the operation's kind. "" is any.
	Match string

	// Nth is which of the matching ones, from 1; 0 is every one.
	Nth int

	Server string // replica, "" for any
	_      struct{}
}

// String gives the text form. ParseFault reads it.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(string(f.Action))
	switch f.Action {
	case ActionError:
		b.WriteString(" " + f.Code)
	case ActionDelay:
		b.WriteString(" " + f.Delay.String())
	case ActionKill, ActionStop, ActionDrop, ActionHold:
	}
	b.WriteString(" at " + string(f.At))
	switch {
	case f.Match != "" && f.Nth != 0:
		fmt.Fprintf(&b, "(%s, %d)", f.Match, f.Nth)
	case f.Match != "":
		fmt.Fprintf(&b, "(%s)", f.Match)
	case f.Nth != 0:
		fmt.Fprintf(&b, "(%d)", f.Nth)
	}
	if f.Server != "" {
		b.WriteString(" of " + f.Server)
	}
	return b.String()
}

var faultText = regexp.MustCompile(`^([a-z]+)(?: (\S+))? at ([a-z-]+)(?:\((.*)\))?(?: of (\S+))?$`)

// ParseFault reads the text form. The error says what is wrong and what there is.
func ParseFault(text string) (Fault, error) {
	m := faultText.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return Fault{}, fmt.Errorf(`fault %q: want "ACTION at MOMENT", such as "kill at after-commit" or "drop at before-statement(insert into bookings, 1)"`, text)
	}
	f := Fault{Action: Action(m[1]), At: Moment(m[3]), Match: m[4], Server: m[5]}
	if at := strings.LastIndex(f.Match, ","); at >= 0 {
		if n, err := strconv.Atoi(strings.TrimSpace(f.Match[at+1:])); err == nil {
			f.Match, f.Nth = strings.TrimSpace(f.Match[:at]), n
		}
	} else if n, err := strconv.Atoi(f.Match); err == nil {
		f.Match, f.Nth = "", n
	}
	switch {
	case f.Action == ActionError:
		f.Code = m[2]
	case f.Action == ActionDelay:
		d, err := time.ParseDuration(m[2])
		if err != nil {
			return Fault{}, fmt.Errorf(`fault %q: a delay wants a duration, such as "delay 200ms at ..."`, text)
		}
		f.Delay = d
	case m[2] != "":
		return Fault{}, fmt.Errorf("fault %q: %s takes nothing between it and \"at\", but there is %q", text, f.Action, m[2])
	}
	if err := f.Check(); err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}
	return f, nil
}

var sqlState = regexp.MustCompile(`^[0-9A-Z]{5}$`)

// Check says what is wrong with a fault, nil when nothing is.
func (f Fault) Check() error {
	switch {
	case !slices.Contains(actions, f.Action):
		return fmt.Errorf("no action %q; there are %v", f.Action, actions)
	case !slices.Contains(moments, f.At):
		return fmt.Errorf("no moment %q; there are %v", f.At, moments)
	case f.Nth < 0:
		return fmt.Errorf("number %d: want 1 for the first, or 0 for every one", f.Nth)
	case f.Action == ActionError && f.At != BeforeStatement && f.At != BeforeCommit:
		return fmt.Errorf("an error can be given at %s and %s, not at %s", BeforeStatement, BeforeCommit, f.At)
	case f.Action == ActionError && !sqlState.MatchString(f.Code):
		return fmt.Errorf("error code %q: want five characters such as 40001", f.Code)
	case f.Action == ActionDelay && f.Delay <= 0:
		return fmt.Errorf("a delay of %v: want more than 0", f.Delay)
	case f.At == BeforeResponse && (f.Action == ActionHold || f.Action == ActionDelay):
		return fmt.Errorf("%s at %s: what the client has got can't be held back from it; want kill, stop or drop", f.Action, f.At)
	}
	if f.At.OnPostgres() {
		if _, err := regexp.Compile("(?i)" + f.Match); err != nil {
			return fmt.Errorf("match %q: %w", f.Match, err)
		}
	}
	return nil
}

// A Strike is one instant at which a fault took place.
type Strike struct {
	At     time.Duration `json:"at_ns"`
	Server string        `json:"server"`         // replica
	Unit   int           `json:"unit,omitempty"` // number of the unit on the Postgres wire
	Call   int           `json:"call,omitempty"` // number of the call on an upstream wire
	Op     string        `json:"op,omitempty"`   // operation, where it is known
	What   string        `json:"what"`           // the statement, the call, the request
	Err    error         `json:"-"`              // why the action could not be done
	_      struct{}
}

// An Injected is a fault that is in place.
type Injected interface {
	// Await waits for the next strike. The error, when the deadline passes
	// first, names the fault; it is the strike's own when the action failed.
	Await(ctx context.Context, deadline time.Duration) (Strike, error)

	// Strikes gives those that there were.
	Strikes() []Strike

	// Heal takes the fault back and lets go what it holds. More than once is once.
	Heal()
}
