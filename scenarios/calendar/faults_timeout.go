package calendar

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// How answers of the provider get lost.
const (
	lostReset   = "reset"   // the connection ends
	lostSilence = "silence" // nothing comes, until the server gives up
)

// Calls whose answers get lost.
const (
	lostCreate = "create"
	lostUpdate = "update"
	lostDelete = "delete"
)

var (
	paramLost = harness.Param{
		Name: "lost", Kind: harness.ChoiceParam, Default: lostReset, Values: []string{lostReset, lostSilence},
		Doc: "how the provider's answers get lost: the connection is reset, or nothing comes until the server gives up",
	}
	paramCall = harness.Param{
		Name: "call", Kind: harness.ChoiceParam, Default: lostCreate, Values: []string{lostCreate, lostUpdate, lostDelete},
		Doc: "which call's answer gets lost",
	}
	paramAttempt = harness.Param{
		Name: "attempt", Kind: harness.IntParam, Default: "1", Min: 1, Max: 2,
		Doc: "whose answer is lost: that of the first attempt, or of the second one, after a first that never reached the provider",
	}
)

// lostMethods are the methods of the calls.
var lostMethods = map[string]string{lostCreate: http.MethodPost, lostUpdate: http.MethodPut, lostDelete: http.MethodDelete}

// shortCall is the time-out of a call of the provider that is not answered.
const shortCall = 500 * time.Millisecond

const (
	partUnanswered = "unanswered"
	neverArrived   = "never arrived" // faults
	answerLost     = "answer lost"
)

func createTimeout() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/create-timeout",
		Title: "the provider makes the event, and its answer never comes",
		Doc: `Each call by which an event is made (or, by parameter, moved or deleted) is carried out by the provider, and its answer is lost: the connection is reset, or nothing comes and the server gives
up. It can't know whether the event exists, and tries again: it finds it under the id that it had chosen before the first attempt. There is exactly one event for each
appointment, under one id, whether it was the first attempt's answer that was lost or that of a second, after a first that never reached the provider.`,
		Sources: []string{"C-I2", "C-I3", "C-M3", "C-M13"},
		Params:  []harness.Param{with(paramEach, "6"), paramCall, paramLost, paramAttempt, paramContract, paramReplicas},
		Choose:  chooseParts(theParts(partUnanswered)),
		Topology: func(p harness.Params) harness.Topology {
			if p[paramLost.Name] == lostSilence {
				return topology(p, map[string]string{"CALENDAR_TIMEOUT": shortCall.String()})
			}
			return topology(p, nil)
		},
		Drive: driveTimeout,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramEach.Name)
			want := answers.Tallies{kindBook: {"201": n}}
			end, told := "CREATED", []string{"create created"}
			switch p[paramCall.Name] {
			case lostUpdate:
				want[kindMove] = map[string]int{"200": n}
				told = []string{"create created, update updated"}
			case lostDelete:
				want[kindCancel] = map[string]int{"200": n}
				end = "CANCELLED"
			}
			return append(served(p), kinds("members notice nothing of it", want),
				ends("each appointment ends as if every answer had come", map[string]string{partUnanswered: end}),
				saw("each event is made once, and moved once", map[string][]string{partUnanswered: told}),
				neverMadeAgain())
		},
	}, nil)
}

func driveTimeout(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	call := env.Params().Text(paramCall.Name)
	if call != lostCreate {
		if err := s.book(ctx, kindBook, s.all()); err != nil {
			return err
		}
		if err := awaitSynced(ctx, env); err != nil {
			return err
		}
	}
	method, path := lostMethods[call], ""
	if call == lostCreate {
		path = "/events"
	}
	lose := reset
	if env.Params()[paramLost.Name] == lostSilence {
		lose = pause
	}
	hear := lose(env, answerLost, method, path, harness.MomentAccepted)
	defer hear()
	arrive := func() {}
	if env.Params().Int(paramAttempt.Name) == 2 {
		arrive = reset(env, neverArrived, method, path, harness.MomentReceived)
		defer arrive()
	}
	switch call {
	case lostCreate:
		err = s.book(ctx, kindBook, s.all())
	case lostUpdate:
		s.each(ctx, kindMove, s.all(), s.moving)
	case lostDelete:
		s.each(ctx, kindCancel, s.all(), s.cancelling)
	}
	if err != nil {
		return err
	}
	if env.Params().Int(paramAttempt.Name) == 2 {
		if err := awaitMet(ctx, env, neverArrived, 1, len(s.Parts), "events whose first call did not reach the provider"); err != nil {
			return err
		}
		arrive()
	}
	// That an answer is lost shows when the server asks again. After a create and
	// an update it reads the event, a deletion it repeats: that one's is lost, too.
	times := 1
	if call == lostDelete {
		times = 2
	}
	if err := awaitMet(ctx, env, answerLost, times, len(s.Parts), "events whose call was carried out, and its answer lost"); err != nil {
		return err
	}
	if call != lostDelete {
		if err := awaitSynced(ctx, env); err != nil {
			return err
		}
	}
	hear()
	return finish(ctx, env)
}

// neverMadeAgain: an event that we deleted, or asked to have deleted, is not
// made after that.
func neverMadeAgain() harness.Check {
	const doc = "no event is made after its id was spent, and the last that the provider hears of an appointment that is over is to delete it"
	return bookCheckOfParts("C-I3.spent", doc, func(b books, _ castChoices) (wrong []harness.Evidence, judged int) {
		spent, last := map[string]bool{}, map[string]provider.Call{}
		for _, c := range b.provider.Calls {
			switch {
			case c.Call == provider.Delete:
				spent[c.EventID] = true
			case c.Call != provider.Create && c.Call != provider.Update:
				continue
			case tookEffect(c) && spent[c.EventID]:
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("call %d: event %s was %s, and its id was spent", c.N, c.EventID, c.Outcome), Ops: opOf(b.byEvent[c.EventID])})
			}
			last[c.EventID] = c
		}
		for id, a := range b.appointments {
			judged++
			c, heard := last[text(a, "event_id")]
			if heard && tookEffect(c) && !active[text(a, "state")] && b.pending[id] == 0 {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("appointment %s is %s, and its event was %s last", id, text(a, "state"), c.Outcome), Ops: opOf(a)})
			}
		}
		return wrong, judged
	})
}
