package tickets

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// A badWorld is what there is to ask badly about.
type badWorld struct {
	now             time.Time
	show, other     show       // the other one is not on sale yet
	free            string     // a seat of the show
	held, over      holdAnswer // of member 9, and of member 7, who gave it up with a payment in flight
	sold            holdAnswer // of member 8
	waiting, bought payments.Payment
}

// A bad request is one that must change nothing, and what its sender is told.
type bad struct {
	name string
	want string // in the words of answers.Word
	make func(w badWorld) harness.Request
}

func badInput() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/bad-input",
		Title: "callbacks that nobody signed, refunds that nobody is owed, and requests that can't be read or that nobody may make",
		Doc: `A show with a seat that is held, one that is sold, one that was given up while its payment was in flight and whose refund waits, because the provider takes none.
Then a long list of requests, a few at once: callbacks that are forged, replayed or cut off, of no order or about no payment; refunds that are too large, partial, or of a payment that
bought a seat; claims of seats that are taken, unknown or another show's; holds and orders of others; no token, the wrong one, bodies of another shape. Each is
answered with its status and problem type, and no row of any table has changed.`,
		Sources: []string{"S-I2", "S-I5", "S-M16", "S-M18"},
		Params:  []harness.Param{paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := badChoices{Show: chooseShow(rng, p, 6), Other: chooseShow(rng, p, 1), Order: rng.Perm(len(badRequests()))}
			c.Other.ID, c.Other.Seats = c.Show.ID+1, []string{"Z-99"}
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
				answers.Problems(where+"/bad_input.go"), nothingChanged())
		},
		Latency: kindClaim,
	}, map[string]string{"TICKETS_REFUND_BACKOFF": "1h"}) // so that no try changes a row meanwhile
}

// badChoices are what the seed decides.
type badChoices struct {
	Show  show  `json:"show"`
	Other show  `json:"other"`
	Order []int `json:"order"`
}

func badKind(op harness.Operation) string {
	if strings.HasPrefix(op.Kind, "bad ") {
		return op.Kind
	}
	return ""
}

func badRequests() []bad {
	return slices.Concat(badCallbacks, badRefunds, badClaims, badStrangers, badTokens, badBodies)
}

func driveBad(ctx context.Context, env harness.Env) error {
	var c badChoices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	post := newCourier(env)
	w, err := makeBadWorld(ctx, env, c, post)
	if err != nil {
		return err
	}
	if err := noteDigest(ctx, env, digestBefore); err != nil {
		return err
	}
	all := badRequests()
	var requests []harness.Request
	for process, i := range c.Order {
		r := all[i].make(w)
		r.Kind, r.Process = "bad "+all[i].name, process
		requests = append(requests, r)
	}
	told := 0.0
	for _, op := range env.DoAll(ctx, requests, 8) {
		told += answers.Once(op.Status != 0)
	}
	env.Witness("answered", float64(len(all)), told, "bad requests that were answered")
	if err := noteDigest(ctx, env, digestAfter); err != nil {
		return err
	}
	none := 0
	if err := configure(ctx, env, payments.Config{RefundFailFirst: &none}); err != nil {
		return err
	}
	if op := env.Do(ctx, refundNow(staffProcess, staff(0), w.waiting.PaymentID, w.waiting.Captured)); op.Status != 202 {
		return fmt.Errorf("the refund of %s: got %d %s, want 202", w.waiting.PaymentID, op.Status, op.Output)
	}
	return finish(ctx, env, post)
}

// makeBadWorld makes what there is to ask badly about.
func makeBadWorld(ctx context.Context, env harness.Env, c badChoices, post *courier) (w badWorld, err error) {
	w.show, w.other = c.Show, c.Other
	if w.now, err = serverNow(ctx, env); err != nil {
		return w, err
	}
	if err = onSale(ctx, env, c.Show); err != nil {
		return w, err
	}
	if op := env.Do(ctx, createShow(c.Other, w.now.Add(time.Hour))); op.Status != 201 {
		return w, fmt.Errorf("create show %d: got %d %s, want 201", c.Other.ID, op.Status, op.Output)
	}
	all := -1
	if err = configure(ctx, env, payments.Config{RefundFailFirst: &all, Cards: map[string]payments.Behaviour{"card-slow": undecided()}}); err != nil {
		return w, err
	}
	for i, to := range map[int]*holdAnswer{7: &w.over, 8: &w.sold, 9: &w.held} {
		if *to, err = claimed(ctx, env, claim(i, member(i), c.Show.ID, c.Show.Seats[i-7])); err != nil {
			return w, err
		}
	}
	w.free = c.Show.Seats[3]
	env.Do(ctx, charge(8, member(8), w.sold.HoldID, "card-8"))
	env.Do(ctx, charge(7, member(7), w.over.HoldID, "card-slow"))
	env.Do(ctx, release(7, member(7), w.over.HoldID))
	if err = configure(ctx, env, payments.Config{Release: []string{"card-slow"}}); err != nil {
		return w, err
	}
	if _, err = post.deliver(ctx); err != nil {
		return w, err
	}
	ledger, err := ledgerNow(ctx, env)
	if err != nil {
		return w, err
	}
	for _, p := range ledger.Payments {
		if p.Card == "card-slow" {
			w.waiting = p
		} else {
			w.bought = p
		}
	}
	return w, nothingMoves(ctx, env)
}

// nothingMoves waits until no event waits and the refund was tried and refused,
// which put it off for the hour of its back-off: no worker changes a row any more.
func nothingMoves(ctx context.Context, env harness.Env) error {
	return env.Await(ctx, "events are delivered, and the refund was refused", patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, `select 1 from outbox where delivered_at is null
union all select 1 where not exists (select from refunds where next_attempt_at > created_at + interval '30 minutes')
union all select 1 from pg_stat_activity where datname = current_database() and application_name <> 'overbook' and backend_type = 'client backend' and xact_start is not null`)
		return len(rows) == 0, fmt.Sprintf("%d things are open", len(rows)), err
	})
}

// The digests of all tables, before the bad requests and after them.
const (
	subjectDigest = "digest of the tables"
	digestBefore  = "before"
	digestAfter   = "after"
)

// noteDigest records a digest of each table.
func noteDigest(ctx context.Context, env harness.Env, when string) error {
	attrs := map[string]string{}
	for _, t := range tables {
		rows, err := env.Database().Query(ctx, fmt.Sprintf(`select count(*) || ' rows, ' || coalesce(md5(string_agg(t::text, '|' order by t::text)), '-') as digest from %s t`, t))
		if err != nil {
			return fmt.Errorf("digest of %s: %w", t, err)
		}
		attrs[t] = text(rows[0], "digest")
	}
	env.Record(harness.Event{Kind: harness.EventNote, Subject: subjectDigest, Text: when + " the bad requests", Attrs: attrs})
	return nil
}

// nothingChanged compares the digests.
func nothingChanged() harness.Check {
	const doc = "no row of any table has changed"
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

// event is the body of a callback.
func event(kind string, p payments.Payment, change map[string]any) json.RawMessage {
	doc := map[string]any{
		"event_id": "evt-bad-" + kind + p.PaymentID, "type": kind, "payment_id": p.PaymentID, "reference": p.Reference, "intent": p.Intent, "amount": p.Amount, "currency": p.Currency,
	}
	maps.Copy(doc, change)
	body, err := json.Marshal(doc)
	if err != nil {
		panic(err) // words and numbers
	}
	return body
}

// delivery is a callback signed as it should be.
func (w badWorld) delivery(body json.RawMessage) harness.Request {
	return callback(0, body, payments.Sign(secret, w.now, body))
}
