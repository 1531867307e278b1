package calendar

import (
	"context"

	"github.com/overbook/overbook/harness"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// partFreeAgain is an appointment at a time that was somebody else's when
// free/busy was as it still says.
const partFreeAgain = "free-again"

func staleParts(p harness.Params) []string { return append(clashing(p), partFreeAgain) }

func staleFreebusy() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/stale-freebusy",
		Title: "free/busy lags behind: it says free where somebody else is, and busy where nobody is any more",
		Doc: `Free/busy stands still; then others take some times, and leave others. Where it still says free, our create lands on somebody else's event: the look finds it, and the conflict is
recorded and resolved under the policy; a provider with an atomic hold refuses the create, and the appointment is judged as if free/busy had been right. Where it still says
busy, the calendar itself is asked whose the time is: it is nobody's, and nobody is refused for it.`,
		Sources: []string{"C-I3", "C-I4", "C-I5", "C-M4", "C-M5"},
		Params:  []harness.Param{paramEach, paramPolicy, paramContract, paramReplicas},
		Choose:  chooseParts(staleParts),
		Drive:   driveStale,
		Checks: func(p harness.Params) []harness.Check {
			all := endsKnown()
			if p[paramContract.Name] == contractCheck {
				all = endsFound("look")
			}
			return append(served(p), kinds("every booking is accepted, and staff can decide about each conflict", staffKinds(p)),
				ends("each appointment ends by what is in the calendar, not by what free/busy says", endsOf(plus(all, map[string]string{partFreeAgain: "CREATED"}), staleParts(p))),
				saw("where nobody is any more the event is made at once", map[string][]string{partFreeAgain: {"create created"}}))
		},
	}, nil)
}

func driveStale(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	var before, after provider.Config
	for n, p := range s.Parts {
		e := s.external(n, p.Over)
		if p.Name != partFreeAgain {
			after.External = append(after.External, e)
			continue
		}
		before.External = append(before.External, e)
		after.External = append(after.External, provider.External{Calendar: e.Calendar, EventID: e.EventID, Remove: true})
	}
	if err := configure(ctx, env, before); err != nil {
		return err
	}
	// Frozen is what is there when the behaviour is set; then the others act.
	if err := s.behave(ctx, func(b *provider.Behaviour) { b.Freebusy = provider.Frozen }, after); err != nil {
		return err
	}
	if err := s.bookAndDecide(ctx); err != nil {
		return err
	}
	l, err := ledger(ctx, env)
	if err != nil {
		return err
	}
	free := counted(func(c provider.Call) bool { return c.Call == provider.Freebusy && c.Overlapped && c.Outcome == "free" })(l)
	busy := counted(func(c provider.Call) bool { return c.Call == provider.Freebusy && !c.Overlapped && c.Outcome == "busy" })(l)
	env.Witness("said_to_be_free", float64(len(s.playing(clashing(env.Params())...))), float64(free), "final checks that were told free where somebody else was")
	env.Witness("said_to_be_busy", float64(len(s.playing(partFreeAgain))), float64(busy), "final checks that were told busy where nobody was")
	return nil
}
