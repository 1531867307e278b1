package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// A pair is two times that overlap, and where those who want them are.
type pair struct {
	One   span      `json:"one"`
	Other span      `json:"other"`
	Zones [2]string `json:"zones"`
}

// pairChoices are what the seed decides for rounds of two customers.
type pairChoices struct {
	Resource resource `json:"resource"`
	Rounds   []pair   `json:"rounds"`
}

// choosePair draws two times of a day that overlap: the same, one inside the
// other, or with as little as a minute in common.
func choosePair(rng *rand.Rand, n int) pair {
	from := 8*60 + rng.IntN(8*60)
	one := day(n, from, from+30+rng.IntN(90))
	other := one
	switch rng.IntN(4) {
	case 0: // the same
	case 1: // inside
		other.From, other.To = one.From+5, one.To-5
	case 2: // the last minute
		other = span{one.To - 1, one.To + 44}
	case 3: // the first minute
		other = span{one.From - 44, one.From + 1}
	}
	if rng.IntN(2) == 0 {
		one, other = other, one
	}
	return pair{One: one, Other: other, Zones: [2]string{chooseZone(rng), chooseZone(rng)}}
}

func twoCustomers() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/two-customers-overlap",
		Title: "two customers book times that overlap, of one consultant, at the same moment",
		Doc: `Round by round two customers in different time zones book at one barrier: the same time, one inside the other, or two that have a single minute in common.
One is answered 201, the other 409 overlap, which names the resource and nothing of the other's appointment. In the end there is one appointment, one creation
event and one event in the provider's calendar for each round.`,
		Sources: []string{"C-I1", "C-I2", "C-I3", "C-M1", "C-M2", "C-M7"},
		Params:  []harness.Param{with(paramRounds, "100"), paramReplicas, paramContract},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := pairChoices{Resource: chooseResources(rng, p, 1)[0]}
			for n := range rounds(p) {
				c.Rounds = append(c.Rounds, choosePair(rng, n))
			}
			return c, nil
		},
		Drive: driveTwoCustomers,
		Checks: func(p harness.Params) []harness.Check {
			want := answers.Tallies{}
			for i := range rounds(p) {
				want[roundName(i)] = map[string]int{"201": 1, "409 overlap": 1}
			}
			return append(served(p), linearizable(), discreet(),
				words("answers", "in each round one is answered 201, the other 409 overlap", answers.ByBurst, answers.Fixed(want)),
				appointmentStates("each round has one appointment, and it is created", map[string]int{"CREATED": rounds(p)}))
		},
	}, nil)
}

func driveTwoCustomers(ctx context.Context, env harness.Env) error {
	var c pairChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	met := 0
	for n, p := range c.Rounds {
		report, _, err := env.Burst(ctx, harness.Burst{Name: roundName(n), Requests: []harness.Request{
			book(0, member(0), c.Resource.ID, p.One.in(p.Zones[0], o), fmt.Sprintf("one-%d", n)),
			book(1, member(1), c.Resource.ID, p.Other.in(p.Zones[1], o), fmt.Sprintf("other-%d", n)),
		}})
		if err != nil {
			return err
		}
		if report.MaxInFlight >= 2 {
			met++
		}
	}
	env.Witness("rounds_in_flight_together", float64(max(1, len(c.Rounds)/2)), float64(met), "rounds in which both requests were sent and unanswered at one instant")
	return finish(ctx, env)
}
