package tickets

import (
	"context"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

const (
	partTwice   = "twice"    // two payments, captured when the hold was given up
	partTooLong = "too-long" // two payments, captured after the hard timeout
	partRanOut  = "ran-out"  // the hold ran out
)

func allGoBack() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/all-go-back",
		Title: "two payments are captured for an order whose hold is over",
		Doc: `The provider captures twice for each order: when its member has given the hold up, or after the hard timeout. Nothing of that buys the seat. Both payments go back, each once
and whole: that an order has a refund already says nothing of its other payments.`,
		Sources: []string{"S-I2", "S-I5", "S-M24"},
		Params:  []harness.Param{with(paramOrders, "3"), paramReplicas},
		Choose:  chooseCast(partTwice, partTooLong),
		Drive:   driveAllGoBack,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			return append(served(p),
				words("answers", "every charge waits for the provider", answers.ByKind, answers.Fixed(answers.Tallies{kindCharge: {"202": 2 * n}, kindRelease: {"200": n}})),
				oneEffectEach(),
				ends("both payments of an order that is over go back", map[string]string{
					partTwice: "RELEASED: REFUNDED REFUNDED", partTooLong: "EXPIRED: REFUNDED REFUND_RESOLVED+DONE",
				}),
				seatStates("each seat is free", map[string]int{"FREE": 2 * n}))
		},
	}, nil)
}

func driveAllGoBack(ctx context.Context, env harness.Env) error {
	_, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	both := undecided()
	both.Attempts, both.AttemptsAtOnce = []string{payments.Captured, payments.Captured}, true
	if err := behave(ctx, env, buyers, map[string]payments.Behaviour{partTwice: both, partTooLong: both}); err != nil {
		return err
	}
	post, twice, late := newCourier(env), playing(buyers, partTwice), playing(buyers, partTooLong)
	each(ctx, env, buyers, buyer.pays)
	each(ctx, env, twice, buyer.drops)
	if err := capturedTwice(ctx, env, post, twice, 2*len(twice)); err != nil {
		return err
	}
	if err := calm(ctx, env); err != nil {
		return err
	}
	if err := pastHardTimeout(ctx, env); err != nil {
		return err
	}
	given, err := awaitCount(ctx, env, "every charge is given up", len(late), countGivenUp)
	if err != nil {
		return err
	}
	env.Witness("given_up", float64(len(late)), float64(given), "charges that were given up before they were captured")
	if err := capturedTwice(ctx, env, post, late, 2*len(buyers)); err != nil {
		return err
	}
	return finish(ctx, env, post)
}

// capturedTwice has the provider capture for the buyers and tell it, and waits
// until so many payments went back.
func capturedTwice(ctx context.Context, env harness.Env, post *courier, buyers []buyer, back int) error {
	if err := decide(ctx, env, payments.Captured, buyers); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	_, err := awaitCount(ctx, env, "every payment went back", back, countReturned)
	return err
}

func releaseAgain() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/release-again",
		Title: "a hold that is over is given up once more when somebody else has its seat",
		Doc: `Members give their holds up, or let them run out; others take the seats. Then the first ones give up once more, as who clicks twice does. They are told that the hold is
over, and the seats stay with who has them, who pay.`,
		Sources: []string{"S-I10", "S-I4", "S-M30"},
		Params:  []harness.Param{with(paramOrders, "4"), paramReplicas},
		Choose:  chooseCast(partDropped, partRanOut),
		Drive:   driveReleaseAgain,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			return append(served(p),
				words("answers", "who gives up what is over is told so, and who has the seat by then pays for it", answers.ByKind, answers.Fixed(answers.Tallies{
					kindRelease: {"200": n}, kindRetake: {"201": 2 * n}, kindAgain: {"409 hold-over": 2 * n}, kindPayRetake: {"201": 2 * n},
				})),
				ends("the first ones' holds are over, the seats are bought by the others", map[string]string{
					partDropped: "RELEASED", partRanOut: "EXPIRED", others: "CONFIRMED: CAPTURED",
				}),
				seatStates("each seat is sold", map[string]int{"SOLD": 2 * n}))
		},
	}, nil)
}

func driveReleaseAgain(ctx context.Context, env harness.Env) error {
	c, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	dropped, ranOut := playing(buyers, partDropped), playing(buyers, partRanOut)
	each(ctx, env, dropped, buyer.drops)
	if err := retakenAndReleased(ctx, env, c.Show, dropped); err != nil {
		return err
	}
	if err := pastExpiry(ctx, env, lastHold(buyers)); err != nil {
		return err
	}
	over, err := awaitCount(ctx, env, "the other holds have run out", len(ranOut), countFree)
	if err != nil {
		return err
	}
	env.Witness("ran_out", float64(len(ranOut)), float64(over), "seats whose hold had run out before somebody else took them")
	if err := retakenAndReleased(ctx, env, c.Show, ranOut); err != nil {
		return err
	}
	return finish(ctx, env, newCourier(env))
}

// retakenAndReleased has others take the buyers' seats, then the buyers give up
// once more, and then the others pay.
func retakenAndReleased(ctx context.Context, env harness.Env, s show, buyers []buyer) error {
	var pays []harness.Request
	for _, b := range buyers {
		process, who := 10_000+b.n, member(10_000+b.n)
		h, err := holdOf(env.Do(ctx, answers.As(kindRetake, claim(process, who, s.ID, b.hold.Seat))))
		if err != nil {
			continue // the checks say what was told instead
		}
		pays = append(pays, answers.As(kindPayRetake, charge(process, who, h.HoldID, "card-of-"+who)))
	}
	each(ctx, env, buyers, func(b buyer) harness.Request { return answers.As(kindAgain, b.drops()) })
	env.DoAll(ctx, pays, hands)
	return ctx.Err()
}

// oddPrices are amounts that reckoning in floating point, or in a narrower
// number, does not keep: in units of the currency, or as a float32, they are
// another number; and the least and the most that the contract allows.
var oddPrices = []int64{1, 29, 57, 58, 115, 1_001, 16_777_217, 99_999_999, 100_000_000}

// oddChoices are what the seed decides about awkward prices.
type oddChoices struct {
	Shows []show `json:"shows"`
}

func oddPricesScenario() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/odd-prices",
		Title: "seats of awkward prices are bought, and their money goes back, to the minor unit",
		Doc: `One show for each of some prices that are no floating point numbers in units of the currency, or too large for a narrow one, and for the least and the most that is allowed.
Of each show one seat is bought, and one given up while its payment is in flight, which is captured after all. What is asked for, captured, stored and given back is the price.`,
		Sources: []string{"S-I2", "S-I3", "S-M18"},
		Params:  []harness.Param{paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			var c oddChoices
			for i, price := range oddPrices {
				s := chooseShow(rng, p, 2)
				s.ID, s.Price = s.ID*10+int64(i), price
				c.Shows = append(c.Shows, s)
			}
			return c, nil
		},
		Drive: driveOddPrices,
		Checks: func(p harness.Params) []harness.Check {
			n := len(oddPrices)
			return append(served(p),
				words("answers", "each price is paid, and each seat can be given up", answers.ByKind, answers.Fixed(answers.Tallies{
					kindClaim: {"201": 2 * n}, kindCharge: {"201": n, "202": n}, kindRelease: {"200": n},
				})),
				oneEffectEach(),
				holdStates("one hold of each price is paid for, one was given up", map[string]int{"CONFIRMED": n, "RELEASED": n}),
				tallied("states.refunds", "what was captured for a hold that was given up went back", "refunds", map[string]int{"DONE": n}))
		},
	}, nil)
}

func driveOddPrices(ctx context.Context, env harness.Env) error {
	var c oddChoices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	if err := onSale(ctx, env, c.Shows...); err != nil {
		return err
	}
	late := payments.Config{Cards: map[string]payments.Behaviour{}}
	for i := range c.Shows {
		late.Cards[roundCard(2*i+1)] = undecided()
		late.Decide = append(late.Decide, payments.Decision{Card: roundCard(2*i + 1), Outcome: payments.Captured})
	}
	if err := configure(ctx, env, payments.Config{Cards: late.Cards}); err != nil {
		return err
	}
	var pays, drops []harness.Request
	for i, s := range c.Shows {
		for k, seat := range s.Seats {
			n := 2*i + k
			h, err := claimed(ctx, env, claim(n, member(n), s.ID, seat))
			if err != nil {
				return err
			}
			pays = append(pays, charge(n, member(n), h.HoldID, roundCard(n)))
			if k == 1 {
				drops = append(drops, release(n, member(n), h.HoldID))
			}
		}
	}
	env.DoAll(ctx, pays, hands)
	env.DoAll(ctx, drops, hands)
	if err := configure(ctx, env, payments.Config{Decide: late.Decide}); err != nil {
		return err
	}
	post := newCourier(env)
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	if _, err := awaitCount(ctx, env, "what was captured for dropped holds went back", len(c.Shows), countReturned); err != nil {
		return err
	}
	env.Witness("late_captures", float64(len(c.Shows)), float64(lateCaptures(ctx, env)), "payments that were captured after their hold had been dropped")
	return finish(ctx, env, post)
}
