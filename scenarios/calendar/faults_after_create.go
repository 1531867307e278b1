package calendar

import (
	"context"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// Further parts of appointments that stand in the calendar when others change it.
const (
	partGoesAway   = "goes-away"      // the other's event goes again
	partMovesAway  = "moves-away"     // the member moves away from it
	partLeaves     = "member-cancels" // the member cancels while the conflict is open
	partKeptMoves  = "kept-moves"     // staff keep both, then the other's event moves and is in the way anew
	partLost       = "missing"        // somebody deletes our event: it gives way
	partLostKept   = "missing-keep"   // staff have it created again
	partLostGiven  = "missing-cancel" // staff give it up
	kindMoveAway   = "move-away"
	kindLeave      = "leave"
	countLostOrOff = `select count(distinct appointment_id) as n from conflicts`
)

// laterParts are what happens to appointments that are created, by policy.
func laterParts(p harness.Params) []string {
	if p[paramPolicy.Name] == policyReject {
		return []string{partMet, partLost, partTouching}
	}
	return []string{partKept, partGiven, partGoesAway, partMovesAway, partLeaves, partKeptMoves, partLostKept, partLostGiven, partTouching}
}

func busyAfterCreate() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/external-busy-after-create",
		Title: "others write over appointments that are created, and delete their events",
		Doc: `Appointments stand in the calendar; then somebody else's events appear over them, and some of ours are deleted by other people. Nothing tells the server: reconciliation
finds it. Under the policy reject those appointments give way, once. Under keep-and-flag each is a conflict on the list until it is resolved: staff keep it or cancel
it, the other's event goes away, or the member moves away or cancels; one that was kept is a conflict anew when the other's event moves and is still in
the way. A deleted event that staff keep is created again under its old id.`,
		Sources: []string{"C-I3", "C-I4", "C-I5", "C-M5", "C-M11"},
		Params:  []harness.Param{with(paramEach, "2"), paramPolicy, paramContract, paramReplicas},
		Choose:  chooseParts(laterParts),
		Drive:   driveAfterCreate,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramEach.Name)
			want := answers.Tallies{kindBook: {"201": n * len(laterParts(p))}}
			if p[paramPolicy.Name] == policyKeep {
				want = plus(want, answers.Tallies{kindKeep: {"200": 3 * n}, kindGiveUp: {"200": 2 * n}, kindMoveAway: {"200": n}, kindLeave: {"200": n}})
			}
			once, again := []string{"create created"}, []string{"create created, create created"}
			told := map[string][]string{partMet: once, partLost: once, partKept: once, partGiven: once, partGoesAway: once, partLeaves: once, partKeptMoves: once, partLostGiven: once, partTouching: once, partLostKept: again}
			return append(served(p), kinds("whatever others do, members and staff are served", want),
				ends("each appointment ends as the policy, staff and its member say", endsOf(plus(endsFound("reconciliation"), map[string]string{
					partGoesAway: "CREATED overlap/reconciliation/vanished", partMovesAway: "CREATED overlap/reconciliation/vanished", partLeaves: "CANCELLED overlap/reconciliation/ended",
					partKeptMoves: "CREATED overlap/reconciliation/kept overlap/reconciliation/open",
					partLost:      "REJECTED missing/reconciliation/rejected", partLostKept: "CREATED missing/reconciliation/kept", partLostGiven: "CANCELLED missing/reconciliation/cancelled",
				}), laterParts(p))),
				saw("each event is made once, and again only where staff have it restored", told))
		},
	}, nil)
}

func driveAfterCreate(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	if err := s.book(ctx, kindBook, s.all()); err != nil {
		return err
	}
	if err := awaitCount(ctx, env, "everything is created", len(s.Parts), countCreated); err != nil {
		return err
	}
	if err := awaitSynced(ctx, env); err != nil {
		return err
	}
	c, hit := s.othersCome()
	if err := configure(ctx, env, c); err != nil {
		return err
	}
	found := countUnresolved
	if env.Params()[paramPolicy.Name] == policyReject {
		found = countLostOrOff
	}
	if err := awaitCount(ctx, env, "reconciliation has found what others did", hit, found); err != nil {
		return err
	}
	env.Witness("found_by_reconciliation", float64(hit), float64(hit), "created appointments over which others wrote, or whose events they deleted")
	if env.Params()[paramPolicy.Name] == policyKeep {
		if err := s.resolveAll(ctx); err != nil {
			return err
		}
	}
	return finish(ctx, env)
}

// othersCome is what others do to the created events, and to how many.
func (s *cast) othersCome() (c provider.Config, hit int) {
	for n, p := range s.Parts {
		switch p.Name {
		case partTouching:
			c.External = append(c.External, s.around(n)...)
			continue
		case partLost, partLostKept, partLostGiven:
			c.Lose = append(c.Lose, provider.Lost{Calendar: s.resource(n).Calendar, EventID: s.booked[n].EventID})
		default:
			c.External = append(c.External, s.external(n, p.Over))
		}
		hit++
	}
	return c, hit
}

// resolveAll has staff decide, members move and leave, and others' events go
// away and move, until the only unresolved conflicts are those that came anew.
func (s *cast) resolveAll(ctx context.Context) error {
	if err := s.decide(ctx, kindKeep, decisionKeep, partKept, partKeptMoves, partLostKept); err != nil {
		return err
	}
	if err := s.decide(ctx, kindGiveUp, decisionCancel, partGiven, partLostGiven); err != nil {
		return err
	}
	s.each(ctx, kindLeave, s.playing(partLeaves), s.cancelling)
	s.each(ctx, kindMoveAway, s.playing(partMovesAway), func(n int) harness.Request {
		to := span{s.Parts[n].Span.From + 100*24*60, s.Parts[n].Span.To + 100*24*60}
		return moveTo(n, member(n), s.booked[n].ID, to.in(s.Parts[n].Zone, s.origin), "move-away")
	})
	var c provider.Config
	for _, n := range s.playing(partGoesAway) {
		c.External = append(c.External, provider.External{Calendar: s.resource(n).Calendar, EventID: s.Parts[n].External, Remove: true})
	}
	anew := s.playing(partKeptMoves)
	for _, n := range anew {
		c.External = append(c.External, s.external(n, span{s.Parts[n].Span.From + 3, s.Parts[n].Span.To - 3})) // no time that is drawn
	}
	if err := configure(ctx, s.env, c); err != nil {
		return err
	}
	const countAnew = `select count(*) as n from conflicts c where resolved_at is null and exists
  (select from conflicts k where k.appointment_id = c.appointment_id and k.external_event = c.external_event and k.resolution = 'kept')`
	if late := awaitCount(ctx, s.env, "what was kept is in the way anew", len(anew), countAnew); late != nil { // that is judged
		s.env.Record(harness.Event{Kind: harness.EventNote, Subject: "open", Text: late.Error()})
	}
	return ctx.Err()
}
