package calendar

import (
	"fmt"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// refusedDidNothing: who was refused has changed nothing. A request that failed
// in the server may have done what it asked for.
func refusedDidNothing() harness.Check {
	const doc = "no step of the history is of a request that was refused: it is done whole, or not at all"
	return funcCheck("told.steps", doc, "told_refused.go", false, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:appointment_audit")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the history could not be read")
		}
		refused := map[string]harness.Operation{}
		for _, op := range rec.History.Operations {
			if op.Status >= 400 && op.Status < 500 {
				refused[op.ID] = op
			}
		}
		var wrong []harness.Evidence
		for _, r := range rows.Rows {
			if op, is := refused[text(r, "overbook_op")]; is {
				wrong = append(wrong, answers.About(op, fmt.Sprintf("told %s, and appointment %s is %s by it", answers.Word(op), text(r, "appointment_id"), text(r, "event"))))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d are; %s", doc, len(wrong), wrong[0].Text)
		case len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody asked for anything")
		}
		return harness.Passed("%s: %d steps, %d requests were refused", doc, len(rows.Rows), len(refused))
	})
}
