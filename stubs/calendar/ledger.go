package calendar

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
)

// Call words of ledger rows, beside Freebusy, Create, Update, Delete and Token.
const (
	Appear  = "external" // an external event appeared, was replaced, or went
	Orphan  = "orphan"   // one of ours stands that no call made
	Lose    = "lose"     // somebody else removed one of ours
	Expire  = "expire"   // the access token was ended
	Revoke  = "revoke"   // the refresh token was ended
	Granted = "grant"    // a refresh token will be accepted
)

// Sources of events.
const (
	Ours     = "ours"
	TheOther = "external"
)

// A Call is something that was decided, or that somebody else did: one row, in
// the order of all calendars together. Calls that were refused before they
// were looked at (503, 429, 401, 400), GET /events and GET /events/{event_id}
// have none.
type Call struct {
	N          int       `json:"n"`     // from 1, without a gap
	AtMS       float64   `json:"at_ms"` // since the double was made
	Calendar   string    `json:"calendar"`
	Call       string    `json:"call"`           // Create, Update, Delete, Freebusy, Token, Appear, Orphan, Lose, Expire, Revoke, Granted
	EventID    string    `json:"event_id"`       // empty for Freebusy, Token, Expire, Revoke, Granted
	Start      time.Time `json:"start,omitzero"` // that was asked for; of Delete and Lose, of the event that stood
	End        time.Time `json:"end,omitzero"`
	Version    int64     `json:"version"`          // that was asked for; of Delete and Lose, of the event that stood
	Source     string    `json:"source"`           // Ours or TheOther: whose the event is, or would be; empty when there is none
	Outcome    string    `json:"outcome"`          // a word, see stubs/README.md
	Overlapped bool      `json:"overlapped"`       // an external event overlapped start to end right then, whatever free/busy showed: of Freebusy, Create, Update
	Externals  []string  `json:"externals"`        // the ids of these events, in order of their start; never null
	Created    int       `json:"created"`          // of Create: how often an event was made under this id in all, this one included
	IfFree     bool      `json:"if_free"`          // of Create, Update
	Moment     string    `json:"moment,omitempty"` // of Appear: the moment that it was asked for, empty when it was a command
}

// An Event stands in a calendar now.
type Event struct {
	Calendar string    `json:"calendar"`
	EventID  string    `json:"event_id"`
	Start    time.Time `json:"start"` // UTC
	End      time.Time `json:"end"`
	Version  int64     `json:"version"` // 0 for an external one
	Title    string    `json:"title"`
	Source   string    `json:"source"`
}

// A Calendar is how things stand with a calendar.
type Calendar struct {
	Calendar  string `json:"calendar"`
	Refreshes int    `json:"refreshes"` // tokens that were handed out, repetitions under a key not counted
	Refused   int    `json:"refused"`   // token calls that got invalid_grant
	Created   int    `json:"created"`   // events of ours that were made, ever
	Waiting   int    `json:"waiting"`   // creates that are held right now
	Moments   int    `json:"moments"`   // external events whose moment has not come yet
}

// A Ledger is the double's truth.
//
// As JSON it is one list of plain rows, as every ledger of a double: first the
// calls, in order, then the events that stand now (by calendar, start, id),
// then the calendars by name, each with its kind in "row" ("call", "event",
// "calendar").
type Ledger struct {
	Calls     []Call
	Events    []Event
	Calendars []Calendar
}

type (
	callRow struct {
		Row string `json:"row"`
		Call
	}
	eventRow struct {
		Row string `json:"row"`
		Event
	}
	calendarRow struct {
		Row string `json:"row"`
		Calendar
	}
)

// MarshalJSON writes the ledger as rows.
func (l Ledger) MarshalJSON() ([]byte, error) {
	rows := make([]any, 0, len(l.Calls)+len(l.Events)+len(l.Calendars))
	for _, c := range l.Calls {
		rows = append(rows, callRow{"call", c})
	}
	for _, e := range l.Events {
		rows = append(rows, eventRow{"event", e})
	}
	for _, c := range l.Calendars {
		rows = append(rows, calendarRow{"calendar", c})
	}
	return json.Marshal(rows)
}

// UnmarshalJSON reads what GET /__double/ledger answers.
func (l *Ledger) UnmarshalJSON(text []byte) error {
	var rows []json.RawMessage
	if err := json.Unmarshal(text, &rows); err != nil {
		return fmt.Errorf("read the ledger of calendar: %w", err)
	}
	*l = Ledger{}
	for i, r := range rows {
		if err := l.add(r); err != nil {
			return fmt.Errorf("read the ledger of calendar, row %d: %w", i+1, err)
		}
	}
	return nil
}

func (l *Ledger) add(text json.RawMessage) error {
	var kind struct{ Row string }
	if err := json.Unmarshal(text, &kind); err != nil {
		return err
	}
	switch kind.Row {
	case "call":
		return readRow(text, &l.Calls)
	case "event":
		return readRow(text, &l.Events)
	case "calendar":
		return readRow(text, &l.Calendars)
	}
	return fmt.Errorf("%q is none of call, event, calendar", kind.Row)
}

func readRow[R any](text json.RawMessage, into *[]R) error {
	var r R
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	*into = append(*into, r)
	return nil
}

// LedgerOf reads the ledger from a run's stored rows ("ledger:calendar").
func LedgerOf(rows []harness.Row) (l Ledger, err error) {
	text, err := json.Marshal(rows)
	if err != nil {
		return l, fmt.Errorf("read the ledger of calendar: %w", err)
	}
	err = l.UnmarshalJSON(text)
	return l, err
}

// Of gives a calendar's part of the ledger.
func (l Ledger) Of(calendar string) Ledger {
	return Ledger{
		only(l.Calls, func(c Call) bool { return c.Calendar == calendar }),
		only(l.Events, func(e Event) bool { return e.Calendar == calendar }),
		only(l.Calendars, func(c Calendar) bool { return c.Calendar == calendar }),
	}
}

func only[R any](rows []R, keep func(R) bool) []R {
	return slices.DeleteFunc(slices.Clone(rows), func(r R) bool { return !keep(r) })
}
