package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

type activationChoices struct {
	Resources []resource `json:"resources"`
	From      int        `json:"from"` // minute of the day at which everybody books
	Order     []int      `json:"order"`
}

// slowList is how long the provider takes for the one look of an activation,
// where two of them must meet.
const slowList = 150 // milliseconds

func activation() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/activation",
		Title: "resources are activated at once, while the provider is down, and not at all, and everybody tries to book",
		Doc: `Nothing is bookable before staff have named the guarantees and the calendar could be read. First the provider is down, then it takes no token: each activation is answered 503 with the
reason and when to come again, the resource stays inactive, and whoever books is refused. A fresh refresh token helps. Then two resources are activated at one barrier, with a
provider that takes its time: they come one after the other, or one is told 409 activation-busy and which one is at it; who books meanwhile is refused. At last
one is deactivated with an appointment on its way: no more bookings, and the appointment is created all the same; and activated again under another policy.`,
		Sources: []string{"C-I3", "C-I7", "C-I8"},
		Params:  []harness.Param{upTo(with(paramRounds, "4"), 100), paramReplicas, paramContract},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			return activationChoices{Resources: chooseResources(rng, p, 1+2*rounds(p)), From: 8*60 + rng.IntN(600), Order: rng.Perm(2 * rounds(p))}, nil
		},
		Drive:   driveActivation,
		Latency: kindActivate,
		Checks: func(p harness.Params) []harness.Check {
			n := rounds(p)
			return append(always(p), oneAtATime(), busyNamesTheOther(), nothingBeforeActivation(),
				words("answers", "each step is told what it should be", activationGroup, answers.Fixed(answers.Tallies{
					"before":           {"409 resource-inactive": 3},
					"while down":       {"503 provider-unavailable": 1},
					"without a token":  {"503 authorisation-failed": 1},
					"with a token":     {"200": 1},
					"twice":            {"409 already-active": 1},
					"after":            {"201": 1 + 2*n},
					"off":              {"200": 1},
					"off twice":        {"409 not-active": 1},
					"when off":         {"409 resource-inactive": 1},
					"on again":         {"200": 1},
					"on again, booked": {"201": 1},
				})),
				among("answers.together", "of two activations at once each is answered 200, or 409 activation-busy", "activation.go", map[string][]string{
					kindActivate: {"200", "409 activation-busy"}, "early": {"409 resource-inactive", "201"},
				}),
				onlyCreated(), createdWhileOff(), resourcesAreActive())
		},
	}, nil)
}

func activationGroup(op harness.Operation) string {
	switch op.Kind {
	case "before", "while down", "without a token", "with a token", "twice", "after", "off", "off twice", "when off", "on again", "on again, booked":
		return op.Kind
	}
	return ""
}

func driveActivation(ctx context.Context, env harness.Env) error {
	var c activationChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := declare(ctx, env, c.Resources...); err != nil {
		return err
	}
	for _, r := range c.Resources {
		if err := need(ctx, env, addResource(r), http.StatusCreated); err != nil {
			return err
		}
	}
	d := &activationDrive{c: c, origin: o}
	if err := d.hardWay(ctx, env, c.Resources[0]); err != nil {
		return err
	}
	for round := range rounds(env.Params()) {
		one, other := c.Resources[1+c.Order[2*round]], c.Resources[1+c.Order[2*round+1]]
		if err := d.together(ctx, env, round, one, other); err != nil {
			return err
		}
	}
	if err := d.offAndOn(ctx, env, c.Resources[0]); err != nil {
		return err
	}
	return finish(ctx, env)
}

// An activationDrive books times that nobody else has, one day after the other.
type activationDrive struct {
	c      activationChoices
	origin time.Time
	booked int
}

// book is somebody's booking of the resource, whether or not it can be had.
func (d *activationDrive) book(kind string, r resource) harness.Request {
	d.booked++
	return answers.As(kind, book(d.booked, member(d.booked), r.ID, day(d.booked, d.c.From, d.c.From+30).in("Etc/UTC", d.origin), "booking"))
}

// hardWay activates a resource whose provider is down, and then takes no token.
func (d *activationDrive) hardWay(ctx context.Context, env harness.Env, r resource) error {
	down := behaviour(r)
	down.Mode = provider.Down
	up := map[string]provider.Behaviour{r.Calendar: behaviour(r)}
	env.Do(ctx, d.book("before", r))
	if err := configure(ctx, env, provider.Config{Calendars: map[string]provider.Behaviour{r.Calendar: down}}); err != nil {
		return err
	}
	env.Do(ctx, answers.As("while down", activate(staffProcess, staff(0), r, "")))
	env.Do(ctx, d.book("before", r))
	if err := configure(ctx, env, provider.Config{Calendars: up, Revoke: []string{r.Calendar}}); err != nil {
		return err
	}
	env.Do(ctx, answers.As("without a token", activate(staffProcess, staff(0), r, "")))
	env.Do(ctx, d.book("before", r))
	fresh := r.RefreshToken + "-fresh"
	if err := configure(ctx, env, provider.Config{Grant: []provider.Grant{{Calendar: r.Calendar, RefreshToken: fresh}}}); err != nil {
		return err
	}
	env.Do(ctx, answers.As("with a token", activate(staffProcess, staff(0), r, fresh)))
	env.Do(ctx, answers.As("twice", activate(staffProcess, staff(0), r, "")))
	env.Do(ctx, d.book("after", r))
	return nil
}

// together activates two resources at one barrier, while somebody books each
// of them, and then the one that was told to wait.
func (d *activationDrive) together(ctx context.Context, env harness.Env, round int, one, other resource) error {
	slow := map[string]provider.Behaviour{}
	for _, r := range []resource{one, other} {
		b := behaviour(r)
		b.LatencyMS = map[string]float64{provider.List: slowList, provider.Freebusy: slowList}
		slow[r.Calendar] = b
	}
	if err := configure(ctx, env, provider.Config{Calendars: slow}); err != nil {
		return err
	}
	report, ops, err := env.Burst(ctx, harness.Burst{Name: roundName(round), Requests: []harness.Request{
		activate(staffProcess, staff(0), one, ""), activate(staffProcess+1, staff(1), other, ""), d.book("early", one), d.book("early", other),
	}})
	if err != nil {
		return err
	}
	answers.WitnessOverlap(env, report)
	if err := declare(ctx, env, one, other); err != nil {
		return err
	}
	for i, r := range []resource{one, other} {
		if answers.Word(ops[i]) == "409 activation-busy" {
			if err := need(ctx, env, activate(staffProcess, staff(0), r, ""), http.StatusOK); err != nil {
				return err
			}
		}
		env.Do(ctx, d.book("after", r))
	}
	return nil
}

// offAndOn deactivates a resource with an appointment on its way, and activates
// it again under the other policy.
func (d *activationDrive) offAndOn(ctx context.Context, env harness.Env, r resource) error {
	down := behaviour(r)
	down.Mode = provider.Down
	if err := configure(ctx, env, provider.Config{Calendars: map[string]provider.Behaviour{r.Calendar: down}}); err != nil {
		return err
	}
	again := d.book("on its way", r)
	a, err := booked(ctx, env, again)
	if err != nil {
		return err
	}
	env.Do(ctx, answers.As("off", deactivate(staffProcess, staff(0), r.ID)))
	env.Do(ctx, answers.As("off twice", deactivate(staffProcess, staff(0), r.ID)))
	env.Do(ctx, d.book("when off", r))
	if err := declare(ctx, env, r); err != nil { // it is up again
		return err
	}
	if late := awaitState(ctx, env, a.ID, "CREATED"); late != nil {
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "not created while it is off", Text: late.Error()})
	}
	env.Do(ctx, answers.As(kindWhileOff, read(again.Process, again.Caller, a.ID)))
	other := r
	other.Policy = policyKeep
	env.Do(ctx, answers.As("on again", activate(staffProcess, staff(0), other, "")))
	env.Do(ctx, d.book("on again, booked", r))
	return nil
}

// onlyCreated: whatever was booked stands at the provider.
func onlyCreated() harness.Check {
	const doc = "whatever was booked is created"
	return bookCheck("states", doc, "activation.go", true, func(b books) (wrong []harness.Evidence, judged int) {
		for id, a := range b.appointments {
			if judged++; text(a, "state") != "CREATED" {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("appointment %s is %s", id, text(a, "state")), Ops: opOf(a)})
			}
		}
		return wrong, judged
	})
}

// kindWhileOff is a member's look at what was booked before the resource was
// deactivated, before it is active again.
const kindWhileOff = "appointment-while-off"

// createdWhileOff: what is booked goes on being synchronised.
func createdWhileOff() harness.Check {
	const doc = "what was booked before its resource was deactivated is created while that is off"
	return funcCheck("C-I8.off", doc, "activation.go", false, func(rec harness.Record) harness.Verdict {
		list := rec.History.OfKind(kindWhileOff)
		if len(list) == 0 {
			return harness.Undecided(harness.ReasonUndelivered, "nobody looked")
		}
		if a, err := appointmentOf(list[0]); err != nil || a.State != "CREATED" {
			return harness.Violated([]harness.Evidence{answers.About(list[0], "is "+orNone(a.State))}, "%s: it is %s", doc, orNone(a.State))
		}
		return harness.Passed("%s", doc)
	})
}

// activations are the operations that activate, whatever their kind.
func activations(rec harness.Record) []harness.Operation {
	var list []harness.Operation
	for _, op := range rec.History.Operations {
		if callOf(op) == callActivate {
			list = append(list, op)
		}
	}
	return list
}

// busyNamesTheOther: who is told to wait is told for which resource, and that
// one was being activated at that time.
func busyNamesTheOther() harness.Check {
	const doc = "409 activation-busy names the resource that was being activated meanwhile"
	return funcCheck("answers.busy", doc, "activation.go", false, func(rec harness.Record) harness.Verdict {
		all := activations(rec)
		var wrong []harness.Evidence
		for _, op := range all {
			if answers.Word(op) != "409 activation-busy" {
				continue
			}
			var doc struct {
				ResourceID int64 `json:"resource_id"`
			}
			_ = op.Decode(&doc) // 0 names nobody
			so := slices.ContainsFunc(all, func(o harness.Operation) bool {
				return target(o) == fmt.Sprint(doc.ResourceID) && target(o) != target(op) && o.Sent < op.Answered && (o.Answered == 0 || o.Answered > op.Sent)
			})
			if !so {
				wrong = append(wrong, answers.About(op, "names nobody who was being activated"))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case len(all) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nothing was activated")
		}
		return harness.Passed("%s: %d activations", doc, len(all))
	})
}

// oneAtATime: the looks of two activations at the provider never overlap. The
// first GET /events of a calendar is its activation's.
func oneAtATime() harness.Check {
	const doc = "the provider is never asked about two calendars for activations at the same time"
	return funcCheck("C-I8.one", doc, "activation.go", false, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		seen := map[string]harness.UpstreamCall{} // by calendar: its first look
		var wrong []harness.Evidence
		for _, c := range rec.Calls(provider.Name, http.MethodGet, "/events") {
			name := calendarIn(c)
			if _, again := seen[name]; again || b.calendars[name] == nil || c.Status != http.StatusOK {
				continue
			}
			for other, o := range seen {
				if o.Received < c.Answered && c.Received < o.Answered {
					wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("call %d looked at %s while call %d looked at %s", c.Seq, name, o.Seq, other)})
				}
			}
			seen[name] = c
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case len(seen) < 2:
			return harness.Undecided(harness.ReasonVacuous, "fewer than two calendars were looked at")
		}
		return harness.Passed("%s: %d calendars", doc, len(seen))
	})
}

// nothingBeforeActivation: no booking was answered 201 before an activation of
// its resource could have succeeded.
func nothingBeforeActivation() harness.Check {
	const doc = "no booking is accepted before its resource's activation was sent, and none that was answered before any activation was"
	return funcCheck("C-I8.inactive", doc, "activation.go", false, func(rec harness.Record) harness.Verdict {
		all := activations(rec)
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			if callOf(op) != callBook || op.Status != http.StatusCreated {
				continue
			}
			judged++
			may := slices.ContainsFunc(all, func(a harness.Operation) bool {
				return target(a) == target(op) && a.Sent < op.Answered && (a.Status == http.StatusOK || a.Status == 0)
			})
			if !may {
				wrong = append(wrong, answers.About(op, "accepted, and no activation had been sent"))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "nothing was booked")
		}
		return harness.Passed("%s: %d bookings", doc, judged)
	})
}

// resourcesAreActive: at the end every resource is active, under the guarantees
// of its last activation, as staff are told.
func resourcesAreActive() harness.Check {
	const doc = "at the end staff are told of each resource that it is active, under the guarantees of its last activation, with creation running and nothing pending"
	return funcCheck("answers.resources", doc, "activation.go", true, func(rec harness.Record) harness.Verdict {
		last := map[string]map[string]any{} // by resource: what its last activation named
		for _, op := range activations(rec) {
			if op.Status == http.StatusOK {
				last[target(op)] = inputOf(op)
			}
		}
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.OfKind(kindResource) {
			r, err := resourceOf(op)
			want := last[target(op)]
			judged++
			if err != nil || r.State != "ACTIVE" || r.Creation != "RUNNING" || r.Pending != 0 || r.Unresolved != 0 ||
				r.Contract != want["provider_contract"] || r.Policy != want["conflict_policy"] || float64(r.Limit) != want["conflict_limit"] {
				wrong = append(wrong, answers.About(op, "differs"))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "staff were told of no resource")
		}
		return harness.Passed("%s: %d", doc, judged)
	})
}

// calendarIn is the calendar that a call names in its query.
func calendarIn(c harness.UpstreamCall) string {
	q, err := url.ParseQuery(c.Query)
	if err != nil {
		return ""
	}
	return q.Get("calendar")
}
