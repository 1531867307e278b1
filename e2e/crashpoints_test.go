package e2e

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/explore"
	"github.com/overbook/overbook/harness/rundir"
)

// enumerations are the scenarios that the page on crash points is made from,
// each with what is set. Of the ticket shop only dropped connections are in the
// table, and so of the calendar: a killed server must be started again at each
// point, and what it leaves is the same, which the scenarios check in the suite.
var enumerations = [][]string{
	{"telescope/crash-points@booking"},
	{"telescope/crash-points@cancellation"},
	{"telescope/crash-points@closure"},
	{"tickets/crash-points@hold", "--set", "faults=drop"},
	{"tickets/crash-points@charge", "--set", "faults=drop"},
	{"calendar/crash-points@create", "--set", "faults=drop"},
	{"calendar/crash-points@reschedule", "--set", "faults=drop"},
	{"calendar/crash-points@cancel", "--set", "faults=drop"},
}

// The table of docs/crash-points.md is what the suite finds. When it changes
// with good reason, the lines to put there are in this test's output.
func TestCrashPointsPageIsTrue(t *testing.T) {
	page, err := os.ReadFile("../docs/crash-points.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t)
	var lines []string
	for _, args := range enumerations {
		p.run(t, 0, append([]string{"run"}, args...)...)
		lines = append(lines, pointClasses(record(t, p, args[0]))...)
	}
	p.run(t, 0, "run", "telescope/crash-after-email")
	lines = append(lines, mailLine(t, record(t, p, "telescope/crash-after-email")))
	for _, line := range lines {
		if !strings.Contains(string(page), line+"\n") {
			t.Errorf("docs/crash-points.md lacks the line\n%s", line)
		}
	}
	if n := strings.Count(string(page), "\n| a "); n != len(lines) {
		t.Errorf("docs/crash-points.md has %d lines about points, the suite found %d", n, len(lines))
	}
}

func record(t *testing.T, p *place, name string) harness.Record {
	t.Helper()
	dir, err := rundir.Resolve(p.path("runs"), name)
	if err != nil {
		t.Fatal(err)
	}
	rec, _, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// settled are the states of the calendar's requests from their COMMIT on. The
// synchroniser may be through or not when the rows are looked at.
var settled = map[string]string{
	"booked": "booked, created or not yet", "moved": "moved, told or not yet", "told": "moved, told or not yet",
	"cancelled": "cancelled, deleted or not yet", "deleted": "cancelled, deleted or not yet",
}

// pointsOf are the points of a record, those of a calendar's request with what
// does not depend on how far its synchroniser has come by itself: the states from
// the COMMIT on are one, and its moments come behind the answer's.
func pointsOf(rec harness.Record) []explore.Point {
	points := explore.PointsOf(rec, "")
	if !strings.HasPrefix(rec.Plan.Scenario, "calendar/") {
		return points
	}
	for i, p := range points {
		points[i].State = cmp.Or(settled[p.State], p.State)
		if p.Crash == "create" && p.State == "created" {
			points[i].State = settled["booked"]
		}
		if points[i].Done = false; byWorker(p) {
			points[i].Fault.At = worker
		}
	}
	slices.SortStableFunc(points, func(a, b explore.Point) int {
		return cmp.Compare(strconv.FormatBool(a.Fault.At == worker), strconv.FormatBool(b.Fault.At == worker))
	})
	return points
}

// worker is the place of what the synchroniser does for a request: it strikes
// nobody who asks, they were answered.
const worker harness.Moment = "what the synchroniser does for it, up to its last COMMIT"

func byWorker(p explore.Point) bool { return strings.HasPrefix(p.First, "2") }

// pointClasses has a line for each action and run of points that ended alike.
func pointClasses(rec harness.Record) []string {
	type class struct {
		first, last explore.Point
		n           int
	}
	var classes []class
	for _, p := range pointsOf(rec) {
		if i := len(classes) - 1; i >= 0 {
			l := classes[i].last
			if l.Action == p.Action && l.Done == p.Done && l.State == p.State && l.First == p.First && l.Retry == p.Retry {
				classes[i].last, classes[i].n = p, classes[i].n+1
				continue
			}
		}
		classes = append(classes, class{first: p, last: p, n: 1})
	}
	var lines []string
	for i, c := range classes {
		first := i == 0 || classes[i-1].first.Action != c.first.Action
		lines = append(lines, fmt.Sprintf("| a %s | %s | %s | %d | %s | %s | %d |",
			c.first.Crash, c.first.Action, span(c.first, c.last, first), c.n, cmp.Or(c.first.State, yes(c.first.Done)), c.first.First, c.first.Retry))
	}
	return lines
}

// span is from where to where; start says that nothing was before it.
func span(first, last explore.Point, start bool) string {
	from := placeOf(first)
	if first.Fault.At == harness.BeforeStatement && !start {
		from = "before the next statement"
	}
	if first.Number == last.Number || first.Fault.At == worker {
		return from
	}
	return from + " to " + placeOf(last)
}

// placeOf is a point's place without the text of its statement.
func placeOf(p explore.Point) string {
	switch p.Fault.At {
	case harness.BeforeStatement:
		return "before the first statement"
	case harness.BeforeCommit:
		return "before COMMIT"
	case harness.AfterCommit:
		return "after COMMIT"
	case harness.BeforeResponse:
		return "before the answer's first byte"
	case harness.MomentReceived:
		return "the provider's call is on its way"
	case harness.MomentAccepted:
		return "the provider has decided"
	default:
		return string(p.Fault.At)
	}
}

// mailLine is about the one crash that is not one of a request.
func mailLine(t *testing.T, rec harness.Record) string {
	t.Helper()
	most := 0.0
	rows, ok := rec.Find("ledger:email")
	if !ok {
		t.Fatal("the provider's ledger was not read")
	}
	for _, r := range rows.Rows {
		if n, _ := r["deliveries"].(float64); n > most {
			most = n
		}
	}
	return fmt.Sprintf("| a mail | kill | the provider has it, the server has not heard of it | 1 | yes | none | sent %.0f times, one event id |", most)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
