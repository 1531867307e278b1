package calendar

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// Parts of appointments whose worker is late.
const (
	partRefusedMoved  = "refused-moved"  // its check finds the time taken, and the member has moved away from it
	partRefusedLate   = "refused-late"   // its check finds the time taken, and is heard of when another worker has found it free
	partSpentLate     = "spent-late"     // its create arrives when the event has been deleted
	partMadeLate      = "made-late"      // its create is answered when the event has been deleted
	partNewToken      = "new-token"      // the answer with its token is lost
	partMeanwhileMade = "made-meanwhile" // made while a look of reconciliation is on its way back

	kindBookToken = "book-with-a-new-token"
)

// lateParts are those of which a worker is late for its claim.
var lateParts = []string{partRefusedLate, partSpentLate, partMadeLate}

func lateWorker() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/late-worker",
		Title: "whoever synchronises an appointment is held at the provider until somebody else has done it",
		Doc: `Workers are held on the wire to the provider, and the clock is moved over their claims: others do the work, and then they go on. One was about to reject an appointment over
somebody else's event that has gone meanwhile, and the appointment is created: it stays so. One's create arrives when the member has cancelled and the event's id is spent, one's was carried out,
and its answer comes when the event is deleted: there is no event in the end, and none is made under another id. One that has kept its claim finds the time taken that the member has left
meanwhile: the new time counts. Appointments are created while a look of reconciliation is on its way back: they are not in it, and none counts as missing. At last the answer with a new token is lost: who asks again does so under the same key, and gets it.`,
		Sources: []string{"C-I2", "C-I3", "C-I7", "C-M13"},
		Params:  []harness.Param{atMost(with(paramEach, "2"), 2), paramContract}, // those that are held leave hands for the others
		Choose:  chooseParts(theParts(append([]string{partRefusedMoved, partMeanwhileMade, partNewToken}, lateParts...)...)),
		Topology: func(p harness.Params) harness.Topology {
			return topology(p, clocked(map[string]string{"CALENDAR_TIMEOUT": "60s", "POOL_SIZE": "24"}))
		},
		Drive: driveLate,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramEach.Name)
			return append(served(p), neverMadeAgain(),
				kinds("members notice nothing of it", answers.Tallies{kindBook: {"201": 5 * n}, kindBookToken: {"201": n}, kindMove: {"200": n}, kindCancel: {"200": 2 * n}}),
				ends("who has lost the claim changes nothing", map[string]string{
					partRefusedMoved: "CREATED", partRefusedLate: "CREATED", partMeanwhileMade: "CREATED", partNewToken: "CREATED", partSpentLate: "CANCELLED", partMadeLate: "CANCELLED",
				}),
				saw("each event is made once, and none whose id is spent", map[string][]string{
					partRefusedMoved: {"create created"}, partRefusedLate: {"create created"}, partMeanwhileMade: {"create created"}, partNewToken: {"create created"}, partSpentLate: {"create spent"}, partMadeLate: {"create created"},
				}))
		},
	}, nil)
}

func driveLate(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	if err := s.movedAway(ctx); err != nil {
		return err
	}
	if err := s.lateForTheirClaims(ctx); err != nil {
		return err
	}
	if err := lookedAgain(ctx, env); err != nil { // those who were late have gone on, with the token that they have
		return err
	}
	if err := s.madeDuringLook(ctx); err != nil {
		return err
	}
	lost := func(b *provider.Behaviour) { b.TokenAnswer, b.TokenFirst = provider.Reset, 1 }
	if err := s.behave(ctx, lost, provider.Config{ExpireTokens: []string{s.Resources[0].Calendar}}); err != nil {
		return err
	}
	if err := s.book(ctx, kindBookToken, s.playing(partNewToken)); err != nil {
		return err
	}
	return finishByClock(ctx, env)
}

// held has the first calls of a kind wait at a moment, as many as there are
// appointments of the part, and those alone.
func (s *cast) held(name, method string, at harness.Moment) (letGo func()) {
	return s.heldFirst(s.env.Params().Int(paramEach.Name), name, method, at)
}

// heldFirst has the first calls of a kind wait at a moment, and those alone.
func (s *cast) heldFirst(calls int, name, method string, at harness.Moment) (letGo func()) {
	hold := make(chan struct{})
	for n := range calls {
		s.env.Upstream(provider.Name).Inject(harness.UpstreamFault{Name: name, Method: method, Path: "/events", Nth: n + 1, At: at, Hold: hold})
	}
	return func() { close(hold) }
}

// begun books the appointments of a part, whose workers are held, and waits
// until they are.
func (s *cast) begun(ctx context.Context, name string) error {
	list := s.playing(name)
	if err := s.book(ctx, kindBook, list); err != nil {
		return err
	}
	return awaitMet(ctx, s.env, name, 1, len(list), "appointments whose worker was held")
}

// others has somebody else's events appear over the appointments of a part, or go.
func (s *cast) others(ctx context.Context, name string, gone bool) error {
	var c provider.Config
	for _, n := range s.playing(name) {
		e := s.external(n, s.Parts[n].Span)
		if gone {
			e = provider.External{Calendar: e.Calendar, EventID: e.EventID, Remove: true}
		}
		c.External = append(c.External, e)
	}
	return configure(ctx, s.env, c)
}

// movedAway has members move while the check of the old time is on its way back.
func (s *cast) movedAway(ctx context.Context) error {
	if err := s.others(ctx, partRefusedMoved, false); err != nil {
		return err
	}
	letGo := s.held(partRefusedMoved, http.MethodGet, harness.MomentAccepted)
	err := s.begun(ctx, partRefusedMoved)
	if err == nil {
		s.each(ctx, kindMove, s.playing(partRefusedMoved), func(n int) harness.Request {
			to := span{s.Parts[n].Span.From + 100*24*60, s.Parts[n].Span.To + 100*24*60}
			return moveTo(n, member(n), s.booked[n].ID, to.in(s.Parts[n].Zone, s.origin), "move")
		})
	}
	letGo()
	if err != nil {
		return err
	}
	return awaitSynced(ctx, s.env)
}

// madeDuringLook has appointments created while the answer to a look at the
// whole calendar is on its way back.
func (s *cast) madeDuringLook(ctx context.Context) error {
	letGo := sync.OnceFunc(s.heldFirst(1, partMeanwhileMade, http.MethodGet, harness.MomentAccepted))
	defer letGo()
	if err := s.env.Advance(ctx, lookInterval+time.Second); err != nil {
		return err
	}
	if err := awaitMet(ctx, s.env, partMeanwhileMade, 1, 1, "looks of reconciliation that were held"); err != nil {
		return err
	}
	list := s.playing(partMeanwhileMade)
	if err := s.book(ctx, kindBook, list); err != nil {
		return err
	}
	if err := awaitCount(ctx, s.env, "they are created", len(list), countSynced, s.ids(partMeanwhileMade)); err != nil {
		return err
	}
	letGo()
	return awaitSynced(ctx, s.env)
}

// lateForTheirClaims has workers held until others have done their work.
func (s *cast) lateForTheirClaims(ctx context.Context) error {
	if err := s.others(ctx, partRefusedLate, false); err != nil {
		return err
	}
	var all []func()
	for _, h := range []struct {
		name, method string
		at           harness.Moment
	}{{partSpentLate, http.MethodPost, harness.MomentReceived}, {partMadeLate, http.MethodPost, harness.MomentAccepted}, {partRefusedLate, http.MethodGet, harness.MomentAccepted}} {
		letGo := sync.OnceFunc(s.held(h.name, h.method, h.at))
		defer letGo()
		all = append(all, letGo)
		if err := s.begun(ctx, h.name); err != nil {
			return err
		}
	}
	s.each(ctx, kindCancel, s.playing(partSpentLate, partMadeLate), s.cancelling)
	if err := s.others(ctx, partRefusedLate, true); err != nil {
		return err
	}
	if err := s.env.Advance(ctx, syncClaim+time.Second); err != nil {
		return err
	}
	late := s.playing(lateParts...)
	if err := awaitCount(ctx, s.env, "others have done the work", len(late), countSynced, s.ids(lateParts...)); err != nil {
		return err
	}
	s.env.Witness("done_by_others", float64(len(late)), float64(len(late)), "appointments that others had synchronised while their first worker was held")
	for _, letGo := range all {
		letGo()
	}
	return awaitLedger(ctx, s.env, "the late creates arrive at the provider", len(s.playing(partSpentLate)), counted(func(c provider.Call) bool {
		return c.Call == provider.Create && slices.ContainsFunc(s.playing(partSpentLate), func(n int) bool { return s.booked[n].EventID == c.EventID })
	}))
}
