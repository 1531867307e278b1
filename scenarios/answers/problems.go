package answers

import (
	"regexp"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// insides are what a client must never be shown: stack traces, source files,
// SQL, the database's own errors.
var insides = regexp.MustCompile(`(?i)goroutine \d|\.go:\d|\bpanic\b|runtime error|sqlstate|\bpgx?conn\b|insert into|select .* from |violates .* constraint|syntax error at`)

// Problems makes the check that a refusal is a problem document, and says
// nothing of the server's inside. rule is where it is asked for.
func Problems(rule string) harness.Check {
	const doc = "each refusal is a problem document that says nothing of the server's inside"
	return check.Func(check.Rule{ID: "problems", Doc: doc, Rule: rule, Judge: func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			if op.Status < 400 {
				continue
			}
			judged++
			switch {
			case !strings.HasPrefix(op.Header["Content-Type"], "application/problem+json") || ProblemType(op) == "":
				wrong = append(wrong, About(op, "no problem document"))
			case insides.MatchString(op.Output):
				wrong = append(wrong, About(op, "shows "+insides.FindString(op.Output)))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(Few(wrong), "%s: %d of %d do not", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody was refused")
		}
		return harness.Passed("%s: %d", doc, judged)
	}})
}
