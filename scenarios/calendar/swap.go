package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// A ring is appointments of one member, each of which takes the next one's time
// while others want their times.
type ring struct {
	Links  []span   `json:"links"`
	Zones  []string `json:"zones"`  // of the moves
	Wishes []wish   `json:"wishes"` // of others, each over one of the links
}

type ringChoices struct {
	Resource resource `json:"resource"`
	Rounds   []ring   `json:"rounds"`
}

// chooseRing draws two to four times of a day, back to back or apart, of
// different lengths, and wishes of others that overlap them.
func chooseRing(rng *rand.Rand, n, wishes int) ring {
	var r ring
	at := 7*60 + rng.IntN(60)
	for range 2 + rng.IntN(3) {
		long := 15 + 5*rng.IntN(12)
		r.Links = append(r.Links, day(n, at, at+long))
		r.Zones = append(r.Zones, chooseZone(rng))
		at += long + rng.IntN(2)*60
	}
	for range wishes {
		l := r.Links[rng.IntN(len(r.Links))]
		from := l.From + rng.IntN(l.To-l.From)
		r.Wishes = append(r.Wishes, wish{span{from, from + 10 + rng.IntN(50)}, chooseZone(rng)})
	}
	return r
}

func rescheduleSwap() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/reschedule-swap",
		Title: "appointments swap their times while others wait for one of them to be free",
		Doc: `A member has two to four appointments, back to back or apart, and has them take each other's times in one reschedule. At the same barrier others book times over those.
One transaction, judged at its end: the swap is answered 200 although each time was taken when it began, and as no instant exists at which one of the times
is free, every booking is refused. A reschedule that gives up a time before it takes the next lets somebody in between. The events at the provider have swapped, too.`,
		Sources: []string{"C-I1", "C-I3", "C-M14"},
		Params:  []harness.Param{with(paramUsers, "12"), with(paramRounds, "12"), paramReplicas, paramContract},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := ringChoices{Resource: chooseResources(rng, p, 1)[0]}
			for n := range rounds(p) {
				c.Rounds = append(c.Rounds, chooseRing(rng, n, users(p)))
			}
			return c, nil
		},
		Drive:   driveSwap,
		Latency: kindReschedule,
		Checks: func(p harness.Params) []harness.Check {
			want := answers.Tallies{kindReschedule: {"200": rounds(p)}, "waiting": {"409 overlap": users(p) * rounds(p)}}
			return append(served(p), linearizable(), discreet(), movedTogether(),
				words("answers", "each swap is answered 200, and nobody gets in between", ringGroup, answers.Fixed(want)))
		},
	}, nil)
}

func ringGroup(op harness.Operation) string {
	switch op.Kind {
	case kindReschedule, "waiting":
		return op.Kind
	}
	return ""
}

func driveSwap(ctx context.Context, env harness.Env) error {
	var c ringChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	for round, r := range c.Rounds {
		var moves []move
		for i, l := range r.Links {
			a, err := booked(ctx, env, book(0, member(0), c.Resource.ID, l.in("Etc/UTC", o), fmt.Sprintf("link-%d-%d", round, i)))
			if err != nil {
				return err
			}
			moves = append(moves, move{a.ID, r.Links[(i+1)%len(r.Links)].in(r.Zones[i], o)})
		}
		if round%2 == 0 { // half of them stand at the provider when they swap, half may be on their way there
			if err := awaitSynced(ctx, env); err != nil {
				return err
			}
		}
		b := harness.Burst{Name: roundName(round)}
		for n, w := range r.Wishes {
			b.Requests = append(b.Requests, answers.As("waiting", book(1+n, member(1+n), c.Resource.ID, w.Span.in(w.Zone, o), fmt.Sprintf("wish-%d", round))))
		}
		middle := len(b.Requests) / 2
		swap := reschedule(0, member(0), moves, fmt.Sprintf("swap-%d", round))
		b.Requests = append(b.Requests[:middle:middle], append([]harness.Request{swap}, b.Requests[middle:]...)...)
		report, _, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		answers.WitnessOverlap(env, report)
	}
	return finish(ctx, env)
}

// movedTogether: the answer to a reschedule has the appointments in the order
// of the moves, each at the time that was asked for.
func movedTogether() harness.Check {
	const doc = "each reschedule is answered with its appointments in the order of the moves, at the times that were asked for"
	return funcCheck("answers.moves", doc, "swap.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			if callOf(op) != callReschedule || op.Status != 200 {
				continue
			}
			judged++
			if problem := otherMoves(op); problem != "" {
				wrong = append(wrong, answers.About(op, problem))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "nothing was rescheduled")
		}
		return harness.Passed("%s: %d", doc, judged)
	})
}

// otherMoves says how an answer differs from the moves that were asked for.
func otherMoves(op harness.Operation) string {
	asked := movesOf(op)
	list, err := appointmentsTold(op)
	if err != nil || len(list) != len(asked) {
		return fmt.Sprintf("%d appointments, asked for %d moves", len(list), len(asked))
	}
	for i, a := range list {
		want, _ := asked[i].interval()
		if a.ID != asked[i].AppointmentID || !a.Start.Equal(want.Start) || !a.End.Equal(want.End) {
			return fmt.Sprintf("the %d. is %s at %s, asked for %s at %s", i+1, a.ID, a.interval(), asked[i].AppointmentID, want)
		}
	}
	return ""
}

func crossedReschedules() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/crossed-reschedules",
		Title: "customers move their appointments with two consultants together, naming them in opposite orders",
		Doc: `Each customer has an appointment with both consultants and moves both in one reschedule; half of them name the one consultant first, half the other. A server that locks in
the order of the request has them wait for each other. Here everybody is answered 200, and nobody is told to come again: locks are taken in one order.
In each round two of them want the same time of one consultant: one of these gets it, the other is refused whole, with both appointments where they were.`,
		Sources: []string{"C-I1", "C-I3", "C-M14"},
		Params:  []harness.Param{upTo(with(paramUsers, "8"), 60), upTo(with(paramRounds, "6"), 300), paramReplicas, paramContract},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			return crossedChoices{Resources: chooseResources(rng, p, 2), Minute: 60 * rng.IntN(3), Rival: 1 + rng.IntN(max(1, users(p)-1))}, nil
		},
		Drive:   driveCrossed,
		Latency: kindReschedule,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(p), linearizable(), discreet(), movedTogether(),
				words("answers", "everybody moves, but for one of the two who want the same time", kindIn(kindReschedule), answers.Fixed(answers.Tallies{
					kindReschedule: {"200": (users(p) - 1) * rounds(p), "409 overlap": rounds(p)},
				})))
		},
	}, nil)
}

type crossedChoices struct {
	Resources []resource `json:"resources"`
	Minute    int        `json:"minute"` // of the day, of the first appointment
	Rival     int        `json:"rival"`  // who wants the first customer's time
}

// driveCrossed has everybody's appointments ten minutes long and twenty apart;
// each round moves them to the next day, where everybody's time is free but the
// one that two want, of the first consultant.
func driveCrossed(ctx context.Context, env harness.Env) error {
	var c crossedChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resources...); err != nil {
		return err
	}
	n := users(env.Params())
	place := func(day0, slot int) when {
		from := c.Minute + 20*slot
		return day(day0, from, from+10).in("Etc/UTC", o)
	}
	for round := range rounds(env.Params()) {
		ids := make([][2]string, n)
		for i := range n {
			for k, r := range c.Resources {
				a, err := booked(ctx, env, book(i, member(i), r.ID, place(2*round, i), fmt.Sprintf("of-%d-%d", round, k)))
				if err != nil {
					return err
				}
				ids[i][k] = a.ID
			}
		}
		b := harness.Burst{Name: roundName(round)}
		for i := range n {
			slot := i
			if i == c.Rival%n {
				slot = 0
			}
			moves := []move{{ids[i][0], place(2*round+1, slot)}, {ids[i][1], place(2*round+1, i)}}
			if i%2 == 1 {
				moves[0], moves[1] = moves[1], moves[0]
			}
			b.Requests = append(b.Requests, reschedule(i, member(i), moves, fmt.Sprintf("together-%d", round)))
		}
		report, _, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		answers.WitnessOverlap(env, report)
	}
	return finish(ctx, env)
}
