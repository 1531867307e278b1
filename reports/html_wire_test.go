package reports_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

// ofClass gives the elements of a name whose class has the word.
func ofClass(root *html.Node, name, word string) []*html.Node {
	return slices.DeleteFunc(elements(root, name), func(n *html.Node) bool { return !slices.Contains(strings.Fields(attr(n, "class")), word) })
}

func onePage(r harness.Result, rec harness.Record) reports.Page {
	return reports.Page{Suite: harness.Suite{Scenarios: []harness.Result{r}}, Records: map[string]harness.Record{r.Name: rec}}
}

// TestWrongPointsLieOpenAndSayTheWord: those that a check blames come first,
// marked by a word; the others are folded away below them.
func TestWrongPointsLieOpenAndSayTheWord(t *testing.T) {
	root := parsed(t, rendered(t, onePage(unrecovered())))
	section := ofClass(root, "section", "points")
	if len(section) != 1 {
		t.Fatalf("%d sections of crash points, want 1", len(section))
	}
	tables := ofClass(section[0], "table", "stack")
	if len(tables) != 2 {
		t.Fatalf("%d tables, want the wrong points and the others", len(tables))
	}
	wrong, rest := elements(tables[0], "tr")[1:], elements(tables[1], "tr")[1:]
	if len(wrong) != 6 || len(rest) != 14 {
		t.Errorf("%d wrong and %d other points, want 6 and 14", len(wrong), len(rest))
	}
	for _, row := range wrong {
		if got := textOf(row); !strings.HasPrefix(got, "WRONG (crash-points)booking") {
			t.Errorf("a wrong point says %q", got)
		}
	}
	if folded := elements(section[0], "details"); len(folded) != 1 || attr(folded[0], "open") != "" || !strings.HasPrefix(textOf(folded[0]), "The other points, in order (14)") {
		t.Error("the other points are not folded away")
	}
	if want := "crash points of a booking: 20 of 20, 6 went wrong"; !strings.Contains(textOf(section[0]), want) {
		t.Errorf("it does not say %q", want)
	}
	passed := parsed(t, rendered(t, onePage(recovered())))
	if got := textOf(ofClass(passed, "section", "points")[0]); strings.Contains(got, "WRONG") || !strings.Contains(got, "All 16 points, in order") {
		t.Errorf("where all is well the page says %q", got)
	}
}

// TestTimelineShowsTheEvidencesCrashPoint: of an enumeration the round of the
// first wrong point, with the database sessions that its operations used.
func TestTimelineShowsTheEvidencesCrashPoint(t *testing.T) {
	root := parsed(t, rendered(t, onePage(unrecovered())))
	names := ofClass(root, "svg", "names")[0]
	for _, want := range []string{"sut-1 session 6", "sut-1 session 7"} {
		if !strings.Contains(textOf(names), want) {
			t.Errorf("no lane %q among %q", want, textOf(names))
		}
	}
	picture := ofClass(root, "svg", "tl")[0]
	for class, want := range map[string]int{"db": 7, "struck": 1, "tx": 2, "broken": 0, "other": 0} {
		if got := len(ofClass(picture, "g", class)); got != want {
			t.Errorf("%d bars of class %s, want %d", got, class, want)
		}
	}
	struck := textOf(ofClass(picture, "g", "struck")[0])
	for _, want := range []string{"commit → COMMIT", "sut-1 session 6", "op op-11", "fault: drop at after-commit", "the answer never reached the server", "✕"} {
		if !strings.Contains(struck, want) {
			t.Errorf("the statement that was struck says %q, want %q in it", struck, want)
		}
	}
	for _, want := range []string{"since the first request of one crash point of the run was sent", "38 operations are outside of this window (preparation, other crash points)", "statement in Postgres"} {
		if !strings.Contains(textOf(root), want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	passed := parsed(t, rendered(t, onePage(recovered())))
	if got := textOf(passed); !strings.Contains(got, "since the first request of the last crash point of the run was sent") || strings.Contains(got, "statement in Postgres") {
		t.Error("without evidence the last point is not shown, or sessions are")
	}
}

// wireRecord has an operation of the evidence on many sessions; on the first
// one statement is held, one fails, one is of another operation, and one is
// long over when the operation begins.
func wireRecord(sessions int) harness.Record {
	ms := time.Millisecond
	unit := func(op string, session int, at time.Duration) harness.Unit {
		return harness.Unit{
			Session: session, Server: "sut-1", Op: op, Tx: session, Before: "T", After: "T", Statements: []harness.Statement{{SQL: "select <1>", Tag: "SELECT 1"}},
			Arrived: at, Forwarded: at + 10*time.Microsecond, Answered: at + ms, Delivered: at + ms,
		}
	}
	rec := harness.Record{History: harness.History{Operations: []harness.Operation{
		{ID: "op-1", Process: 1, Kind: "book", Sent: 100 * ms, Answered: 200 * ms, Outcome: harness.OK},
		{ID: "op-2", Process: 2, Kind: "book", Sent: 1 * ms, Answered: 210 * ms, Outcome: harness.OK},
	}}}
	held, failed := unit("op-1", 1, 110*ms), unit("op-1", 1, 140*ms)
	held.Forwarded, held.Answered, held.Delivered = 130*ms, 131*ms, 131*ms
	failed.Statements[0].Code, failed.Statements[0].Tag = "40001", ""
	rec.Postgres = []harness.Unit{unit("op-2", 1, 5*ms), held, unit("op-2", 1, 135*ms), failed}
	for i := 2; i <= sessions; i++ {
		rec.Postgres = append(rec.Postgres, unit("op-1", i, 150*ms+time.Duration(i)*ms))
	}
	return rec
}

func blamed(op string) harness.Result {
	r, _ := failing()
	r.Checks = []harness.Verdict{{ID: "T-I2", Status: harness.Failed, Evidence: []harness.Evidence{{Text: "x", Ops: []string{op}}}}}
	return r
}

func TestSessionLanesTellHeldFailedAndForeign(t *testing.T) {
	root := parsed(t, rendered(t, onePage(blamed("op-1"), wireRecord(15))))
	picture := ofClass(root, "svg", "tl")[0]
	for class, want := range map[string]int{"held": 1, "broken": 1, "other": 1, "db": 4 + 11} {
		if got := len(ofClass(picture, "g", class)); got != want {
			t.Errorf("%d bars of class %s, want %d", got, class, want)
		}
	}
	for class, want := range map[string]string{
		"held": "select <1> → SELECT 1; sut-1 session 1, op op-1; held for 20.0 ms", "broken": "ERROR 40001", "other": "op op-2",
	} {
		if got := textOf(ofClass(picture, "g", class)[0]); !strings.Contains(got, want) {
			t.Errorf("the %s bar says %q, want %q in it", class, got, want)
		}
	}
	if want := "3 more database sessions of the evidence are not drawn."; !strings.Contains(textOf(root), want) {
		t.Errorf("the page does not say %q", want)
	}
}

// TestSessionLanesLeaveRoomForTheOthers: a session of very many statements does
// not use up the bars of the clients below it.
func TestSessionLanesLeaveRoomForTheOthers(t *testing.T) {
	rec := wireRecord(1)
	one := rec.Postgres[1]
	for i := range reports.TimelineBars + 50 {
		u := one
		u.Arrived += time.Duration(i) * time.Microsecond
		u.Forwarded, u.Answered, u.Delivered = u.Arrived+1, u.Arrived+2, u.Arrived+2
		rec.Postgres = append(rec.Postgres, u)
	}
	root := parsed(t, rendered(t, onePage(blamed("op-1"), rec)))
	if drawn, _ := bars(root); drawn != 3 {
		t.Errorf("%d operations are drawn, want both clients and the evidence's apart", drawn)
	}
	if want := "9853 more statements of these database sessions are not drawn."; !strings.Contains(textOf(root), want) {
		t.Errorf("the page does not say %q", want)
	}
}
