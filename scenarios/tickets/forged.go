package tickets

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// Kinds of callbacks that are not the provider's, or not of now.
const (
	kindForged   = "forged"
	kindReplayed = "replayed" // signed outside the window
)

const (
	partReal   = "real"   // captured
	partCoaxed = "coaxed" // the provider has decided nothing; somebody else says that it has
)

// forgedEach is how many forgeries there are of each order's callback, and
// replayedEach how many replays of each real one.
const (
	forgedEach   = 6
	replayedEach = 2
)

func forgedCallback() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/forged-callback",
		Title: "forged, altered, truncated and replayed callbacks come together with the real ones",
		Doc: `While the provider tells of captures, somebody tells captures of his own at the same barrier: signed with another secret, without a signature or with half of one, with
the signature of another body, a real body that was altered, cut off, or written in other bytes that read the same; and real ones again that were signed longer ago than the window, or in the future. Each of these is
answered 401 and changes nothing. The real ones are taken.`,
		Sources: []string{"S-I3", "S-I8", "S-M16"},
		Params:  []harness.Param{with(paramOrders, "4"), paramReplicas},
		Choose:  chooseCast(partReal, partCoaxed),
		Drive:   driveForged,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			return append(served(p),
				words("answers", "what is not signed by the provider, and now, is answered 401", answers.ByKind, answers.Fixed(answers.Tallies{
					kindCharge: {"202": 2 * n}, kindForged: {"401 signature-invalid": 2*n*forgedEach + n}, kindReplayed: {"401 signature-expired": n * replayedEach},
				})),
				oneEffectEach(), eventsAreReal(),
				ends("orders end as the provider says", map[string]string{partReal: "CONFIRMED: CAPTURED", partCoaxed: "EXPIRED: DECLINED"}))
		},
	}, nil)
}

func driveForged(ctx context.Context, env harness.Env) error {
	_, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	if err := behave(ctx, env, buyers, map[string]payments.Behaviour{partReal: undecided(), partCoaxed: undecided()}); err != nil {
		return err
	}
	ops := each(ctx, env, buyers, buyer.pays)
	if err := decide(ctx, env, payments.Captured, playing(buyers, partReal)); err != nil {
		return err
	}
	genuine, err := callbacksNow(ctx, env, payments.PaymentCaptured)
	if err != nil {
		return err
	}
	now, err := serverNow(ctx, env)
	if err != nil {
		return err
	}
	b := harness.Burst{Name: "forged"}
	for i, op := range ops {
		c, err := chargeOf(op)
		if err != nil {
			return err
		}
		b.Requests = append(b.Requests, forgeries(i, buyers[i], c.ChargeID, now)...)
	}
	for _, cb := range genuine {
		for _, at := range []time.Time{now.Add(-callbackWindow - time.Minute), now.Add(callbackWindow + time.Minute)} {
			b.Requests = append(b.Requests, answers.As(kindReplayed, callback(0, cb.Body, payments.Sign(secret, at, cb.Body))))
		}
		other := callback(0, slices.Concat(cb.Body, []byte(" ")), payments.Sign(secret, now, cb.Body)) // reads the same
		other.Caller = "nobody"
		b.Requests = append(b.Requests, answers.As(kindForged, other), callback(0, cb.Body, payments.Sign(secret, now, cb.Body)))
	}
	for i := range b.Requests {
		b.Requests[i].Process = courierProcess + i
	}
	report, _, err := env.Burst(ctx, b)
	if err != nil {
		return err
	}
	env.Witness("max_in_flight", 2, float64(report.MaxInFlight), "forged and real callbacks sent and unanswered at one instant") // they are answered at once
	if err := decide(ctx, env, payments.Declined, playing(buyers, partCoaxed)); err != nil {
		return err
	}
	return finish(ctx, env, newCourier(env))
}

// forgeries are callbacks that say that an order's payment was captured and do
// not come from the provider.
func forgeries(n int, b buyer, chargeID string, now time.Time) []harness.Request {
	body, err := json.Marshal(map[string]any{
		"event_id": fmt.Sprintf("evt_forged_%d", n), "type": payments.PaymentCaptured, "payment_id": fmt.Sprintf("pay_forged_%d", n),
		"reference": chargeID, "intent": b.hold.HoldID, "amount": b.hold.Amount, "currency": b.hold.Currency,
	})
	if err != nil {
		panic(err) // words and a number
	}
	cheap := bytes.Replace(body, fmt.Appendf(nil, `"amount":%d`, b.hold.Amount), []byte(`"amount":1`), 1)
	whole := payments.Sign(secret, now, cheap)
	list := []harness.Request{
		callback(0, body, payments.Sign("a-secret-of-somebody-else", now, body)),
		callback(0, body, whole), // the signature of a cheaper one
		callback(0, cheap[:len(cheap)-1], whole),
		callback(0, body, fmt.Sprintf("t=%d,v1=", now.Unix())),
		callback(0, body, fmt.Sprintf("t=%d,v1=%064d", now.Unix(), 0)),
		callback(0, body, ""),
	}
	list[len(list)-1].Header = nil
	for i := range list {
		list[i].Kind, list[i].Caller = kindForged, "nobody"
	}
	return list
}

// eventsAreReal: every event that was taken is one that the provider has told.
func eventsAreReal() harness.Check {
	const doc = "every event that was taken is one of the provider's"
	return funcCheck("events", doc, "forged.go", false, func(rec harness.Record) harness.Verdict {
		taken, ok := rec.Find("table:provider_events")
		found, ok2 := rec.Find("ledger:" + payments.Name)
		if !ok || !ok2 {
			return harness.Undecided(harness.ReasonEnvironment, "the events or the provider's ledger could not be read")
		}
		ledger, err := payments.LedgerOf(found.Rows)
		if err != nil {
			return harness.Undecided(harness.ReasonEnvironment, "%s", err)
		}
		told := map[string]bool{}
		for _, cb := range ledger.Callbacks {
			told[cb.EventID] = true
		}
		var wrong []harness.Evidence
		for _, e := range taken.Rows {
			if !told[text(e, "event_id")] {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %v, %v of payment %v, was taken as %v, and the provider never told it", e["event_id"], e["type"], e["payment_id"], e["result"])})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case len(taken.Rows) == 0:
			return harness.Undecided(harness.ReasonVacuous, "no event was taken")
		}
		return harness.Passed("%s: %d", doc, len(taken.Rows))
	})
}
