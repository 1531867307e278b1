package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

var paramLimit = harness.Param{
	Name: "limit", Kind: harness.IntParam, Default: "2", Min: 1, Max: 10,
	Doc: "unresolved conflicts that a resource may have while its creation runs",
}

// Parts around a pause.
const (
	partUpToLimit      = "up-to-limit" // conflicts as many as the limit
	partOneMore        = "one-more"    // and one
	partWaits          = "waits"       // booked while paused
	partWaitsMoved     = "waits-moved"
	partWaitsCancelled = "waits-cancelled"
)

// Kinds of looks at resources, and of what is booked while one is paused.
const (
	kindLookAtLimit = "resource-at-limit"
	kindLookPaused  = "resource-paused"
	kindLookWaiting = "resource-waiting"
	kindBookPaused  = "book-while-paused"
)

func conflictPause() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/conflict-pause",
		Title: "a resource with too many conflicts creates nothing more, until staff have resolved some",
		Doc: `Under keep-and-flag, conflicts come up to the resource's limit: creation runs. One more, and creation for that resource alone is paused: bookings are taken and wait, moves
and deletions of what is there go on, one that waits can be moved and cancelled, and another resource goes on creating. Staff resolve one conflict: creation resumes by itself,
everything that waited is created, once, at its last time, and what was cancelled meanwhile never comes to the provider.`,
		Sources: []string{"C-I8", "C-I5", "C-I2", "C-I3", "C-M10"},
		Params:  []harness.Param{paramEach, paramLimit, paramReplicas, paramContract},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int(paramEach.Name)
			c := drawCast(rng, p, 2, []role{
				{partUpToLimit, 0, p.Int(paramLimit.Name)},
				{partOneMore, 0, 1},
				{partMoved, 0, n},
				{partCancelled, 0, n},
				{partWaits, 0, n},
				{partWaitsMoved, 0, n},
				{partWaitsCancelled, 0, n},
				{partElsewhere, 1, n},
			})
			for i := range c.Resources {
				c.Resources[i].Policy, c.Resources[i].Limit = policyKeep, p.Int(paramLimit.Name)
			}
			return c, nil
		},
		Drive: drivePause,
		Checks: func(p harness.Params) []harness.Check {
			n, limit, by := p.Int(paramEach.Name), p.Int(paramLimit.Name), "look"
			return append(served(p), nothingWhilePaused(), othersGoOn(),
				kinds("everybody is served while creation is paused", answers.Tallies{
					kindBook: {"201": limit + 1 + 2*n}, kindBookPaused: {"201": 3 * n}, kindElsewhere: {"201": n},
					kindMove: {"200": 2 * n}, kindCancel: {"200": 2 * n}, kindKeep: {"200": 1}, kindGiveUp: {"200": limit},
				}),
				resourcesTold("staff see when creation is paused, and what waits", map[string]string{
					kindLookAtLimit: fmt.Sprintf("RUNNING, %d unresolved, 0 pending", limit), kindLookPaused: fmt.Sprintf("PAUSED, %d unresolved, 0 pending", limit+1),
					kindLookWaiting: fmt.Sprintf("PAUSED, %d unresolved, %d pending", limit+1, 2*n), kindLookOther: "RUNNING, 0 unresolved, 0 pending",
					kindLookResumed: fmt.Sprintf("RUNNING, %d unresolved, 0 pending", limit),
				}),
				ends("nothing is lost over a pause", map[string]string{
					partUpToLimit: "CANCELLED overlap/" + by + "/cancelled", partOneMore: "CREATED overlap/" + by + "/kept", partMoved: "CREATED", partCancelled: "CANCELLED",
					partWaits: "CREATED", partWaitsMoved: "CREATED", partWaitsCancelled: "CANCELLED", partElsewhere: "CREATED",
				}),
				saw("what waited is made once, at its last time; what was cancelled meanwhile is not told", map[string][]string{
					partWaits: {"create created"}, partWaitsMoved: {"create created"}, partWaitsCancelled: {""},
				}))
		},
	}, nil)
}

func drivePause(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	if err := s.book(ctx, kindBook, s.playing(partMoved, partCancelled)); err != nil {
		return err
	}
	var c provider.Config
	for _, n := range s.playing(partUpToLimit, partOneMore) {
		c.At = append(c.At, provider.At{Calendar: s.resource(n).Calendar, Moment: provider.AfterCreate, Overlapping: true, External: s.external(n, s.Parts[n].Over)})
	}
	if err := configure(ctx, env, c); err != nil {
		return err
	}
	for _, step := range []struct{ part, look string }{{partUpToLimit, kindLookAtLimit}, {partOneMore, kindLookPaused}} {
		if err := s.book(ctx, kindBook, s.playing(step.part)); err != nil {
			return err
		}
		if err := awaitSynced(ctx, env); err != nil {
			return err
		}
		s.look(ctx, step.look, 0)
	}
	if err := s.whilePaused(ctx); err != nil {
		return err
	}
	if err := s.decide(ctx, kindKeep, decisionKeep, partOneMore); err != nil {
		return err
	}
	if err := awaitCount(ctx, env, "what waited is done", len(s.playing(partWaits, partWaitsMoved)), countSynced, s.ids(partWaits, partWaitsMoved)); err != nil {
		return err
	}
	if err := awaitSynced(ctx, env); err != nil {
		return err
	}
	s.look(ctx, kindLookResumed, 0)
	if err := s.decide(ctx, kindGiveUp, decisionCancel, partUpToLimit); err != nil {
		return err
	}
	return finish(ctx, env)
}

// whilePaused is what goes on while a resource's creation is paused.
func (s *cast) whilePaused(ctx context.Context) error {
	if err := s.book(ctx, kindBookPaused, s.playing(partWaits, partWaitsMoved, partWaitsCancelled)); err != nil {
		return err
	}
	s.each(ctx, kindMove, s.playing(partMoved, partWaitsMoved), s.moving)
	s.each(ctx, kindCancel, s.playing(partCancelled, partWaitsCancelled), s.cancelling)
	if err := s.book(ctx, kindElsewhere, s.playing(partElsewhere)); err != nil {
		return err
	}
	elsewhere := s.ids(partElsewhere)
	late := s.env.Await(ctx, "the other resource's are created", 3*patience, func(ctx context.Context) (bool, string, error) {
		n, err := countNow(ctx, s.env, countSynced, elsewhere)
		return err == nil && n == len(elsewhere), fmt.Sprintf("%d", n), err
	})
	if late != nil { // that nothing was created there is for a check to judge
		s.env.Record(harness.Event{Kind: harness.EventNote, Subject: "another resource", Text: late.Error()})
	}
	others := []string{partMoved, partCancelled}
	if stuck := awaitCount(ctx, s.env, "the rest goes on", len(s.playing(others...)), countSynced, s.ids(others...)); stuck != nil { // as above
		s.env.Record(harness.Event{Kind: harness.EventNote, Subject: "the rest of the paused resource", Text: stuck.Error()})
		late = stuck
	}
	if late == nil {
		if err := awaitSynced(ctx, s.env); err != nil {
			return err
		}
	}
	waiting := s.playing(partWaits, partWaitsMoved)
	n, err := countNow(ctx, s.env, countWaiting, s.ids(partWaits, partWaitsMoved))
	if err != nil {
		return err
	}
	s.env.Witness("waiting_while_paused", float64(len(waiting)), float64(n), "appointments that waited while everything else went on")
	s.look(ctx, kindLookWaiting, 0)
	s.look(ctx, kindLookOther, 1)
	return nil
}

// between gives what is about a calendar among the calls that the provider
// received after the first operation of one kind was answered and before the
// first one of another was sent. ok is false when there are no such operations.
func callsBetween(rec harness.Record, calendar, after, before string) (calls []harness.UpstreamCall, ok bool) {
	begin, end := rec.History.OfKind(after), rec.History.OfKind(before)
	if len(begin) == 0 || len(end) == 0 || begin[0].Answered == 0 || end[0].Sent <= begin[0].Answered {
		return nil, false
	}
	for _, c := range rec.Upstream {
		if c.Received > begin[0].Answered && c.Received < end[0].Sent && (calendarIn(c) == calendar || calendarInBody(c) == calendar) {
			calls = append(calls, c)
		}
	}
	return calls, true
}

// nothingWhilePaused is C-I8.
func nothingWhilePaused() harness.Check {
	const doc = "between staff's being told that creation is paused and their first decision nothing is created for that resource"
	return funcCheck("C-I8.paused", doc, "faults_pause.go", false, func(rec harness.Record) harness.Verdict {
		var c castChoices
		if rec.Plan.Decode(&c) != nil || len(c.Resources) == 0 {
			return harness.Undecided(harness.ReasonAssumption, "the plan has no resources")
		}
		calls, ok := callsBetween(rec, c.Resources[0].Calendar, kindLookPaused, kindKeep)
		if !ok {
			return harness.Undecided(harness.ReasonVacuous, "there was no pause")
		}
		for _, u := range calls {
			if u.Method == http.MethodPost && u.Path == "/events" {
				return harness.Violated([]harness.Evidence{{Text: fmt.Sprintf("call %d by %s: %s", u.Seq, u.Caller, u.Request)}}, "%s: call %d is a create", doc, u.Seq)
			}
		}
		return harness.Passed("%s: %d other calls", doc, len(calls))
	})
}

// othersGoOn is the other side of C-I8: the pause is of one resource alone.
func othersGoOn() harness.Check {
	const doc = "while creation is paused for one resource, everything that is booked with another one is created"
	return funcCheck("C-I8.others", doc, "faults_pause.go", false, func(rec harness.Record) harness.Verdict {
		var c castChoices
		if rec.Plan.Decode(&c) != nil || len(c.Resources) < 2 {
			return harness.Undecided(harness.ReasonAssumption, "the plan has no other resource")
		}
		calls, ok := callsBetween(rec, c.Resources[1].Calendar, kindLookPaused, kindKeep)
		booked := 0
		for _, op := range rec.History.OfKind(kindElsewhere) {
			if op.Status == http.StatusCreated {
				booked++
			}
		}
		made := map[string]bool{}
		for _, u := range calls {
			if u.Method == http.MethodPost && u.Path == "/events" && u.Status == http.StatusCreated {
				made[aboutOf(u)] = true
			}
		}
		switch {
		case !ok || booked == 0:
			return harness.Undecided(harness.ReasonVacuous, "nothing was booked elsewhere in a pause")
		case len(made) < booked:
			return harness.Violated([]harness.Evidence{{Text: fmt.Sprintf("%d were booked, and the provider made %d events", booked, len(made))}}, "%s: %d of %d are", doc, len(made), booked)
		}
		return harness.Passed("%s: %d", doc, booked)
	})
}
