package tickets

import (
	"context"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

const (
	partLess      = "less"       // one minor unit less, told by the answer; then the member pays with another card
	partMore      = "more"       // one minor unit more, told by a callback; then the member pays with another card
	partAsked     = "asked"      // less, found by reconciliation; nobody pays again
	partHundred   = "hundred"    // a hundred times as much, told by the answer; nobody pays again
	partLateWrong = "late-wrong" // more, told after the hold was given up
)

func amountDiffers() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/amount-differs",
		Title: "the provider captures another amount than was asked for",
		Doc: `The provider takes a minor unit less or more than it was asked for, or a hundred times as much; the answer, a callback or reconciliation tells it. No such payment buys the
seat: what was captured goes back, exactly that. The hold stays with its member, who may pay with another card as long as it lasts.`,
		Sources: []string{"S-I2", "S-I3", "S-I5", "S-M18"},
		Params:  []harness.Param{with(paramOrders, "2"), paramReplicas},
		Choose:  chooseCast(partLess, partMore, partAsked, partHundred, partLateWrong),
		Drive:   driveAmounts,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			return append(served(p),
				words("answers", "a payment of another amount is told to go back, and another card is taken", answers.ByKind, answers.Fixed(answers.Tallies{
					kindCharge: {"202": 3 * n, "409 payment-refunded": 2 * n}, kindSecondCharge: {"201": 2 * n}, kindRelease: {"200": n},
				})),
				oneEffectEach(),
				ends("no seat is sold for another amount than its price", map[string]string{
					partLess: "CONFIRMED: CAPTURED REFUNDED", partMore: "CONFIRMED: CAPTURED REFUNDED",
					partAsked: "EXPIRED: REFUNDED", partHundred: "EXPIRED: REFUNDED", partLateWrong: "RELEASED: REFUNDED",
				}))
		},
	}, nil)
}

func driveAmounts(ctx context.Context, env harness.Env) error {
	c, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	taking := func(b payments.Behaviour, amount int64) payments.Behaviour {
		b.CaptureAmount = amount
		return b
	}
	price, unknown := c.Show.Price, payments.Behaviour{Answer: payments.Pending, Decide: payments.Held, Callbacks: payments.Lost}
	err = behave(ctx, env, buyers, map[string]payments.Behaviour{
		partLess: taking(payments.Behaviour{}, price-1), partMore: taking(undecided(), price+1), partAsked: taking(unknown, price-1),
		partHundred: taking(payments.Behaviour{}, 100*price), partLateWrong: taking(undecided(), price+1),
	})
	if err != nil {
		return err
	}
	post := newCourier(env)
	each(ctx, env, buyers, buyer.pays)
	each(ctx, env, playing(buyers, partLateWrong), buyer.drops)
	if err := decide(ctx, env, payments.Captured, playing(buyers, partMore, partAsked, partLateWrong)); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	each(ctx, env, playing(buyers, partLess, partMore), func(b buyer) harness.Request { return answers.As(kindSecondCharge, b.second()) })
	if err := calm(ctx, env); err != nil {
		return err
	}
	if err := env.Advance(ctx, reconcileAfter+reconcileEvery); err != nil {
		return err
	}
	if _, err := awaitCount(ctx, env, "what was captured in another amount went back", len(buyers), countReturned); err != nil {
		return err
	}
	ledger, err := ledgerNow(ctx, env)
	if err != nil {
		return err
	}
	differ := 0
	for _, p := range ledger.Payments {
		if p.Status == payments.Captured && p.Captured != p.Amount {
			differ++
		}
	}
	env.Witness("other_amounts", float64(len(buyers)), float64(differ), "payments that were captured in another amount than was asked for")
	if err := pastExpiry(ctx, env, lastHold(buyers)); err != nil {
		return err
	}
	return finish(ctx, env, post)
}
