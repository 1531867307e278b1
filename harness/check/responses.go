package check

import (
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

// Tally makes a check of the rule. A tally that differs is a violation when
// every operation of the group was answered; operations without an answer
// make it Unknown unless the answered ones already exceed what is allowed.
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
	open := ""
	for _, g := range slices.Sorted(maps.Keys(want)) {
		got := Count(groups[g])
		excess, differs := compare(got, want[g])
		switch {
		case excess || (differs && got["none"] == 0 && len(rec.Trouble) == 0):
			wrong = append(wrong, tallyEvidence(g, got, want[g], groups[g]))
		case differs:
			open = fmt.Sprintf("%s: %s answered, %d without an answer", g, tallyText(got), got["none"])
		}
	}
	switch {
	case len(wrong) > 0:
		return harness.Violated(firstEvidence(wrong), "%s: %s", r.Doc, strings.SplitN(wrong[0].Text, "\n", 2)[0])
	case open != "":
		return harness.Undecided(harness.ReasonUndelivered, "%s", open)
	}
	return harness.Passed("%s: %s in %s", r.Doc, tallyText(want[slices.Sorted(maps.Keys(want))[0]]), plural(len(want), "group"))
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
// the tallies differ at all.
func compare(got, want map[string]int) (excess, differs bool) {
	for status, n := range got {
		if n != want[status] {
			differs = true
		}
		if status != "none" && n > want[status] {
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
