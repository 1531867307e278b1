package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// retryAfter is what the provider asks for, in server time.
const retryAfter = 10 * time.Minute

// Parts and kinds around a time in which a calendar is not to be called.
const (
	partLimited = "limited" // meets a 429
	partStill   = "still"   // of the other resource, in the second half

	kindStill     = "book-still"
	kindQuietFrom = "resource-quiet"
	kindQuietTo   = "resource-quiet-still"
)

func rateLimit() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/rate-limit",
		Title: "the provider says 429 and when to come again, and is not called before",
		Doc: `The final checks of several appointments at once are answered 429 with a Retry-After of ten minutes. Until these are over, in server time, no call about that calendar is made, whoever
books, moves or cancels, and whatever reconciliation would look at; another resource goes on. No failed attempt is counted for it: one would be parked at once here. Then
everything is brought to the provider.`,
		Sources: []string{"C-I3", "C-I8"},
		Params:  []harness.Param{atMost(paramEach, handsOfReplica), paramReplicas, paramContract},
		Choose: chooseRoles(2, func(p harness.Params) []role {
			n := p.Int(paramEach.Name)
			return []role{{partLimited, 0, n}, {partMoved, 0, n}, {partCancelled, 0, n}, {partMeanwhile, 0, n}, {partElsewhere, 1, n}, {partStill, 1, n}}
		}),
		Topology: func(p harness.Params) harness.Topology {
			return topology(p, map[string]string{"CALENDAR_TIMEOUT": longCall.String(), "CALENDAR_PARK_AFTER": "1"})
		},
		Drive: driveRate,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramEach.Name)
			return append(served(p), quietIsKept(),
				kinds("members are served as ever", answers.Tallies{
					kindBook: {"201": 3 * n}, kindBookMeanwhile: {"201": n}, kindElsewhere: {"201": n}, kindStill: {"201": n}, kindMove: {"200": n}, kindCancel: {"200": n},
				}),
				resourcesTold("staff see what waits", map[string]string{kindQuietTo: fmt.Sprintf("RUNNING, 0 unresolved, %d pending", 4*n)}),
				ends("everything is brought to the provider, and nothing was parked", map[string]string{
					partLimited: "CREATED", partMoved: "CREATED", partCancelled: "CANCELLED", partMeanwhile: "CREATED", partElsewhere: "CREATED", partStill: "CREATED",
				}))
		},
	}, nil)
}

func driveRate(ctx context.Context, env harness.Env) error {
	s, err := assemble(ctx, env)
	if err != nil {
		return err
	}
	if err := s.book(ctx, kindBook, s.playing(partMoved, partCancelled)); err != nil {
		return err
	}
	if err := awaitSynced(ctx, env); err != nil {
		return err
	}
	if err := s.limit(ctx); err != nil {
		return err
	}
	if err := s.elsewhere(ctx, partElsewhere, kindElsewhere); err != nil { // by then no call is on its way any more
		return err
	}
	s.look(ctx, kindQuietFrom, 0)
	if err := s.book(ctx, kindBookMeanwhile, s.playing(partMeanwhile)); err != nil {
		return err
	}
	s.each(ctx, kindMove, s.playing(partMoved), s.moving)
	s.each(ctx, kindCancel, s.playing(partCancelled), s.cancelling)
	if err := env.Advance(ctx, retryAfter/2); err != nil {
		return err
	}
	if err := s.elsewhere(ctx, partStill, kindStill); err != nil {
		return err
	}
	s.look(ctx, kindQuietTo, 0)
	if err := env.Advance(ctx, retryAfter); err != nil {
		return err
	}
	if err := awaitCount(ctx, env, "what waited is done, or parked", len(s.playing(partLimited, partMeanwhile)), countOver, s.ids(partLimited, partMeanwhile)); err != nil {
		return err
	}
	return finish(ctx, env)
}

// elsewhere has the other resource's appointments booked, and waits until the
// provider has them.
func (s *cast) elsewhere(ctx context.Context, name, kind string) error {
	if err := s.book(ctx, kind, s.playing(name)); err != nil {
		return err
	}
	return awaitCount(ctx, s.env, "the other resource's are created", len(s.playing(name)), countSynced, s.ids(name))
}

// limit has the final checks of appointments meet a 429 at once, and waits until
// nothing of that calendar is under way any more.
func (s *cast) limit(ctx context.Context) error {
	limited := s.playing(partLimited)
	letGo := pause(s.env, heldCall, http.MethodGet, "/freebusy", harness.MomentReceived)
	defer letGo()
	if err := s.book(ctx, kindBook, limited); err != nil {
		return err
	}
	if err := awaitMet(ctx, s.env, heldCall, 1, len(limited), "final checks that were under way when the limit began"); err != nil {
		return err
	}
	limit := provider.RateLimit{RetryAfterS: int(retryAfter / time.Second), For: 1_000_000}
	if err := s.behave(ctx, func(b *provider.Behaviour) { b.RateLimit = &limit }, provider.Config{}); err != nil {
		return err
	}
	letGo()
	const countQuiet = `select count(*) as n from accounts where quiet_until is not null and not exists (select from syncs where claim is not null)`
	if err := awaitCount(ctx, s.env, "the servers know that they have to wait, and nothing is claimed", 1, countQuiet); err != nil {
		return err
	}
	refused := 0
	for _, c := range s.env.Upstream(provider.Name).Calls() {
		if c.Status == http.StatusTooManyRequests && c.Path == "/freebusy" {
			refused++
		}
	}
	s.env.Witness("told_429", float64(len(limited)), float64(refused), "final checks that were answered 429")
	return declare(ctx, s.env, s.Resources...) // who calls too early is not stopped by the provider
}

// calendarInBody is the calendar that a call names in its body, "" for none.
func calendarInBody(c harness.UpstreamCall) string {
	var body struct {
		Calendar string `json:"calendar"`
	}
	_ = json.Unmarshal([]byte(c.Request), &body) // one that can't be read names none
	return body.Calendar
}

// quietIsKept: no call about the calendar before Retry-After is over.
func quietIsKept() harness.Check {
	const doc = "no call about a calendar is made before the time is over for which the provider asked"
	return funcCheck("C-quiet", doc, "faults_rate.go", false, func(rec harness.Record) harness.Verdict {
		var c castChoices
		if rec.Plan.Decode(&c) != nil || len(c.Resources) == 0 {
			return harness.Undecided(harness.ReasonAssumption, "the plan has no resources")
		}
		calls, ok := callsBetween(rec, c.Resources[0].Calendar, kindQuietFrom, kindQuietTo)
		if !ok {
			return harness.Undecided(harness.ReasonVacuous, "there was no such time")
		}
		var wrong []harness.Evidence
		for _, u := range calls {
			wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("call %d by %s: %s %s", u.Seq, u.Caller, u.Method, u.Path)})
		}
		if len(wrong) > 0 {
			return harness.Violated(answers.Few(wrong), "%s: %d were; %s", doc, len(wrong), wrong[0].Text)
		}
		return harness.Passed("%s: none", doc)
	})
}
