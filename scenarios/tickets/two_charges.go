package tickets

import (
	"context"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

const (
	partFirstWins  = "first-wins"  // two captures, told in their order
	partSecondWins = "second-wins" // told the other way round
	partAtOnce     = "at-once"     // both told at one barrier
	partOwnWins    = "own-wins"    // the member's second card, then the provider's own attempt with the first one
	partTheirsWins = "theirs-wins" // the provider's own attempt, then the member's second card, which was in flight
)

func twoCharges() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/two-charges-one-hold",
		Title: "two payments are captured for one hold; the order is confirmed by one, then the other is told, then both again",
		Doc: `An order gets two captured payments: the provider captures twice by itself, or makes another attempt with the card that it had declined when the member has paid with
another one. They are told in either order, or at the same moment, then all callbacks once more at one barrier. The seat is sold once, to the payment that won; the other one goes
back once, whatever is told again.`,
		Sources: []string{"S-I2", "S-I4", "S-I5", "S-I9", "S-M3", "S-M4", "S-M5", "S-M19"},
		Params:  []harness.Param{with(paramOrders, "2"), paramReplicas},
		Choose:  chooseCast(partFirstWins, partSecondWins, partAtOnce, partOwnWins, partTheirsWins),
		Drive:   driveTwoCharges,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			const twice, declinedFirst = "CONFIRMED: CAPTURED REFUNDED", "CONFIRMED: CAPTURED DECLINED REFUNDED"
			return append(served(p),
				words("answers", "no second charge while one is in flight; one after a decline is taken", answers.ByKind, answers.Fixed(answers.Tallies{
					kindCharge: {"202": 3 * n, "402 payment-declined": 2 * n}, kindSecondCharge: {"201": n, "202": n},
				})),
				oneEffectPerEvent(),
				firstToldWins(),
				ends("one payment buys the seat, the other one goes back", map[string]string{
					partFirstWins: twice, partSecondWins: twice, partAtOnce: twice, partOwnWins: declinedFirst, partTheirsWins: declinedFirst,
				}))
		},
	}, nil)
}

func driveTwoCharges(ctx context.Context, env harness.Env) error {
	_, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	if err := twoChargesCards(ctx, env, buyers); err != nil {
		return err
	}
	each(ctx, env, buyers, buyer.pays)
	second := playing(buyers, partOwnWins, partTheirsWins)
	each(ctx, env, second, func(b buyer) harness.Request { return answers.As(kindSecondCharge, b.second()) })
	captured := playing(buyers, partFirstWins, partSecondWins, partAtOnce)
	if err := decide(ctx, env, payments.Captured, append(captured, second...)); err != nil { // the second attempts of these
		return err
	}
	post := newCourier(env)
	if err := tellAtOnce(ctx, env, playing(buyers, partAtOnce)); err != nil {
		return err
	}
	if err := letGo(ctx, env, playing(buyers, partFirstWins, partSecondWins, partOwnWins, partTheirsWins)); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	var late payments.Config
	for _, b := range playing(buyers, partTheirsWins) {
		late.Decide = append(late.Decide, payments.Decision{Card: "second-" + b.card(), Outcome: payments.Captured})
	}
	if err := configure(ctx, env, late); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	if _, err := awaitCount(ctx, env, "one payment of each order went back", len(buyers), countReturned); err != nil {
		return err
	}
	if err := letGo(ctx, env, buyers); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	all, err := callbacksNow(ctx, env, payments.PaymentCaptured, payments.PaymentDeclined, payments.PaymentRefunded)
	if err != nil {
		return err
	}
	if _, err := deliverCopies(ctx, env, "replay", all, 1); err != nil {
		return err
	}
	return finish(ctx, env, post)
}

// twoChargesCards: callbacks of the first cards are held back.
func twoChargesCards(ctx context.Context, env harness.Env, buyers []buyer) error {
	twice := payments.Behaviour{
		Answer: payments.Pending, Decide: payments.Held, Callbacks: payments.Held, Attempts: []string{payments.Captured, payments.Captured}, AttemptsAtOnce: true,
	}
	reversed := twice
	reversed.Reversed = true
	again := payments.Behaviour{Callbacks: payments.Held, Attempts: []string{payments.Declined, payments.Captured}}
	err := behave(ctx, env, buyers, map[string]payments.Behaviour{
		partFirstWins: twice, partSecondWins: reversed, partAtOnce: twice, partOwnWins: again, partTheirsWins: again,
	})
	if err != nil {
		return err
	}
	pending := payments.Config{Cards: map[string]payments.Behaviour{}}
	for _, b := range playing(buyers, partTheirsWins) {
		pending.Cards["second-"+b.card()] = undecided()
	}
	return configure(ctx, env, pending)
}

// tellAtOnce delivers both captures of each order at one barrier. They are held
// back from the courier, which delivers them again in the end.
func tellAtOnce(ctx context.Context, env harness.Env, buyers []buyer) error {
	all, err := callbacksNow(ctx, env, payments.PaymentCaptured)
	if err != nil {
		return err
	}
	cards := cardsOf(buyers)
	var both []payments.Callback
	for _, cb := range all {
		for _, card := range cards {
			if cb.Card == card {
				both = append(both, cb)
			}
		}
	}
	report, err := deliverCopies(ctx, env, "both", both, 1)
	if err != nil {
		return err
	}
	answers.WitnessOverlap(env, report)
	return nil
}

// firstToldWins: of two captured payments of an order the one that was told
// first, by an answer or a callback, has bought the seat.
func firstToldWins() harness.Check {
	const doc = "the payment that was told first has bought the seat"
	return funcCheck("S-I4.winner", doc, "two_charges.go", true, func(rec harness.Record) harness.Verdict {
		l, missing := ledgersOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		var c cast
		if err := rec.Plan.Decode(&c); err != nil {
			return harness.Undecided(harness.ReasonChecker, "the plan has no cast: %s", err)
		}
		want := map[string]string{partFirstWins: "pays first", partSecondWins: "pays second", partOwnWins: "request", partTheirsWins: "provider"}
		var wrong []harness.Evidence
		judged := 0
		for id, h := range l.holds {
			expected, ok := want[c.partOf(text(h, "login"))]
			if !ok {
				continue
			}
			judged++
			if got := l.winner(id); !strings.Contains(got, expected) {
				wrong = append(wrong, harness.Evidence{Text: "order " + id + " of " + text(h, "login") + " was won by a payment that " + got + "; want one that " + expected})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "no order had two payments")
		}
		return harness.Passed("%s: %d orders", doc, judged)
	})
}

// winner describes the payment that has won an order.
func (l ledgers) winner(holdID string) string {
	c := l.byID[text(l.holds[holdID], "winning_charge")]
	if c == nil {
		return "is none"
	}
	seen := 0
	for _, p := range l.provider.Payments {
		if p.Intent != holdID || p.Status != payments.Captured {
			continue
		}
		if seen++; p.PaymentID == text(c, "payment_id") {
			break
		}
	}
	return "pays " + []string{"nothing", "first", "second", "later"}[min(seen, 3)] + ", of a charge by " + text(c, "origin")
}
