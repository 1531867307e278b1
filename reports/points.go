package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
)

// Bounds of the crash points that are listed. An enumeration is a few dozen
// moments, each once for every action.
const (
	pointsShown = 200 // of one enumeration, where all are asked for
	pointsBrief = 20  // of those that went wrong, in a block of the text report
)

// A pointRow is one crash point as a reader asks for it: where, what was done,
// what did the client get, was it there before the retry, what did the retry get.
type pointRow struct {
	Number, Of int
	Request    string // "booking"
	Action     string // "kill"
	At         string // "after COMMIT"
	First      string // "no answer", "503"
	There      string // "yes" or "no"
	Retry      string // "201", "no answer"
	Mark       string // what went wrong with it: "WRONG (L-I3)", "NO SUCCESS", or ""
}

// An enumeration is the crash points of one request: those that went wrong
// first, otherwise by number.
type enumeration struct {
	Request   string
	Tried, Of int // points that were tried, and that there are
	Wrong     int // rows with a mark
	Rows      []pointRow
}

// enumerationsOf reads the crash points of a record, by request. A point is
// marked when a check that failed names one of its operations as evidence, or,
// as long as the scenario did not pass, when its retry had no success.
func enumerationsOf(r harness.Result, rec harness.Record) []enumeration {
	blamed := blamedOps(r)
	byRequest := map[string]*enumeration{}
	var names []string
	for _, e := range rec.History.Events {
		if e.Kind != harness.EventPoint {
			continue
		}
		row := pointOf(e)
		row.Mark = pointMark(e, row, blamed, severity(r))
		n := byRequest[row.Request]
		if n == nil {
			n = &enumeration{Request: row.Request}
			byRequest[row.Request] = n
			names = append(names, row.Request)
		}
		n.add(row)
	}
	slices.Sort(names)
	list := make([]enumeration, 0, len(names))
	for _, name := range names {
		n := byRequest[name]
		slices.SortStableFunc(n.Rows, func(a, b pointRow) int { return cmp.Or(rankOf(a)-rankOf(b), a.Number-b.Number) })
		list = append(list, *n)
	}
	return list
}

func (n *enumeration) add(row pointRow) {
	again := slices.ContainsFunc(n.Rows, func(o pointRow) bool { return o.Number == row.Number })
	if row.Number > 0 && !again {
		n.Tried++
	}
	n.Of = max(n.Of, row.Of)
	if row.Mark != "" {
		n.Wrong++
	}
	n.Rows = append(n.Rows, row)
}

// rankOf puts points that a check blames before those without success, and
// these before the others.
func rankOf(row pointRow) int {
	switch row.Mark {
	case "":
		return 2
	case noSuccess:
		return 1
	}
	return 0
}

func pointOf(e harness.Event) pointRow {
	a := e.Attrs
	number, _ := strconv.Atoi(a["number"]) // what is no number is shown as 0, and not counted
	of, _ := strconv.Atoi(a["of"])
	row := pointRow{
		Number: number, Of: of, Request: cmp.Or(oneLine(e.Subject), "request"), Action: oneLine(a["action"]), At: shortened(oneLine(a["label"]), 90),
		There: "no", First: cmp.Or(oneLine(a["first"]), "not recorded"), Retry: cmp.Or(oneLine(a["retry"]), "not recorded"),
	}
	if a["done"] == "true" {
		row.There = "yes"
	}
	if row.Retry == "0" {
		row.Retry = "no answer"
	}
	return row
}

// noSuccess marks a point whose retry was not answered with a success.
const noSuccess = "NO SUCCESS"

func pointMark(e harness.Event, row pointRow, blamed map[string][]string, status harness.Status) string {
	checks := once(append(slices.Clone(blamed[e.Attrs["op"]]), blamed[e.Attrs["again"]]...))
	switch {
	case len(checks) > 0:
		return "WRONG (" + strings.Join(checks, ", ") + ")"
	case status != harness.Pass && !strings.HasPrefix(row.Retry, "2"):
		return noSuccess
	}
	return ""
}

// blamedOps is the operations that failed checks name as evidence, with the
// ids of those checks.
func blamedOps(r harness.Result) map[string][]string {
	blamed := map[string][]string{}
	for _, v := range r.Checks {
		if checked(v) != harness.Failed {
			continue
		}
		for _, id := range named(v) {
			if id != "" {
				blamed[id] = append(blamed[id], oneLine(v.ID))
			}
		}
	}
	return blamed
}

// line says what was enumerated and how much of it: "crash points of a
// booking: 42 of 42".
func (n enumeration) line() string {
	article := "a"
	if strings.ContainsRune("aeioAEIO", rune(n.Request[0])) {
		article = "an"
	}
	line := fmt.Sprintf("crash points of %s %s: %d of %d", article, n.Request, n.Tried, n.Of)
	if n.Wrong > 0 {
		line += fmt.Sprintf(", %d went wrong", n.Wrong)
	}
	if n.Tried < n.Of {
		line += fmt.Sprintf(", %d not tried", n.Of-n.Tried)
	}
	return line
}

// pointLines is the tables of crash points under a scenario, or nothing. In
// brief, rows that are marked stand for all; without any, all are shown.
func pointLines(r harness.Result, rec harness.Record, brief bool) []string {
	var lines []string
	for _, n := range enumerationsOf(r, rec) {
		lines = append(lines, n.line())
		shown := n.Rows[:min(len(n.Rows), pointsShown)]
		if brief && n.Wrong > 0 {
			shown = shown[:min(n.Wrong, pointsBrief)]
		}
		lines = append(lines, pointTable(shown)...)
		switch left := len(n.Rows) - len(shown); {
		case left > 0 && brief && n.Wrong > len(shown):
			lines = append(lines, fmt.Sprintf("  and %d more, %d of them went wrong, too; -v lists them", left, n.Wrong-len(shown)))
		case left > 0 && brief && n.Wrong > 0:
			lines = append(lines, fmt.Sprintf("  and %d more, of which no failed check speaks; -v lists them", left))
		case left > 0:
			lines = append(lines, fmt.Sprintf("  and %d more, all in the run directory", left))
		}
	}
	return lines
}

// pointTable writes the rows as aligned columns, the marks first.
func pointTable(rows []pointRow) []string {
	mark, action := 0, len("fault")
	for _, row := range rows {
		mark, action = max(mark, len([]rune(row.Mark))), max(action, len([]rune(row.Action)))
	}
	if mark > 0 {
		mark += 2
	}
	const form = "  %-*s%6v  %-*s  %-12s  %-22s  %-9s  %s"
	lines := []string{fmt.Sprintf(form, mark, "", "number", action, "fault", "first answer", "there before the retry", "retry", "where")}
	for _, row := range rows {
		lines = append(lines, fmt.Sprintf(form, mark, row.Mark, row.Number, action, row.Action, row.First, row.There, row.Retry, row.At))
	}
	return lines
}

// pointOps is the operations that crash points are made of.
func pointOps(rec harness.Record) map[string]bool {
	ops := map[string]bool{}
	for _, e := range rec.History.Events {
		if e.Kind == harness.EventPoint {
			ops[e.Attrs["op"]], ops[e.Attrs["again"]] = true, true
		}
	}
	delete(ops, "")
	return ops
}

// shownOps is the operations of a verdict's evidence that are shown with their
// interleaving. Where the evidence is about several crash points it is the
// first one's: the points have nothing to do with each other. It says how many
// there are.
func shownOps(v harness.Verdict, rec harness.Record) (ids []string, of int) {
	points := pointOps(rec)
	for _, e := range v.Evidence {
		if slices.ContainsFunc(e.Ops, func(id string) bool { return points[id] }) {
			if of++; of == 1 {
				ids = once(e.Ops)
			}
		}
	}
	if of == 0 {
		return named(v), 0
	}
	return ids, of
}

// shownPoint is the operations of the crash point that the timeline shows: the
// first that a check which did not pass is about, else the last that was tried;
// or none.
func shownPoint(r harness.Result, rec harness.Record) (ids []string, blamed bool) {
	for _, v := range worstFirst(r.Checks) {
		if checked(v) == harness.Pass {
			continue
		}
		if ids, of := shownOps(v, rec); of > 0 {
			return ids, true
		}
	}
	for _, e := range slices.Backward(rec.History.Events) {
		if e.Kind == harness.EventPoint && e.Attrs["op"] != "" {
			return []string{e.Attrs["op"], e.Attrs["again"]}, false
		}
	}
	return nil, false
}
