package calendar

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// How the provider is down.
const (
	downUnavailable = "unavailable" // it answers 503
	downUnreachable = "unreachable" // connections are reset before a call arrives
	downParked      = "parked"      // 503, until what failed is parked
)

var paramDown = harness.Param{
	Name: "down", Kind: harness.ChoiceParam, Default: downUnavailable, Values: []string{downUnavailable, downUnreachable, downParked},
	Doc: "how the provider is down: it answers 503, connections are reset before a call arrives, or it answers 503 until everything that failed is parked for staff",
}

// Parts around an outage.
const (
	partNew          = "new" // booked in it
	partNewMoved     = "new-moved"
	partNewCancelled = "new-cancelled"
	partStays        = "stays" // created before, and left alone
	partLate         = "late"  // booked when it is over
)

// Kinds of what is done in an outage and after.
const (
	kindBookDown   = "book-while-down"
	kindBookLate   = "book-late"
	kindReadParked = "read-parked"
	kindNotParked  = "sync-not-parked"
)

const downParkAfter = 3 // attempts, where they are parked

// troubled are the parts that the provider has to hear of in the outage.
var troubled = []string{partNew, partNewMoved, partNewCancelled, partMoved, partCancelled}

func providerDown() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/provider-down",
		Title: "the provider is down for a while, and comes back",
		Doc: `Members book, move and cancel while every call of the provider fails, as it answers 503 or can't be reached: all of them are answered as ever, and what the provider has to hear of
is tried again and again. When it is back everything is brought to it: each event once, at its last time; what was cancelled is gone. Where attempts fail so often that they
are parked, staff see it, nothing is tried by itself any more, and they have each tried again.`,
		Sources: []string{"C-I2", "C-I3", "C-I8", "C-M3"},
		Params:  []harness.Param{with(paramEach, "4"), paramDown, paramReplicas, paramContract},
		Choose:  chooseParts(theParts(append([]string{partStays, partLate}, troubled...)...)),
		Topology: func(p harness.Params) harness.Topology {
			server := map[string]string{"CALENDAR_TIMEOUT": longCall.String()}
			if p[paramDown.Name] == downParked {
				server["CALENDAR_PARK_AFTER"] = strconv.Itoa(downParkAfter)
			}
			return topology(p, server)
		},
		Drive: driveDown,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramEach.Name)
			want := answers.Tallies{kindBook: {"201": 3 * n}, kindBookDown: {"201": 3 * n}, kindBookLate: {"201": n}, kindMove: {"200": 2 * n}, kindCancel: {"200": 2 * n}}
			list := append(served(p), neverMadeAgain(),
				ends("everything comes to the provider in the end", map[string]string{
					partNew: "CREATED", partNewMoved: "CREATED", partNewCancelled: "CANCELLED", partMoved: "CREATED", partCancelled: "CANCELLED", partStays: "CREATED", partLate: "CREATED",
				}),
				saw("each event is made once, and moved once", map[string][]string{
					partNew: {"create created"}, partNewMoved: {"create created"}, partNewCancelled: {""}, partMoved: {"create created, update updated"}, partCancelled: {"create created"}, partStays: {"create created"}, partLate: {"create created"},
				}))
			if p[paramDown.Name] == downParked {
				want = plus(want, answers.Tallies{kindReadParked: {"200": 5 * n}, kindSync: {"200": 5 * n}, kindNotParked: {"409 not-parked": n}})
				list = append(list, parkedIsTold())
			}
			return append(list, kinds("members are served as ever, and staff can have what is parked tried again", want))
		},
	}, nil)
}

func driveDown(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	if err := s.book(ctx, kindBook, s.playing(partMoved, partCancelled, partStays)); err != nil {
		return err
	}
	if err := awaitSynced(ctx, env); err != nil {
		return err
	}
	up := func() {}
	if env.Params()[paramDown.Name] == downUnreachable {
		up = reset(env, downUnreachable, "", "", harness.MomentReceived)
		defer up()
	} else if err := s.behave(ctx, func(b *provider.Behaviour) { b.Mode = provider.Down }, provider.Config{}); err != nil {
		return err
	}
	if err := s.inOutage(ctx); err != nil {
		return err
	}
	up()
	if err := declare(ctx, env, s.Resources...); err != nil {
		return err
	}
	if env.Params()[paramDown.Name] == downParked {
		if err := s.unpark(ctx); err != nil {
			return err
		}
	} else if err := s.book(ctx, kindBookLate, s.playing(partLate)); err != nil {
		return err
	}
	if err := env.Advance(ctx, 2*time.Minute); err != nil { // over every pause between two attempts
		return err
	}
	return finish(ctx, env)
}

// inOutage is what members do while the provider is down. Each appointment's
// synchronisation has failed at the end of it.
func (s *cast) inOutage(ctx context.Context) error {
	created := []string{partNew, partNewMoved, partNewCancelled}
	if err := s.book(ctx, kindBookDown, s.playing(created...)); err != nil {
		return err
	}
	if err := awaitCount(ctx, s.env, "every creation has failed", len(s.playing(created...)), countFailing, s.ids(created...)); err != nil {
		return err
	}
	s.each(ctx, kindMove, s.playing(partMoved, partNewMoved), s.moving)
	s.each(ctx, kindCancel, s.playing(partCancelled, partNewCancelled), s.cancelling)
	all, count, what := len(s.playing(troubled...)), countFailing, "every synchronisation has failed"
	if s.env.Params()[paramDown.Name] == downParked {
		count, what = countParked, "every synchronisation is parked"
	}
	if err := awaitCount(ctx, s.env, what, all, count, s.ids(troubled...)); err != nil {
		return err
	}
	s.env.Witness("failed_in_the_outage", float64(all), float64(all), "appointments whose synchronisation had failed in the outage")
	return nil
}

// unpark has staff see what is parked, and have it tried again. Before that it
// stays parked, although the provider is back and others' events are created.
func (s *cast) unpark(ctx context.Context) error {
	if err := s.book(ctx, kindBookLate, s.playing(partLate)); err != nil {
		return err
	}
	if err := awaitCount(ctx, s.env, "what is new is created", len(s.playing(partLate)), countSynced, s.ids(partLate)); err != nil {
		return err
	}
	parked := s.playing(troubled...)
	n, err := countNow(ctx, s.env, countParked, s.ids(troubled...))
	if err != nil {
		return err
	}
	s.env.Witness("stayed_parked", float64(len(parked)), float64(n), "appointments that were still parked when the provider was back and others had been created")
	byStaff := func(request func(process int, who, id string) harness.Request) func(n int) harness.Request {
		return func(n int) harness.Request { return request(staffProcess+n, staff(0), s.booked[n].ID) }
	}
	s.each(ctx, kindReadParked, parked, byStaff(read))
	s.each(ctx, kindSync, parked, byStaff(syncAgain))
	s.each(ctx, kindNotParked, s.playing(partStays), byStaff(syncAgain))
	return awaitSynced(ctx, s.env)
}

// parkedIsTold: staff are told of what is parked.
func parkedIsTold() harness.Check {
	const doc = "staff are told of each appointment whose synchronisation is parked that it is"
	return funcCheck("answers.parked", doc, "faults_down.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		list := rec.History.OfKind(kindReadParked)
		for _, op := range list {
			if a, err := appointmentOf(op); op.Status == http.StatusOK && (err != nil || a.Sync != "PARKED") {
				wrong = append(wrong, answers.About(op, fmt.Sprintf("sync is %q", a.Sync)))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case len(list) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody asked")
		}
		return harness.Passed("%s: %d answers", doc, len(list))
	})
}
