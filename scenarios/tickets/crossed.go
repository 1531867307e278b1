package tickets

import (
	"context"
	"fmt"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// The payments that are told once more for another order, by what is known of
// them then. Each has an order of partStranger or partUnbound beside it.
const (
	partBought   = "bought"   // it has bought a seat
	partKnown    = "known"    // the provider has named it, its capture was not told yet
	partReturned = "returned" // it went back
	partRefused  = "refused"  // it was declined
	partStranger = "stranger" // has a payment of its own in flight
	partUnbound  = "unbound"  // has a charge in flight of which no payment is known
)

func onePaymentTwoOrders() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/one-payment-two-orders",
		Title: "the provider tells of one payment for two orders",
		Doc: `Payments that have bought a seat, that are known, that went back or were declined are told once more by signed callbacks of new events, with the intent and the
reference of another order, whose own charge is in flight, with a payment of its own or with none known yet. A payment counts for the order that it was made for: no callback of
that kind has an effect, and the other order is paid by its own payment.`,
		Sources: []string{"S-I2", "S-I3", "S-I8", "S-M3"},
		Params:  []harness.Param{with(paramOrders, "2"), paramReplicas},
		Choose:  chooseCast(partBought, partKnown, partReturned, partRefused, partStranger, partStranger, partStranger, partUnbound),
		Drive:   driveCrossed,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			return append(served(p),
				words("answers", "clients are told what their own payments came to", answers.ByKind, answers.Fixed(answers.Tallies{
					kindCharge: {"201": n, "202": 6 * n, "402 payment-declined": n}, kindRelease: {"200": n},
				})),
				crossedIsNothing(),
				ends("each order is paid by its own payment", map[string]string{
					partBought: "CONFIRMED: CAPTURED", partKnown: "CONFIRMED: CAPTURED", partReturned: "RELEASED: REFUNDED", partRefused: "EXPIRED: DECLINED",
					partStranger: "CONFIRMED: CAPTURED", partUnbound: "CONFIRMED: CAPTURED",
				}))
		},
	}, nil)
}

func driveCrossed(ctx context.Context, env harness.Env) error {
	_, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	known := undecided()
	known.Callbacks = payments.Held
	err = behave(ctx, env, buyers, map[string]payments.Behaviour{
		partKnown: known, partReturned: undecided(), partRefused: {Attempts: []string{payments.Declined}},
		partStranger: undecided(), partUnbound: {Answer: payments.Reset, Decide: payments.Held},
	})
	if err != nil {
		return err
	}
	each(ctx, env, buyers, buyer.pays)
	returned := playing(buyers, partReturned)
	each(ctx, env, returned, buyer.drops)
	if err := decide(ctx, env, payments.Captured, append(playing(buyers, partKnown), returned...)); err != nil {
		return err
	}
	post := newCourier(env)
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	if _, err := awaitCount(ctx, env, "what was captured for dropped holds went back", len(returned), countReturned); err != nil {
		return err
	}
	sources := playing(buyers, partBought, partKnown, partReturned, partRefused)
	targets := playing(buyers, partStranger, partUnbound)
	var c payments.Config
	for i, from := range sources { // mixed by the plan
		c.Cross = append(c.Cross, payments.Crossing{Card: from.card(), Other: targets[i%len(targets)].card()})
	}
	if err := configure(ctx, env, c); err != nil {
		return err
	}
	if err := tellCrossed(ctx, env); err != nil {
		return err
	}
	if err := decide(ctx, env, payments.Captured, targets); err != nil {
		return err
	}
	if err := letGo(ctx, env, buyers); err != nil {
		return err
	}
	return finish(ctx, env, post)
}

// tellCrossed delivers the crossed callbacks at one barrier. The courier
// delivers them again later, as often as it tries.
func tellCrossed(ctx context.Context, env harness.Env) error {
	ledger, err := ledgerNow(ctx, env)
	if err != nil {
		return err
	}
	var crossed []payments.Callback
	for _, cb := range ledger.Callbacks {
		if cb.Crossed {
			crossed = append(crossed, cb)
		}
	}
	report, err := deliverCopies(ctx, env, "crossed", crossed, 2)
	if err != nil {
		return err
	}
	answers.WitnessOverlap(env, report)
	return nil
}

// crossedIsNothing: no callback that tells of a payment for another order than
// its own is said to be applied.
func crossedIsNothing() harness.Check {
	const doc = "no callback that tells of another order's payment is applied"
	return funcCheck("answers.crossed", doc, "crossed.go", false, func(rec harness.Record) harness.Verdict {
		found, ok := rec.Find("ledger:" + payments.Name)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the provider's ledger could not be read")
		}
		ledger, err := payments.LedgerOf(found.Rows)
		if err != nil {
			return harness.Undecided(harness.ReasonEnvironment, "%s", err)
		}
		crossed := map[any]bool{}
		for _, cb := range ledger.Callbacks {
			if cb.Crossed {
				crossed[cb.EventID] = true
			}
		}
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.OfKind(kindCallback) {
			event := inputOf(op)["event_id"]
			if !crossed[event] || op.Status == 0 {
				continue
			}
			judged++
			if fields(op)["result"] == "applied" || (op.Status >= 500 && !check.Broken(rec)) {
				wrong = append(wrong, answers.About(op, fmt.Sprintf("%v tells of another order's payment", event)))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d were", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "no such callback was answered")
		}
		return harness.Passed("%s: %d deliveries", doc, judged)
	})
}
