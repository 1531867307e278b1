package tickets

import (
	"context"
	"fmt"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// expiryLead is how far before the end of a hold the clock is turned to: the
// server is killed when time itself runs on to it, and not while it is answering.
const expiryLead = 2 * time.Second

func crashAtExpiry() harness.Scenario {
	return crashScenario(harness.Scenario{
		Name:  "tickets/crash-at-expiry",
		Title: "the server is killed while it ends a hold that has run out, before its COMMIT and after it",
		Doc: `Nobody pays, and the hold runs out. In one half of the rounds the server is killed when the COMMIT that ends the hold is on its way to Postgres, in the other half when
Postgres has committed it. Before it the hold is RESERVED and has its seat, after it the hold is EXPIRED and the seat FREE: there is no moment between the two. The server is
started again, the hold is over, and somebody else gets the seat and pays.`,
		Sources: []string{"S-I10", "S-I6", "S-M42"},
		Params:  []harness.Param{with(paramRounds, "2")},
		Rounds:  func(p harness.Params) int { return 2 * rounds(p) }, Choose: chooseCrashRounds(2),
		Drive: driveCrashAtExpiry,
		Checks: func(p harness.Params) []harness.Check {
			n := 2 * rounds(p)
			return append(served(p),
				leftBy("S-I10.before", "before its COMMIT a hold that has run out has its seat", string(harness.BeforeCommit), orderRows{hold: "RESERVED", seat: "HELD"}),
				leftBy("S-I10.after", "after its COMMIT the hold is over, and the seat not with it any more", string(harness.AfterCommit), orderRows{hold: "EXPIRED"}),
				words("answers", "each seat is somebody else's when its hold has run out", answers.ByKind, answers.Fixed(answers.Tallies{
					kindClaim: {"201": n}, kindRetake: {"201": n}, kindPayRetake: {"201": n},
				})),
				holdStates("each seat's first hold has run out, the second is paid for", map[string]int{"EXPIRED": n, "CONFIRMED": n}),
				seatStates("each seat is sold", map[string]int{"SOLD": n}))
		},
	})
}

func driveCrashAtExpiry(ctx context.Context, env harness.Env) error {
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
		if err := beforeExpiry(ctx, env, h, expiryLead); err != nil {
			return err
		}
		at := []harness.Moment{harness.BeforeCommit, harness.AfterCommit}[i%2]
		fault := env.Inject(harness.Fault{Action: harness.ActionKill, At: at, Match: capturing, Nth: 1})
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
		const countOver = `select count(*) as n from seats where show_id = $1 and seat = $2 and state = 'FREE'`
		if _, err := awaitCount(ctx, env, fmt.Sprintf("seat %s is free", seat), 1, countOver, c.Show.ID, seat); err != nil {
			return err
		}
		process, who := 10_000+i, member(10_000+i)
		if h, err := holdOf(env.Do(ctx, answers.As(kindRetake, claim(process, who, c.Show.ID, seat)))); err == nil {
			env.Do(ctx, answers.As(kindPayRetake, charge(process, who, h.HoldID, "card-of-"+who)))
		}
		if _, err := post.deliver(ctx); err != nil {
			return err
		}
	}
	env.Witness("killed_at_moment", float64(len(c.Show.Seats)), float64(killed), "holds that the server was ending when it was killed")
	return finish(ctx, env, post)
}
