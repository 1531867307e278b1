package tickets

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
)

// holdInPath is the hold that a request for a charge or a release names in its
// path; "" for another request.
func holdInPath(op harness.Operation) (holdID string, charges bool) {
	rest, ok := strings.CutPrefix(op.Path, "/tickets/holds/")
	if !ok {
		return "", false
	}
	if id, ok := strings.CutSuffix(rest, "/charges"); ok && op.Method == http.MethodPost {
		return id, true
	}
	if op.Method == http.MethodDelete {
		return rest, false
	}
	return "", false
}

// toldIsStored compares what clients were told to have happened with the rows:
// who was told of a hold has had it, who was told that the seat is theirs has
// paid for it with the charge that they were told of, who was told that they
// gave a hold up did.
func toldIsStored() harness.Check {
	const doc = "what clients were told of holds, charges and releases is what is stored"
	return funcCheck("told", doc, "told.go", true, func(rec harness.Record) harness.Verdict {
		l, missing := ledgersOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			problem, told := l.told(op)
			if told {
				judged++
			}
			if problem != "" {
				wrong = append(wrong, answers.About(op, problem))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d answers are not so", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody was told of a hold")
		}
		return harness.Passed("%s: %d answers", doc, judged)
	})
}

// told says what is wrong with an answer, and whether it told of a hold at all.
func (l ledgers) told(op harness.Operation) (problem string, told bool) {
	id, charges := holdInPath(op)
	switch {
	case op.Method == http.MethodPost && strings.HasSuffix(op.Path, "/holds") && op.Status == http.StatusCreated:
		var h holdAnswer
		if op.Decode(&h) != nil {
			return "can't be read", true
		}
		r, known := l.holds[h.HoldID]
		if !known || text(r, "login") != op.Caller || text(r, "seat") != h.Seat || whole(r, "show_id") != h.ShowID || moneyOf(r, "amount", "currency") != (money{h.Amount, h.Currency}) {
			return fmt.Sprintf("tells of a hold that is stored as %s of %s, for %s", orNone(text(r, "seat")), orNone(text(r, "login")), moneyOf(r, "amount", "currency")), true
		}
		return "", true
	case charges && op.Status == http.StatusCreated:
		var c chargeAnswer
		if op.Decode(&c) != nil {
			return "can't be read", true
		}
		if r := l.holds[id]; text(r, "state") != "CONFIRMED" || text(r, "winning_charge") != c.ChargeID {
			return fmt.Sprintf("tells of a seat that was paid for, and the hold is %s by charge %s", orNone(text(r, "state")), orNone(text(r, "winning_charge"))), true
		}
		return "", true
	case charges && op.Status == http.StatusAccepted:
		var c chargeAnswer
		if op.Decode(&c) != nil || l.byID[c.ChargeID] == nil {
			return "tells of a charge that is not stored", true
		}
		return "", true
	case op.Method == http.MethodDelete && id != "" && op.Status == http.StatusOK:
		if r := l.holds[id]; text(r, "state") != "RELEASED" {
			return "tells of a hold that was given up, and it is " + orNone(text(r, "state")), true
		}
		return "", true
	}
	return "", false
}

// settledWords are the answers to a charge after which it is no longer in flight.
var settledWords = map[string]bool{"402 payment-declined": true, "503 payment-unavailable": true}

// secondAttempts is S-I9: after a decline another charge of the hold is taken.
// demanding is for scenarios that are about it.
func secondAttempts(demanding bool) harness.Check {
	const doc = "a charge after a declined one is not refused as if that were still in flight"
	return funcCheck("S-I9", doc, "told.go", false, func(rec harness.Record) harness.Verdict {
		charges := map[string][]harness.Operation{}
		for _, op := range rec.History.Operations {
			if id, is := holdInPath(op); is {
				charges[id] = append(charges[id], op)
			}
		}
		var wrong []harness.Evidence
		judged := 0
		for _, ops := range charges {
			for i, op := range ops {
				if op.Status == 0 || !afterDeclines(ops, i) {
					continue
				}
				judged++
				if answers.Word(op) == "409 charge-in-flight" || (op.Status == http.StatusInternalServerError && !check.Broken(rec)) {
					wrong = append(wrong, answers.About(op, "a charge after declined ones alone"))
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d were", doc, len(wrong), judged)
		case len(rec.History.Operations) == 0, demanding && judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "no charge was tried after a declined one")
		}
		return harness.Passed("%s: %d such charges", doc, judged)
	})
}

// afterDeclines says whether every other charge of the hold that can have been
// in flight with the i-th was declined before that was sent, and one was.
func afterDeclines(ops []harness.Operation, i int) bool {
	declined := false
	for k, other := range ops {
		switch {
		case k == i || other.Sent == 0 || (ops[i].Answered != 0 && other.Sent > ops[i].Answered):
		case settledWords[answers.Word(other)] && other.Answered < ops[i].Sent:
			declined = declined || other.Status == http.StatusPaymentRequired
		case other.Status >= 400 && other.Status < 409, answers.Word(other) == "409 hold-over": // refused before it became a charge
		default:
			return false
		}
	}
	return declined
}
