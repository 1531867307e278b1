package answers

import (
	"maps"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// An AmongRule says which words the clients of each group may be told, in
// whatever number.
type AmongRule struct {
	ID, Doc, Rule string
	Group         func(harness.Operation) string
	Allowed       map[string][]string // by group
	_             struct{}
}

// Among makes a check of the rule. A word that is not allowed is a violation;
// a group of which nobody was answered leaves it open. Without an answer
// nothing was told, and in an environment that broke 500 and above are no
// violation.
func Among(r AmongRule) harness.Check {
	return check.Func(check.Rule{ID: r.ID, Doc: r.Doc, Rule: r.Rule, Judge: r.judge})
}

func (r AmongRule) judge(rec harness.Record) harness.Verdict {
	var wrong []harness.Evidence
	told := Tallies{}
	for _, op := range rec.History.Operations {
		g := r.Group(op)
		may, judged := r.Allowed[g]
		if !judged || op.Status == 0 || (op.Status >= 500 && check.Broken(rec)) {
			continue
		}
		if told[g] == nil {
			told[g] = map[string]int{}
		}
		told[g][Word(op)]++
		if !slices.Contains(may, Word(op)) {
			wrong = append(wrong, About(op, g))
		}
	}
	if len(wrong) > 0 {
		return harness.Violated(Few(wrong), "%s: %d were told something else; %s", r.Doc, len(wrong), wrong[0].Text)
	}
	var parts []string
	for _, g := range slices.Sorted(maps.Keys(r.Allowed)) {
		if told[g] == nil {
			return harness.Undecided(harness.ReasonUndelivered, "of %s nobody was answered", g)
		}
		parts = append(parts, g+" "+Text(told[g]))
	}
	return harness.Passed("%s: %s", r.Doc, strings.Join(parts, "; "))
}
