package tickets

import (
	"context"
	"fmt"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

func crashMidRefund() harness.Scenario {
	return midRefund(harness.Scenario{
		Name:  "tickets/crash-mid-refund",
		Title: "the server is killed when the provider has given money back and before that is stored; the refund is repeated under its key",
		Doc: `A member gives a seat up while the payment is in flight, and it is captured after all: the money goes back. The moment: the provider has done so and answered,
the answer has not reached the server; then SIGKILL. The refund must be PENDING and the charge REFUNDING. The server is started again and, when the dead one's turn is
over in server time, asks once more under the same key. The provider pays back once. Its callback comes last, and changes nothing.`,
	}, false)
}

func crashMidRefundTold() harness.Scenario {
	return midRefund(harness.Scenario{
		Name:  "tickets/crash-mid-refund@told",
		Title: "the server is killed when the provider has given money back; the callback tells of it before the refund is repeated",
		Doc: `As crash-mid-refund, but the callback that tells of the refund comes right after the restart, while the dead server's turn at the refund still lasts: the refund is
done by that, and not repeated when the turn is over.`,
	}, true)
}

// midRefund fills in what the two share. told: the callback comes before the
// refund would be repeated.
func midRefund(s harness.Scenario, told bool) harness.Scenario {
	s.Sources = []string{"S-I2", "S-I5", "S-M5", "S-M8"}
	s.Params = []harness.Param{with(paramRounds, "3")}
	s.Rounds, s.Choose, s.Latency = rounds, chooseCrashRounds(1), kindCallback
	s.Drive = func(ctx context.Context, env harness.Env) error { return driveCrashMidRefund(ctx, env, told) }
	s.Checks = func(p harness.Params) []harness.Check {
		n, asked := rounds(p), 2
		if told {
			asked = 1
		}
		return append(standing(p, allowance{repeatedRefunds: 1}), noServerErrors(),
			leftBy("S-I5.crash", "a refund that is under way is known here when the server dies", string(harness.MomentAccepted),
				orderRows{hold: "RELEASED", charge: "REFUNDING", refund: "PENDING", charges: 1, refunds: 1}),
			refundCalls(asked), oneChargeEach(),
			answers.Among(answers.AmongRule{ // the answer to the first one may be lost with the server
				ID: "answers", Doc: "callbacks that are answered are taken", Rule: where + "/crash_refund.go",
				Group: answers.ByKind, Allowed: map[string][]string{kindCallback: {"200"}},
			}),
			tallied("states.refunds", "each refund is done", "refunds", map[string]int{"DONE": n}),
			tallied("states.charges", "each payment went back", "charges", map[string]int{"REFUNDED": n}),
			holdStates("each hold was given up", map[string]int{"RELEASED": n}),
			seatStates("each seat is free", map[string]int{"FREE": n}))
	}
	return crashScenario(s)
}

// refundCalls: for each payment the provider was asked so often; that it was
// under one key the standing checks see.
func refundCalls(n int) harness.Check {
	return check.Calls(check.CallRule{
		ID: "S-I5.asked", Doc: fmt.Sprintf("the provider is asked for each refund %d times, the call that the server died over included", n), Rule: where + "/crash_refund.go",
		Upstream: payments.Name, Method: "POST", Path: "/refunds", Key: paymentOf, Each: check.Exactly(n),
	})
}

func driveCrashMidRefund(ctx context.Context, env harness.Env, told bool) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	standard := pendingCard()
	if err := configure(ctx, env, payments.Config{Default: &standard}); err != nil {
		return err
	}
	post, killed := newCourier(env), 0
	for i, seat := range c.Show.Seats {
		h, err := givenUpInFlight(ctx, env, i, c.Show.ID, seat)
		if err != nil {
			return err
		}
		fault := env.Inject(harness.Fault{Action: harness.ActionKill, At: harness.MomentAccepted, Match: "POST /refunds", Nth: 1})
		if _, err := post.deliver(ctx); err != nil { // the capture, which enqueues the refund
			return err
		}
		if err := struckBy(ctx, env, fault); err != nil {
			return err
		}
		killed++
		if err := noteLeft(ctx, env, h.HoldID, string(harness.MomentAccepted)); err != nil {
			return err
		}
		if err := restarted(ctx, env); err != nil {
			return err
		}
		if told {
			if _, err := post.deliver(ctx); err != nil {
				return err
			}
		}
		if err := env.Advance(ctx, refundClaim); err != nil {
			return err
		}
		if err := awaitRefund(ctx, env, h.HoldID); err != nil {
			return err
		}
		if _, err := post.deliver(ctx); err != nil {
			return err
		}
	}
	env.Witness("killed_at_moment", float64(len(c.Show.Seats)), float64(killed), "refunds that the provider had done when the server was killed")
	return finish(ctx, env, post)
}

func crashInCallback() harness.Scenario {
	return crashScenario(harness.Scenario{
		Name:  "tickets/crash-in-callback",
		Title: "the server is killed in a callback, before its COMMIT and after it; the callback comes again and is applied once",
		Doc: `The provider tells of a captured payment. In one half of the rounds the server is killed when the COMMIT of that callback is on its way to Postgres, in the
other half when Postgres has committed and the server has not heard of it. Before its COMMIT a callback has changed nothing, after it everything. The courier, who got no
answer, delivers it again when the server is back: it is applied then in the first half, and known as a copy in the second. Each event is stored once and sold one seat.`,
		Sources: []string{"S-I2", "S-I5", "S-I8", "S-M3"},
		Params:  []harness.Param{with(paramRounds, "2")},
		Rounds:  func(p harness.Params) int { return 2 * rounds(p) }, Choose: chooseCrashRounds(2), Latency: kindCallback,
		Drive: driveCrashInCallback,
		Checks: func(p harness.Params) []harness.Check {
			n := rounds(p)
			return append(served(p),
				leftBy("S-I5.before", "before its COMMIT a callback has changed nothing", string(harness.BeforeCommit),
					orderRows{hold: "RESERVED", seat: "HELD", charge: "CHARGING", charges: 1}),
				leftBy("S-I5.after", "after its COMMIT a callback has changed everything", string(harness.AfterCommit),
					orderRows{hold: "CONFIRMED", seat: "SOLD", charge: "CAPTURED", charges: 1}),
				words("answers", "the first delivery of each is not answered; the second is applied when nothing was stored, else a duplicate", callbackResult, answers.Fixed(answers.Tallies{
					"unanswered": {"none": 2 * n}, "applied": {"200": n}, "duplicate": {"200": n},
				})),
				eventsOnce(2*n), oneChargeEach(), broughtBy("each payment's outcome came by callback", "callback", 2*n),
				holdStates("each hold is paid for", map[string]int{"CONFIRMED": 2 * n}),
				seatStates("each seat is sold", map[string]int{"SOLD": 2 * n}))
		},
	})
}

// callbackResult groups callbacks by what the server made of them.
func callbackResult(op harness.Operation) string {
	switch result, ok := fields(op)["result"].(string); {
	case op.Kind != kindCallback:
		return ""
	case ok:
		return result
	}
	return "unanswered"
}

// eventsOnce: each event is stored once. The table has a key, so that this is
// of a server that stores it elsewhere or not at all.
func eventsOnce(n int) harness.Check {
	const doc = "each callback that was delivered is stored as seen, once"
	return funcCheck("S-I5.events", doc, "crash_refund.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:provider_events")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the events could not be read")
		}
		seen := map[string]int{}
		for _, r := range rows.Rows {
			seen[text(r, "event_id")]++
		}
		switch {
		case len(rec.History.OfKind(kindCallback)) == 0:
			return harness.Undecided(harness.ReasonVacuous, "no callback was delivered")
		case len(seen) != n || len(rows.Rows) != n:
			return harness.Violated([]harness.Evidence{{Text: fmt.Sprintf("%d rows of %d events", len(rows.Rows), len(seen))}}, "%s: want %d, got %d rows of %d events", doc, n, len(rows.Rows), len(seen))
		}
		return harness.Passed("%s: %d", doc, n)
	})
}

func driveCrashInCallback(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	standard := pendingCard()
	if err := configure(ctx, env, payments.Config{Default: &standard}); err != nil {
		return err
	}
	post, killed := newCourier(env), 0
	for i, seat := range c.Show.Seats {
		h, err := chargedInFlight(ctx, env, i, c.Show.ID, seat)
		if err != nil {
			return err
		}
		at := []harness.Moment{harness.BeforeCommit, harness.AfterCommit}[i%2]
		fault := env.Inject(harness.Fault{Action: harness.ActionKill, At: at, Match: taking, Nth: 1})
		if _, err := post.deliver(ctx); err != nil {
			return err
		}
		if err := struckBy(ctx, env, fault); err != nil {
			return err
		}
		killed++
		if err := noteLeft(ctx, env, h.HoldID, string(at)); err != nil {
			return err
		}
		if err := restarted(ctx, env); err != nil {
			return err
		}
		if err := deliverAgain(ctx, env, post); err != nil {
			return err
		}
	}
	env.Witness("killed_at_moment", float64(len(c.Show.Seats)), float64(killed), "callbacks in whose transaction the server was killed")
	return finish(ctx, env, post)
}

// deliverAgain has the courier deliver until nothing waits for another try.
func deliverAgain(ctx context.Context, env harness.Env, post *courier) error {
	return env.Await(ctx, "every callback is taken", patience, func(ctx context.Context) (bool, string, error) {
		_, err := post.deliver(ctx)
		return err == nil && post.left() == 0, fmt.Sprintf("%d wait", post.left()), err
	})
}
