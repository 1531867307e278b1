package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// StatusKey is the key of an operation in tallies: its HTTP status, or "none".
func StatusKey(op harness.Operation) string {
	if op.Status == 0 {
		return "none"
	}
	return fmt.Sprint(op.Status)
}

// A TallyRule says how many answers of each status a group of operations must have got.
type TallyRule struct {
	ID, Doc, Rule string

	// Group sorts operations into groups ("" leaves an operation out).
	Group func(harness.Operation) string

	// Want gives the expected tally of every group.
	Want func(harness.Record) map[string]map[string]int
	_    struct{}
}

// Tally makes a check of the rule. A status that came up more often than
// allowed is a violation. When only answers are missing (not given, or the
// operations not recorded) it is Unknown, as any of them might have been the
// right one. In a run whose environment broke, answers of 500 and above and the
// 202 that leaves it open are no violation either: the server may be right to
// give them.
func Tally(r TallyRule) harness.Check {
	return harness.Check{ID: r.ID, Doc: r.Doc, Rule: r.Rule, Judge: r.judge}
}

func (r TallyRule) judge(rec harness.Record) harness.Verdict {
	groups := map[string][]harness.Operation{}
	for _, op := range rec.History.Operations {
		if g := r.Group(op); g != "" {
			groups[g] = append(groups[g], op)
		}
	}
	want := r.Want(rec)
	if len(want) == 0 {
		return harness.Undecided(harness.ReasonUndelivered, "no group of operations to judge")
	}
	var wrong []harness.Evidence
	open, judged := "", 0
	broken := Broken(rec)
	for _, g := range slices.Sorted(maps.Keys(want)) {
		got := Count(groups[g])
		judged += len(groups[g])
		excess, differs := compare(got, want[g], broken)
		switch {
		case excess:
			wrong = append(wrong, tallyEvidence(g, got, want[g], groups[g]))
		case differs && open == "":
			open = fmt.Sprintf("%s: got %s, want %s", g, cmp.Or(tallyText(got), "no operation"), tallyText(want[g]))
		}
	}
	switch {
	case len(wrong) > 0:
		return harness.Violated(firstEvidence(wrong), "%s: %s", r.Doc, strings.SplitN(wrong[0].Text, "\n", 2)[0])
	case open != "":
		return harness.Undecided(harness.ReasonUndelivered, "%s", open)
	case judged == 0:
		return harness.Undecided(harness.ReasonVacuous, "there was no operation to judge")
	}
	return harness.Passed("%s: %s in %s", r.Doc, tallyText(want[slices.Sorted(maps.Keys(want))[0]]), plural(len(want), "group"))
}

// Broken says whether the environment broke in the run, so that a server which
// answers 500 and above may be right to do so.
func Broken(rec harness.Record) bool {
	return slices.ContainsFunc(rec.Trouble, func(t harness.Trouble) bool { return t.Reason == harness.ReasonEnvironment })
}

// Count tallies operations by status.
func Count(ops []harness.Operation) map[string]int {
	n := map[string]int{}
	for _, op := range ops {
		n[StatusKey(op)]++
	}
	return n
}

// compare says whether a status came up more often than allowed, and whether
// the tallies differ at all. In a broken environment a server's own failures
// (three digits from 500 on) and its 202 are not an excess.
func compare(got, want map[string]int, broken bool) (excess, differs bool) {
	for status, n := range got {
		if n != want[status] {
			differs = true
		}
		if status != "none" && n > want[status] && (!broken || (status < "500" && status != "202")) {
			excess = true
		}
	}
	for status, n := range want {
		if got[status] != n {
			differs = true
		}
	}
	return excess, differs
}

func tallyText(t map[string]int) string {
	parts := make([]string, 0, len(t))
	for _, s := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%d x %s", t[s], s))
	}
	return strings.Join(parts, ", ")
}

// tallyEvidence shows the operations of the statuses that are in excess.
func tallyEvidence(group string, got, want map[string]int, ops []harness.Operation) harness.Evidence {
	e := harness.Evidence{Text: fmt.Sprintf("%s: got %s, want %s", group, tallyText(got), tallyText(want))}
	shown := 0
	for _, op := range ops {
		if got[StatusKey(op)] <= want[StatusKey(op)] || shown == 4 {
			continue
		}
		shown++
		e.Ops = append(e.Ops, op.ID)
		e.Text += "\n  " + Line(op)
	}
	return e
}

// Line prints one operation with its times, in one line.
func Line(op harness.Operation) string {
	end := "no answer"
	if op.Answered != 0 {
		end = fmt.Sprintf("+%.3f ms", ms(op.Answered))
	}
	return fmt.Sprintf("%s  client %d  %s %s -> %s %s  [+%.3f ms … %s]", op.ID, op.Process, op.Method, op.Path, StatusKey(op), cell(op.Output), ms(op.Sent), end)
}

// A Rule judges a record by a function of its own.
type Rule struct {
	ID, Doc, Rule string
	NeedsSettled  bool
	Judge         func(harness.Record) harness.Verdict
	_             struct{}
}

// Func makes a check of a function.
func Func(r Rule) harness.Check {
	return harness.Check{ID: r.ID, Doc: r.Doc, Rule: r.Rule, NeedsSettled: r.NeedsSettled, Judge: r.Judge}
}
