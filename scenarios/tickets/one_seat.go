package tickets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

func users(p harness.Params) int { return p.Int(paramUsers.Name) }

func hundredOnOneSeat() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/hundred-on-one-seat",
		Title: "a hundred members claim one seat at the same moment",
		Doc: `All members claim the same free seat at one barrier, some rounds on a seat each. Exactly one is answered 201, everybody else 409 seat-taken, nobody 5xx.
Then the winner pays: the seat is sold, and the provider's ledger has one captured payment for it.`,
		Sources: []string{"S-I1", "S-I2", "S-I3", "S-I4", "S-M2"},
		Params:  []harness.Param{paramUsers, with(paramRounds, "3"), paramReplicas},
		Rounds:  rounds,
		Choose:  chooseOrders(users, 1),
		Drive:   driveOneSeat,
		Checks: func(p harness.Params) []harness.Check {
			n, want := rounds(p), answers.Tallies{}
			for i := range n {
				want[roundName(i)] = map[string]int{"201": 1, "409 seat-taken": users(p) - 1}
			}
			return append(served(p),
				words("answers", "each burst is answered with one 201, all others 409 seat-taken", answers.ByBurst, answers.Fixed(want)),
				words("answers.paid", "each winner's card is charged", answers.ByKind, answers.Fixed(answers.Tallies{kindCharge: {"201": n}})),
				holdStates("each seat has the one hold of its winner", map[string]int{"CONFIRMED": n}),
				seatStates("each seat is sold", map[string]int{"SOLD": n}))
		},
	}, nil)
}

func driveOneSeat(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	post := newCourier(env)
	for round, seat := range c.Show.Seats {
		b := harness.Burst{Name: roundName(round)}
		for _, n := range c.Orders[round] {
			b.Requests = append(b.Requests, claim(n, roundMember(round, n), c.Show.ID, seat))
		}
		report, ops, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		answers.WitnessOverlap(env, report)
		payWinners(ctx, env, ops)
		if _, err := post.deliver(ctx); err != nil {
			return err
		}
	}
	return finish(ctx, env, post)
}

// payWinners has everybody who was told of a hold pay for it, a few at once.
func payWinners(ctx context.Context, env harness.Env, claims []harness.Operation) {
	var requests []harness.Request
	for _, op := range claims {
		if h, err := holdOf(op); err == nil {
			requests = append(requests, charge(op.Process, op.Caller, h.HoldID, "card-of-"+op.Caller))
		}
	}
	env.DoAll(ctx, requests, 8)
}

func bestAvailable() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/best-available",
		Title: "more members than seats ask for the best seat at the same moment",
		Doc: `Three hundred members ask for the best available seat of a show of eighty, at one barrier. Each seat is given exactly once: eighty are answered 201 with a seat
of their own, the others 409 sold-out, which may be said only when nothing was free. Those who look at the same best seat must not all but one go away
empty-handed while others are free. Then everybody who has a seat pays.`,
		Sources: []string{"S-I1", "S-I7", "S-M14"},
		Params:  []harness.Param{with(paramUsers, "300"), paramSeats, paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			return choices{Show: chooseShow(rng, p, p.Int(paramSeats.Name)), Orders: [][]int{rng.Perm(users(p))}}, nil
		},
		Drive:   driveBest,
		Latency: kindBest,
		Checks: func(p harness.Params) []harness.Check {
			n := min(p.Int(paramSeats.Name), users(p))
			return append(served(p),
				words("answers", "as many as there are seats are answered 201, all others 409 sold-out", answers.ByKind, answers.Fixed(answers.Tallies{
					kindBest: {"201": n, "409 sold-out": users(p) - n}, kindCharge: {"201": n},
				})),
				eachSeatOnce(),
				holdStates("each seat has one hold", map[string]int{"CONFIRMED": n}),
				seatStates("each seat is sold", map[string]int{"SOLD": n, "FREE": p.Int(paramSeats.Name) - n}))
		},
	}, nil)
}

func driveBest(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	b := harness.Burst{Name: "best"}
	for _, n := range c.Orders[0] {
		b.Requests = append(b.Requests, claimBest(n, member(n), c.Show.ID))
	}
	report, ops, err := env.Burst(ctx, b)
	if err != nil {
		return err
	}
	answers.WitnessOverlap(env, report)
	env.Do(ctx, seats(staffProcess, staff(0), c.Show.ID))
	payWinners(ctx, env, ops)
	return finish(ctx, env, newCourier(env))
}

// eachSeatOnce: no two claims were answered with the same seat. Of scenarios in
// which no hold ends but by being paid for.
func eachSeatOnce() harness.Check {
	const doc = "no two clients are told that they have the same seat"
	return funcCheck("S-I1.told", doc, "one_seat.go", false, func(rec harness.Record) harness.Verdict {
		told := map[string]harness.Operation{}
		var wrong []harness.Evidence
		for _, op := range rec.History.Operations {
			if op.Method != http.MethodPost || op.Status != http.StatusCreated || (op.Kind != kindClaim && op.Kind != kindBest) {
				continue
			}
			h, err := holdOf(op)
			if err != nil {
				wrong = append(wrong, answers.About(op, "can't be read"))
				continue
			}
			seat := fmt.Sprintf("seat %s of show %d", h.Seat, h.ShowID)
			if first, twice := told[seat]; twice {
				e := answers.About(op, seat+" was given before, by "+first.ID)
				e.Ops = append(e.Ops, first.ID)
				wrong = append(wrong, e)
			}
			told[seat] = op
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case len(told) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody was told of a seat")
		}
		return harness.Passed("%s: %d seats", doc, len(told))
	})
}
