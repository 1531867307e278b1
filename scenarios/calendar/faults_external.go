package calendar

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// Parts of appointments whose time somebody else wants, too.
const (
	partMet    = "met"          // gives way
	partKept   = "staff-keep"   // both stay
	partGiven  = "staff-cancel" // staff give it up
	partOthers = "others"       // in a calendar that nobody else writes to
)

var paramMoment = harness.Param{
	Name: "moment", Kind: harness.ChoiceParam, Default: provider.AfterFreebusy, Values: []string{provider.AfterFreebusy, provider.BeforeCreate, provider.AfterCreate},
	Doc: "when somebody else's event appears: right after the final check has been answered, right before the create is judged, or right after it, before our look",
}

// How the appointments come to the time that somebody else takes.
const (
	byBooking = "booking"
	byMove    = "move"
)

var paramBy = harness.Param{
	Name: "by", Kind: harness.ChoiceParam, Default: byBooking, Values: []string{byBooking, byMove},
	Doc: "how the appointments come to the time: they are booked there, or moved there, when create stands for update in the moments",
}

// clashing are the parts that somebody else's event meets: under the policy
// reject they give way, else staff decide.
func clashing(p harness.Params) []string {
	if p[paramPolicy.Name] == policyReject {
		return []string{partMet}
	}
	return []string{partKept, partGiven}
}

func clashingAndTouching(p harness.Params) []string { return append(clashing(p), partTouching) }

// endsFound are the ends of such parts when their conflict was recorded, and by
// whom it was found.
func endsFound(by string) map[string]string {
	return map[string]string{
		partMet: "REJECTED overlap/" + by + "/rejected", partKept: "CREATED overlap/" + by + "/kept",
		partGiven: "CANCELLED overlap/" + by + "/cancelled", partTouching: "CREATED",
	}
}

// endsKnown are their ends when the time was known to be somebody else's before
// there was an event of ours.
func endsKnown() map[string]string {
	return plus(endsFound("check"), map[string]string{partMet: "REJECTED"})
}

// orByReconciliation adds to the ends that a conflict may be found by
// reconciliation first: an appointment that is created is looked at all the
// time, at the time that its row says, also while it is being moved there.
func orByReconciliation(all map[string]string) map[string]string {
	all = maps.Clone(all)
	found := endsFound("reconciliation")
	for name := range all {
		if all[name] != found[name] {
			all[name] += orElse + found[name]
		}
	}
	return all
}

// endsOf leaves the ends of the parts that there are.
func endsOf(all map[string]string, parts []string) map[string]string {
	some := map[string]string{}
	for _, name := range parts {
		some[name] = all[name]
	}
	return some
}

// residual says whether the provider takes the event although the time is
// somebody else's: without an atomic hold, or when it became so afterwards.
func residual(p harness.Params) bool {
	return p[paramContract.Name] == contractCheck || p[paramMoment.Name] == provider.AfterCreate
}

// staffKinds are the answers of staff's decisions.
func staffKinds(p harness.Params) answers.Tallies {
	n := p.Int(paramEach.Name)
	if p[paramPolicy.Name] == policyReject {
		return answers.Tallies{kindBook: {"201": 2 * n}}
	}
	return answers.Tallies{kindBook: {"201": 3 * n}, kindKeep: {"200": n}, kindGiveUp: {"200": n}}
}

func busyAfterCheck() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/external-busy-after-check",
		Title: "somebody else takes the time between our check and our create",
		Doc: `Members book; for each of them somebody else's event appears in the calendar at exactly the wrong moment: when the final check has been answered that the time is free.
A provider without an atomic hold takes our event all the same. The look that follows finds the other one: the conflict is on record, and resolved as the policy
says: the appointment gives way and its event is deleted, or both stay and staff decide, who keep some and cancel some. A provider with an atomic hold refuses: the
appointment is REJECTED, and there never was an event of ours. An event that appears after our create is a conflict under either contract. Others' events that
touch an appointment are none. Moved appointments are checked and looked at in the same way, and their update is what the provider may refuse.`,
		Sources: []string{"C-I3", "C-I4", "C-I5", "C-M4", "C-M5"},
		Params:  []harness.Param{paramEach, paramPolicy, paramContract, paramMoment, paramBy, paramReplicas},
		Choose:  chooseParts(clashingAndTouching),
		Drive:   driveAfterCheck,
		Checks: func(p harness.Params) []harness.Check {
			all, call, came, want := endsFound("look"), "create created", "", staffKinds(p)
			if p[paramBy.Name] == byMove {
				call, came = "update updated", "create created, "
				want = plus(want, answers.Tallies{kindMove: {"200": want[kindBook]["201"]}})
			}
			told := map[string][]string{partMet: {came + call}, partTouching: {came + call}}
			if !residual(p) {
				all = endsKnown()
				told[partMet] = []string{came + strings.Fields(call)[0] + " busy"}
			}
			if p[paramBy.Name] == byMove {
				all = orByReconciliation(all)
			}
			list := append(served(p), ends("each appointment ends as the policy and the contract say", endsOf(all, clashingAndTouching(p))),
				kinds("every booking is accepted, and staff can decide about each conflict", want))
			if p[paramPolicy.Name] == policyReject {
				list = append(list, saw("an event of ours is made only where the provider can't refuse it", told))
			}
			return list
		},
	}, nil)
}

func driveAfterCheck(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	moved := env.Params().Text(paramBy.Name) == byMove
	if moved {
		if err := s.bookAway(ctx); err != nil {
			return err
		}
	}
	c, heal := s.atTheMoment(moved)
	defer heal()
	if err := configure(ctx, env, c); err != nil {
		return err
	}
	if moved {
		s.each(ctx, kindMove, s.all(), func(n int) harness.Request {
			return moveTo(n, member(n), s.booked[n].ID, s.Parts[n].Span.in(s.Parts[n].Zone, s.origin), "move")
		})
		err = s.settleConflicts(ctx)
	} else {
		err = s.bookAndDecide(ctx)
	}
	if err != nil {
		return err
	}
	return s.witnessExternals(ctx, len(s.playing(clashing(env.Params())...)))
}

// bookAway books all parts far from their times.
func (s *cast) bookAway(ctx context.Context) error {
	all := s.all()
	ops := s.each(ctx, kindBook, all, func(n int) harness.Request {
		at := span{s.Parts[n].Span.From + 100*24*60, s.Parts[n].Span.To + 100*24*60}
		return book(n, member(n), s.resource(n).ID, at.in(s.Parts[n].Zone, s.origin), "book")
	})
	if err := s.keep(all, ops); err != nil {
		return err
	}
	return awaitSynced(ctx, s.env)
}

// atTheMoment has others' events appear at the moment. The provider's own
// moments are about creates; around an update the wire in front of it has them.
func (s *cast) atTheMoment(moved bool) (c provider.Config, heal func()) {
	moment := s.env.Params().Text(paramMoment.Name)
	onWire := map[string]harness.Moment{provider.BeforeCreate: harness.MomentReceived, provider.AfterCreate: harness.MomentAccepted}[moment]
	var heals []func()
	for n, p := range s.Parts {
		e := s.external(n, p.Over)
		switch {
		case p.Name == partTouching:
			c.External = append(c.External, s.around(n)...)
		case !moved || onWire == "":
			c.At = append(c.At, provider.At{Calendar: e.Calendar, Moment: moment, Overlapping: true, External: e})
		default:
			heals = append(heals, s.env.Upstream(provider.Name).Inject(harness.UpstreamFault{
				Name: "somebody else's event", Method: http.MethodPut, Path: "/events/" + s.booked[n].EventID, Nth: 1, At: onWire,
				Do: func(ctx context.Context, _ harness.UpstreamCall) {
					_ = configure(ctx, s.env, provider.Config{External: []provider.External{e}}) // one that does not appear is missing from the witness
				},
			}))
		}
	}
	return c, func() {
		for _, one := range heals {
			one()
		}
	}
}

// bookAndDecide has all parts booked, and ends the drive as [cast.settleConflicts].
func (s *cast) bookAndDecide(ctx context.Context) error {
	if err := s.book(ctx, kindBook, s.all()); err != nil {
		return err
	}
	return s.settleConflicts(ctx)
}

// settleConflicts waits until everything is synchronised, then staff decide,
// and the drive ends.
func (s *cast) settleConflicts(ctx context.Context) error {
	if err := awaitSynced(ctx, s.env); err != nil {
		return err
	}
	if s.env.Params()[paramPolicy.Name] == policyKeep {
		if err := s.decide(ctx, kindKeep, decisionKeep, partKept); err != nil {
			return err
		}
		if err := s.decide(ctx, kindGiveUp, decisionCancel, partGiven); err != nil {
			return err
		}
	}
	return finish(ctx, s.env)
}

// witnessExternals is that others' events appeared when they were to.
func (s *cast) witnessExternals(ctx context.Context, want int) error {
	l, err := ledger(ctx, s.env)
	if err != nil {
		return err
	}
	theirs := map[string]bool{}
	for _, p := range s.Parts {
		theirs[p.External] = true
	}
	n := counted(func(c provider.Call) bool {
		return c.Call == provider.Appear && theirs[c.EventID] && c.Outcome == "appeared"
	})(l)
	s.env.Witness("appeared_at_the_moment", float64(want), float64(n), "events of others that appeared at the moment of a call of ours")
	return nil
}

func busyBeforeCheck() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/external-busy-before-check",
		Title: "the time is somebody else's already when the final check is made",
		Doc: `Others' events stand in the calendar where members book: the server does not know of them until it checks. Under the policy reject the appointment is REJECTED, and no
event of ours is even tried; under keep-and-flag it is created beside the other's event, with a recorded conflict that staff decide about, and that stays decided
while reconciliation goes on seeing both. Others' events that only touch an appointment are in nobody's way.`,
		Sources: []string{"C-I3", "C-I4", "C-I5", "C-M4", "C-M5", "C-M8"},
		Params:  []harness.Param{paramEach, paramPolicy, paramContract, paramReplicas},
		Choose:  chooseParts(clashingAndTouching),
		Drive:   driveBeforeCheck,
		Checks: func(p harness.Params) []harness.Check {
			once := []string{"create created"}
			told := map[string][]string{partMet: {""}, partKept: once, partGiven: once, partTouching: once}
			for _, name := range []string{partMet, partKept, partGiven} {
				if !slices.Contains(clashing(p), name) {
					delete(told, name)
				}
			}
			return append(served(p), ends("each appointment ends as the policy says", endsOf(endsKnown(), clashingAndTouching(p))),
				kinds("every booking is accepted, and staff can decide about each conflict", staffKinds(p)),
				saw("what gives way is not tried at the provider, everything else is made at once", told))
		},
	}, nil)
}

func driveBeforeCheck(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	var c provider.Config
	for n, p := range s.Parts {
		if p.Name == partTouching {
			c.External = append(c.External, s.around(n)...)
		} else {
			c.External = append(c.External, s.external(n, p.Over))
		}
	}
	if err := configure(ctx, env, c); err != nil {
		return err
	}
	if err := s.bookAndDecide(ctx); err != nil {
		return err
	}
	l, err := ledger(ctx, env)
	if err != nil {
		return err
	}
	n := counted(func(c provider.Call) bool { return c.Call == provider.Freebusy && c.Overlapped && c.Outcome == "busy" })(l)
	env.Witness("busy_at_the_check", float64(len(s.playing(clashing(env.Params())...))), float64(n), "final checks that found somebody else's event")
	return nil
}
