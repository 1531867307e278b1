package library

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// stored is a record with intents in these states, each on a seat of its own,
// and with the charges that belong to the SUCCEEDED.
func stored(states ...string) harness.Record {
	intents, charges := harness.Rows{Query: "table:library_reservation_intents", Rows: []harness.Row{}}, harness.Rows{Query: "ledger:pyxis", Rows: []harness.Row{}}
	for i, s := range states {
		row := harness.Row{"intent_id": fmt.Sprint(i), "student": fmt.Sprintf("student-%d", i+1), "seat": fmt.Sprintf("A-%03d", i+1), "state": s, "charge_id": nil, "looks": 1.0}
		if s == "SUCCEEDED" {
			row["charge_id"] = fmt.Sprintf("c-%d", i+1)
			charges.Rows = append(charges.Rows, harness.Row{"student": row["student"], "seat": row["seat"], "charge_id": row["charge_id"]})
		}
		intents.Rows = append(intents.Rows, row)
	}
	return harness.Record{Rows: map[string]harness.Rows{intents.Query: intents, charges.Query: charges}}
}

func expect(t *testing.T, v harness.Verdict, status harness.Status, sentence string) {
	t.Helper()
	if v.Status != status || !strings.Contains(v.Summary, sentence) {
		t.Errorf("got %v %q, want %v %q", v.Status, v.Summary, status, sentence)
	}
}

func TestStates(t *testing.T) {
	judge := func(want map[string]int, rec harness.Record) harness.Verdict {
		return states("as planned", want).Judge(rec)
	}
	want := map[string]int{"SUCCEEDED": 1, "FAILED_RACE": 2}
	expect(t, judge(want, stored("FAILED_RACE", "SUCCEEDED", "FAILED_RACE")), harness.Pass, "2 FAILED_RACE, 1 SUCCEEDED")
	expect(t, judge(want, stored("SUCCEEDED", "SUCCEEDED", "FAILED_RACE")), harness.Failed, "as planned: got 1 FAILED_RACE, 2 SUCCEEDED")
	expect(t, judge(want, stored("SUCCEEDED", "FAILED_RACE", "FAILED_RACE", "READY")), harness.Failed, "1 READY")
	expect(t, judge(want, stored()), harness.Failed, "got no intent")
	expect(t, judge(want, harness.Record{}), harness.Unknown, "could not be read")
	// Of two users nobody is left to lose the race.
	expect(t, judge(map[string]int{"FAILED_AUTH": 1, "SUCCEEDED": 1, "FAILED_RACE": 0}, stored("FAILED_AUTH", "SUCCEEDED")), harness.Pass, "1 FAILED_AUTH, 1 SUCCEEDED")
}

func TestRowsMatchUpstream(t *testing.T) {
	judge := rowsMatchUpstream().Judge
	expect(t, judge(stored("SUCCEEDED", "FAILED_RACE")), harness.Pass, "1 on both sides")
	expect(t, judge(stored("FAILED_RACE")), harness.Pass, "0 on both sides")
	expect(t, judge(stored()), harness.Unknown, "there was no intent to judge")
	for _, name := range []string{"ledger:pyxis", "table:library_reservation_intents"} {
		rec := stored("SUCCEEDED")
		delete(rec.Rows, name)
		expect(t, judge(rec), harness.Unknown, "could not be read")
	}

	charges := func(change func([]harness.Row) []harness.Row) harness.Record {
		rec := stored("SUCCEEDED", "SUCCEEDED")
		rows := rec.Rows["ledger:pyxis"]
		rows.Rows = change(rows.Rows)
		rec.Rows["ledger:pyxis"] = rows
		return rec
	}
	expect(t, judge(charges(func(r []harness.Row) []harness.Row { return r[:1] })), harness.Failed, "1 differ")
	expect(t, judge(charges(func(r []harness.Row) []harness.Row {
		return append(r, harness.Row{"student": "student-9", "seat": "A-009", "charge_id": "c-9"})
	})), harness.Failed, "1 differ")
	expect(t, judge(charges(func(r []harness.Row) []harness.Row {
		return append(r, harness.Row{"student": "outsider-1", "seat": "A-009", "charge_id": "c-9"})
	})), harness.Pass, "2 on both sides")
	expect(t, judge(charges(func(r []harness.Row) []harness.Row { r[0]["charge_id"] = "c-7"; return r })), harness.Failed, "2 differ")
	expect(t, judge(charges(func(r []harness.Row) []harness.Row { r[0]["student"] = nil; return r })), harness.Failed, "2 differ")
}

func TestPostsOfIntents(t *testing.T) {
	judge := postsOfIntents().Judge
	post := func(student, seat, reference string) harness.Record {
		rec := stored("SUCCEEDED", "FAILED_RACE")
		rec.Upstream = []harness.UpstreamCall{{
			Seq: 1, Upstream: "pyxis", Caller: "sut-1", Method: "POST", Path: "/reserve",
			Request: fmt.Sprintf(`{"student":%q,"seat":%q,"reference":%q}`, student, seat, reference),
		}}
		return rec
	}
	expect(t, judge(post("student-1", "A-001", "0")), harness.Pass, ": 1")
	expect(t, judge(post("student-1", "A-001", "an action's id")), harness.Failed, "1 of 1 do not")
	expect(t, judge(post("student-1", "A-001", "1")), harness.Failed, "1 of 1 do not")
	expect(t, judge(post("student-1", "A-002", "0")), harness.Failed, "1 of 1 do not")
	expect(t, judge(post("", "A-001", "0")), harness.Failed, "1 of 1 do not")
	waits := post("student-1", "B-017", "0")
	waits.Rows["table:library_reservation_intents"].Rows[0]["kind"] = "wait"
	expect(t, judge(waits), harness.Pass, ": 1")
	expect(t, judge(stored("FAILED_RACE")), harness.Unknown, "no reserve POST")
	unread := post("student-1", "A-001", "0")
	delete(unread.Rows, "table:library_reservation_intents")
	expect(t, judge(unread), harness.Unknown, "could not be read")
}

func answers(status ...int) harness.Record {
	var rec harness.Record
	for i, s := range status {
		op := harness.Operation{ID: fmt.Sprintf("op-%d", i+1), Kind: "confirm", Status: s, Sent: 1, Answered: 2, Output: `{"intent_id":"i-1"}`, Header: map[string]string{}}
		if s == 0 {
			op.Answered, op.Output = 0, ""
		}
		rec.History.Operations = append(rec.History.Operations, op)
	}
	return rec
}

func TestEveryAnswer(t *testing.T) {
	judge := everyAnswer().Judge
	expect(t, judge(answers(201, 202, 409)), harness.Pass, ": 3")
	expect(t, judge(answers()), harness.Unknown, "nobody confirmed")
	expect(t, judge(answers(201, 500)), harness.Failed, "1 of 2 clients")
	expect(t, judge(answers(201, 0)), harness.Failed, "1 of 2 clients")
	expect(t, judge(answers(201, 503)), harness.Failed, "1 of 2 clients")
	patient := answers(201, 503)
	patient.History.Operations[1].Header["Retry-After"] = "1"
	expect(t, judge(patient), harness.Pass, ": 2")

	// What we did not send, or gave up ourselves, is nobody's broken promise.
	unsent := answers(201, 0)
	unsent.History.Operations[1].Sent = 0
	expect(t, judge(unsent), harness.Unknown, "1 of 2 confirmations were not sent")
	cut := answers(201, 0)
	cut.Trouble = []harness.Trouble{{Reason: harness.ReasonInterrupted, Text: "interrupted"}}
	expect(t, judge(cut), harness.Unknown, "1 of 2 confirmations were not sent, given up")
	cut.History.Operations[0].Status = 500
	expect(t, judge(cut), harness.Failed, "1 of 2 clients")

	// A server whose database or upstream is gone may say so in any way it likes.
	expect(t, judge(broken(answers(201, 502))), harness.Unknown, "1 of 2 confirmations")
	expect(t, judge(broken(answers(201, 418))), harness.Failed, "1 of 2 clients")
}

// The baseline may give a seat twice, but owes everybody an answer.
func TestMeasured(t *testing.T) {
	s := Measured(oneSeatDirect())
	verdict := func(rec harness.Record) (v harness.Verdict) {
		for _, c := range s.Checks(s.Defaults()) {
			switch c.ID {
			case "L-I3":
				t.Error("one winner is demanded of the baseline")
			case "answers":
				v = c.Judge(rec)
			}
		}
		return v
	}
	expect(t, verdict(answers(201, 201, 409)), harness.Pass, "201 or 409: 3")
	expect(t, verdict(answers(201, 202)), harness.Failed, "1 of 2 clients")
	expect(t, verdict(answers(201, 0)), harness.Failed, "1 of 2 clients")
	expect(t, verdict(broken(answers(201, 502))), harness.Unknown, "1 of 2 confirmations")
}

// broken is the record of a run whose environment broke.
func broken(rec harness.Record) harness.Record {
	rec.Trouble = []harness.Trouble{{Reason: harness.ReasonEnvironment, Text: "drive: postgres died"}}
	return rec
}

func TestOneAnswer(t *testing.T) {
	judge := oneAnswer().Judge
	expect(t, judge(answers(201, 201, 0)), harness.Pass, "2 answers, one intent")
	expect(t, judge(answers(0, 0)), harness.Unknown, "no copy was answered")
	busy := answers(201, 503)
	busy.History.Operations[1].Output = `{"type":"/problems/busy"}`
	expect(t, judge(busy), harness.Failed, "2 different intents in 2 answers")
	expect(t, judge(broken(busy)), harness.Pass, "1 answers, one intent")
	other := answers(201, 201)
	other.History.Operations[1].Output = `{"intent_id":"i-2"}`
	expect(t, judge(other), harness.Failed, "2 different intents in 2 answers")
	nameless := answers(201, 201)
	nameless.History.Operations[0].Output, nameless.History.Operations[1].Output = "{}", "<html>"
	expect(t, judge(nameless), harness.Failed, "1 different intents in 2 answers")
}

func TestFirstIsTold(t *testing.T) {
	judge := firstIsTold().Judge
	expect(t, judge(answers(403)), harness.Pass, "1 x 403")
	expect(t, judge(answers(409)), harness.Failed, "got 1 x 409")
	expect(t, judge(answers(0)), harness.Unknown, "1 x none")
	inBurst := answers(403)
	inBurst.History.Operations[0].Burst = "burst"
	expect(t, judge(inBurst), harness.Unknown, "no operation")
}

func TestTold(t *testing.T) {
	judge := told("stranger", "404", "unknown").Judge
	rec := answers(201, 404)
	expect(t, judge(rec), harness.Unknown, "no operation")
	rec.History.Operations[1].Kind = "stranger"
	expect(t, judge(rec), harness.Pass, "1 x 404")
	rec.History.Operations[1].Status = 201
	expect(t, judge(rec), harness.Failed, "got 1 x 201")
}

func TestBacksOff(t *testing.T) {
	judge := backsOff().Judge
	expect(t, judge(stored("WAITING_FOR_SEAT")), harness.Pass, "at most 1")
	expect(t, judge(stored()), harness.Unknown, "could not be read")
	idle, mute := stored("WAITING_FOR_SEAT"), stored("WAITING_FOR_SEAT")
	idle.Rows["table:library_reservation_intents"].Rows[0]["looks"] = 0.0
	expect(t, judge(idle), harness.Unknown, "no intent ever looked")
	delete(mute.Rows["table:library_reservation_intents"].Rows[0], "looks")
	expect(t, judge(mute), harness.Unknown, "does not say how often")
	eager := stored("WAITING_FOR_SEAT", "WAITING_FOR_SEAT")
	eager.Rows["table:library_reservation_intents"].Rows[1]["looks"] = 5.0
	expect(t, judge(eager), harness.Failed, "looked for a seat 5 times")
}

func TestReservePosts(t *testing.T) {
	rec := harness.Record{Counts: []harness.UpstreamCount{
		{Upstream: "pyxis", Method: "POST", Path: "/reserve", Ledger: 3, WireMock: 3},
		{Upstream: "pyxis", Method: "POST", Path: "/reserve", Key: "A-001", Ledger: 2, WireMock: 1},
		{Upstream: "pyxis", Method: "POST", Path: "/reserve", Key: "B-002", Ledger: 1, WireMock: -1, Error: "gone"},
	}}
	for _, forwarded := range []time.Duration{0, 5, 6} { // the first was dropped on the wire
		rec.Upstream = append(rec.Upstream, harness.UpstreamCall{
			Upstream: "pyxis", Method: "POST", Path: "/reserve", Request: `{"seat":"C-003"}`, Received: 4, Forwarded: forwarded,
		})
	}
	for seat, want := range map[string][2]int{"A-001": {2, 1}, "B-002": {1, -1}, "C-003": {2, -1}, "D-004": {0, -1}} {
		if got := ReservePosts(rec, seat); got.Ledger != want[0] || got.WireMock != want[1] {
			t.Errorf("%s: %+v, want %v", seat, got, want)
		}
	}
}

func TestEachSeatNeedsItsPlan(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a plan without seats was judged")
		}
	}()
	eachSeat(check.Exactly(1)).Judge(harness.Record{Plan: harness.Plan{Choices: json.RawMessage(`{}`)}})
}

func TestSeatNamesDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 500).Draw(t, "seats")
		seen := map[string]bool{}
		for _, s := range seatNames(harness.Seed(rapid.Uint32().Draw(t, "seed")).Rand("choices"), n) {
			seen[s] = true
		}
		if len(seen) != n {
			t.Errorf("%d different names for %d seats", len(seen), n)
		}
	})
}

func TestSplitLosesNobody(t *testing.T) {
	people := students(11)
	seen := map[string]bool{}
	for _, part := range split(people, 4) {
		if len(part) < 2 || len(part) > 3 {
			t.Errorf("a part of %d", len(part))
		}
		for _, p := range part {
			seen[p] = true
		}
	}
	if len(seen) != len(people) {
		t.Errorf("%d of %d people are left", len(seen), len(people))
	}
}
