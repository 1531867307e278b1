package calendar

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/explore"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// leftAt is a crash over the first appointment, as noteLeft records it.
func leftAt(left, external string) harness.Event {
	return harness.Event{At: msec(100), Subject: subjectLeft, Text: left, Attrs: map[string]string{attrAppointment: uid(1), attrEvent: "event-1", attrLeft: left, attrExternal: external}}
}

func TestLeftBooked(t *testing.T) {
	judge := leftBooked().Judge
	rec := recordOf()
	expectVerdict(t, judge(rec), harness.Unknown, "nobody looked")
	rec.History.Events = []harness.Event{leftAt(leftClaimed, "")}
	expectVerdict(t, judge(rec), harness.Pass, "1 times")
	rec.History.Events = append(rec.History.Events, leftAt("CREATED, 0 events to be told, not claimed", "")) // stored before it was known
	expectVerdict(t, judge(rec), harness.Failed, "1 of 2 times")
}

// calls are upstream calls of the first booking, after the crash, each as
// "GET /events/event-1 404".
func callsAfter(op string, calls ...string) (list []harness.UpstreamCall) {
	for i, c := range calls {
		parts := strings.Fields(c)
		status, err := strconv.Atoi(parts[2])
		if err != nil {
			panic(err)
		}
		list = append(list, harness.UpstreamCall{Seq: i + 1, Op: op, Method: parts[0], Path: parts[1], Status: status, Received: msec(200 + i)})
	}
	return list
}

func TestTakenUp(t *testing.T) {
	const get404, get200, check, look, create = "GET /events/event-1 404", "GET /events/event-1 200", "GET /freebusy 200", "GET /events 200", "POST /events 201"
	for _, tt := range []struct {
		at       harness.Moment
		external string
		calls    []string
		want     string // "" for a pass
	}{
		{harness.MomentReceived, "", []string{get404, check, create, look}, ""},
		{harness.MomentReceived, "theirs-1", []string{get404, check, look}, ""},
		{harness.MomentReceived, "theirs-1", []string{get404, create, look}, "not checked again"},
		{harness.MomentReceived, "theirs-1", []string{get404, create, check}, "not checked again"},
		{harness.MomentReceived, "", []string{check, create, look}, "not looked for by its id first"},
		{harness.MomentReceived, "", []string{get404, check}, "was not created"},
		{harness.MomentReceived, "", nil, "calls since the crash: none"},
		{harness.MomentAccepted, "", []string{get200, look}, ""},
		{harness.MomentAccepted, "", []string{get200, create}, "created again"},
		{harness.MomentAccepted, "", []string{check, create, look}, "not looked for by its id first"},
	} {
		rec := recordOf(granting(1, 1))
		put(rec, 1, 1, "CREATED")
		rec.History.Events = []harness.Event{leftAt(leftClaimed, tt.external)}
		before := callsAfter("op-1", get404, create)
		for i := range before {
			before[i].Received = msec(50)
		}
		rec.Upstream = append(append(before, callsAfter("op-1", tt.calls...)...), callsAfter("op-7", create)...)
		if v := takenUp(tt.at).Judge(rec); tt.want == "" {
			expectVerdict(t, v, harness.Pass, "1 appointments")
		} else {
			expectVerdict(t, v, harness.Failed, tt.want)
		}
	}
	expectVerdict(t, takenUp(harness.MomentReceived).Judge(recordOf()), harness.Unknown, "nothing was crashed")
}

func TestConflictsAre(t *testing.T) {
	judge := conflictsAre("doc", map[string]int{"overlap by look: rejected": 1}).Judge
	rec := recordOf(granting(1, 1))
	expectVerdict(t, judge(rec), harness.Failed, "doc")
	putRow(rec, "conflicts", conflictRow(1, "theirs-1", "overlap", "rejected"))
	expectVerdict(t, judge(rec), harness.Pass, "1 conflicts")
	putRow(rec, "conflicts", conflictRow(1, "theirs-2", "overlap", ""))
	expectVerdict(t, judge(rec), harness.Failed, "overlap by look: open")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "nobody did anything")
}

// A pointed point is one with the retry that it got.
type pointed struct {
	at    harness.Moment
	state string
	retry harness.Operation
}

// pointsRec is a record of the points of an enumeration, all by kill.
func pointsRec(e enumerated, action harness.Action, points ...pointed) harness.Record {
	ops := make([]harness.Operation, len(points))
	for i, p := range points {
		ops[i] = p.retry
	}
	rec := recordOf(ops...)
	for i, p := range points {
		rec.History.Events = append(rec.History.Events, harness.Event{Kind: harness.EventPoint, Subject: e.name, Attrs: map[string]string{
			"number": strconv.Itoa(i + 1), "of": strconv.Itoa(len(points)), "label": string(p.at), "fault": fmt.Sprintf("%s at %s", action, p.at), "action": string(action),
			"done": "false", "state": p.state, "first": "no answer", "retry": strconv.Itoa(p.retry.Status), "again": fmt.Sprintf("op-%d", i+1),
		}})
	}
	return rec
}

func TestRecoveredAt(t *testing.T) {
	judge := recoveredAt(enumeratedCreate).Judge
	good := pointed{harness.BeforeCommit, pointNothing, granting(1, 1)}
	expectVerdict(t, judge(recordOf()), harness.Unknown, "no crash point")
	expectVerdict(t, judge(pointsRec(enumeratedCreate, harness.ActionKill, good)), harness.Pass, "1 of 1 points")
	again := granting(2, 2)
	again.Status, again.Output = 409, `{"type":"/problems/overlap"}`
	expectVerdict(t, judge(pointsRec(enumeratedCreate, harness.ActionKill, good, pointed{harness.AfterCommit, pointBooked, again})), harness.Failed, "1 of 2 points")
	expectVerdict(t, judge(pointsRec(enumeratedCreate, harness.ActionKill, pointed{harness.AfterCommit, "[BOOKED BOOKED]", granting(1, 1)})), harness.Failed, "nothing that a create goes through")
	silent := granting(2, 2)
	silent.Status = 0
	expectVerdict(t, judge(pointsRec(enumeratedCreate, harness.ActionKill, good, pointed{harness.AfterCommit, pointBooked, silent})), harness.Unknown, "not answered")
	short := pointsRec(enumeratedCreate, harness.ActionKill, good, good)
	short.History.Events = short.History.Events[:1]
	expectVerdict(t, judge(short), harness.Unknown, "1 of 2 points")
}

func TestStatesChangeAtCommit(t *testing.T) {
	e := enumeratedCreate
	for want, states := range map[string][]string{
		"":                       {pointNothing, pointNothing, pointBooked, pointBooked, pointBooked, pointCreated},
		"after \"nothing\"":      {pointNothing, pointBooked, pointBooked, pointBooked, pointBooked, pointCreated}, // before its COMMIT
		"say \"nothing\"":        {pointNothing, pointNothing, pointBooked, pointBooked, pointNothing, pointCreated},
		"2 of 3 states":          {pointNothing, pointNothing, pointBooked, pointBooked, pointBooked, pointBooked},
		"the rows say \"created": {pointNothing, pointNothing, pointBooked, pointBooked, pointCreated, pointCreated},
	} {
		moments := []harness.Moment{harness.BeforeStatement, harness.BeforeCommit, harness.AfterCommit, harness.MomentReceived, harness.BeforeCommit, harness.AfterCommit}
		var points []pointed
		for i, s := range states {
			points = append(points, pointed{moments[i], s, granting(1, 1)})
		}
		v := statesChangeAtCommit(e, []harness.Action{harness.ActionKill}).Judge(pointsRec(e, harness.ActionKill, points...))
		switch want {
		case "":
			expectVerdict(t, v, harness.Pass, "booked at 3")
		case "2 of 3 states":
			expectVerdict(t, v, harness.Unknown, want)
		default:
			expectVerdict(t, v, harness.Failed, want)
		}
	}
	// Who only lost a connection goes on by itself, sooner or later.
	drops := []pointed{
		{harness.BeforeCommit, pointNothing, granting(1, 1)},
		{harness.AfterCommit, pointCreated, granting(1, 1)},
		{harness.MomentReceived, pointBooked, granting(1, 1)},
		{harness.AfterCommit, pointCreated, granting(1, 1)},
		{harness.BeforeStatement, pointBooked, granting(1, 1)},
	}
	rec := pointsRec(e, harness.ActionDrop, drops...)
	expectVerdict(t, statesChangeAtCommit(e, []harness.Action{harness.ActionDrop}).Judge(rec), harness.Pass, "created at 2")
}

func TestEndedAt(t *testing.T) {
	judge := endedAt(enumeratedCreate).Judge
	rec := pointsRec(enumeratedCreate, harness.ActionKill, pointed{harness.BeforeCommit, pointNothing, granting(1, 1)})
	expectVerdict(t, judge(rec), harness.Failed, "it is none") // told of, and lost
	put(rec, 1, 1, "CREATED")
	expectVerdict(t, judge(rec), harness.Failed, "made 0 times")
	ours := []provider.Event{stands("event-1", 1, provider.Ours)}
	expectVerdict(t, judge(withLedger(t, rec, provider.Ledger{Calls: []provider.Call{made(1, 1, 1)}, Events: ours})), harness.Pass, "1 appointments of 1 points")
	expectVerdict(t, judge(withLedger(t, rec, provider.Ledger{Calls: []provider.Call{made(1, 1, 1), made(1, 1, 2)}, Events: ours})), harness.Failed, "made 2 times")
	expectVerdict(t, judge(withLedger(t, rec, provider.Ledger{Calls: []provider.Call{made(1, 1, 1)}})), harness.Failed, "0 events of it stand, want 1")
	putRow(rec, "outbox", harness.Row{"appointment_id": uid(1), "seq": 2.0, "type": "appointment.moved", "done_at": nil})
	expectVerdict(t, judge(rec), harness.Failed, "still to be told")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "no crash point")
}

func TestWordOfPoints(t *testing.T) {
	row := func(state string, pending, moves float64) harness.Row {
		return harness.Row{"state": state, "pending": pending, "moves": moves}
	}
	for _, tt := range []struct {
		e    enumerated
		rows []harness.Row
		want string
	}{
		{enumeratedCreate, nil, pointNothing},
		{enumeratedCreate, []harness.Row{row("BOOKED", 1, 0)}, pointBooked},
		{enumeratedCreate, []harness.Row{row("CREATED", 0, 0)}, pointCreated},
		{enumeratedCreate, []harness.Row{row("BOOKED", 1, 0), row("BOOKED", 1, 0)}, "[BOOKED BOOKED]"}, // doubled
		{enumeratedReschedule, []harness.Row{row("CREATED", 0, 0), row("CREATED", 0, 0)}, pointCreated},
		{enumeratedReschedule, []harness.Row{row("CREATED", 1, 1), row("CREATED", 0, 1)}, pointMoved},
		{enumeratedReschedule, []harness.Row{row("CREATED", 0, 1), row("CREATED", 0, 1)}, pointTold},
		{enumeratedReschedule, []harness.Row{row("CREATED", 1, 1), row("CREATED", 0, 0)}, "[CREATED CREATED], 1"}, // torn
		{enumeratedCancel, []harness.Row{row("CANCELLED", 1, 0)}, pointCancelled},
		{enumeratedCancel, []harness.Row{row("CANCELLED", 0, 0)}, pointDeleted},
	} {
		p := pointDrive{enumerated: tt.e}
		if got := p.word(tt.rows); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s, %v: %q, want %q", tt.e.name, tt.rows, got, tt.want)
		}
	}
	if len(explore.PointsOf(pointsRec(enumeratedCancel, harness.ActionKill, pointed{harness.AfterCommit, pointDeleted, granting(1, 1)}), "cancel")) != 1 {
		t.Error("the points of these tests can't be read")
	}
}
