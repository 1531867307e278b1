package telescope

import (
	"fmt"
	"strings"

	"github.com/overbook/overbook/harness"
)

// outputMost is how much of an answer's body an operation has.
const outputMost = 16 << 10

// A keptAnswer is what the server has stored for a key.
type keptAnswer struct {
	status float64
	body   string
}

// keyScope names a key as the server stores it: whose, for what. "" for a
// request that has none.
func keyScope(op harness.Operation) string {
	kind := operationType(op)
	if op.Key == "" || op.Caller == "" || kind == "" {
		return ""
	}
	return fmt.Sprintf("%s %s %s", op.Caller, kind, op.Key)
}

// answersAreKept compares every answer that was to be kept, of all types of
// operations, with what is stored for its key: a replay that is told something
// else is seen even when nobody else had asked before.
//
// When the servers' time was moved, a result may be gone, and its key may have
// had a second life; only what was answered in that is then compared.
func answersAreKept() harness.Check {
	const doc = "each answer that decides a write is stored for its key, status and body, byte for byte"
	return funcCheck("T-I4.result", doc, "kept_answers.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:booking_operations")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the results could not be read")
		}
		results := map[string]keptAnswer{}
		for _, r := range rows.Rows {
			status, _ := r["status"].(float64)
			results[fmt.Sprintf("%s %s %s", text(r, "principal"), text(r, "type"), text(r, "key"))] = keptAnswer{status, bytea(text(r, "body"))}
		}
		moves := clockMoves(rec)
		latest := map[string]int{} // epoch in which a key may have had its last life
		for _, op := range rec.History.Operations {
			if stored(op) || op.Status == 0 || op.Status >= 500 { // those may have been decided, too
				latest[keyScope(op)] = max(latest[keyScope(op)], epoch(op, moves))
			}
		}
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			if keyScope(op) == "" || !stored(op) || epoch(op, moves) != latest[keyScope(op)] {
				continue
			}
			judged++
			result, kept := results[keyScope(op)]
			switch {
			case !kept && len(moves) > 0:
			case !kept:
				wrong = append(wrong, about(op, "no stored result"))
			case !result.answers(op):
				wrong = append(wrong, about(op, fmt.Sprintf("stored is another answer, %.0f %s", result.status, result.body)))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d are not", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no write with a key was decided")
		}
		return harness.Passed("%s: %d", doc, judged)
	})
}

// answers reports whether the operation was answered with what is stored. Of a
// long answer the record has the beginning.
func (k keptAnswer) answers(op harness.Operation) bool {
	same := k.body == op.Output || (len(op.Output) == outputMost && strings.HasPrefix(k.body, op.Output))
	return same && k.status == float64(op.Status)
}
