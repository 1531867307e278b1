package tickets

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// claimRound and payRound name the two bursts of a round of two tabs.
func claimRound(i int) string { return fmt.Sprintf("claim-%d", i+1) }
func payRound(i int) string   { return fmt.Sprintf("pay-%d", i+1) }

func twoTabs() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/two-tabs",
		Title: "two tabs of one login claim two seats, then pay for the one that they got, at the same moment",
		Doc: `In each round a login claims two different seats from two tabs at one barrier. One tab is answered 201, the other 409 checkout-active with the hold and the
seat of the first, and its seat stays free. Then both tabs charge that hold at one barrier, with a card that the provider takes its time for: one is answered 202,
the other 409 charge-in-flight, and the provider hears of one charge. When it decides, its callback sells the seat.`,
		Sources: []string{"S-I7", "S-I5", "S-I2", "S-M10", "S-M19"},
		Params:  []harness.Param{with(paramRounds, "12"), paramReplicas},
		Rounds:  rounds,
		Choose:  chooseOrders(func(harness.Params) int { return 2 }, 2),
		Drive:   driveTabs,
		Checks: func(p harness.Params) []harness.Check {
			n, want := rounds(p), answers.Tallies{}
			for i := range n {
				want[claimRound(i)] = map[string]int{"201": 1, "409 checkout-active": 1}
				want[payRound(i)] = map[string]int{"202": 1, "409 charge-in-flight": 1}
			}
			return append(served(p),
				words("answers", "one tab is answered 201, the other 409 checkout-active; one is charged, the other told that a charge is in flight", answers.ByBurst, answers.Fixed(want)),
				otherTabIsNamed(),
				oneChargeEach(),
				holdStates("each login has bought one seat", map[string]int{"CONFIRMED": n}),
				seatStates("the seat that the other tab wanted is free", map[string]int{"SOLD": n, "FREE": n}))
		},
	}, nil)
}

func driveTabs(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	standard := undecided()
	if err := configure(ctx, env, payments.Config{Default: &standard}); err != nil {
		return err
	}
	post, overlapped := newCourier(env), 0
	for round, order := range c.Orders {
		who := roundMember(round, 0)
		b := harness.Burst{Name: claimRound(round)}
		for _, tab := range order {
			b.Requests = append(b.Requests, claim(2*round+tab, who, c.Show.ID, c.Show.Seats[2*round+tab]))
		}
		report, ops, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		overlapped += report.MaxInFlight / 2
		var got holdAnswer
		for _, op := range ops {
			if h, err := holdOf(op); err == nil {
				got = h
			}
		}
		if got.HoldID == "" {
			continue // the checks say what they were told instead
		}
		b = harness.Burst{Name: payRound(round)}
		for _, tab := range order {
			b.Requests = append(b.Requests, charge(2*round+tab, who, got.HoldID, roundCard(round)))
		}
		if report, _, err = env.Burst(ctx, b); err != nil {
			return err
		}
		overlapped += report.MaxInFlight / 2
		if err := configure(ctx, env, payments.Config{Release: []string{roundCard(round)}}); err != nil {
			return err
		}
		if _, err := post.deliver(ctx); err != nil {
			return err
		}
	}
	env.Witness("overlapped", float64(len(c.Orders)), float64(overlapped), "bursts of two tabs that were both in flight at one instant; half of them must have been")
	return finish(ctx, env, post)
}

// otherTabIsNamed: who is told of an active checkout is told which, and who is
// told of a charge in flight is told which.
func otherTabIsNamed() harness.Check {
	const doc = "the tab that is refused is told the hold and the seat, or the charge, of the one that was not"
	return funcCheck("answers.other-tab", doc, "tabs.go", false, func(rec harness.Record) harness.Verdict {
		won := map[string]map[string]any{} // by burst
		for _, op := range rec.History.Operations {
			if op.Burst != "" && (op.Status == 201 || op.Status == 202) && op.Kind != kindCallback {
				won[op.Burst] = fields(op)
			}
		}
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			names := map[string][]string{"checkout-active": {"hold_id", "seat"}, "charge-in-flight": {"charge_id"}}[answers.ProblemType(op)]
			if op.Burst == "" || names == nil {
				continue
			}
			judged++
			for _, name := range names {
				if told := fields(op)[name]; told == nil || told != won[op.Burst][name] {
					wrong = append(wrong, answers.About(op, fmt.Sprintf("%s should be %v", name, won[op.Burst][name])))
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "no tab was refused for the other's sake")
		}
		return harness.Passed("%s: %d", doc, judged)
	})
}

// oneChargeEach: the provider hears of one charge for each order.
func oneChargeEach() harness.Check {
	return check.Calls(check.CallRule{
		ID: "S-I5.charges", Doc: "the provider is asked for one charge an order", Rule: where + "/tabs.go",
		Upstream: payments.Name, Method: "POST", Path: "/charges", Key: intentOf, Each: check.Exactly(1),
	})
}

// intentOf is the order that a call for a charge names.
func intentOf(c harness.UpstreamCall) string {
	var body struct {
		Intent string `json:"intent"`
	}
	if json.Unmarshal([]byte(c.Request), &body) != nil {
		return ""
	}
	return body.Intent
}
