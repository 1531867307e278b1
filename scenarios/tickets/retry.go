package tickets

import (
	"context"
	"fmt"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

const (
	partOtherCard = "other-card" // declined by the answer; the member takes another card
	partThirdCard = "third-card" // declined twice
	partTold      = "told"       // declined by a callback; the member takes another card
	partSameCard  = "same-card"  // declined by the answer; the provider tries the same card again
	partByItself  = "by-itself"  // declined, then captured by the provider's own attempt, both told by callbacks
)

const kindThirdCharge = "third-charge"

func declineThenRetry() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/decline-then-retry",
		Title: "after a decline the member, or the provider, makes another attempt under the same intent",
		Doc: `Cards are declined, by the answer or by a callback. Members pay with another one, the provider makes another attempt with the same one. Each attempt has a payment id of
its own, and all of them one intent: the order. A new attempt is taken, and the one that is captured buys the seat.`,
		Sources: []string{"S-I9", "S-I8", "S-I2", "S-M9"},
		Params:  []harness.Param{with(paramOrders, "3"), paramReplicas},
		Choose:  chooseCast(partOtherCard, partThirdCard, partTold, partSameCard, partByItself),
		Drive:   driveRetry,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			const paid = "CONFIRMED: CAPTURED DECLINED"
			return append(standing(p, allowance{secondAttempts: true}), noServerErrors(),
				words("answers", "a charge after a decline is taken", answers.ByKind, answers.Fixed(answers.Tallies{
					kindCharge: {"202": 2 * n, "402 payment-declined": 3 * n}, kindSecondCharge: {"201": 2 * n, "402 payment-declined": n}, kindThirdCharge: {"201": n},
				})),
				oneEffectEach(), oneIntent(),
				ends("the attempt that was captured bought the seat", map[string]string{
					partOtherCard: paid, partThirdCard: paid + " DECLINED", partTold: paid, partSameCard: paid, partByItself: paid,
				}))
		},
	}, nil)
}

func driveRetry(ctx context.Context, env harness.Env) error {
	_, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	twice := []string{payments.Declined, payments.Captured}
	refused := payments.Behaviour{Attempts: twice[:1]}
	told := undecided()
	told.Attempts = twice[:1]
	own := undecided()
	own.Attempts = twice
	err = behave(ctx, env, buyers, map[string]payments.Behaviour{
		partOtherCard: refused, partThirdCard: refused, partTold: told, partSameCard: {Attempts: twice}, partByItself: own,
	})
	if err != nil {
		return err
	}
	third := payments.Config{Cards: map[string]payments.Behaviour{}}
	for _, b := range playing(buyers, partThirdCard) {
		third.Cards["second-"+b.card()] = refused
	}
	if err := configure(ctx, env, third); err != nil {
		return err
	}
	post := newCourier(env)
	each(ctx, env, buyers, buyer.pays)
	if err := decide(ctx, env, "", playing(buyers, partTold, partByItself)); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil { // of the declines before the next attempts
		return err
	}
	const countDeclined = `select count(*) as n from charges where state = 'DECLINED'`
	declined, err := awaitCount(ctx, env, "every first attempt is declined", len(buyers), countDeclined)
	if err != nil {
		return err
	}
	env.Witness("declined", float64(len(buyers)), float64(declined), "orders whose first attempt was declined before there was another one")
	each(ctx, env, playing(buyers, partOtherCard, partThirdCard, partTold), func(b buyer) harness.Request { return answers.As(kindSecondCharge, b.second()) })
	each(ctx, env, playing(buyers, partThirdCard), func(b buyer) harness.Request {
		return answers.As(kindThirdCharge, charge(b.n, b.who(), b.hold.HoldID, "third-"+b.card()))
	})
	if err := decide(ctx, env, payments.Captured, playing(buyers, partSameCard, partByItself)); err != nil {
		return err
	}
	return finish(ctx, env, post)
}

// oneIntent: all attempts of an order have its intent, and an id of their own,
// at the provider and in our rows.
func oneIntent() harness.Check {
	const doc = "every attempt of an order has the order as its intent, and a payment id of its own"
	return funcCheck("S-I9.intent", doc, "retry.go", true, func(rec harness.Record) harness.Verdict {
		l, missing := ledgersOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		var wrong []harness.Evidence
		attempts := map[string]int{}
		for _, p := range l.provider.Payments {
			attempts[p.Intent]++
			if l.holds[p.Intent] == nil {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("payment %s has the intent %q, which is no order", p.PaymentID, p.Intent)})
			}
		}
		for _, c := range l.charges {
			if text(c, "intent") != text(c, "hold_id") {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("charge %v of order %v has the intent %v", c["charge_id"], c["hold_id"], c["intent"])})
			}
		}
		several := 0
		for _, n := range attempts {
			if n > 1 {
				several++
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case several == 0:
			return harness.Undecided(harness.ReasonVacuous, "no order had two attempts")
		}
		return harness.Passed("%s: %d orders with several attempts", doc, several)
	})
}
