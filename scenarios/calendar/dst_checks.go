package calendar

import (
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// toldOfClocks: each request about a clock that changes is told what its kind says.
func toldOfClocks() harness.Check {
	const doc = "each time around a change of the clocks is taken, or refused with the reason"
	return funcCheck("answers", doc, "dst.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			what, want, is := strings.Cut(op.Kind, ", want ")
			if !is || !strings.HasPrefix(what, "clock ") || op.Status == 0 {
				continue
			}
			judged++
			if answers.Word(op) != want {
				wrong = append(wrong, answers.About(op, what+" was told "+answers.Word(op)+", not "+want+"; asked for "+string(op.Input)))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d were told something else; %s", doc, len(wrong), judged, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no request about a clock that changes was answered")
		}
		return harness.Passed("%s: %d", doc, judged)
	})
}
