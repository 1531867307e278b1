package answers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// Tallies are numbers of answers by [Word], in groups.
type Tallies map[string]map[string]int

// Told tallies operations by word.
func Told(ops []harness.Operation) map[string]int {
	n := map[string]int{}
	for _, op := range ops {
		n[Word(op)]++
	}
	return n
}

// ByBurst and ByKind group operations by the burst that they were part of, or
// by their kind.
func ByBurst(op harness.Operation) string { return op.Burst }

// ByKind groups operations by their kind.
func ByKind(op harness.Operation) string { return op.Kind }

// Fixed gives the same expectation for every record.
func Fixed(t Tallies) func(harness.Record) Tallies {
	return func(harness.Record) Tallies { return t }
}

// A WordsRule says what the clients of each group should have been told.
type WordsRule struct {
	ID, Doc, Rule string
	Group         func(harness.Operation) string // "" for an operation of no group
	Want          func(harness.Record) Tallies
	_             struct{}
}

// Words makes a check of the rule. As with statuses, a word that came up too
// often is a violation, and when only answers are missing it is Unknown: any of
// them might have been the right one. In an environment that broke, 500 and
// above are no excess.
func Words(r WordsRule) harness.Check {
	return check.Func(check.Rule{ID: r.ID, Doc: r.Doc, Rule: r.Rule, Judge: r.judge})
}

func (r WordsRule) judge(rec harness.Record) harness.Verdict {
	groups := map[string][]harness.Operation{}
	for _, op := range rec.History.Operations {
		if g := r.Group(op); g != "" {
			groups[g] = append(groups[g], op)
		}
	}
	var wrong []harness.Evidence
	open := ""
	expected := r.Want(rec)
	if len(expected) == 0 || len(rec.History.Operations) == 0 {
		return harness.Undecided(harness.ReasonUndelivered, "no group of operations to judge")
	}
	names := slices.Sorted(maps.Keys(expected))
	for _, g := range names {
		got, excess := Told(groups[g]), false
		for w, n := range got {
			excess = excess || (n > expected[g][w] && w != "none" && (w < "500" || !check.Broken(rec)))
		}
		switch {
		case excess:
			wrong = append(wrong, excessEvidence(g, groups[g], got, expected[g]))
		case open == "" && !maps.Equal(got, Positive(expected[g])):
			open = fmt.Sprintf("%s: got %s, want %s", g, Text(got), Text(expected[g]))
		}
	}
	switch {
	case len(wrong) > 0:
		return harness.Violated(Few(wrong), "%s: %s", r.Doc, strings.SplitN(wrong[0].Text, "\n", 2)[0])
	case open != "":
		return harness.Undecided(harness.ReasonUndelivered, "%s", open)
	}
	return harness.Passed("%s: %s in %d groups", r.Doc, Text(Positive(expected[names[0]])), len(expected))
}

// NoServerErrors makes the check that no answer says that the server is at
// fault. rule is where it is asked for.
func NoServerErrors(rule string) harness.Check {
	const doc = "no client is answered 500 or above"
	return check.Func(check.Rule{ID: "answers.5xx", Doc: doc, Rule: rule, Judge: func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		answered := 0
		for _, op := range rec.History.Operations {
			if op.Answered != 0 {
				answered++
			}
			if op.Status >= 500 {
				wrong = append(wrong, About(op, "an answer"))
			}
		}
		switch {
		case len(wrong) > 0 && check.Broken(rec):
			return harness.Undecided(harness.ReasonEnvironment, "%d answers of 500 and above, in an environment that broke", len(wrong))
		case len(wrong) > 0:
			return harness.Violated(Few(wrong), "%s: %d of %d were", doc, len(wrong), answered)
		case answered == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no client was answered")
		}
		return harness.Passed("%s: %d answers", doc, answered)
	}})
}

// Few bounds the evidence; the rest is in the run directory.
func Few(all []harness.Evidence) []harness.Evidence { return all[:min(len(all), 10)] }

// About is evidence on one operation.
func About(op harness.Operation, problem string) harness.Evidence {
	return harness.Evidence{Text: problem + ": " + check.Line(op), Ops: []string{op.ID}}
}

// Positive leaves out words that nobody is to be told.
func Positive(tally map[string]int) map[string]int {
	t := maps.Clone(tally)
	maps.DeleteFunc(t, func(_ string, n int) bool { return n == 0 })
	return t
}

// Text prints a tally: "1 x 201, 99 x 409 seat-taken".
func Text(t map[string]int) string {
	var parts []string
	for _, w := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, strconv.Itoa(t[w])+" x "+w)
	}
	if len(parts) == 0 {
		return "no operation"
	}
	return strings.Join(parts, ", ")
}

// excessEvidence shows the operations that were told a word too often.
func excessEvidence(group string, ops []harness.Operation, got, want map[string]int) harness.Evidence {
	e := harness.Evidence{Text: fmt.Sprintf("%s: got %s, want %s", group, Text(got), Text(want))}
	for _, op := range ops {
		if w := Word(op); got[w] > want[w] && len(e.Ops) < 4 {
			e.Ops = append(e.Ops, op.ID)
			e.Text += "\n  " + check.Line(op)
		}
	}
	return e
}
