package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// A courses is a round: weekly courses that want nearly the same time of the
// week, and single appointments in one of the weeks.
type courses struct {
	Zone    string `json:"zone"`
	Weekly  []span `json:"weekly"` // in the first week
	Weeks   int    `json:"weeks"`
	Singles []span `json:"singles"`
	Target  span   `json:"target"` // in the first week: where whoever has a course wants to go with it
	Late    []span `json:"late"`   // by client, of one appointment, while courses are moved
}

type courseChoices struct {
	Resource resource  `json:"resource"`
	Rounds   []courses `json:"rounds"`
}

// chooseCourses draws the n-th round on a day of the week, weeks apart from the
// other rounds on it. In every other one most of those who book single hours do
// so where the courses want to go; in the ones between, a single one does, late.
// In the last there is one course, and nobody in its way: it can be moved.
func chooseCourses(rng *rand.Rand, n, rounds, clients int) courses {
	const weeks, away = 5, 240 // minutes from where courses are to where they go
	first := n%7 + 7*8*(n/7)
	from := 9*60 + 5*rng.IntN(24)
	c := courses{Zone: zones[rng.IntN(3)], Weeks: weeks, Target: day(first, from+away, from+away+60)}
	single := func(at int) span { return day(first+7*rng.IntN(weeks), at, at+20) }
	for range clients {
		shift := 5 * rng.IntN(9)
		c.Weekly = append(c.Weekly, day(first, from+shift, from+shift+50))
		at := from + 5*rng.IntN(20)
		if n%2 == 0 {
			at += []int{0, away}[rng.IntN(2)]
		}
		c.Singles = append(c.Singles, single(at))
		c.Late = append(c.Late, single(at+25))
	}
	switch {
	case n == rounds-1:
		c.Weekly = c.Weekly[:1]
		for i := range c.Singles {
			c.Singles[i], c.Late[i] = single(from+2*away), single(from+2*away+25)
		}
	case n%2 == 1:
		c.Late[rng.IntN(clients)] = single(from + away + 5*rng.IntN(8))
	}
	return c
}

func weeklyCourses() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/weekly-courses",
		Title: "weekly courses are booked and moved, whole or not at all, while others book single hours of some weeks",
		Doc: `At one barrier several customers book a course of five weeks at nearly the same time of the week, while others book single appointments in one of those weeks. Then whoever has a course
moves all of it to another time of the day, at one barrier with others who book there. A course is booked or moved in all weeks or in none: one taken hour in one week refuses all of
it, and what was refused keeps nobody else away. What was told must be explainable by one order of all calls.`,
		Sources: []string{"C-I1", "C-I2", "C-I3", "C-I6", "C-M14"},
		Params:  []harness.Param{with(paramUsers, "5"), upTo(with(paramRounds, "6"), 70), paramReplicas, paramContract},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := courseChoices{Resource: chooseResources(rng, p, 1)[0]}
			for n := range rounds(p) {
				c.Rounds = append(c.Rounds, chooseCourses(rng, n, rounds(p), users(p)))
			}
			return c, nil
		},
		Drive:   driveCourses,
		Latency: kindBookSeries,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(p), linearizable(), discreet(), wholeSeries(),
				among("answers", "courses and single appointments are booked or refused for an overlap, courses moved or refused for one", "series.go", map[string][]string{
					kindBookSeries: {"201", "409 overlap"}, kindBook: {"201", "409 overlap"}, kindMoveSeries: {"200", "409 overlap"},
				}))
		},
	}, nil)
}

// driveCourses books in UTC or in a zone whose clocks may change between two of
// the weeks: then the course is at another instant, and that is judged, too.
func driveCourses(ctx context.Context, env harness.Env) error {
	var c courseChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	var all []harness.Operation
	for round, r := range c.Rounds {
		b := harness.Burst{Name: roundName(round) + "-book"}
		for n, s := range r.Weekly {
			w := s.in(r.Zone, o)
			w.Weekly = r.Weeks
			b.Requests = append(b.Requests, book(2*n, member(n), c.Resource.ID, w, fmt.Sprintf("course-%d", round)))
		}
		for n, s := range r.Singles {
			b.Requests = append(b.Requests, book(2*n+1, member(100+n), c.Resource.ID, s.in("Etc/UTC", o), fmt.Sprintf("single-%d", round)))
		}
		report, ops, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		answers.WitnessOverlap(env, report)
		all = append(all, ops...)
		m := harness.Burst{Name: roundName(round) + "-move"}
		for _, op := range ops {
			if s, err := seriesOf(op); err == nil {
				m.Requests = append(m.Requests, moveSeries(op.Process, op.Caller, s.SeriesID, r.Target.in(r.Zone, o), fmt.Sprintf("course-%d", round)))
			}
		}
		for n, s := range r.Late {
			m.Requests = append(m.Requests, book(2*n+1, member(200+n), c.Resource.ID, s.in("Etc/UTC", o), fmt.Sprintf("late-%d", round)))
		}
		if _, ops, err = env.Burst(ctx, m); err != nil {
			return err
		}
		all = append(all, ops...)
	}
	witnessWords(env, all, map[string]int{kindBookSeries + " 201": 1, kindBookSeries + " 409 overlap": 1, kindMoveSeries + " 200": 1, kindBook + " 201": 1})
	return finish(ctx, env)
}

// wholeSeries: each series is stored with as many appointments as it was told
// to have, numbered without a gap, and in the weeks one after the other.
func wholeSeries() harness.Check {
	const doc = "each series that was told is stored whole, and no other is stored at all"
	return funcCheck("series", doc, "series.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:appointments")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the appointments could not be read")
		}
		stored := map[string][]int64{}
		for _, r := range rows.Rows {
			if id := text(r, "series_id"); id != "" {
				stored[id] = append(stored[id], whole(r, "series_no"))
			}
		}
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			s, err := seriesOf(op)
			if w, _ := askedOf(op); callOf(op) != callBook || w.Weekly == 0 || err != nil {
				continue
			}
			judged++
			numbers := stored[s.SeriesID]
			delete(stored, s.SeriesID)
			slices.Sort(numbers)
			if len(numbers) != len(s.Appointments) || len(numbers) == 0 || numbers[0] != 0 || numbers[len(numbers)-1] != int64(len(numbers)-1) {
				wrong = append(wrong, answers.About(op, fmt.Sprintf("%d appointments, stored are the numbers %v", len(s.Appointments), numbers)))
			}
		}
		for id, numbers := range stored {
			wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("series %s is stored, with the numbers %v, and nobody was told of it", id, numbers)})
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "no series was booked")
		}
		return harness.Passed("%s: %d series", doc, judged)
	})
}
