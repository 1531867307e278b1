package tickets

import (
	"context"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

const (
	partAnswerLost  = "answer-lost"   // accepted and captured; neither the answer nor a callback comes
	partUntold      = "untold"        // captured after the answer; no callback comes
	partNeverAgain  = "never-again"   // declined after the answer; no callback comes
	partAgain       = "again"         // declined, then captured by the provider's own attempt, at once; no callback comes
	partMuchLater   = "much-later"    // declined by the answer; the provider's own attempt, later, is captured; no callback comes
	partAnswerInDue = "answer-in-due" // captured by the answer, as a comparison
)

func lostCallback() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/lost-callback",
		Title: "no callback ever comes, and answers are lost, too",
		Doc: `The provider takes charges and decides on them, and nobody tells: the connection of the answer is reset, callbacks are lost, some attempts are the provider's own after a
decline. Reconciliation asks and finds what became of each charge; also of one that the answer said was declined, about which it asks once more at the hard timeout.`,
		Sources: []string{"S-I2", "S-I8", "S-I9", "S-M9", "S-M17"},
		Params:  []harness.Param{with(paramOrders, "2"), paramReplicas},
		Choose:  chooseCast(partAnswerLost, partUntold, partNeverAgain, partAgain, partMuchLater, partAnswerInDue),
		Drive:   driveLost,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			return append(served(p),
				words("answers", "who waits for the provider is told so", answers.ByKind, answers.Fixed(answers.Tallies{
					kindCharge: {"201": n, "202": 4 * n, "402 payment-declined": n},
				})),
				nobodyTold(),
				ends("reconciliation finds what became of each charge", map[string]string{
					partAnswerLost: "CONFIRMED: CAPTURED", partUntold: "CONFIRMED: CAPTURED", partNeverAgain: "EXPIRED: DECLINED",
					partAgain: "CONFIRMED: CAPTURED DECLINED", partMuchLater: "EXPIRED: DECLINED REFUNDED", partAnswerInDue: "CONFIRMED: CAPTURED",
				}))
		},
	}, nil)
}

// nobodyTold is the premise that no callback was delivered.
func nobodyTold() harness.Check {
	return funcCheck("premise.untold", "no callback was delivered", "lost_callback.go", false, func(rec harness.Record) harness.Verdict {
		if told := len(rec.History.OfKind(kindCallback)); told > 0 {
			return harness.Undecided(harness.ReasonAssumption, "%d callbacks were delivered: the scenario shows nothing about reconciliation", told)
		}
		if len(rec.History.OfKind(kindCharge)) == 0 {
			return harness.Undecided(harness.ReasonVacuous, "nobody paid, so there was nothing to tell")
		}
		return harness.Passed("no callback was delivered")
	})
}

func driveLost(ctx context.Context, env harness.Env) error {
	_, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	twice := []string{payments.Declined, payments.Captured}
	untold := payments.Behaviour{Answer: payments.Pending, Decide: payments.Held, Callbacks: payments.Lost}
	never, again := untold, untold
	never.Attempts = twice[:1]
	again.Attempts, again.AttemptsAtOnce = twice, true
	err = behave(ctx, env, buyers, map[string]payments.Behaviour{
		partAnswerLost: {Answer: payments.Reset, Callbacks: payments.Lost}, partUntold: untold, partNeverAgain: never, partAgain: again,
		partMuchLater: {Attempts: twice, Callbacks: payments.Lost}, partAnswerInDue: {Callbacks: payments.Lost},
	})
	if err != nil {
		return err
	}
	each(ctx, env, buyers, buyer.pays)
	open := playing(buyers, partAnswerLost, partUntold, partNeverAgain, partAgain)
	inFlight, err := awaitCount(ctx, env, "charges that nobody has told of are in flight", len(open), countCharging)
	if err != nil {
		return err
	}
	env.Witness("in_flight", float64(len(open)), float64(inFlight), "charges of which the server did not know what the provider had decided")
	if err := decide(ctx, env, "", playing(buyers, partUntold, partNeverAgain, partAgain)); err != nil {
		return err
	}
	if err := env.Advance(ctx, reconcileAfter+reconcileEvery); err != nil {
		return err
	}
	bought := len(playing(buyers, partAnswerLost, partUntold, partAgain, partAnswerInDue))
	const countConfirmed = `select count(*) as n from holds where state = 'CONFIRMED'`
	if _, err := awaitCount(ctx, env, "reconciliation has found every capture", bought, countConfirmed); err != nil {
		return err
	}
	if _, err := awaitCount(ctx, env, "no charge is in flight", 0, countCharging); err != nil {
		return err
	}
	if err := decide(ctx, env, payments.Captured, playing(buyers, partMuchLater)); err != nil {
		return err
	}
	return finish(ctx, env, newCourier(env))
}
