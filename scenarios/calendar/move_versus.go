package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// A shift is an appointment that is moved from one time to another while
// others want both.
type shift struct {
	From  span   `json:"from"`
	To    span   `json:"to"`
	Zone  string `json:"zone"`
	Wants []wish `json:"wants"`
}

type shiftChoices struct {
	Resource resource `json:"resource"`
	Rounds   []shift  `json:"rounds"`
}

// chooseShift draws a move: by a few minutes, so that the new time overlaps the
// appointment's own old one, or to another time of the day; and who else wants
// either.
func chooseShift(rng *rand.Rand, n int) shift {
	from, long := 8*60+rng.IntN(4*60), 20+rng.IntN(70)
	by := 5 + rng.IntN(15)
	if rng.IntN(2) == 0 {
		by = long + 60 + rng.IntN(120)
	}
	s := shift{From: day(n, from, from+long), To: day(n, from+by, from+by+long+rng.IntN(10)), Zone: chooseZone(rng)}
	s.Wants = []wish{
		{span{s.From.From, s.From.From + 5}, chooseZone(rng)}, // the old time's beginning: free when it has moved
		{span{s.To.To - 5, s.To.To + 15}, chooseZone(rng)},    // the new time's end: free until it has moved
		{s.To, chooseZone(rng)},
	}
	return s
}

func moveVersusBook() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/move-versus-book",
		Title: "an appointment is moved while others book the time it leaves and the time it goes to",
		Doc: `At one barrier: the move, a booking of the first minutes of the old time, and two bookings of the new one. Some moves are by minutes only, so that an appointment
must not be in its own way. Whoever is first has the new time; the old one is free for somebody else exactly when the move has come first. What everybody was
told must be explainable by one order of all calls, and the provider ends with the events where the rows have them.`,
		Sources: []string{"C-I1", "C-I3", "C-M14"},
		Params:  []harness.Param{with(paramRounds, "40"), paramReplicas, paramContract},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := shiftChoices{Resource: chooseResources(rng, p, 1)[0]}
			for n := range rounds(p) {
				c.Rounds = append(c.Rounds, chooseShift(rng, n))
			}
			return c, nil
		},
		Drive:   driveShifts,
		Latency: kindMove,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(p), linearizable(), discreet(),
				among("answers", "who moves is answered 200 or 409 overlap, who books 201 or 409 overlap", "move_versus.go", map[string][]string{
					kindMove: {"200", "409 overlap"}, kindBook: {"201", "409 overlap"}, "first": {"201"}, kindRead: {"200"},
				}))
		},
	}, nil)
}

func driveShifts(ctx context.Context, env harness.Env) error {
	var c shiftChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	together := 0
	for round, s := range c.Rounds {
		a, err := booked(ctx, env, answers.As("first", book(0, member(0), c.Resource.ID, s.From.in("Etc/UTC", o), fmt.Sprintf("first-%d", round))))
		if err != nil {
			return err
		}
		b := harness.Burst{Name: roundName(round), Requests: []harness.Request{moveTo(0, member(0), a.ID, s.To.in(s.Zone, o), fmt.Sprintf("move-%d", round))}}
		for n, w := range s.Wants {
			b.Requests = append(b.Requests, book(1+n, member(1+n), c.Resource.ID, w.Span.in(w.Zone, o), fmt.Sprintf("want-%d", round)))
		}
		// The move comes first, last or between, by the round.
		at := round % len(b.Requests)
		b.Requests[0], b.Requests[at] = b.Requests[at], b.Requests[0]
		report, _, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		if report.MaxInFlight >= 2 {
			together++
		}
		env.Do(ctx, read(0, member(0), a.ID))
	}
	env.Witness("rounds_in_flight_together", float64(max(1, len(c.Rounds)/2)), float64(together), "rounds in which at least two requests were sent and unanswered at one instant")
	return finish(ctx, env)
}
