package telescope

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
)

// lossChoice is what the seed decides for clients that go away.
type lossChoice struct {
	Slots []slot         `json:"slots"`
	Lose  []harness.Lose `json:"lose"` // by client
}

func lostResponse() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "telescope/lost-response",
		Title: "clients go away before they have their answer, and ask again with the same key",
		Doc: `Each member books a slot and goes away: half of them right after the request is sent, half of them when the first byte of the answer comes, which is then not
read. (Nothing is wrong with the server.) For those who saw an answer coming the booking is certain to exist; for the others it may, or may still be under way. All of them
ask again with their key and are told of one booking, 201: the one that was made the first time where there was one. They ask once more and are told the same, byte for byte.`,
		Sources: []string{"T-I3", "T-I4", "T-M1", "T-M7", "T-M23"},
		Params:  []harness.Param{with(paramUsers, "40")},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int(paramUsers.Name)
			c := lossChoice{Slots: slotsOfOneMonth(rng, n), Lose: make([]harness.Lose, n)}
			for i, at := range rng.Perm(n) {
				c.Lose[at] = []harness.Lose{harness.LoseAnswer, harness.LoseAfterSend}[i%2]
			}
			return c, nil
		},
		Drive: driveLost,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramUsers.Name)
			return append(servedRetried(), leftBehind("T-I6.answered", "whose answer was on its way has a booking, whole", traceWhole),
				wholeOrNothing("T-I6.whole"), recoveredBookings(), everyEventMailed(mailRules{}),
				words("answers", "nobody has an answer at first, and each retry is answered 201", byKind, fixed(tallies{
					kindBook: {"none": n}, kindAgain: {"201": n}, kindOnceMore: {"201": n},
				})),
				happened("each slot is booked once", map[string]int{"CREATED": n, "BOOKED": n}))
		},
	}, nil)
}

func driveLost(ctx context.Context, env harness.Env) error {
	var c lossChoice
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	if _, err := create(ctx, env, c.Slots); err != nil {
		return err
	}
	requests := make([]harness.Request, len(c.Slots))
	for i, s := range c.Slots {
		requests[i] = book(i, member(i), s.ID, "book")
		requests[i].Lose = c.Lose[i]
	}
	gone := 0
	for _, op := range env.DoAll(ctx, requests, 8) {
		gone += int(count(op.Sent != 0 && op.Status == 0))
	}
	env.Witness("answers_lost", float64(len(requests)), float64(gone), "clients that sent their request and went away without the answer")
	for i, s := range c.Slots {
		if c.Lose[i] != harness.LoseAnswer {
			continue // its booking may be under way
		}
		if _, err := traceRows(ctx, env, bookingTrace, s.ID, true); err != nil {
			return fmt.Errorf("after the answer was lost: %w", err)
		}
	}
	for i := range requests {
		requests[i] = as(kindAgain, requests[i])
		requests[i].Lose = harness.LoseNothing
	}
	env.DoAll(ctx, requests, 8)
	env.DoAll(ctx, onceMore(requests), 8)
	return nil
}
