package telescope

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/explore"
)

// judge gives the verdict of one check.
func judge(c harness.Check, rec harness.Record) harness.Verdict { return c.Judge(rec) }

// wantStatus fails the test unless the check comes to the status, with the
// word in its summary or evidence.
func wantStatus(t *testing.T, c harness.Check, rec harness.Record, want harness.Status, word string) {
	t.Helper()
	v := judge(c, rec)
	said := v.Summary
	for _, e := range v.Evidence {
		said += "\n" + e.Text
	}
	if v.Status != want || !strings.Contains(said, word) {
		t.Errorf("%s: %s %s, want %s with %q", c.ID, v.Status, said, want, word)
	}
}

// tableOf is a table in a record.
func tableOf(rec harness.Record, name string, rows ...harness.Row) {
	rec.Rows[name] = harness.Rows{Query: name, Rows: append([]harness.Row{}, rows...)}
}

func emptyRecord() harness.Record {
	return harness.Record{Rows: map[string]harness.Rows{}, Measured: map[string]float64{}}
}

var faultName = regexp.MustCompile(`^telescope/[a-z0-9-]+(@[a-z0-9-]+)?$`)

func TestFaultScenariosAreWhole(t *testing.T) {
	names := map[string]bool{}
	for _, s := range faults() {
		t.Run(s.Name, func(t *testing.T) {
			if names[s.Name] || !faultName.MatchString(s.Name) {
				t.Error("the name is used twice or has another form")
			}
			names[s.Name] = true
			if !s.HasTag("race") || !s.HasTag("fault") || s.Title == "" || s.Doc == "" || len(s.Sources) == 0 || s.Drive == nil || s.Choose == nil {
				t.Error("not whole")
			}
			top := s.Topology(s.Defaults())
			if !top.PostgresWire || len(top.Doubles) != 1 || top.Replicas != 1 || top.Design != "telescope" {
				t.Errorf("topology %+v", top)
			}
			plan, err := s.MakePlan(1, nil)
			if err != nil {
				t.Fatal(err)
			}
			ids := map[string]bool{}
			for _, c := range s.Checks(plan.Params) {
				if ids[c.ID] || c.ID == "" || c.Doc == "" {
					t.Errorf("the id %q is used twice, or a sentence is missing", c.ID)
				}
				ids[c.ID] = true
				if v := c.Judge(harness.Record{Plan: plan}); v.Status != harness.Unknown {
					t.Errorf("%s on nothing: %s %s", c.ID, v.Status, v.Summary)
				}
			}
		})
	}
}

// traceNote is what traceRows writes.
func traceNote(what string, slotID int64, struck bool, booking string, parts map[string]int) harness.Event {
	attrs := map[string]string{"what": what, "slot": strconv.FormatInt(slotID, 10), "struck": strconv.FormatBool(struck), "booking": booking}
	for name, n := range parts {
		attrs["part "+name] = strconv.Itoa(n)
	}
	return harness.Event{Kind: harness.EventNote, Subject: traceSubject, Attrs: attrs}
}

func TestTracesAreWholeOrNothing(t *testing.T) {
	parts := func(ns ...int) map[string]int {
		m := map[string]int{}
		for i, n := range ns {
			m[[]string{"reservations", "audit_rows", "events", "results"}[i]] = n
		}
		return m
	}
	for _, tc := range []struct {
		parts      map[string]int
		state      string
		afterFault harness.Status // where the whole is demanded
		anywhere   harness.Status
	}{
		{parts(1, 1, 1, 1), traceWhole, harness.Pass, harness.Pass},
		{parts(0, 0, 0, 0), traceNothing, harness.Failed, harness.Pass},
		{parts(1, 1, 1, 0), traceTorn, harness.Failed, harness.Failed}, // the result is stored after the commit
		{parts(1, 1, 0, 1), traceTorn, harness.Failed, harness.Failed}, // the event is
		{parts(2, 2, 2, 2), traceTorn, harness.Failed, harness.Failed},
		{nil, traceTorn, harness.Failed, harness.Failed},
	} {
		rec := emptyRecord()
		rec.History.Events = []harness.Event{traceNote("booking", 7, true, "", tc.parts)}
		if got := tracesOf(rec)[0].state(); got != tc.state {
			t.Errorf("%v is %s, want %s", tc.parts, got, tc.state)
		}
		wantStatus(t, leftBehind("x", "doc", traceWhole), rec, tc.afterFault, "doc")
		wantStatus(t, wholeOrNothing("y"), rec, tc.anywhere, "")
	}
	rec := emptyRecord()
	rec.History.Events = []harness.Event{traceNote("booking", 7, false, "", parts(0, 0, 0, 0))}
	wantStatus(t, leftBehind("x", "doc", traceWhole), rec, harness.Unknown, "nobody looked") // it is not the one that was struck
}

func bookedOp(id, kind, who string, slotID int64, booking string) harness.Operation {
	op := harness.Operation{
		ID: id, Kind: kind, Caller: who, Key: "book", Method: "POST", Path: slotPath(slotID) + "/reservations", Outcome: harness.OK,
		Sent: time.Millisecond, Answered: 2 * time.Millisecond, Status: 201,
		Output: fmt.Sprintf(`{"booking_id":%q,"slot_id":%d,"member":%q,"starts_at":"2027-01-01T08:00:00Z","state":"active"}`, booking, slotID, who),
	}
	if booking == "" {
		op.Status, op.Answered, op.Output, op.Outcome = 0, 0, "", harness.Info
	}
	return op
}

func TestRecoveredIsTheBookingThatWasThere(t *testing.T) {
	rec := emptyRecord()
	rec.History.Events = []harness.Event{traceNote("booking", 7, true, "b-1", map[string]int{"reservations": 1})}
	rec.History.Operations = []harness.Operation{bookedOp("op-1", kindBook, "member-1", 7, ""), bookedOp("op-2", kindAgain, "member-1", 7, "b-1")}
	wantStatus(t, recoveredBookings(), rec, harness.Pass, "1")
	rec.History.Operations[1] = bookedOp("op-2", kindAgain, "member-1", 7, "b-2")
	wantStatus(t, recoveredBookings(), rec, harness.Failed, "b-1")
	rec.History.Events[0].Attrs["booking"] = ""
	wantStatus(t, recoveredBookings(), rec, harness.Unknown, "")
}

func TestAnsweredInTheEnd(t *testing.T) {
	rec := emptyRecord()
	rec.History.Operations = []harness.Operation{bookedOp("op-1", kindBook, "member-1", 7, ""), bookedOp("op-2", kindAgain, "member-1", 7, "b-1")}
	rec.History.Operations[1].Intended = time.Second
	wantStatus(t, answeredInTheEnd(), rec, harness.Pass, "1")
	slices.Reverse(rec.History.Operations) // the order of the record is not the order of time
	wantStatus(t, answeredInTheEnd(), rec, harness.Pass, "1")
	rec.History.Operations = append(rec.History.Operations, bookedOp("op-3", kindBook, "member-2", 8, ""))
	wantStatus(t, answeredInTheEnd(), rec, harness.Unknown, "1 of 2 did not come")
	refused := bookedOp("op-4", kindAgain, "member-3", 9, "b-3")
	refused.Status = 409
	rec.History.Operations = append(rec.History.Operations, refused)
	wantStatus(t, answeredInTheEnd(), rec, harness.Failed, "1 of 3")
	wantStatus(t, answeredInTheEnd(), inBrokenEnvironment(rec), harness.Unknown, "1 of 3 were not")
	wantStatus(t, answeredInTheEnd(), emptyRecord(), harness.Unknown, "nobody booked")
}

func TestOnlyTold(t *testing.T) {
	rec := emptyRecord()
	busy := bookedOp("op-1", kindBook, "member-1", 7, "")
	busy.Status, busy.Output = 503, `{"type":"https://overbook.example/problems/busy"}`
	rec.History.Operations = []harness.Operation{busy, {Method: "GET", Status: 500}, {Method: "POST", Path: "/telescope/maintenance-imports", Status: 500}}
	wantStatus(t, onlyTold("x", "doc", "503 busy"), rec, harness.Pass, "1 x 503 busy")
	wantStatus(t, onlyTold("x", "doc", "201"), rec, harness.Failed, "op-1")
}

// pointEvent is one crash point as the record has it.
func pointEvent(number, of int, at harness.Moment, action harness.Action, done bool, retry int) harness.Event {
	f := harness.Fault{Action: action, At: at, Match: "x", Nth: 1}
	return harness.Event{Kind: harness.EventPoint, Subject: "booking", Attrs: map[string]string{
		"number": strconv.Itoa(number), "of": strconv.Itoa(of), "label": string(at), "fault": f.String(), "action": string(action),
		"done": strconv.FormatBool(done), "retry": strconv.Itoa(retry), "op": "op-1", "again": "op-2",
	}}
}

func TestEffectAtCommit(t *testing.T) {
	moments := []harness.Moment{harness.BeforeStatement, harness.AfterStatement, harness.BeforeCommit, harness.AfterCommit, harness.BeforeResponse}
	for _, tc := range []struct {
		name string
		done []bool // by moment
		self int    // so many of them, from the first on, were answered with success when the connection was dropped
		want harness.Status
		word string
	}{
		{"at the commit", []bool{false, false, false, true, true}, 0, harness.Pass, "nothing at 6 points, all at 4, recovered by the server itself at 0"},
		{"before it", []bool{false, true, true, true, true}, 0, harness.Failed, "no COMMIT was before"},
		{"not after it", []bool{false, false, false, false, true}, 0, harness.Failed, "no COMMIT was before"},
		{"undone", []bool{false, false, false, true, false}, 0, harness.Failed, "has not taken effect"},
		{"never", []bool{false, false, false, false, false}, 0, harness.Unknown, "both sides are needed"},
		{"recovered by itself", []bool{false, false, false, true, true}, 3, harness.Pass, "nothing at 3 points, all at 4, recovered by the server itself at 3"},
		{"recovered by itself, and undone", []bool{false, false, false, true, false}, 3, harness.Failed, "has not taken effect"},
		{"everywhere by itself", []bool{true, true, true, true, true}, 5, harness.Failed, "no COMMIT was before"}, // what a kill left tells
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := emptyRecord()
			for a, action := range pointActions {
				for i, at := range moments {
					e := pointEvent(a*len(moments)+i+1, 2*len(moments), at, action, tc.done[i], 201)
					e.Attrs["first"] = "no answer"
					if i < tc.self && action == harness.ActionDrop {
						e.Attrs["first"], e.Attrs["done"] = "201", "true"
					}
					rec.History.Events = append(rec.History.Events, e)
				}
			}
			if n := len(explore.PointsOf(rec, "booking")); n != 2*len(moments) {
				t.Fatalf("%d points read back", n)
			}
			wantStatus(t, effectAtCommit("booking", 201), rec, tc.want, tc.word)
		})
	}
}

func TestOnceEach(t *testing.T) {
	plan, err := crashPointsOfBooking().MakePlan(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	rec := emptyRecord()
	rec.Plan = plan
	var slotRows, history []harness.Row
	for _, s := range planned(rec).Slots {
		slotRows = append(slotRows, harness.Row{"slot_id": float64(s.ID), "state": "open"})
		history = append(history, harness.Row{"slot_id": float64(s.ID), "seq": 1.0, "event": "CREATED"})
	}
	first := planned(rec).Slots[0].ID
	rec.History.Events = []harness.Event{traceNote("booking", first, false, "", nil)}
	history = append(history, harness.Row{"slot_id": float64(first), "seq": 2.0, "event": "BOOKED"})
	tableOf(rec, "table:observing_slots", slotRows...)
	tableOf(rec, "table:active_reservations")
	tableOf(rec, "table:audit_history", history...)
	wantStatus(t, onceEach(enumeratedBooking), rec, harness.Pass, "1 slots")
	tableOf(rec, "table:audit_history", append(history, harness.Row{"slot_id": float64(first), "seq": 3.0, "event": "BOOKED"})...)
	wantStatus(t, onceEach(enumeratedBooking), rec, harness.Failed, "BOOKED BOOKED")
}

func TestStruckSlotIsOfTheStruckTransaction(t *testing.T) {
	units := []harness.Unit{
		{Seq: 1, Tx: 4, Statements: []harness.Statement{{SQL: "insert", Params: []string{"1001", "member-1"}}}},
		{Seq: 2, Tx: 5, Statements: []harness.Statement{{SQL: "insert", Params: []string{"1002", "member-2"}}}},
		{Seq: 3, Tx: 5, Statements: []harness.Statement{{SQL: "commit"}}},
		{Seq: 4},
	}
	slots := []slot{{ID: 1001}, {ID: 1002}}
	for unit, want := range map[int]int64{1: 1001, 3: 1002, 4: 0, 9: 0} {
		if got := struckSlot(units, harness.Strike{Unit: unit}, slots); got != want {
			t.Errorf("unit %d: slot %d, want %d", unit, got, want)
		}
	}
}

// When the server recovers at every point by itself, nobody has seen when the
// request takes effect.
func TestEffectAtCommitUnseen(t *testing.T) {
	rec := emptyRecord()
	e := pointEvent(1, 1, harness.BeforeCommit, harness.ActionDrop, true, 201)
	e.Attrs["first"] = "201"
	rec.History.Events = []harness.Event{e}
	wantStatus(t, effectAtCommit("booking", 201), rec, harness.Unknown, "1 at which the server recovered by itself")
	e.Attrs["first"] = "503" // that is no success
	wantStatus(t, effectAtCommit("booking", 201), rec, harness.Failed, "no COMMIT was before")
}
