package tickets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// Kinds of what happens when holds run out.
const (
	kindRetake    = "retake"     // of a seat that was given up a moment ago
	kindPayRetake = "pay-retake" // after the first hold's time
	kindHeir      = "heir"       // claims a seat whose hold is running out, until it is somebody's
	kindTooLate   = "too-late"   // gives up a hold that is running out
)

// expirySlack is how long after its time a hold may end, in server time, on a
// machine that is busy: a tick takes milliseconds.
const expirySlack = 3 * time.Second

func expiry() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/expiry",
		Title: "many holds run out at once while others claim the seats that come free",
		Doc: `Every seat of a show is held. Shortly before the holds run out each fourth one is given up and its seat taken again by somebody else. Then the others run out
together, while two heirs for each seat ask for it again and again, and half of the owners give up just then. Each seat goes to one heir; the seats that were
taken again stay with who has them, who can pay after the first hold's time: running out touches the seat of its own hold alone.`,
		Sources: []string{"S-I10", "S-I1", "S-I6", "S-M11"},
		Params:  []harness.Param{with(paramSeats, "40"), paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int(paramSeats.Name)
			return choices{Show: chooseShow(rng, p, n), Orders: [][]int{rng.Perm(n)}}, nil
		},
		Drive: driveExpiry,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramSeats.Name)
			retaken := (n + 3) / 4
			return append(served(p),
				words("answers", "seats are held, given up and taken again, and who has them last can pay", answers.ByKind, answers.Fixed(answers.Tallies{
					kindClaim: {"201": n}, kindRelease: {"200": retaken}, kindRetake: {"201": retaken}, kindPayRetake: {"201": retaken},
				})),
				answers.Among(answers.AmongRule{
					ID: "answers.heirs", Doc: "heirs get the seat or are told that it is taken, owners give it up or are told that it is over", Rule: where + "/expiry.go",
					Group: answers.ByKind, Allowed: map[string][]string{kindHeir: {"201", "409 seat-taken"}, kindTooLate: {"200", "409 hold-over"}},
				}),
				seatStates("each seat is with its heir, or sold to who took it again", map[string]int{"HELD": n - retaken, "SOLD": retaken}),
				endedInTime())
		},
	}, nil)
}

// retakenSeat says which of the seats, in the plan's order, are given up early.
func retakenSeat(i int) bool { return i%4 == 0 }

func driveExpiry(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	n := len(c.Show.Seats)
	var requests []harness.Request
	for i, at := range c.Orders[0] {
		requests = append(requests, claim(i, member(i), c.Show.ID, c.Show.Seats[at]))
	}
	holds := make([]holdAnswer, n)
	for i, op := range env.DoAll(ctx, requests, 16) {
		if holds[i], err = holdOf(op); err != nil {
			return err
		}
	}
	first := slices.MinFunc(holds, func(a, b holdAnswer) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	if err := beforeExpiry(ctx, env, first, 30*time.Second); err != nil {
		return err
	}
	retaken, err := retakeSeats(ctx, env, c.Show, holds)
	if err != nil {
		return err
	}
	if err := beforeExpiry(ctx, env, first, 150*time.Millisecond); err != nil {
		return err
	}
	tries, err := inherit(ctx, env, c.Show, holds)
	if err != nil {
		return err
	}
	env.Witness("heirs_waited", float64(n-(n+3)/4), float64(tries), "claims of heirs that were answered 409 seat-taken: they were there before the seats came free")
	env.DoAll(ctx, retaken, 8)
	return finish(ctx, env, newCourier(env))
}

// retakeSeats has each fourth owner give up and somebody else take the seat. It
// gives the requests with which these pay.
func retakeSeats(ctx context.Context, env harness.Env, s show, holds []holdAnswer) (pays []harness.Request, err error) {
	for i, h := range holds {
		if !retakenSeat(i) {
			continue
		}
		env.Do(ctx, release(i, member(i), h.HoldID))
		who, process := member(10_000+i), 10_000+i
		again, err := claimed(ctx, env, answers.As(kindRetake, claim(process, who, s.ID, h.Seat)))
		if err != nil {
			return nil, err
		}
		pays = append(pays, answers.As(kindPayRetake, charge(process, who, again.HoldID, "card-of-"+who)))
	}
	return pays, nil
}

// inherit has two heirs for each seat ask for it until one of them has it, and
// every other owner give up at about the end of the hold. It gives how often
// heirs were refused.
func inherit(ctx context.Context, env harness.Env, s show, holds []holdAnswer) (refused int64, err error) {
	var tries atomic.Int64
	err = together(len(holds), func(i int) error {
		if retakenSeat(i) {
			return nil
		}
		var gone atomic.Bool
		return together(3, func(k int) error {
			if k == 2 {
				return giveUpLate(ctx, env, i, holds[i])
			}
			process := (k+2)*10_000 + i
			return env.Await(ctx, fmt.Sprintf("seat %s has an heir", holds[i].Seat), patience, func(ctx context.Context) (bool, string, error) {
				if gone.Load() {
					return true, "", nil
				}
				op := env.Do(ctx, answers.As(kindHeir, claim(process, member(process), s.ID, holds[i].Seat)))
				if op.Status == 201 {
					gone.Store(true)
				}
				if op.Status == 409 {
					tries.Add(1)
				}
				return op.Status == 201, answers.Word(op), nil
			})
		})
	})
	return tries.Load(), err
}

// giveUpLate has every other owner give up as soon as the clock is near the end
// of the hold.
func giveUpLate(ctx context.Context, env harness.Env, i int, h holdAnswer) error {
	if i%2 == 0 {
		return nil
	}
	if err := waitUntil(ctx, env, h.ExpiresAt.Add(-time.Duration(i)*time.Millisecond/2)); err != nil {
		return err
	}
	env.Do(ctx, answers.As(kindTooLate, release(i, member(i), h.HoldID)))
	return nil
}

// endedInTime compares when holds ended with when they were to.
func endedInTime() harness.Check {
	const doc = "each hold that ran out ended at its time, within a few ticks"
	return funcCheck("S-I6.lag", doc, "expiry.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:holds")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the holds could not be read")
		}
		judged, most := 0, time.Duration(0)
		var wrong []harness.Evidence
		for _, r := range rows.Rows {
			until, err := time.Parse(time.RFC3339Nano, text(r, "expires_at"))
			ended, err2 := time.Parse(time.RFC3339Nano, text(r, "ended_at"))
			if text(r, "state") != "EXPIRED" || err != nil || err2 != nil {
				continue
			}
			judged++
			most = max(most, ended.Sub(until))
			if late := ended.Sub(until); late < 0 || late > expirySlack {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("hold %v was to end at %v and ended at %v", r["hold_id"], r["expires_at"], r["ended_at"])})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "no hold ran out")
		}
		return harness.Passed("%s: %d, at most %s late", doc, judged, most)
	})
}
