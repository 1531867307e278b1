package tickets

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// The parts of who is paid around the end of a hold, and how far from it.
var aroundTheEnd = map[string]time.Duration{
	"tick-before": -time.Millisecond, "at-the-end": 0, "tick-after": time.Millisecond,
}

// exactGap is between the ends of two holds: far more than telling of a
// capture takes, so that the clock, going on, has not passed the next end.
const exactGap = 25 * time.Second

// paramFew: the last hold must be made well before the first one ends.
var paramFew = harness.Param{Name: "orders", Kind: harness.IntParam, Default: "3", Min: 1, Max: int(holdLife / 2 / exactGap / 3), Doc: "orders of each part"}

func exactlyAtExpiry() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/expiry-versus-capture",
		Title: "captures land one millisecond before the end of their hold, at it, and one after",
		Doc: `For each order the servers' clock is stopped a millisecond before the end of its hold, at its end, or a millisecond after it; there the provider captures the payment and tells it. The
hold's life ends with that instant: at it the hold is over. Under the policy release only the capture before the end buys the seat, under the policy quarantine all do.`,
		Sources: []string{"S-I2", "S-I4", "S-I6", "S-M1", "S-M6"},
		Params:  []harness.Param{paramFew, paramPolicy, paramReplicas},
		Choose:  chooseCast("tick-before", "at-the-end", "tick-after"),
		Drive:   driveExact,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name) * len(aroundTheEnd)
			late := "CONFIRMED: CAPTURED"
			if p[paramPolicy.Name] == policyRelease {
				late = "EXPIRED: REFUNDED"
			}
			return append(served(p),
				words("answers", "every charge waits for the provider", answers.ByKind, answers.Fixed(answers.Tallies{kindClaim: {"201": n}, kindCharge: {"202": n}})),
				endsByTheClock(), decidedExactly(),
				ends("a hold is over at the very instant of its end", map[string]string{"tick-before": "CONFIRMED: CAPTURED", "at-the-end": late, "tick-after": late}))
		},
	}, nil)
}

func driveExact(ctx context.Context, env harness.Env) error {
	var c cast
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	if err := onSale(ctx, env, c.Show); err != nil {
		return err
	}
	var buyers []buyer
	for i, part := range c.Parts {
		h, err := claimed(ctx, env, claim(i, member(i), c.Show.ID, c.Show.Seats[i]))
		if err != nil {
			return err
		}
		buyers = append(buyers, buyer{i, part, h})
		if err := env.Advance(ctx, exactGap); err != nil {
			return err
		}
	}
	standard := undecided()
	if err := configure(ctx, env, payments.Config{Default: &standard}); err != nil {
		return err
	}
	each(ctx, env, buyers, buyer.pays)
	for _, b := range buyers {
		if err := captureAt(ctx, env, b, b.hold.ExpiresAt.Add(aroundTheEnd[b.part])); err != nil {
			return err
		}
	}
	rows, err := env.Database().Query(ctx, `select count(*) filter (where abs(extract(epoch from c.resolved_at - h.expires_at)) <= 0.001) as n
	from charges c join holds h using (hold_id)`)
	if err != nil {
		return fmt.Errorf("count captures at the end of their hold: %w", err)
	}
	env.Witness("exact", float64(len(buyers)), float64(whole(rows[0], "n")), "captures that were decided within a millisecond of the end of their hold")
	return finish(ctx, env, newCourier(env))
}

// captureAt has the provider capture the buyer's payment, and tell it, while
// the servers' clock stands still.
func captureAt(ctx context.Context, env harness.Env, b buyer, at time.Time) error {
	goOn, err := env.StopClock(ctx, at)
	if err != nil {
		return err
	}
	if err := decide(ctx, env, payments.Captured, []buyer{b}); err != nil {
		return err
	}
	all, err := callbacksNow(ctx, env, payments.PaymentCaptured)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(all, func(cb payments.Callback) bool { return cb.Card != b.card() })
	if _, err := deliverCopies(ctx, env, "capture-"+b.card(), own, 1); err != nil {
		return err
	}
	if err := goOn(ctx); err != nil {
		return err
	}
	return calm(ctx, env) // what goes back has gone, before the clock is moved again
}

// decidedExactly asks the rows whether each capture was decided at the instant
// that it was meant for: without that the scenario shows nothing.
func decidedExactly() harness.Check {
	const doc = "each capture was decided one millisecond before the end of its hold, at it, or one after, to the microsecond"
	return funcCheck("premise.exact", doc, "exact.go", true, func(rec harness.Record) harness.Verdict {
		var c cast
		if err := rec.Plan.Decode(&c); err != nil {
			return harness.Undecided(harness.ReasonChecker, "the plan has no cast: %s", err)
		}
		l, missing := ledgersOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		n := 0
		for _, charge := range l.charges {
			h := l.holds[text(charge, "hold_id")]
			want, known := aroundTheEnd[c.partOf(text(h, "login"))]
			decided, until := instant(charge, "resolved_at"), instant(h, "expires_at")
			if !known || decided.IsZero() || until.IsZero() {
				continue
			}
			if got := decided.Sub(until); got != want {
				return harness.Undecided(harness.ReasonVacuous, "the charge of %s was decided %s from the end of its hold, not %s", text(h, "login"), got, want)
			}
			n++
		}
		if n == 0 || n < len(c.Parts) {
			return harness.Undecided(harness.ReasonVacuous, "%d of %d captures were decided", n, len(c.Parts))
		}
		return harness.Passed("%s: %d captures", doc, n)
	})
}
