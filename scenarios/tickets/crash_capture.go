package tickets

import (
	"context"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// orderTells demands what the member's question after the crash was answered.
func orderTells(state string, n int) harness.Check {
	doc := "who got no answer is told by the order that it is " + state
	return funcCheck("answers.order", doc, "crash_capture.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.OfKind(kindOrderAfter) {
			o, err := orderOf(op)
			if op.Status == 0 {
				continue
			}
			judged++
			if err != nil || o.State != state || (state == "CONFIRMED" && (o.WinningCharge == nil || len(o.Charges) != 1)) {
				wrong = append(wrong, answers.About(op, "want an order that is "+state))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d are not", doc, len(wrong), judged)
		case judged < n:
			return harness.Undecided(harness.ReasonUndelivered, "%d of %d were answered", judged, n)
		}
		return harness.Passed("%s: %d", doc, judged)
	})
}

func crashAfterCapture() harness.Scenario {
	return crashScenario(harness.Scenario{
		Name:  "tickets/crash-after-capture",
		Title: "the server is killed when the sale is committed and before the member hears of it",
		Doc: `The moment: Postgres has committed the outcome of a charge, which sells the seat, and the server has not heard of that; then SIGKILL. Hold, seat and charge must
be whole: CONFIRMED, SOLD, CAPTURED. The server is started again. The member asks for the order and is told that it is paid; charging once more is refused with
hold-over. The provider's callback, which comes now, changes nothing, and no money goes back.`,
		Sources: []string{"S-I2", "S-I3", "S-I5", "S-I8"},
		Params:  []harness.Param{with(paramRounds, "3")},
		Rounds:  rounds, Choose: chooseCrashRounds(1), Latency: kindCharge,
		Drive: driveCrashAfterCapture,
		Checks: func(p harness.Params) []harness.Check {
			n := rounds(p)
			return append(served(p),
				leftBy("S-I3.crash", "what is committed of a sale is there, whole, when the server dies", string(harness.AfterCommit),
					orderRows{hold: "CONFIRMED", seat: "SOLD", charge: "CAPTURED", charges: 1}),
				words("answers", "nobody hears of the sale at first, the order tells of it, and a second charge is refused", answers.ByKind, answers.Fixed(answers.Tallies{
					kindCharge: {"none": n}, kindOrderAfter: {"200": n}, kindAgain: {"409 hold-over": n}, kindCallback: {"200": n},
				})),
				orderTells("CONFIRMED", n), oneChargeEach(), broughtBy("each payment's outcome came by the answer", "answer", n),
				holdStates("each hold is paid for", map[string]int{"CONFIRMED": n}),
				seatStates("each seat is sold", map[string]int{"SOLD": n}))
		},
	})
}

func driveCrashAfterCapture(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	post, killed := newCourier(env), 0
	for i, seat := range c.Show.Seats {
		h, err := claimed(ctx, env, claim(i, member(i), c.Show.ID, seat))
		if err != nil {
			return err
		}
		pay := charge(i, member(i), h.HoldID, roundCard(i))
		fault := env.Inject(harness.Fault{Action: harness.ActionKill, At: harness.AfterCommit, Match: capturing, Nth: 1})
		env.Do(ctx, pay)
		if err := struckBy(ctx, env, fault); err != nil {
			return err
		}
		killed++
		if err := noteLeft(ctx, env, h.HoldID, string(harness.AfterCommit)); err != nil {
			return err
		}
		if err := restarted(ctx, env); err != nil {
			return err
		}
		env.Do(ctx, answers.As(kindOrderAfter, order(i, member(i), h.HoldID)))
		env.Do(ctx, answers.As(kindAgain, pay))
		if _, err := post.deliver(ctx); err != nil {
			return err
		}
	}
	env.Witness("killed_at_moment", float64(len(c.Show.Seats)), float64(killed), "sales that were committed when the server was killed")
	return finish(ctx, env, post)
}
