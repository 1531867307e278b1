package tickets

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// captureGoesSomewhere is S-I2: the provider's ledger against our rows, to the
// minor unit. Each captured payment has bought a seat or went back whole, never
// both, never neither; each sold seat was bought by a payment that the provider
// has captured.
func captureGoesSomewhere() harness.Check {
	const doc = "each payment that the provider has captured bought a seat or went back, exactly one of the two and to the cent"
	return funcCheck("S-I2", doc, "money.go", true, func(rec harness.Record) harness.Verdict {
		l, missing := ledgersOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		var wrong []harness.Evidence
		sold, back := map[string]int64{}, map[string]int64{}
		buyers := map[string]bool{}
		for _, p := range l.provider.Payments {
			if p.Status != payments.Captured {
				continue
			}
			bought, r := l.bought(p), l.returned[p.PaymentID]
			went := r.PaymentID != ""
			switch {
			case bought && went:
				wrong = append(wrong, l.about(p, "bought a seat and went back as "+r.RefundID))
			case went && (r.Amount != p.Captured || r.Currency != p.Currency):
				wrong = append(wrong, l.about(p, fmt.Sprintf("went back as %s", money{r.Amount, r.Currency})))
			case !bought && !went:
				wrong = append(wrong, l.about(p, "bought no seat and did not go back"))
			case bought:
				sold[p.Currency] += p.Captured
				buyers[text(l.paid[p.PaymentID], "hold_id")] = true
			default:
				back[p.Currency] += p.Captured
			}
		}
		for id, s := range l.seats {
			if text(s, "state") == "SOLD" && !buyers[id] {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("%s is sold to hold %s, for which the provider has captured nothing of its amount", seatKey(whole(s, "show_id"), text(s, "seat")), id)})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %d did not, such as: %s", doc, len(wrong), wrong[0].Text)
		}
		if len(l.holds) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "there was no order to judge")
		}
		return harness.Passed("%s: sold for %s, gone back %s", doc, sums(sold), sums(back))
	})
}

// about is evidence on one payment.
func (l ledgers) about(p payments.Payment, problem string) harness.Evidence {
	c := l.paid[p.PaymentID]
	h := l.holds[p.Intent]
	return harness.Evidence{
		Text: fmt.Sprintf("payment %s of %s (status %s, card %s, order %s, which is %s) %s; our charge is %s %s",
			p.PaymentID, money{p.Captured, p.Currency}, p.Status, p.Card, p.Intent, orNone(text(h, "state")), problem, orNone(text(c, "charge_id")), text(c, "state")),
		Ops: l.opOf(p.PaymentID),
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// sums prints amounts by currency.
func sums(m map[string]int64) string {
	parts := make([]string, 0, len(m))
	for _, c := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, money{m[c], c}.String())
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// paymentsAreKnown is S-I8: our rows say of each payment what the provider says.
func paymentsAreKnown() harness.Check {
	const doc = "each payment of the provider is a charge of ours, of the same order and with the same end"
	return funcCheck("S-I8", doc, "money.go", true, func(rec harness.Record) harness.Verdict {
		l, missing := ledgersOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		var wrong []harness.Evidence
		for _, p := range l.provider.Payments {
			if problem := l.unknown(p); problem != "" {
				wrong = append(wrong, l.about(p, problem))
			}
		}
		theirs := map[string]bool{}
		for _, p := range l.provider.Payments {
			theirs[p.PaymentID] = true
		}
		for id, c := range l.paid {
			if !theirs[id] {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("charge %v has the payment %s, which the provider does not know", c["charge_id"], id)})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %d are not, such as: %s", doc, len(wrong), wrong[0].Text)
		}
		if len(l.holds) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "there was no order to judge")
		}
		return harness.Passed("%s: %d payments", doc, len(l.provider.Payments))
	})
}

// unknown says what our rows lack of a payment, "" for nothing.
func (l ledgers) unknown(p payments.Payment) string {
	c, known := l.paid[p.PaymentID]
	_, asked := l.byID[p.Reference]
	switch {
	case !known && p.Status == payments.Pending && asked:
		return "" // it is known as what we asked for
	case !known:
		return "is no charge of ours"
	case text(c, "hold_id") != p.Intent:
		return "is a charge of another order, " + text(c, "hold_id")
	case p.Status == payments.Captured && moneyOf(c, "captured_amount", "captured_currency") != money{p.Captured, p.Currency}:
		return fmt.Sprintf("is known as %s captured", moneyOf(c, "captured_amount", "captured_currency"))
	case p.Status != payments.Captured && c["captured_amount"] != nil:
		return "is known as captured"
	}
	return ""
}

// refundedOnce is S-I5 at the provider: a payment is asked back under one key,
// and, once the server was told that it went back, at most repeats times more.
// Scenarios that crash a server with such an answer in its hands allow for it.
func refundedOnce(repeats int) harness.Check {
	const doc = "the provider is asked for one refund a payment, under one key, and no more once it said that it is done"
	return funcCheck("S-I5.provider", doc, "money.go", false, func(rec harness.Record) harness.Verdict {
		calls := rec.Calls(payments.Name, "POST", "/refunds")
		found, ok := rec.Find("ledger:" + payments.Name)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the provider's ledger could not be read")
		}
		ledger, err := payments.LedgerOf(found.Rows)
		if err != nil {
			return harness.Undecided(harness.ReasonEnvironment, "%s", err)
		}
		if len(rec.History.Operations) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "nobody did anything")
		}
		var wrong []harness.Evidence
		for _, r := range ledger.Refunds {
			if len(r.Keys) > 1 {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("%s of payment %s was asked for under %d keys: %s", r.RefundID, r.PaymentID, len(r.Keys), strings.Join(r.Keys, ", "))})
			}
		}
		told, again := map[string]harness.UpstreamCall{}, map[string]int{}
		for _, c := range calls { // in order of arrival
			id := paymentOf(c)
			if first, done := told[id]; done && c.Received > first.Answered {
				if again[id]++; again[id] > repeats {
					wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("payment %s was asked back in call %d by %s, after call %d was told that it is done", id, c.Seq, c.Caller, first.Seq)})
				}
			} else if !done && c.Status/100 == 2 && c.Answered != 0 {
				told[id] = c
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		}
		return harness.Passed("%s: %d calls, %d refunds", doc, len(calls), len(ledger.Refunds))
	})
}

// paymentOf is the payment that a refund call names.
func paymentOf(c harness.UpstreamCall) string {
	var body struct {
		PaymentID string `json:"payment_id"`
	}
	if json.Unmarshal([]byte(c.Request), &body) != nil {
		return ""
	}
	return body.PaymentID
}
