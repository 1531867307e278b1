package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

func cancelledDoesNotBlock() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/cancelled-does-not-block",
		Title: "a time that was given up is booked again, and again, by whoever is first",
		Doc: `Round by round on the same time of day: its holder cancels while two others book it at one barrier, so that they come before the cancellation or after it. When all are
answered and nobody has it, somebody books it. So rows that are over pile up under one that is active, and none of them is in its way; at the provider
each cancelled event is gone, and the last holder's stands.`,
		Sources: []string{"C-I1", "C-I2", "C-I3", "C-M9", "C-M13"},
		Params:  []harness.Param{with(paramRounds, "25"), paramReplicas, paramContract},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := wishChoices{Resource: chooseResources(rng, p, 1)[0]}
			from := 9*60 + rng.IntN(5*60)
			for range rounds(p) {
				shift := rng.IntN(20) // all of a run overlap
				c.Rounds = append(c.Rounds, []wish{{day(0, from+shift, from+60+shift), chooseZone(rng)}, {day(0, from+shift, from+60+shift), chooseZone(rng)}})
			}
			return c, nil
		},
		Drive: driveCancelled,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(p), linearizable(),
				words("answers.cancel", "each holder's cancellation is answered 200", kindIn(kindCancel), answers.Fixed(answers.Tallies{kindCancel: {"200": rounds(p)}})),
				words("answers.again", "a time that nobody has is booked", kindIn("again"), againWant),
				among("answers", "who books while the holder leaves is answered 201 or 409 overlap", "cancelled.go", map[string][]string{kindBook: {"201", "409 overlap"}}))
		},
	}, nil)
}

// kindIn groups by kind, those of the kind alone.
func kindIn(kind string) func(harness.Operation) string {
	return func(op harness.Operation) string {
		if op.Kind == kind {
			return kind
		}
		return ""
	}
}

// againWant: whoever was sent for a time that nobody had got it.
func againWant(rec harness.Record) answers.Tallies {
	return answers.Tallies{"again": {"201": len(rec.History.OfKind("again"))}}
}

func driveCancelled(ctx context.Context, env harness.Env) error {
	var c wishChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	held, both := "", 0
	holder := member(0)
	for round, list := range c.Rounds {
		again := book(100+round, member(100+round), c.Resource.ID, list[0].Span.in(list[0].Zone, o), "again")
		if held == "" {
			a, err := booked(ctx, env, answers.As("again", again))
			if err != nil {
				return err
			}
			held, holder = a.ID, again.Caller
		}
		b := harness.Burst{Name: roundName(round), Requests: []harness.Request{cancel(0, holder, held, fmt.Sprintf("leave-%d", round))}}
		for n, w := range list {
			b.Requests = append(b.Requests, book(1+n, member(1+n), c.Resource.ID, w.Span.in(w.Zone, o), fmt.Sprintf("take-%d", round)))
		}
		report, ops, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		if report.MaxInFlight >= 2 {
			both++
		}
		held = ""
		for _, op := range ops[1:] {
			if a, err := appointmentOf(op); err == nil {
				held, holder = a.ID, op.Caller
			}
		}
	}
	env.Witness("rounds_in_flight_together", float64(max(1, len(c.Rounds)/2)), float64(both), "rounds in which at least two requests were sent and unanswered at one instant")
	if held == "" {
		last := c.Rounds[len(c.Rounds)-1][0]
		env.Do(ctx, answers.As("again", book(0, member(1), c.Resource.ID, last.Span.in(last.Zone, o), "last")))
	}
	return finish(ctx, env)
}
