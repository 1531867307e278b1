package calendar

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// A badWorld is what there is to ask badly about. Everything of it is at rest.
type badWorld struct {
	origin       time.Time
	now          time.Time
	open, closed resource          // the other one is not active
	mine, other  appointmentAnswer // of member 1, and of member 2
	over         appointmentAnswer // of member 1, cancelled
	begun        appointmentAnswer // of member 1
	series       seriesAnswer      // of member 1
	conflict     conflictAnswer    // of an appointment of member 3
	kept         string            // a conflict that was resolved
	free         span
}

// A bad request is one that must change nothing, and what its sender is told.
type bad struct {
	name string
	want string // in the words of answers.Word
	make func(w badWorld) harness.Request
}

func badInput() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/bad-input",
		Title: "times that are none, appointments of others, and requests that can't be read or that nobody may make",
		Doc: `An active resource under the policy keep-and-flag with appointments of several members, one cancelled, one begun, one with a conflict that staff have not decided and one with a conflict that
they have; and a resource that is not active. Then a long list of requests, a few at once: times that are no times, too long, begun or beyond the horizon; zones that are none; what is
somebody else's, over, or unknown; reschedules of nothing, of too much, of one appointment twice, or half of which can't be; decisions that are none; no key, two keys, no token,
the wrong one; bodies of another shape. Each is answered with its status and problem type, and no row of what members and staff did has changed.
While all this is prepared, each call of the provider is held, as it comes, until the transactions that its server has open have ended: none may last as long as the call.`,
		Sources: []string{"C-I1", "C-I5", "C-I6"},
		Params:  []harness.Param{paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := badChoices{Resources: chooseResources(rng, p, 2), Order: rng.Perm(len(badRequests()))}
			for i := range c.Resources {
				c.Resources[i].Policy = policyKeep
			}
			return c, nil
		},
		Drive: driveBad,
		Checks: func(p harness.Params) []harness.Check {
			want := answers.Tallies{}
			for _, b := range badRequests() {
				want["bad "+b.name] = map[string]int{b.want: 1}
			}
			return append(served(p),
				words("answers", "each is told what is wrong with its request", badKind, answers.Fixed(want)),
				answers.Problems(where+"/bad_input.go"), nothingChanged(), noTransactionDuringCalls())
		},
	}, map[string]string{"CALENDAR_TIMEOUT": longCall.String()}) // longer than a call is held for transactions: a server that waits for itself must not end it first
}

// badChoices are what the seed decides.
type badChoices struct {
	Resources []resource `json:"resources"`
	Order     []int      `json:"order"`
}

func badKind(op harness.Operation) string {
	if strings.HasPrefix(op.Kind, "bad ") {
		return op.Kind
	}
	return ""
}

func badRequests() []bad {
	return slices.Concat(badTimes, badBookings, badMoves, badReschedules, badResources, badConflicts, badStrangers(), badKeys, badBodies)
}

func driveBad(ctx context.Context, env harness.Env) error {
	var c badChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	done := holdCalls(env) // before anybody waits for anybody else
	w, err := makeBadWorld(ctx, env, c, o)
	done() // also when it failed: a server that waits for itself makes nothing of the world, and is judged by that
	if err != nil {
		return err
	}
	if err := noteDigest(ctx, env, "before the bad requests"); err != nil {
		return err
	}
	all := badRequests()
	var requests []harness.Request
	for process, i := range c.Order {
		r := all[i].make(w)
		r.Kind, r.Process = "bad "+all[i].name, process
		if r.Header[idempotencyKey] == "bad" { // a key of its own: a refusal may be stored
			r = answers.WithHeader(r, idempotencyKey, "bad-"+all[i].name)
		}
		requests = append(requests, r)
	}
	told := 0.0
	for _, op := range env.DoAll(ctx, requests, 8) {
		told += answers.Once(op.Status != 0)
	}
	env.Witness("answered", float64(len(all)), told, "bad requests that were answered")
	if err := noteDigest(ctx, env, "after the bad requests"); err != nil {
		return err
	}
	return finish(ctx, env)
}

// makeBadWorld makes what there is to ask badly about.
func makeBadWorld(ctx context.Context, env harness.Env, c badChoices, o time.Time) (w badWorld, err error) {
	w = badWorld{origin: o, open: c.Resources[0], closed: c.Resources[1], free: day(20, 600, 660)}
	if err = setUp(ctx, env, w.open); err != nil {
		return w, err
	}
	if err = need(ctx, env, addResource(w.closed), 201); err != nil {
		return w, err
	}
	utc := func(n, from, to int) when { return day(n, from, to).in("Etc/UTC", o) }
	var flagged, decided appointmentAnswer
	for _, p := range []struct {
		to  *appointmentAnswer
		who string
		day int
	}{{&w.mine, member(1), 1}, {&w.other, member(2), 2}, {&w.over, member(1), 3}, {&flagged, member(3), 4}, {&decided, member(3), 5}} {
		if *p.to, err = booked(ctx, env, book(p.day, p.who, w.open.ID, utc(p.day, 600, 660), fmt.Sprintf("world-%d", p.day))); err != nil {
			return w, err
		}
	}
	weekly := utc(6, 600, 630)
	weekly.Weekly = 2
	if w.series, err = seriesOf(env.Do(ctx, book(1, member(1), w.open.ID, weekly, "world-weekly"))); err != nil {
		return w, err
	}
	if err = need(ctx, env, cancel(1, member(1), w.over.ID, "world-over"), 200); err != nil {
		return w, err
	}
	if w.begun, err = begunNow(ctx, env, w.open); err != nil {
		return w, err
	}
	if err = awaitSynced(ctx, env); err != nil {
		return w, err
	}
	var others []provider.External
	for i, n := range []int{4, 5} {
		s := day(n, 630, 700)
		others = append(others, provider.External{Calendar: w.open.Calendar, EventID: fmt.Sprintf("other-%d", i), Start: s.start(o), End: s.end(o)})
	}
	if err = configure(ctx, env, provider.Config{External: others}); err != nil {
		return w, err
	}
	list, err := awaitConflicts(ctx, env, 2)
	if err != nil {
		return w, err
	}
	for _, k := range list {
		if k.AppointmentID == flagged.ID {
			w.conflict = k
		} else {
			w.kept = k.ID
		}
	}
	if err = need(ctx, env, resolve(staffProcess, staff(0), w.kept, decisionKeep, "world-keep"), 200); err != nil {
		return w, err
	}
	w.now, err = serverNow(ctx, env)
	return w, err
}

// begunNow books an appointment of member 1 in a few minutes, and moves the
// clock into it.
func begunNow(ctx context.Context, env harness.Env, r resource) (a appointmentAnswer, err error) {
	const ahead = 10 * time.Minute
	now, err := serverNow(ctx, env)
	if err != nil {
		return a, err
	}
	start := now.Truncate(time.Minute).Add(ahead)
	if a, err = booked(ctx, env, book(1, member(1), r.ID, between("Etc/UTC", start, start.Add(2*time.Hour)), "world-begun")); err != nil {
		return a, err
	}
	return a, env.Advance(ctx, ahead+time.Minute)
}

// awaitConflicts waits until so many conflicts are unresolved, and gives them
// as staff see them.
func awaitConflicts(ctx context.Context, env harness.Env, n int) ([]conflictAnswer, error) {
	err := env.Await(ctx, fmt.Sprintf("%d conflicts are found", n), patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, `select 1 from conflicts where resolved_at is null`)
		return len(rows) >= n, fmt.Sprintf("%d are", len(rows)), err
	})
	if err != nil {
		return nil, err
	}
	return conflictsOf(env.Do(ctx, conflicts(staffProcess, staff(0))))
}

// digested are the tables of what members and staff did, without what the
// background changes while it looks at the calendars, and without the answers
// that are kept for keys: a refusal is one.
var digested = map[string]string{
	"resources": "t::text", "appointments": "t::text", "appointment_audit": "t::text", "outbox": "t::text", "conflicts": "t::text",
	"accounts": "t.resource_id || ' ' || t.state || ' ' || t.generation",
}

const subjectDigest = "digest of the tables"

// noteDigest records a digest of each table.
func noteDigest(ctx context.Context, env harness.Env, when string) error {
	attrs := map[string]string{}
	for _, t := range slices.Sorted(maps.Keys(digested)) {
		rows, err := env.Database().Query(ctx, fmt.Sprintf(`select count(*) || ' rows, ' || coalesce(md5(string_agg(%[2]s, '|' order by %[2]s)), '-') as digest from %[1]s t`, t, digested[t]))
		if err != nil {
			return fmt.Errorf("digest of %s: %w", t, err)
		}
		attrs[t] = text(rows[0], "digest")
	}
	env.Record(harness.Event{Kind: harness.EventNote, Subject: subjectDigest, Text: when, Attrs: attrs})
	return nil
}

// nothingChanged compares the digests.
func nothingChanged() harness.Check {
	const doc = "no row of what members and staff did has changed"
	return funcCheck("rows", doc, "bad_input.go", false, func(rec harness.Record) harness.Verdict {
		var digests []map[string]string
		for _, e := range rec.History.Events {
			if e.Subject == subjectDigest {
				digests = append(digests, e.Attrs)
			}
		}
		if len(digests) != 2 {
			return harness.Undecided(harness.ReasonEnvironment, "there are %d digests of the tables, want one before and one after", len(digests))
		}
		var wrong []harness.Evidence
		for _, t := range slices.Sorted(maps.Keys(digests[0])) {
			if digests[0][t] != digests[1][t] {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("%s: %s before, %s after", t, digests[0][t], digests[1][t])})
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(wrong, "%s: %s", doc, wrong[0].Text)
		}
		return harness.Passed("%s: %d tables", doc, len(digests[0]))
	})
}
