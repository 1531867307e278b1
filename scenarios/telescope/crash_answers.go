package telescope

import (
	"fmt"
	"slices"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// booking requests of any kind, retries included, are known by their path.
func isBooking(op harness.Operation) bool { return operationType(op) == "book" }

// answeredInTheEnd: the last thing that each client heard of its booking is
// 201. Who heard nothing at last may have been meant to hear it: Unknown.
func answeredInTheEnd() harness.Check {
	const doc = "each client is answered 201 in the end"
	return funcCheck("answers.end", doc, "crash_answers.go", false, func(rec harness.Record) harness.Verdict {
		last := map[string]harness.Operation{}
		var order []string
		for _, op := range rec.History.Operations {
			if !isBooking(op) {
				continue
			}
			request := op.Caller + " " + op.Path + " " + op.Key
			if before, seen := last[request]; !seen {
				order = append(order, request)
			} else if before.Intended > op.Intended {
				continue
			}
			last[request] = op
		}
		var wrong []harness.Evidence
		missing := 0
		for _, request := range order {
			switch op := last[request]; op.Status {
			case 201:
			case 0:
				missing++
			default:
				wrong = append(wrong, about(op, "the last answer"))
			}
		}
		switch {
		case len(wrong) > 0 && len(rec.Trouble) > 0:
			return harness.Undecided(rec.Trouble[0].Reason, "%d of %d were not, in a run that was not whole", len(wrong), len(order))
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d were not", doc, len(wrong), len(order))
		case missing > 0:
			return harness.Undecided(harness.ReasonUndelivered, "the last answer to %d of %d did not come", missing, len(order))
		case len(order) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody booked")
		}
		return harness.Passed("%s: %d", doc, len(order))
	})
}

// onlyTold: the answers to writes, in the words of [word], are among these.
// What the drive sent to prepare is not judged.
func onlyTold(id, doc string, allowed ...string) harness.Check {
	return funcCheck(id, doc, "crash_answers.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		n := map[string]int{}
		for _, op := range rec.History.Operations {
			if operationType(op) == "" || operationType(op) == "import" {
				continue
			}
			n[word(op)]++
			if !slices.Contains(allowed, word(op)) {
				wrong = append(wrong, about(op, "an answer"))
			}
		}
		switch {
		case len(wrong) > 0 && check.Broken(rec):
			return harness.Undecided(harness.ReasonEnvironment, "%d other answers, in an environment that broke", len(wrong))
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d were; %s", doc, len(wrong), firstLine(wrong[0].Text))
		case len(n) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no write was sent")
		}
		return harness.Passed("%s: %s", doc, tallyText(n))
	})
}

func firstLine(text string) string {
	for i, r := range text {
		if r == '\n' {
			return fmt.Sprint(text[:i])
		}
	}
	return text
}
