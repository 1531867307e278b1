package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// wishChoices are what the seed decides where many want times of one resource.
type wishChoices struct {
	Resource resource `json:"resource"`
	Rounds   [][]wish `json:"rounds"`
}

// A wish is a time that somebody wants, and where they are.
type wish struct {
	Span span   `json:"span"`
	Zone string `json:"zone"`
}

func partialOverlaps() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/partial-overlaps",
		Title: "fifty customers book random times of one day, of one consultant, at the same moment",
		Doc: `The times are of 10 to 120 minutes, to the minute, between eight and eight, and the customers in many time zones. Whichever are accepted, no two of them overlap,
and nobody is refused for nothing: each time that was refused overlaps one that was accepted. How many are accepted is luck; whoever is, has an event at the
provider, and nobody else does.`,
		Sources: []string{"C-I1", "C-I2", "C-I3", "C-M1", "C-M2", "C-M7"},
		Params:  []harness.Param{with(paramUsers, "50"), with(paramRounds, "4"), paramReplicas, paramContract},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := wishChoices{Resource: chooseResources(rng, p, 1)[0]}
			for n := range rounds(p) {
				var list []wish
				for range users(p) {
					from := 8*60 + rng.IntN(12*60-10)
					list = append(list, wish{day(n, from, min(20*60, from+10+rng.IntN(111))), chooseZone(rng)})
				}
				c.Rounds = append(c.Rounds, list)
			}
			return c, nil
		},
		Drive: drivePartial,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(p), linearizable(), discreet(), refusedForReason(),
				among("answers", "each booking is answered 201 or 409 overlap", "partial.go", map[string][]string{kindBook: {"201", "409 overlap"}}))
		},
	}, nil)
}

func drivePartial(ctx context.Context, env harness.Env) error {
	var c wishChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	for round, list := range c.Rounds {
		b := harness.Burst{Name: roundName(round)}
		for n, w := range list {
			b.Requests = append(b.Requests, book(n, member(n), c.Resource.ID, w.Span.in(w.Zone, o), fmt.Sprintf("wish-%d", round)))
		}
		report, ops, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		answers.WitnessOverlap(env, report)
		env.Witness("accepted_and_refused", 2, float64(len(answers.Told(ops))), "kinds of answers to "+b.Name+": some are accepted, some refused")
	}
	return finish(ctx, env)
}

// refusedForReason: of scenarios in which nothing that was accepted is given up
// or moved: each time that was refused overlaps one that was accepted.
func refusedForReason() harness.Check {
	const doc = "each time that was refused overlaps one that was accepted"
	return funcCheck("answers.reason", doc, "partial.go", false, func(rec harness.Record) harness.Verdict {
		taken := map[string][]interval{} // by resource
		for _, op := range rec.History.Operations {
			if callOf(op) == callBook && op.Status == http.StatusCreated {
				list, _ := appointmentsTold(op) // what can't be read is another check's
				for _, a := range list {
					taken[target(op)] = append(taken[target(op)], a.interval())
				}
			}
		}
		var wrong []harness.Evidence
		judged, accepted := 0, 0
		for _, list := range taken {
			accepted += len(list)
		}
		for _, op := range rec.History.Operations {
			w, readable := askedOf(op)
			times, exact := w.intervals()
			if callOf(op) != callBook || answers.Word(op) != "409 overlap" || !readable || !exact {
				continue
			}
			judged++
			if !anyOverlap(times, taken[target(op)]) {
				wrong = append(wrong, answers.About(op, fmt.Sprintf("%s is free", times[0])))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d do not; %s", doc, len(wrong), judged, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody was refused")
		}
		return harness.Passed("%s: %d refused, %d accepted", doc, judged, accepted)
	})
}

func anyOverlap(wanted, taken []interval) bool {
	return slices.ContainsFunc(wanted, func(w interval) bool { return slices.ContainsFunc(taken, w.overlaps) })
}
