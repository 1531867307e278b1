package reports

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
)

func pointEvent(number, of int, change func(map[string]string)) harness.Event {
	e := harness.Event{Kind: harness.EventPoint, Subject: "booking", Attrs: map[string]string{
		"number": fmt.Sprint(number), "of": fmt.Sprint(of), "label": "after COMMIT", "action": "kill", "done": "true", "first": "no answer", "retry": "201",
		"op": fmt.Sprintf("op-%d", 2*number-1), "again": fmt.Sprintf("op-%d", 2*number),
	}}
	if change != nil {
		change(e.Attrs)
	}
	return e
}

func failedOn(id string, ops ...string) harness.Verdict {
	v := harness.Verdict{ID: id, Status: harness.Failed}
	for _, op := range ops {
		v.Evidence = append(v.Evidence, harness.Evidence{Text: op, Ops: []string{op}})
	}
	return v
}

// TestEnumerations: what is counted, what is marked and in which order.
func TestEnumerations(t *testing.T) {
	retry := func(status string) func(map[string]string) {
		return func(a map[string]string) { a["retry"] = status }
	}
	three := []harness.Event{pointEvent(3, 3, nil), pointEvent(1, 3, nil), pointEvent(2, 3, nil)}
	passed := harness.Result{Verdict: harness.Pass, Checks: []harness.Verdict{{ID: "points", Status: harness.Pass}}}
	failed := func(v ...harness.Verdict) harness.Result { return harness.Result{Verdict: harness.Failed, Checks: v} }
	for _, c := range []struct {
		name   string
		result harness.Result
		events []harness.Event
		line   string
		rows   []string // number and mark
	}{
		{"all tried", passed, three, "crash points of a booking: 3 of 3", []string{"1", "2", "3"}},
		{"some not tried", passed, three[:2], "crash points of a booking: 2 of 3, 1 not tried", []string{"1", "3"}},
		{"one tried twice counts once", passed, append(three[:2:2], pointEvent(1, 3, nil)), "crash points of a booking: 2 of 3, 1 not tried", []string{"1", "1", "3"}},
		{
			"named by the evidence, the retry's operation too", failed(failedOn("L-I3", "op-3"), failedOn("points", "op-4", "op-5")), three,
			"crash points of a booking: 3 of 3, 2 went wrong",
			[]string{"2 WRONG (L-I3, points)", "3 WRONG (points)", "1"},
		},
		{
			"a retry without success", failed(failedOn("points", "op-6")),
			[]harness.Event{pointEvent(1, 3, retry("0")), pointEvent(2, 3, retry("409")), pointEvent(3, 3, retry("503"))},
			"crash points of a booking: 3 of 3, 3 went wrong",
			[]string{"3 WRONG (points)", "1 NO SUCCESS", "2 NO SUCCESS"},
		},
		{"what a scenario that passed wanted is not marked", passed, []harness.Event{pointEvent(1, 1, retry("409"))}, "crash points of a booking: 1 of 1", []string{"1"}},
		{"an unknown blames nothing", failed(harness.Verdict{ID: "x", Status: harness.Unknown, Evidence: []harness.Evidence{{Ops: []string{"op-1"}}}}), three, "crash points of a booking: 3 of 3", []string{"1", "2", "3"}},
		{"attributes that are missing", passed, []harness.Event{{Kind: harness.EventPoint}}, "crash points of a request: 0 of 0", []string{"0"}},
		{"evidence without an operation blames nothing", failed(failedOn("points", "")), []harness.Event{pointEvent(1, 1, func(a map[string]string) { a["op"], a["again"] = "", "" })}, "crash points of a booking: 1 of 1", []string{"1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := enumerationsOf(c.result, harness.Record{History: harness.History{Events: c.events}})
			if len(list) != 1 {
				t.Fatalf("%d enumerations, want 1", len(list))
			}
			if got := list[0].line(); got != c.line {
				t.Errorf("got %q, want %q", got, c.line)
			}
			var rows []string
			for _, row := range list[0].Rows {
				rows = append(rows, strings.TrimSpace(fmt.Sprint(row.Number, " ", row.Mark)))
			}
			if diff := cmp.Diff(c.rows, rows); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPointLines: the table of two enumerations, and what a block leaves out.
func TestPointLines(t *testing.T) {
	rec := harness.Record{History: harness.History{Events: []harness.Event{
		pointEvent(1, 2, func(a map[string]string) {
			a["label"], a["action"], a["done"] = "before insert into bookings", "drop", "false"
		}),
		pointEvent(2, 2, func(a map[string]string) { a["first"], a["retry"] = "503", "0" }),
		pointEvent(1, 1, func(a map[string]string) { a["op"], a["again"] = "op-8", "op-9" }),
	}}}
	rec.History.Events[2].Subject = "import"
	passed := harness.Result{Verdict: harness.Pass, Checks: []harness.Verdict{{Status: harness.Pass}}}
	want := []string{
		"crash points of a booking: 2 of 2",
		"  number  fault  first answer  there before the retry  retry      where",
		"       1  drop   no answer     no                      201        before insert into bookings",
		"       2  kill   503           yes                     no answer  after COMMIT",
		"crash points of an import: 1 of 1",
		"  number  fault  first answer  there before the retry  retry      where",
		"       1  kill   no answer     yes                     201        after COMMIT",
	}
	if diff := cmp.Diff(want, trimmed(pointLines(passed, rec, false))); diff != "" {
		t.Error(diff)
	}
	failed := harness.Result{Verdict: harness.Failed, Checks: []harness.Verdict{failedOn("points", "op-4")}}
	want = []string{
		"crash points of a booking: 2 of 2, 1 went wrong",
		"                  number  fault  first answer  there before the retry  retry      where",
		"  WRONG (points)       2  kill   503           yes                     no answer  after COMMIT",
		"  and 1 more, of which no failed check speaks; -v lists them",
	}
	if diff := cmp.Diff(want, trimmed(pointLines(failed, rec, true))[:4]); diff != "" {
		t.Error(diff)
	}
	if got := pointLines(failed, harness.Record{}, true); got != nil {
		t.Errorf("without points it says %q", got)
	}
}

func TestManyWrongPointsAreCounted(t *testing.T) {
	const n = pointsBrief + 5
	var rec harness.Record
	var ops []string
	for i := range n + 3 {
		rec.History.Events = append(rec.History.Events, pointEvent(i+1, n+3, nil))
		if i < n {
			ops = append(ops, fmt.Sprintf("op-%d", 2*i+1))
		}
	}
	lines := pointLines(harness.Result{Verdict: harness.Failed, Checks: []harness.Verdict{failedOn("points", ops...)}}, rec, true)
	if got, want := lines[len(lines)-1], "  and 8 more, 5 of them went wrong, too; -v lists them"; got != want || len(lines) != pointsBrief+3 {
		t.Errorf("%d lines, the last %q; want %d, %q", len(lines), got, pointsBrief+3, want)
	}
}

func TestFaultText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`drop at before-statement(^insert into seats \(a, b\) values \(\$1, 2\)$, 1)`, "drop at before-statement"},
		{`drop at before-statement(^insert into seats \(a, b\) values \(\$1, 2\)$, 1): insert into seats (a, b) values ($1, 2)`, "drop at before-statement: insert into seats (a, b) values ($1, 2)"},
		{"error 40001 at before-commit of sut-2: commit", "error 40001 at before-commit: commit"},
		{"delay 200ms at upstream-accepted(POST /messages): POST /messages", "delay 200ms at upstream-accepted: POST /messages"},
		{"kill sut-1 after pyxis accepted", "kill sut-1 after pyxis accepted"},
		{"servers' time moved by 1h", "servers' time moved by 1h"},
		{"", ""},
	} {
		if got := faultText(c.text); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

// TestFaultLines: what struck is listed, what was only put in place is not,
// and of many those of the evidence are not left out.
func TestFaultLines(t *testing.T) {
	var rec harness.Record
	at := func(i int) time.Duration { return time.Duration(i) * time.Second }
	for i := range 30 {
		rec.History.Operations = append(rec.History.Operations, harness.Operation{ID: fmt.Sprintf("op-%d", i), Server: "sut-1", Sent: at(i)})
		rec.History.Events = append(rec.History.Events,
			harness.Event{At: at(i), Kind: harness.EventFault, Subject: "clients", Text: "in place: kill at before-response(book, 1)"},
			harness.Event{At: at(i) + time.Millisecond, Kind: harness.EventFault, Subject: "sut-1", Text: fmt.Sprintf("kill at after-commit(seats, 1): commit %d", i)},
			harness.Event{At: at(i) + 2*time.Millisecond, Kind: harness.EventHeal, Subject: "postgres", Text: "kill at after-commit(seats, 1)"})
	}
	lines := faultLines(harness.Result{Verdict: harness.Failed, Checks: []harness.Verdict{failedOn("points", "op-25")}}, rec)
	if len(lines) != faultsShown+2 {
		t.Fatalf("%d lines, want %d", len(lines), faultsShown+2)
	}
	for i, want := range map[int]string{
		0:               "faults that took place: 30, from the first request at +25000.000 ms of the run",
		1:               "   -24999.000 ms  sut-1       kill at after-commit: commit 0",
		faultsShown:     "       +1.000 ms  sut-1       kill at after-commit: commit 25",
		faultsShown + 1: "  and 18 more, all in the run directory",
	} {
		if lines[i] != want {
			t.Errorf("line %d: got %q, want %q", i, lines[i], want)
		}
	}
	rec.History.Events = rec.History.Events[:1]
	if got := faultLines(harness.Result{}, rec); got != nil {
		t.Errorf("nothing struck, and it says %q", got)
	}
}
