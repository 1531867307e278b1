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

// foreignChoices are a cast, and the ids of events that are not of it.
type foreignChoices struct {
	castChoices
	Lookalikes []string `json:"lookalikes"` // others' events, with ids as ours have them
	Orphans    []string `json:"orphans"`    // events of ours that no row knows
}

// lookalike is an id as our events have them, of no appointment.
func lookalike(rng *rand.Rand) string {
	return fmt.Sprintf("appointment-%08x-%04x-4%03x-a%03x-%012x", rng.Uint32(), rng.IntN(1<<16), rng.IntN(1<<12), rng.IntN(1<<12), rng.Uint64()>>16)
}

// Days on which nobody has an appointment.
const (
	strangersDay = 200
	orphansDay   = 300
)

func foreignEvents() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/foreign-events",
		Title: "events of others that look like ours, and events of ours that nobody knows",
		Doc: `The calendar holds events of other people: plain ones, some whose ids look like ours, and some with the very id of an appointment of ours that was cancelled. It also holds events that
this client made and of which no row knows, as after the loss of a database. Reconciliation deletes the latter, whether they are over our appointments or not, and touches
none of the others, which go on being moved and removed by their owners alone.`,
		Sources: []string{"C-I3", "C-I4", "C-M11"},
		Params:  []harness.Param{paramEach, paramPolicy, paramReplicas, paramContract},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int(paramEach.Name)
			c := foreignChoices{castChoices: drawCast(rng, p, 1, []role{{partStays, 0, n}, {partCancelled, 0, n}, {partTouching, 0, n}})}
			for range n {
				c.Lookalikes, c.Orphans = append(c.Lookalikes, lookalike(rng)), append(c.Orphans, lookalike(rng), lookalike(rng))
			}
			return c, nil
		},
		Drive: driveForeign,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramEach.Name)
			return append(served(p), neverMadeAgain(), foreignStays(), orphansGo(),
				kinds("members are served as ever", answers.Tallies{kindBook: {"201": 3 * n}, kindCancel: {"200": n}}),
				ends("appointments are as if the others were not there", map[string]string{partStays: "CREATED", partTouching: "CREATED", partCancelled: "CANCELLED"}))
		},
	}, nil)
}

func driveForeign(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	var c foreignChoices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	if err := s.book(ctx, kindBook, s.all()); err != nil {
		return err
	}
	if err := awaitSynced(ctx, env); err != nil {
		return err
	}
	s.each(ctx, kindCancel, s.playing(partCancelled), s.cancelling)
	if err := awaitSynced(ctx, env); err != nil {
		return err
	}
	strangers := s.strangers(c)
	if err := configure(ctx, env, provider.Config{External: strangers, Orphans: s.orphans(c)}); err != nil {
		return err
	}
	deleted := counted(func(call provider.Call) bool { return call.Call == provider.Delete && call.Outcome == "deleted" })
	want := len(c.Orphans) + len(s.playing(partCancelled))
	if err := awaitLedger(ctx, env, "what is of no appointment is deleted", want, deleted); err != nil {
		return err
	}
	env.Witness("orphans_deleted", float64(len(c.Orphans)), float64(len(c.Orphans)), "events of ours that no row knew, and that reconciliation has deleted")
	var later provider.Config
	for i, e := range strangers {
		switch i % 3 {
		case 0:
			e.Start, e.End = e.Start.AddDate(0, 0, 50), e.End.AddDate(0, 0, 50)
			later.External = append(later.External, e)
		case 1:
			later.External = append(later.External, provider.External{Calendar: e.Calendar, EventID: e.EventID, Remove: true})
		}
	}
	if err := configure(ctx, env, later); err != nil {
		return err
	}
	return finish(ctx, env)
}

// strangers are others' events: beside appointments, and on days on which there
// are none; with their own ids, with ids that look like ours, and with ids that
// were ours.
func (s *cast) strangers(c foreignChoices) (list []provider.External) {
	at := func(id string) {
		d := day(strangersDay+len(list), 600, 660)
		list = append(list, provider.External{Calendar: s.Resources[0].Calendar, EventID: id, Start: d.start(s.origin), End: d.end(s.origin)})
	}
	for _, n := range s.playing(partTouching) {
		list = append(list, s.around(n)...)
	}
	for _, n := range s.playing(partCancelled) {
		at(s.booked[n].EventID)
		at(s.Parts[n].External)
	}
	for _, id := range c.Lookalikes {
		at(id)
	}
	return list
}

// orphans are events of ours that no row knows: one half over appointments, the
// other on days on which there are none.
func (s *cast) orphans(c foreignChoices) (list []provider.External) {
	over := s.playing(partStays)
	for i, id := range c.Orphans {
		d := day(orphansDay+i, 600, 660)
		if i < len(over) {
			d = s.Parts[over[i]].Span
		}
		list = append(list, provider.External{Calendar: s.Resources[0].Calendar, EventID: id, Start: d.start(s.origin), End: d.end(s.origin)})
	}
	return list
}

// foreignStays: the events of others are as their owners left them.
func foreignStays() harness.Check {
	const doc = "each event of others is where its owner put it last, or gone if its owner removed it; we never asked to have one deleted or changed"
	return bookCheckOfParts("C-I3.foreign", doc, func(b books, _ castChoices) (wrong []harness.Evidence, judged int) {
		last := map[string]provider.Call{}
		for _, c := range b.provider.Calls {
			switch {
			case c.Call == provider.Appear:
				last[c.EventID] = c
			case (c.Call == provider.Delete || c.Call == provider.Update) && c.Source == provider.TheOther:
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("call %d: %s of %s, which is somebody else's: %s", c.N, c.Call, c.EventID, c.Outcome)})
			}
		}
		stands := map[string]provider.Event{}
		for _, e := range b.provider.Events {
			if e.Source == provider.TheOther {
				stands[e.EventID] = e
			}
		}
		for id, c := range last {
			judged++
			e, there := stands[id]
			if there == (c.Outcome == "removed") || there && (!e.Start.Equal(c.Start) || !e.End.Equal(c.End)) {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %s of others was %s at %s, and stands: %v, at %s", id, c.Outcome, interval{c.Start, c.End}, there, interval{e.Start, e.End})})
			}
		}
		return wrong, judged
	})
}

// orphansGo: what is ours and of no appointment is deleted, by our own call.
func orphansGo() harness.Check {
	const doc = "events of ours that no appointment has are deleted from the calendar"
	return funcCheck("C-I3.orphans", doc, "faults_foreign.go", true, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		var c foreignChoices
		switch {
		case missing != "":
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		case rec.Plan.Decode(&c) != nil || len(c.Orphans) == 0:
			return harness.Undecided(harness.ReasonAssumption, "the plan has none")
		}
		appeared := 0
		for _, call := range b.provider.Calls {
			if call.Call == provider.Orphan {
				appeared++
			}
		}
		if appeared != len(c.Orphans) {
			return harness.Undecided(harness.ReasonVacuous, "%d of %d appeared", appeared, len(c.Orphans))
		}
		asked := map[string]bool{}
		for _, u := range rec.Upstream {
			if id, is := eventInPath(u); is && u.Method == http.MethodDelete {
				asked[id] = true
			}
		}
		var wrong []harness.Evidence
		for _, id := range c.Orphans {
			stands := false
			for _, e := range b.provider.Events {
				stands = stands || e.EventID == id
			}
			if stands || !asked[id] {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %s stands: %v; we asked to have it deleted: %v", id, stands, asked[id])})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		}
		return harness.Passed("%s: %d", doc, len(c.Orphans))
	})
}
