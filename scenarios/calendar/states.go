package calendar

import (
	"fmt"
	"maps"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// appointmentStates compares how the appointments ended.
func appointmentStates(doc string, want map[string]int) harness.Check {
	return funcCheck("states", doc, "states.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:appointments")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the appointments could not be read")
		}
		got := map[string]int{}
		for _, r := range rows.Rows {
			got[text(r, "state")]++
		}
		switch {
		case len(rows.Rows) == 0 && len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody did anything")
		case !maps.Equal(got, answers.Positive(want)):
			return harness.Violated([]harness.Evidence{{Text: "got " + answers.Text(got) + "; want " + answers.Text(want)}}, "%s: got %s", doc, answers.Text(got))
		}
		return harness.Passed("%s: %s", doc, answers.Text(got))
	})
}

// discreet: who is told of an overlap is told the resource, and nothing that
// tells whose the other appointment is or when.
func discreet() harness.Check {
	const doc = "409 overlap names the resource, and no appointment"
	return funcCheck("answers.overlap", doc, "states.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			if answers.Word(op) != "409 overlap" {
				continue
			}
			judged++
			var doc map[string]any
			if err := op.Decode(&doc); err != nil {
				wrong = append(wrong, answers.About(op, "can't be read"))
				continue
			}
			if id, named := doc["resource_id"].(float64); !named || (callOf(op) == callBook && fmt.Sprint(int64(id)) != target(op)) {
				wrong = append(wrong, answers.About(op, "does not name the resource"))
			}
			for _, field := range []string{"appointment_id", "member", "start", "end", "event_id"} {
				if doc[field] != nil {
					wrong = append(wrong, answers.About(op, "tells "+field))
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody was told of an overlap")
		}
		return harness.Passed("%s: %d answers", doc, judged)
	})
}
