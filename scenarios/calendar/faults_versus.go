package calendar

import (
	"context"
	"fmt"
	"net/http"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// Where the creation is when the member changes their mind.
const (
	pointChecked  = "before-sent"  // the final check is under way, the create not sent
	pointProvider = "at-provider"  // the create is at the provider, not decided
	pointAnswered = "after-answer" // the event is made, the server has not heard of it
	pointFree     = "free"         // wherever it happens to be
)

var paramPoint = harness.Param{
	Name: "point", Kind: harness.ChoiceParam, Default: pointProvider, Values: []string{pointChecked, pointProvider, pointAnswered, pointFree},
	Doc: "where the creation of the event is: held before it is sent, at the provider before it is decided, or with its answer on the way; or wherever it happens to be",
}

const (
	partCrossed  = "crossed"
	kindMoveOnce = "move-once"
	heldCall     = "held" // fault
)

// crossedRoles are the appointments of all rounds.
func crossedRoles(p harness.Params) []role {
	return []role{{partCrossed, 0, rounds(p) * p.Int(paramEach.Name)}}
}

// A crossing is what members do while the creation is under way, and what it
// comes to.
type crossing struct {
	harness.Scenario
	act func(ctx context.Context, s *cast, round string, list []int) ([]harness.Operation, error)
	end string
}

// scenarioOf makes the crossing's scenario.
func (x crossing) scenarioOf(told func(n int) answers.Tallies, more ...harness.Check) harness.Scenario {
	s := x.Scenario
	s.Params = []harness.Param{atMost(with(paramEach, "6"), handsOfReplica), atMost(with(paramRounds, "2"), 60), paramPoint, paramReplicas, paramContract}
	s.Rounds = rounds
	s.Choose = chooseRoles(1, crossedRoles)
	s.Topology = func(p harness.Params) harness.Topology {
		return topology(p, map[string]string{"CALENDAR_TIMEOUT": longCall.String()})
	}
	s.Drive = func(ctx context.Context, env harness.Env) error { return x.drive(ctx, env) }
	s.Checks = func(p harness.Params) []harness.Check {
		n := rounds(p) * p.Int(paramEach.Name)
		list := append(served(p), neverMadeAgain(), kinds("every member is answered", told(n)),
			ends("what the member said last is what becomes of it", map[string]string{partCrossed: x.end}))
		if p[paramPoint.Name] != pointFree {
			list = append(list, more...)
		}
		return list
	}
	return scenario(s, nil)
}

func cancelVersusCreate() harness.Scenario {
	return crossing{
		Scenario: harness.Scenario{
			Name:  "calendar/cancel-versus-create",
			Title: "members cancel while the provider is making their events",
			Doc: `Round by round members book, and cancel while the creation is under way: held by the harness before the create is sent, at the provider, or when the event is made and the answer on its way;
or in a free race at a barrier. The cancellation is answered at once. Whatever the create came to, in the end there is no event, its id is spent, and none is made
after that.`,
			Sources: []string{"C-I2", "C-I3", "C-M13"},
		},
		act: func(ctx context.Context, s *cast, round string, list []int) ([]harness.Operation, error) {
			return s.released(ctx, round, kindCancel, list, s.cancelling)
		},
		end: "CANCELLED",
	}.scenarioOf(func(n int) answers.Tallies {
		return answers.Tallies{kindBook: {"201": n}, kindCancel: {"200": n}}
	}, spentInTheEnd())
}

func moveVersusCreate() harness.Scenario {
	return crossing{
		Scenario: harness.Scenario{
			Name:  "calendar/move-versus-create",
			Title: "members move their appointments while the provider is making the events",
			Doc: `Round by round members book, and move twice while the creation is under way: held by the harness before the create is sent, at the provider, or when the event is made and the answer on its way;
or in a free race at a barrier. Each move is answered at once. In the end there is one event for each appointment, made once, at the last time.`,
			Sources: []string{"C-I2", "C-I3", "C-M3", "C-M14"},
		},
		act: func(ctx context.Context, s *cast, round string, list []int) ([]harness.Operation, error) {
			first := s.each(ctx, kindMoveOnce, list, func(n int) harness.Request {
				to := span{s.Parts[n].Span.From + 100*24*60, s.Parts[n].Span.To + 100*24*60}
				return moveTo(n, member(n), s.booked[n].ID, to.in(s.Parts[n].Zone, s.origin), "move-once")
			})
			ops, err := s.released(ctx, round, kindMove, list, s.moving)
			return append(first, ops...), err
		},
		end: "CREATED",
	}.scenarioOf(func(n int) answers.Tallies {
		return answers.Tallies{kindBook: {"201": n}, kindMoveOnce: {"200": n}, kindMove: {"200": n}}
	})
}

func (x crossing) drive(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	size, crossed := env.Params().Int(paramEach.Name), 0
	for round := range rounds(env.Params()) {
		list := s.all()[round*size : (round+1)*size]
		letGo, err := s.hold(ctx, env.Params().Text(paramPoint.Name), round)
		if err != nil {
			return err
		}
		if err := s.book(ctx, kindBook, list); err != nil {
			return err
		}
		if err := s.awaitHeld(ctx, size, (round+1)*size); err != nil {
			return err
		}
		ops, err := x.act(ctx, s, roundName(round), list)
		if err != nil {
			return err
		}
		if env.Params().Text(paramPoint.Name) == pointFree {
			if err := awaitSynced(ctx, env); err != nil {
				return err
			}
			crossed += underWay(env, ops)
		}
		if err := letGo(); err != nil {
			return err
		}
	}
	if env.Params().Text(paramPoint.Name) == pointFree {
		env.Witness("creates_under_way", 1, float64(crossed), "creates that were under way while members changed their minds")
	}
	return finish(ctx, env)
}

// underWay counts the creates that were at the provider at some instant at which
// one of the operations was under way.
func underWay(env harness.Env, ops []harness.Operation) (n int) {
	from, to := ops[0].Sent, ops[0].Answered
	for _, op := range ops {
		from, to = min(from, op.Sent), max(to, op.Answered)
	}
	for _, c := range env.Upstream(provider.Name).Calls() {
		if c.Method == http.MethodPost && c.Path == "/events" && c.Received < to && c.Answered > from {
			n++
		}
	}
	return n
}

// hold has creations wait at the point, and gives what lets them go on. Where
// nothing is held, creating takes longer from round to round.
func (s *cast) hold(ctx context.Context, point string, round int) (letGo func() error, err error) {
	healed := func(heal func()) func() error {
		return func() error { heal(); return nil }
	}
	usual := func() error { return declare(ctx, s.env, s.Resources...) }
	switch point {
	case pointChecked:
		return healed(pause(s.env, heldCall, "GET", "/freebusy", harness.MomentReceived)), nil
	case pointAnswered:
		return healed(pause(s.env, heldCall, "POST", "/events", harness.MomentAccepted)), nil
	case pointProvider:
		return usual, s.behave(ctx, func(b *provider.Behaviour) { b.HoldCreates = true }, provider.Config{})
	}
	return usual, s.behave(ctx, func(b *provider.Behaviour) {
		b.LatencyMS = map[string]float64{provider.Create: float64(20 * (1 + round%5)), provider.Freebusy: 5}
	}, provider.Config{})
}

// awaitHeld waits until so many creations of a round wait at the point; in all
// is how many were held by then, in this round and those before.
func (s *cast) awaitHeld(ctx context.Context, n, all int) error {
	switch s.env.Params().Text(paramPoint.Name) {
	case pointFree:
		return nil
	case pointProvider:
		err := awaitWaiting(ctx, s.env, s.Resources[0].Calendar, n)
		if err == nil {
			s.env.Witness("held_at_the_provider", float64(n), float64(n), "creates that waited at the provider while their members changed their minds")
		}
		return err
	}
	return awaitMet(ctx, s.env, heldCall, 1, all, "creations that were held while their members changed their minds")
}

// spentInTheEnd: the id of each appointment whose create was under way is spent.
func spentInTheEnd() harness.Check {
	const doc = "the provider was told to delete the event of each appointment that was cancelled while it was made"
	return bookCheckOfParts("saw.deleted", doc, func(b books, _ castChoices) (wrong []harness.Evidence, judged int) {
		deleted := map[string]bool{}
		for _, c := range b.provider.Calls {
			deleted[c.EventID] = deleted[c.EventID] || c.Call == provider.Delete
		}
		for id, a := range b.appointments {
			judged++
			if !deleted[text(a, "event_id")] {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %s of appointment %s was never deleted", text(a, "event_id"), id), Ops: opOf(a)})
			}
		}
		return wrong, judged
	})
}
