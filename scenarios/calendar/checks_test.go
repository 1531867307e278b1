package calendar

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	provider "github.com/overbook/overbook/stubs/calendar"
)

func expectVerdict(t *testing.T, v harness.Verdict, status harness.Status, sentence string) {
	t.Helper()
	if v.Status != status || !strings.Contains(v.Summary, sentence) {
		t.Errorf("got %v %q, want %v %q", v.Status, v.Summary, status, sentence)
	}
}

// msec is an offset in milliseconds.
func msec(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

// replied makes the request's operation, answered with status and body.
func replied(r harness.Request, status int, body string) harness.Operation {
	op := harness.Operation{
		ID: "op", Process: r.Process, Kind: r.Kind, Caller: r.Caller, Key: r.Header[idempotencyKey], Method: r.Method, Path: r.Path, Input: r.Body,
		Status: status, Output: body, Intended: msec(10), Sent: msec(10), Answered: msec(20), Outcome: harness.OK,
	}
	switch {
	case status == 0:
		op.Answered, op.Output, op.Outcome = 0, "", harness.Info
	case status >= 400:
		op.Outcome = harness.Fail
	}
	return op
}

// denied is the request answered with a problem and further members.
func denied(r harness.Request, status int, problem, members string) harness.Operation {
	return replied(r, status, fmt.Sprintf(`{"type":"/problems/%s","title":"no"%s}`, problem, members))
}

// from gives the operation other times.
func from(op harness.Operation, sent, answered int) harness.Operation {
	op.Sent, op.Answered = msec(sent), msec(answered)
	return op
}

// dawn is where the times of these tests begin; slot is the n-th hour.
var dawn = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)

func slot(n int) span { return span{60 * n, 60*n + 60} }

func utcAt(n int) when { return slot(n).in("Etc/UTC", dawn) }

// told is what an answer tells of the n-th appointment at the slot.
func told(n, slotted int, state string) string {
	text, err := json.Marshal(map[string]any{
		"appointment_id": uid(n), "resource_id": 1, "start": slot(slotted).start(dawn), "end": slot(slotted).end(dawn), "time_zone": "Etc/UTC", "state": state, "event_id": fmt.Sprintf("event-%d", n),
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// granting is a booking of the slot that was answered with the n-th appointment.
func granting(n, slotted int) harness.Operation {
	return replied(book(n, fmt.Sprintf("member-%d", n), 1, utcAt(slotted), "key"), 201, told(n, slotted, "BOOKED"))
}

// recordOf numbers the operations; all tables and the ledger are there, with
// one resource and its account, and else empty.
func recordOf(ops ...harness.Operation) harness.Record {
	rec := harness.Record{Rows: map[string]harness.Rows{}}
	for i, op := range ops {
		op.ID = fmt.Sprintf("op-%d", i+1)
		rec.History.Operations = append(rec.History.Operations, op)
	}
	for _, table := range tables {
		rec.Rows["table:"+table] = harness.Rows{Rows: []harness.Row{}}
	}
	rec.Rows["ledger:"+provider.Name] = harness.Rows{Rows: []harness.Row{}}
	putRow(rec, "resources", harness.Row{"resource_id": 1.0, "calendar": "cal-1", "activated_at": "2031-01-01T00:00:00+00:00", "conflict_policy": policyReject})
	putRow(rec, "accounts", harness.Row{"resource_id": 1.0, "state": "OK", "quiet_until": nil})
	return rec
}

// putRow adds a row to a table of the record.
func putRow(rec harness.Record, table string, row harness.Row) {
	rows := rec.Rows["table:"+table]
	rows.Rows = append(rows.Rows, row)
	rec.Rows["table:"+table] = rows
}

// put adds an appointment of the n-th member, at the slot, with its history,
// its events (all done) and its sync.
func put(rec harness.Record, n, slotted int, state string) {
	at := fmt.Sprintf(`["%s","%s")`, slot(slotted).start(dawn).Format("2006-01-02 15:04:05+00"), slot(slotted).end(dawn).Format("2006-01-02 15:04:05+00"))
	putRow(rec, "appointments", harness.Row{
		"appointment_id": uid(n), "resource_id": 1.0, "member": fmt.Sprintf("member-%d", n), "during": at, "state": state, "event_id": fmt.Sprintf("event-%d", n), "overbook_op": fmt.Sprintf("op-%d", n),
	})
	putRow(rec, "appointment_audit", harness.Row{"appointment_id": uid(n), "seq": 1.0, "event": "BOOKED", "during": at, "overbook_op": fmt.Sprintf("op-%d", n)})
	putRow(rec, "outbox", harness.Row{"appointment_id": uid(n), "seq": 1.0, "type": "appointment.booked", "done_at": "2031-01-01T00:00:00+00:00"})
	putRow(rec, "syncs", harness.Row{"appointment_id": uid(n), "touched_at": "2031-01-01T00:00:00+00:00"})
}

// withLedger stores what the provider says.
func withLedger(t *testing.T, rec harness.Record, l provider.Ledger) harness.Record {
	t.Helper()
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var rows []harness.Row
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	rec.Rows["ledger:"+provider.Name] = harness.Rows{Rows: rows}
	return rec
}

// made is the n-th appointment's event at the slot, as the provider's ledger has it.
func made(n, slotted, times int, externals ...string) provider.Call {
	return provider.Call{
		N: n, Calendar: "cal-1", Call: provider.Create, EventID: fmt.Sprintf("event-%d", n), Start: slot(slotted).start(dawn), End: slot(slotted).end(dawn),
		Source: provider.Ours, Outcome: "created", Created: times, Overlapped: len(externals) > 0, Externals: append([]string{}, externals...),
	}
}

func stands(id string, slotted int, source string) provider.Event {
	return provider.Event{Calendar: "cal-1", EventID: id, Start: slot(slotted).start(dawn), End: slot(slotted).end(dawn), Source: source}
}

func conflictRow(n int, external, kind, resolution string) harness.Row {
	r := harness.Row{
		"conflict_id": uid(100 + n), "resource_id": 1.0, "appointment_id": uid(n), "kind": kind, "external_event": external, "found_by": "look",
		"resolved_at": nil, "resolution": nil,
	}
	if resolution != "" {
		r["resolved_at"], r["resolution"] = "2031-01-01T00:00:00+00:00", resolution
	}
	return r
}

func TestCreatedOnce(t *testing.T) {
	rec := recordOf(granting(1, 1))
	put(rec, 1, 1, "CREATED")
	expectVerdict(t, createdOnce().Judge(withLedger(t, rec, provider.Ledger{Calls: []provider.Call{made(1, 1, 1)}})), harness.Pass, "1 judged")
	expectVerdict(t, createdOnce().Judge(withLedger(t, rec, provider.Ledger{Calls: []provider.Call{made(1, 1, 1), made(1, 1, 2)}})), harness.Failed, "made 2 times")
	expectVerdict(t, createdOnce().Judge(withLedger(t, rec, provider.Ledger{Calls: []provider.Call{made(2, 1, 1)}})), harness.Failed, "no appointment's")
	elsewhere := made(1, 1, 1)
	elsewhere.Calendar = "cal-2"
	expectVerdict(t, createdOnce().Judge(withLedger(t, rec, provider.Ledger{Calls: []provider.Call{elsewhere}})), harness.Failed, "in calendar cal-2")
	lost := provider.Call{N: 2, Calendar: "cal-1", Call: provider.Lose, EventID: "event-1", Externals: []string{}}
	expectVerdict(t, createdOnce().Judge(withLedger(t, rec, provider.Ledger{Calls: []provider.Call{made(1, 1, 1), lost, made(1, 1, 2)}})), harness.Pass, "1 judged")
}

func TestStandsOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		state  string
		events []provider.Event
		change func(harness.Record)
		want   harness.Status
		text   string
	}{
		"created, and there":         {"CREATED", []provider.Event{stands("event-1", 1, provider.Ours)}, nil, harness.Pass, ""},
		"created, and not there":     {"CREATED", nil, nil, harness.Failed, "no event"},
		"created, at another time":   {"CREATED", []provider.Event{stands("event-1", 2, provider.Ours)}, nil, harness.Failed, "stands at"},
		"never created":              {"BOOKED", nil, nil, harness.Failed, "never created"},
		"cancelled, and there":       {"CANCELLED", []provider.Event{stands("event-1", 1, provider.Ours)}, nil, harness.Failed, "its event stands"},
		"rejected, and not there":    {"REJECTED", nil, nil, harness.Pass, ""},
		"of nobody":                  {"CANCELLED", []provider.Event{stands("event-9", 1, provider.Ours)}, nil, harness.Failed, "no appointment's"},
		"other people's":             {"CANCELLED", []provider.Event{stands("event-9", 1, provider.TheOther)}, nil, harness.Pass, ""},
		"missing, and that is known": {"CREATED", nil, func(rec harness.Record) { putRow(rec, "conflicts", conflictRow(1, "event-1", "missing", "")) }, harness.Pass, ""},
		"missing, and kept so": {"CREATED", nil, func(rec harness.Record) {
			putRow(rec, "conflicts", conflictRow(1, "event-1", "missing", "kept"))
		}, harness.Failed, "no event"},
		"still to be told": {"BOOKED", nil, func(rec harness.Record) {
			putRow(rec, "outbox", harness.Row{"appointment_id": uid(1), "seq": 2.0, "type": "appointment.moved", "done_at": nil})
		}, harness.Pass, ""},
		"never touched, and there": {"CANCELLED", []provider.Event{stands("event-1", 1, provider.Ours)}, func(rec harness.Record) {
			rec.Rows["table:syncs"].Rows[0]["touched_at"] = nil
		}, harness.Failed, "nobody has ever been at it"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := recordOf(granting(1, 1))
			put(rec, 1, 1, tt.state)
			if tt.change != nil {
				tt.change(rec)
			}
			expectVerdict(t, standsOnce().Judge(withLedger(t, rec, provider.Ledger{Events: tt.events})), tt.want, tt.text)
		})
	}
}

func TestOthersUntouched(t *testing.T) {
	rec := withLedger(t, recordOf(granting(1, 1)), provider.Ledger{Calls: []provider.Call{{N: 1, Call: provider.Appear, Calendar: "cal-1", EventID: "theirs", Externals: []string{}}}})
	expectVerdict(t, othersUntouched().Judge(rec), harness.Unknown, "no call")
	rec.Upstream = []harness.UpstreamCall{{Seq: 1, Method: "DELETE", Path: "/events/event-1"}, {Seq: 2, Method: "GET", Path: "/events/theirs"}}
	expectVerdict(t, othersUntouched().Judge(rec), harness.Pass, "1 events of others")
	rec.Upstream = append(rec.Upstream, harness.UpstreamCall{Seq: 3, Method: "DELETE", Path: "/events/theirs"})
	expectVerdict(t, othersUntouched().Judge(rec), harness.Failed, "call 3")
}

func TestNeverSilent(t *testing.T) {
	other := stands("x", 1, provider.TheOther)
	for name, tt := range map[string]struct {
		state    string
		conflict harness.Row
		ledger   provider.Ledger
		want     harness.Status
		text     string
	}{
		"silence over a create":     {"CREATED", nil, provider.Ledger{Calls: []provider.Call{made(1, 1, 1, "x")}}, harness.Failed, "there is no conflict with it"},
		"on record":                 {"CREATED", conflictRow(1, "x", "overlap", "kept"), provider.Ledger{Calls: []provider.Call{made(1, 1, 1, "x")}, Events: []provider.Event{other}}, harness.Pass, ""},
		"rejected":                  {"REJECTED", nil, provider.Ledger{Calls: []provider.Call{made(1, 1, 1, "x")}, Events: []provider.Event{other}}, harness.Pass, ""},
		"gone before it was looked": {"CREATED", nil, provider.Ledger{Calls: []provider.Call{made(1, 1, 1, "x"), {N: 9, Call: provider.Appear, EventID: "x", Externals: []string{}}}}, harness.Pass, ""},
		"stands at the end":         {"CREATED", nil, provider.Ledger{Events: []provider.Event{other}}, harness.Failed, "under the policy reject"},
		"beside it":                 {"CREATED", nil, provider.Ledger{Events: []provider.Event{stands("x", 2, provider.TheOther)}}, harness.Pass, "0 judged"},
		"another one is known":      {"CREATED", conflictRow(1, "y", "overlap", ""), provider.Ledger{Calls: []provider.Call{made(1, 1, 1, "x")}}, harness.Failed, "there is no conflict with it"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := recordOf(granting(1, 1))
			put(rec, 1, 1, tt.state)
			if tt.conflict != nil {
				putRow(rec, "conflicts", tt.conflict)
			}
			expectVerdict(t, neverSilent().Judge(withLedger(t, rec, tt.ledger)), tt.want, tt.text)
		})
	}
	rec := recordOf(granting(1, 1))
	rec.Rows["table:resources"].Rows[0]["conflict_policy"] = policyKeep
	put(rec, 1, 1, "CREATED")
	rec = withLedger(t, rec, provider.Ledger{Events: []provider.Event{other}})
	expectVerdict(t, neverSilent().Judge(rec), harness.Failed, "has no unresolved conflict with it")
	putRow(rec, "conflicts", conflictRow(1, "x", "overlap", ""))
	expectVerdict(t, neverSilent().Judge(rec), harness.Pass, "1 judged")
}

func TestConflictsAreListed(t *testing.T) {
	listed := func(n int, kind string) string {
		return fmt.Sprintf(`{"conflict_id":%q,"resource_id":1,"appointment_id":%q,"kind":%q,"external_event":"x","found_by":"look"}`, uid(100+n), uid(n), kind)
	}
	for name, tt := range map[string]struct {
		list string
		rows []harness.Row
		want harness.Status
		text string
	}{
		"as it is":            {listed(1, "overlap"), []harness.Row{conflictRow(1, "x", "overlap", ""), conflictRow(2, "y", "overlap", "kept")}, harness.Pass, "1 of 2"},
		"left out":            {"", []harness.Row{conflictRow(1, "x", "overlap", "")}, harness.Failed, "0 are listed, 1 are unresolved"},
		"resolved, and shown": {listed(1, "overlap"), []harness.Row{conflictRow(1, "x", "overlap", "kept")}, harness.Failed, "1 are listed, 0"},
		"of nothing":          {listed(1, "overlap"), nil, harness.Failed, "1 are listed, 0"},
		"as something else":   {listed(1, "missing"), []harness.Row{conflictRow(1, "x", "overlap", "")}, harness.Failed, "1 are listed, 1"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := recordOf(replied(conflicts(0, staff(0)), 200, `{"conflicts":[`+tt.list+`]}`))
			for _, r := range tt.rows {
				putRow(rec, "conflicts", r)
			}
			expectVerdict(t, conflictsAreListed().Judge(rec), tt.want, tt.text)
		})
	}
}

func TestRefreshes(t *testing.T) {
	judge := func(c provider.Calendar, ops []harness.Operation, calls ...provider.Call) harness.Verdict {
		c.Calendar = "cal-1"
		for i := range calls {
			calls[i].Calendar, calls[i].Externals = "cal-1", []string{}
		}
		return refreshes(0).Judge(withLedger(t, recordOf(append(ops, granting(1, 1))...), provider.Ledger{Calls: calls, Calendars: []provider.Calendar{c}}))
	}
	expired := provider.Call{Call: provider.Expire}
	expectVerdict(t, judge(provider.Calendar{Refreshes: 1}, nil), harness.Pass, "1 refreshes")
	expectVerdict(t, judge(provider.Calendar{Refreshes: 2}, nil, expired), harness.Pass, "2 refreshes")
	expectVerdict(t, judge(provider.Calendar{Refreshes: 3}, nil, expired), harness.Failed, "given 3 access tokens, and 1 ended")
	expectVerdict(t, judge(provider.Calendar{Refreshes: 2, Refused: 1}, nil, expired), harness.Failed, "not the last one")
	expectVerdict(t, judge(provider.Calendar{}, nil), harness.Unknown, "no token")
	again := replied(activate(0, staff(0), resource{ID: 1}, "fresh"), 200, `{}`)
	expectVerdict(t, judge(provider.Calendar{Refreshes: 2}, []harness.Operation{again}), harness.Pass, "2 refreshes")
}

func TestToldAndRows(t *testing.T) {
	one := granting(1, 1)
	rec := recordOf(one)
	expectVerdict(t, toldIsStored().Judge(rec), harness.Failed, "which is not stored")
	put(rec, 1, 1, "CREATED")
	expectVerdict(t, toldIsStored().Judge(rec), harness.Pass, "1 answers")
	expectVerdict(t, rowsWereTold().Judge(rec), harness.Pass, "1 appointments")
	moved := recordOf(granting(1, 2))
	put(moved, 1, 1, "CREATED")
	expectVerdict(t, toldIsStored().Judge(moved), harness.Failed, "where it never was")
	left := recordOf(one, replied(cancel(1, "member-1", uid(1), "c"), 200, `{"state":"CANCELLED"}`))
	put(left, 1, 1, "CREATED")
	expectVerdict(t, toldIsStored().Judge(left), harness.Failed, "tells of a cancellation")
	lost := recordOf(denied(book(1, "member-1", 1, utcAt(1), "key"), 409, "overlap", `,"resource_id":1`))
	put(lost, 1, 1, "BOOKED")
	expectVerdict(t, rowsWereTold().Judge(lost), harness.Failed, "was told something else")
	twice := one
	twice.Key = "another"
	both := recordOf(one, twice)
	put(both, 1, 1, "BOOKED")
	expectVerdict(t, rowsWereTold().Judge(both), harness.Failed, "told to 2 bookings")
}

func TestKeysAndContract(t *testing.T) {
	one, other := granting(1, 1), granting(1, 1)
	expectVerdict(t, sameAnswers(true).Judge(recordOf(one)), harness.Unknown, "none of them repeatedly")
	expectVerdict(t, sameAnswers(true).Judge(recordOf(one, other)), harness.Pass, "2 answers to 1 requests")
	other.Output += " "
	expectVerdict(t, sameAnswers(false).Judge(recordOf(one, other)), harness.Failed, "1 of 2")
	expectVerdict(t, contractAnswers().Judge(recordOf(one)), harness.Pass, "1 answers")
	r := book(1, "member-1", 1, utcAt(1), "key")
	expectVerdict(t, contractAnswers().Judge(recordOf(denied(r, 409, "busy", ""))), harness.Failed, "409 busy to book")
	expectVerdict(t, contractAnswers().Judge(recordOf(denied(r, 503, "busy", ""))), harness.Failed, "no Retry-After")
	expectVerdict(t, contractAnswers().Judge(recordOf(denied(conflicts(0, staff(0)), 409, "in-progress", ""))), harness.Failed, "to conflicts")
	expectVerdict(t, discreet().Judge(recordOf(denied(r, 409, "overlap", `,"resource_id":1`))), harness.Pass, "1 answers")
	expectVerdict(t, discreet().Judge(recordOf(denied(r, 409, "overlap", `,"resource_id":1,"appointment_id":"a"`))), harness.Failed, "tells appointment_id")
	expectVerdict(t, discreet().Judge(recordOf(denied(r, 409, "overlap", ``))), harness.Failed, "does not name the resource")
}
