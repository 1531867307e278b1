package tickets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

var paramSpread = harness.Param{
	Name: "spread", Kind: harness.IntParam, Default: "15", Min: 0, Max: 1000,
	Doc: "by how many milliseconds of server time the holds of a round end one after the other, beside the time that claiming takes",
}

// boundaryLeads is how far before the middle of a round's holds' ends the clock
// stands when the burst of captures is being made, round by round: making a
// burst takes a while, and on a busy machine longer.
var boundaryLeads = []time.Duration{60 * time.Millisecond, 200 * time.Millisecond, 0, 400 * time.Millisecond}

func expiryVersusCapture() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/expiry-versus-capture",
		Title: "captures land in the very milliseconds in which the holds run out",
		Doc: `Holds end one after the other, some milliseconds apart, and the captures of all of them are told at one barrier in the middle of that. The rows say, to the microsecond
of server time, on which side of its hold's end each capture was decided. Under the policy release a capture before the end buys the seat, at the end or after it goes back; under the
policy quarantine every one buys the seat, whether or not the tick had put it in quarantine. No hold ends before its time.`,
		Sources: []string{"S-I2", "S-I4", "S-I6", "S-M1", "S-M2", "S-M6"},
		Params:  []harness.Param{with(paramRounds, "3"), with(paramOrders, "16"), paramSpread, paramPolicy, paramReplicas},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			return choices{Show: chooseShow(rng, p, rounds(p)*p.Int(paramOrders.Name))}, nil
		},
		Drive: driveBoundary,
		Checks: func(p harness.Params) []harness.Check {
			n := rounds(p) * p.Int(paramOrders.Name)
			return append(served(p),
				words("answers", "every charge waits for the provider", answers.ByKind, answers.Fixed(answers.Tallies{kindClaim: {"201": n}, kindCharge: {"202": n}})),
				oneEffectEach(), endsByTheClock())
		},
	}, nil)
}

func driveBoundary(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	standard := undecided()
	if err := configure(ctx, env, payments.Config{Default: &standard}); err != nil {
		return err
	}
	post, n := newCourier(env), env.Params().Int(paramOrders.Name)
	for round := range rounds(env.Params()) {
		if err := boundaryRound(ctx, env, c.Show, round, c.Show.Seats[round*n:(round+1)*n]); err != nil {
			return err
		}
		if _, err := post.deliver(ctx); err != nil { // again, when it is over
			return err
		}
		if err := calm(ctx, env); err != nil {
			return err
		}
	}
	if err := witnessBothSides(ctx, env); err != nil {
		return err
	}
	return finish(ctx, env, post)
}

func boundaryRound(ctx context.Context, env harness.Env, s show, round int, seats []string) error {
	spread := time.Duration(env.Params().Int(paramSpread.Name)) * time.Millisecond
	var holds []holdAnswer
	var pays []harness.Request
	for i, seat := range seats {
		who, process := roundMember(round, i), round*10_000+i
		h, err := claimed(ctx, env, claim(process, who, s.ID, seat))
		if err != nil {
			return err
		}
		holds = append(holds, h)
		pays = append(pays, charge(process, who, h.HoldID, roundCard(round)))
		if spread > 0 {
			if err := env.Advance(ctx, spread); err != nil {
				return err
			}
		}
	}
	env.DoAll(ctx, pays, hands)
	if err := configure(ctx, env, payments.Config{Release: []string{roundCard(round)}}); err != nil {
		return err
	}
	all, err := callbacksNow(ctx, env, payments.PaymentCaptured)
	if err != nil {
		return err
	}
	captured := slices.DeleteFunc(all, func(cb payments.Callback) bool { return cb.Card != roundCard(round) })
	if len(captured) != len(seats) {
		return fmt.Errorf("round %d: the provider has %d captures of %d orders", round+1, len(captured), len(seats))
	}
	if err := beforeExpiry(ctx, env, holds[len(holds)/2], boundaryLeads[round%len(boundaryLeads)]); err != nil {
		return err
	}
	report, err := deliverCopies(ctx, env, roundName(round), captured, 1)
	if err != nil {
		return err
	}
	answers.WitnessOverlap(env, report)
	return nil
}

// witnessBothSides counts the captures on each side of their hold's end, and
// measures how near they came.
func witnessBothSides(ctx context.Context, env harness.Env) error {
	rows, err := env.Database().Query(ctx, `select count(*) filter (where by < 0) as before, count(*) filter (where by >= 0) as after, count(*) filter (where abs(by) <= 500) as near,
	coalesce(min(-by) filter (where by < 0), -1)::float8 as before_ms, coalesce(min(by) filter (where by >= 0), -1)::float8 as after_ms
	from (select extract(epoch from c.resolved_at - h.expires_at) * 1000 as by from charges c join holds h using (hold_id) where c.resolved_by = 'callback') x`)
	if err != nil {
		return fmt.Errorf("count captures on both sides of the end: %w", err)
	}
	r := rows[0]
	for _, name := range []string{"before", "after"} {
		nearest, _ := r[name+"_ms"].(float64)
		if nearest >= 0 {
			env.Measure("nearest_"+name+"_ms", nearest)
		}
		env.Measure("captures_"+name, float64(whole(r, name)))
	}
	if env.Params().Int(paramSpread.Name) > 0 {
		env.Witness("sides", 1, float64(min(whole(r, "before"), whole(r, "after"))), "captures that were decided before, or at and after, the end of their hold, whichever is less")
		return nil
	}
	env.Witness("near", 1, float64(whole(r, "near")), "captures that were decided within half a second of the end of their hold")
	return nil
}

// endsByTheClock compares what an order ended as with when, in server time, its
// capture was decided and its hold was to end.
func endsByTheClock() harness.Check {
	const doc = "a capture before the end of its hold buys the seat; at or after it, it does so in quarantine and goes back under release; no hold ends before its time"
	return funcCheck("S-I4.boundary", doc, "boundary.go", true, func(rec harness.Record) harness.Verdict {
		l, missing := ledgersOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		var wrong []harness.Evidence
		before, after := 0, 0
		for _, c := range l.charges {
			h := l.holds[text(c, "hold_id")]
			decided, until, state := instant(c, "resolved_at"), instant(h, "expires_at"), text(h, "state")
			if c["captured_amount"] == nil || decided.IsZero() || until.IsZero() {
				continue
			}
			want := "CONFIRMED"
			if decided.Before(until) {
				before++
			} else {
				after++
				if text(h, "policy") == policyRelease {
					want = "EXPIRED"
				}
			}
			if ended := instant(h, "ended_at"); state != want || (state == "EXPIRED" && ended.Before(until)) {
				e := harness.Evidence{Text: fmt.Sprintf("the capture of order %v was decided at %v, its hold was to end at %v and is %s since %v; want %s", h["hold_id"], c["resolved_at"], h["expires_at"], state, h["ended_at"], want)}
				if op := text(c, "overbook_op"); op != "" {
					e.Ops = []string{op}
				}
				wrong = append(wrong, e)
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d did not, such as: %s", doc, len(wrong), wrong[0].Text)
		case before+after == 0:
			return harness.Undecided(harness.ReasonVacuous, "nothing was captured")
		}
		return harness.Passed("%s: %d before, %d at or after it", doc, before, after)
	})
}
