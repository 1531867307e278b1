package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// A chain is appointments of which each begins when the one before ends.
type chain struct {
	Links []wish `json:"links"` // in the order in which they are booked
	From  int    `json:"from"`
	To    int    `json:"to"`
	Cut   span   `json:"cut"` // two minutes over a border between two of them
}

type chainChoices struct {
	Resource resource `json:"resource"`
	Rounds   []chain  `json:"rounds"`
}

func chooseChain(rng *rand.Rand, n, links int) chain {
	c := chain{From: day(n, 6*60, 0).From}
	at := c.From
	var borders []int
	for range links {
		long := 5 + 5*rng.IntN(9)
		c.Links = append(c.Links, wish{span{at, at + long}, chooseZone(rng)})
		at += long
		borders = append(borders, at)
	}
	c.To = at
	cut := borders[rng.IntN(len(borders)-1)]
	c.Cut = span{cut - 1, cut + 1}
	rng.Shuffle(len(c.Links), func(i, j int) { c.Links[i], c.Links[j] = c.Links[j], c.Links[i] })
	return c
}

func backToBack() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/back-to-back",
		Title: "appointments that follow each other without a minute between are booked at the same moment",
		Doc: `Times are half open: who comes at ten does not overlap who goes at ten. A chain of appointments, each beginning in the minute in which another ends, is booked in random
order at one barrier, between two events of other people that touch its ends. Everybody is answered 201, nothing is a conflict, every event is created. Then two
minutes over a border are refused, and the consultant is shown as busy from the first to the last minute of all that, without a pause.`,
		Sources: []string{"C-I1", "C-I3", "C-I4", "C-M8"},
		Params:  []harness.Param{with(paramUsers, "16"), with(paramRounds, "5"), paramReplicas, paramContract},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := chainChoices{Resource: chooseResources(rng, p, 1)[0]}
			for n := range rounds(p) {
				c.Rounds = append(c.Rounds, chooseChain(rng, n, min(users(p), 20)))
			}
			return c, nil
		},
		Drive: driveChains,
		Checks: func(p harness.Params) []harness.Check {
			n, want := min(users(p), 20), answers.Tallies{"cut": {"409 overlap": rounds(p)}}
			for i := range rounds(p) {
				want[roundName(i)] = map[string]int{"201": n}
			}
			return append(served(p), linearizable(), nothingInConflict(), busyWithOthers(rounds(p)),
				words("answers", "every link of a chain is booked, and what lies over a border is refused", chainGroup, answers.Fixed(want)),
				appointmentStates("every appointment is created", map[string]int{"CREATED": n * rounds(p)}))
		},
	}, nil)
}

func chainGroup(op harness.Operation) string {
	if op.Kind == "cut" {
		return op.Kind
	}
	return op.Burst
}

func driveChains(ctx context.Context, env harness.Env) error {
	var c chainChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	var others []provider.External
	for i, r := range c.Rounds {
		before, after := span{r.From - 30, r.From}, span{r.To, r.To + 30}
		others = append(others,
			provider.External{Calendar: c.Resource.Calendar, EventID: fmt.Sprintf("before-%d", i), Start: before.start(o), End: before.end(o)},
			provider.External{Calendar: c.Resource.Calendar, EventID: fmt.Sprintf("after-%d", i), Start: after.start(o), End: after.end(o)})
	}
	if err := configure(ctx, env, provider.Config{External: others}); err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	for round, chain := range c.Rounds {
		b := harness.Burst{Name: roundName(round)}
		for n, w := range chain.Links {
			b.Requests = append(b.Requests, book(n, member(n), c.Resource.ID, w.Span.in(w.Zone, o), fmt.Sprintf("link-%d", round)))
		}
		report, _, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		answers.WitnessOverlap(env, report)
		env.Do(ctx, answers.As("cut", book(0, member(500), c.Resource.ID, chain.Cut.in("Etc/UTC", o), fmt.Sprintf("cut-%d", round))))
		around := span{chain.From - 60, chain.To + 60}
		env.Do(ctx, answers.As(kindBusyWithOthers, availability(0, member(500), c.Resource.ID, around.start(o), around.end(o))))
	}
	return finish(ctx, env)
}

// kindBusyWithOthers asks when a resource is busy from an hour before a chain to
// an hour after it.
const kindBusyWithOthers = "busy-with-others"

// busyWithOthers: our appointments and others' events that touch are one time
// in which the resource is busy.
func busyWithOthers(rounds int) harness.Check {
	const doc = "a resource is shown as busy over our appointments and others' events alike, as one time where they touch"
	return funcCheck("answers.busy", doc, "back_to_back.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		list := rec.History.OfKind(kindBusyWithOthers)
		for _, op := range list {
			from, to, readable := windowOf(op)
			var a availabilityAnswer
			if err := op.Decode(&a); err != nil || !readable {
				wrong = append(wrong, answers.About(op, "can't be read"))
				continue
			}
			want := interval{time.Unix(60*(from+30), 0), time.Unix(60*(to-30), 0)} // what others have begins and ends half an hour into it
			if len(a.Busy) != 1 || !a.Busy[0].Start.Equal(want.Start) || !a.Busy[0].End.Equal(want.End) {
				wrong = append(wrong, answers.About(op, fmt.Sprintf("%d times, want one, %s", len(a.Busy), want)))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d are not; %s", doc, len(wrong), len(list), wrong[0].Text)
		case len(list) < rounds:
			return harness.Undecided(harness.ReasonUndelivered, "%d of %d questions were answered", len(list), rounds)
		}
		return harness.Passed("%s: %d answers", doc, len(list))
	})
}

// nothingInConflict: of scenarios in which nobody else's event overlaps ours.
func nothingInConflict() harness.Check {
	const doc = "nothing was found to be in conflict, and nothing rejected"
	return funcCheck("C-I4.none", doc, "back_to_back.go", true, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		switch {
		case missing != "":
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		case len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody did anything")
		}
		var wrong []harness.Evidence
		for id, list := range b.conflicts {
			for _, c := range list {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("appointment %s at %s has the conflict %s with %s, found by %s", id, text(b.appointments[id], "during"), text(c, "kind"), text(c, "external_event"), text(c, "found_by")), Ops: opOf(b.appointments[id])})
			}
		}
		for id, a := range b.appointments {
			if text(a, "state") == "REJECTED" {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("appointment %s at %s is rejected", id, text(a, "during")), Ops: opOf(a)})
			}
		}
		if len(wrong) > 0 {
			slices.SortFunc(wrong, func(x, y harness.Evidence) int { return len(x.Text) - len(y.Text) })
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		}
		return harness.Passed("%s: %d appointments", doc, len(b.appointments))
	})
}
