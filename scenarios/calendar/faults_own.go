package calendar

import (
	"context"
	"fmt"
	"net/http"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// Who gives a time up, and who takes it before the provider has heard of that.
const (
	partLeft     = "left"      // cancelled
	partMovedOff = "moved-off" // moved away
	partTaker    = "taker"     // books the time
	partMoverIn  = "mover-in"  // moves into it

	kindTake   = "take"
	kindMoveIn = "move-in"
)

func ownEvents() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/own-events",
		Title: "a time is given up and taken again before the provider has heard of the first",
		Doc: `Appointments stand at the provider; some are cancelled, others moved away, and the harness holds the calls that would tell the provider. Meanwhile others book those times, or move
into them. To free/busy the times are busy, but what is there is only our own event that is about to go: nobody is refused, and no conflict is recorded. The takers' events are
made while the old ones still stand; then the calls go on.`,
		Sources: []string{"C-I1", "C-I3", "C-I4", "C-M9"},
		Params:  []harness.Param{atMost(with(paramEach, "2"), 3), paramPolicy, paramContract, paramReplicas}, // those that are held leave hands for the others
		Choose:  chooseParts(theParts(partLeft, partMovedOff, partTaker, partMoverIn)),
		Topology: func(p harness.Params) harness.Topology {
			return topology(p, map[string]string{"CALENDAR_TIMEOUT": longCall.String()})
		},
		Drive: driveOwn,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramEach.Name)
			return append(served(p), neverMadeAgain(),
				kinds("everybody is served", answers.Tallies{kindBook: {"201": 3 * n}, kindCancel: {"200": n}, kindMove: {"200": n}, kindTake: {"201": n}, kindMoveIn: {"200": n}}),
				ends("nobody is refused for an event of ours", map[string]string{partLeft: "CANCELLED", partMovedOff: "CREATED", partTaker: "CREATED", partMoverIn: "CREATED"}),
				saw("the takers' events are made and moved at once", map[string][]string{partTaker: {"create created"}, partMoverIn: {"create created, update updated"}}))
		},
	}, nil)
}

func driveOwn(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	if err := s.book(ctx, kindBook, s.playing(partLeft, partMovedOff, partMoverIn)); err != nil {
		return err
	}
	if err := awaitSynced(ctx, env); err != nil {
		return err
	}
	holders := append(s.playing(partLeft), s.playing(partMovedOff)...)
	letGo := s.holdBack(holders)
	defer letGo()
	s.each(ctx, kindCancel, s.playing(partLeft), s.cancelling)
	s.each(ctx, kindMove, s.playing(partMovedOff), func(n int) harness.Request {
		to := span{s.Parts[n].Span.From + 100*24*60, s.Parts[n].Span.To + 100*24*60}
		return moveTo(n, member(n), s.booked[n].ID, to.in(s.Parts[n].Zone, s.origin), "move")
	})
	if err := awaitMet(ctx, env, heldCall, 1, len(holders), "events whose deletion or update was held back"); err != nil {
		return err
	}
	if err := s.takeOver(ctx, holders); err != nil {
		return err
	}
	letGo()
	return finish(ctx, env)
}

// holdBack has the calls wait that would tell the provider that the parts'
// appointments have left their times.
func (s *cast) holdBack(holders []int) (letGo func()) {
	var heals []func()
	for _, n := range holders {
		method := http.MethodDelete
		if s.Parts[n].Name == partMovedOff {
			method = http.MethodPut
		}
		heals = append(heals, pause(s.env, heldCall, method, "/events/"+s.booked[n].EventID, harness.MomentReceived))
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

// takeOver has others book and move into the times of the holders, and waits
// until the provider has it, with the holders' events still there.
func (s *cast) takeOver(ctx context.Context, holders []int) error {
	at := func(i int) when { return s.Parts[holders[i]].Span.in(s.Parts[holders[i]].Zone, s.origin) }
	takers, movers := s.playing(partTaker), s.playing(partMoverIn)
	var requests []harness.Request
	for i, n := range takers {
		requests = append(requests, answers.As(kindTake, book(n, member(n), s.resource(n).ID, at(2*i), "take")))
	}
	if err := s.keep(takers, s.env.DoAll(ctx, requests, hands)); err != nil {
		return err
	}
	requests = nil
	for i, n := range movers {
		requests = append(requests, answers.As(kindMoveIn, moveTo(n, member(n), s.booked[n].ID, at(2*i+1), "move-in")))
	}
	s.env.DoAll(ctx, requests, hands)
	in := len(takers) + len(movers)
	if err := awaitCount(ctx, s.env, "the provider has the takers' events", in, countSynced, s.ids(partTaker, partMoverIn)); err != nil {
		return fmt.Errorf("with the events of those before them still there: %w", err)
	}
	l, err := ledger(ctx, s.env)
	if err != nil {
		return err
	}
	shared := 0
	for _, n := range holders {
		for _, e := range l.Events {
			for _, o := range l.Events {
				if e.EventID == s.booked[n].EventID && o.EventID != e.EventID && o.Source == provider.Ours && e.Start.Before(o.End) && o.Start.Before(e.End) {
					shared++
				}
			}
		}
	}
	s.env.Witness("both_stood", float64(in), float64(shared), "times at which the old event and the taker's stood in the calendar together")
	return nil
}
