package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// retryChoices are what the seed decides about copies of requests.
type retryChoices struct {
	Resource resource `json:"resource"`
	Times    []wish   `json:"times"` // apart from each other
}

func chooseRetries(rng *rand.Rand, p harness.Params) (any, error) {
	c := retryChoices{Resource: chooseResources(rng, p, 1)[0]}
	for n := range 8 {
		from := 9*60 + 5*rng.IntN(80)
		c.Times = append(c.Times, wish{day(n, from, from+30+5*rng.IntN(12)), chooseZone(rng)})
	}
	return c, nil
}

// copiesOf gives n copies of a request, each sent by a client of its own.
func copiesOf(r harness.Request, n int) []harness.Request {
	list := make([]harness.Request, n)
	for i := range list {
		list[i] = r
		list[i].Process = r.Process + i
	}
	return list
}

// lateCopies is how many copies come when everything is long over.
const lateCopies = 3

func sameKeyRetries() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/same-key-retries",
		Title: "each write is sent in twenty identical copies at once, and again later",
		Doc: `A booking, a weekly booking, a move, a move of the series, a reschedule, a booking that is refused, and a cancellation: each comes in copies with one key at one
barrier, as from a client that retries without waiting, and three more come when all are answered. Each has its effect once, and every copy is told the same,
byte for byte; the refused booking stays refused after the time has become free. The same key with another time is 422 key-reused; another member's is a key of its own.`,
		Sources: []string{"C-I1", "C-I2", "C-I3", "C-M2", "C-M3"},
		Params:  []harness.Param{paramCopies, paramReplicas, paramContract},
		Choose:  chooseRetries,
		Drive:   driveRetries,
		Checks: func(p harness.Params) []harness.Check {
			n, want := p.Int(paramCopies.Name), answers.Tallies{"reused": {"422 key-reused": 1}, "another's": {"201": 1}}
			for name, w := range map[string]string{
				"book": "201", "weekly": "201", "move": "200", "move-series": "200", "reschedule": "200", "refused": "409 overlap", "cancel": "200",
			} {
				want[name], want["late "+name] = map[string]int{w: n}, map[string]int{w: lateCopies}
			}
			return append(served(p), sameKeyEffect(),
				words("answers", "every copy is told what the first was told", retryGroup, answers.Fixed(want)),
				appointmentStates("one appointment of each booking, the moved ones once, the cancelled one over", map[string]int{"CREATED": 5, "CANCELLED": 1}))
		},
	}, nil)
}

func retryGroup(op harness.Operation) string {
	if op.Kind == "reused" || op.Kind == "another's" {
		return op.Kind
	}
	return op.Burst
}

// sendCopies releases the copies at one barrier, and the late ones after them.
func sendCopies(ctx context.Context, env harness.Env, name string, r harness.Request) (harness.Operation, error) {
	report, ops, err := env.Burst(ctx, harness.Burst{Name: name, Requests: copiesOf(r, env.Params().Int(paramCopies.Name))})
	if err != nil {
		return harness.Operation{}, err
	}
	answers.WitnessOverlap(env, report)
	return ops[0], lateOnes(ctx, env, name, r)
}

func lateOnes(ctx context.Context, env harness.Env, name string, r harness.Request) error {
	_, _, err := env.Burst(ctx, harness.Burst{Name: "late " + name, Requests: copiesOf(r, lateCopies)})
	return err
}

func driveRetries(ctx context.Context, env harness.Env) error {
	var c retryChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resource); err != nil {
		return err
	}
	me, other, id := member(0), member(1), c.Resource.ID
	at := func(n int) when { return c.Times[n].Span.in(c.Times[n].Zone, o) }
	first, err := sendCopies(ctx, env, "book", book(0, me, id, at(0), "k-book"))
	if err != nil {
		return err
	}
	one, err := appointmentOf(first)
	if err != nil {
		return err
	}
	// The refused one is late again when the time is free.
	refusedOnce := book(0, other, id, at(0), "k-refused")
	if _, _, err := env.Burst(ctx, harness.Burst{Name: "refused", Requests: copiesOf(refusedOnce, env.Params().Int(paramCopies.Name))}); err != nil {
		return err
	}
	env.Do(ctx, answers.As("reused", book(0, me, id, at(1), "k-book")))
	env.Do(ctx, answers.As("another's", book(0, other, id, at(2), "k-book")))
	if _, err := sendCopies(ctx, env, "move", moveTo(0, me, one.ID, at(3), "k-move")); err != nil {
		return err
	}
	if err := lateOnes(ctx, env, "refused", refusedOnce); err != nil {
		return err
	}
	if err := retrySeries(ctx, env, c, o); err != nil {
		return err
	}
	two, err := booked(ctx, env, book(0, me, id, at(4), "k-two"))
	if err != nil {
		return err
	}
	swap := []move{{one.ID, at(4)}, {two.ID, at(3)}}
	if _, err := sendCopies(ctx, env, "reschedule", reschedule(0, me, swap, "k-together")); err != nil {
		return err
	}
	if _, err := sendCopies(ctx, env, "cancel", cancel(0, me, two.ID, "k-cancel")); err != nil {
		return err
	}
	return finish(ctx, env)
}

// retrySeries does the same with a weekly booking, in a zone that has no summer
// time, and a move of all of it.
func retrySeries(ctx context.Context, env harness.Env, c retryChoices, o time.Time) error {
	weekly := c.Times[5].Span.in("Asia/Kolkata", o)
	weekly.Weekly = 3
	op, err := sendCopies(ctx, env, "weekly", book(0, member(2), c.Resource.ID, weekly, "k-weekly"))
	if err != nil {
		return err
	}
	s, err := seriesOf(op)
	if err != nil {
		return err
	}
	_, err = sendCopies(ctx, env, "move-series", moveSeries(0, member(2), s.SeriesID, c.Times[6].Span.in("Asia/Kolkata", o), "k-series"))
	return err
}

// sameKeyEffect: of all requests with one key at most one left its mark in the
// history, and each appointment that it is about has one.
func sameKeyEffect() harness.Check {
	const doc = "a key has its effect once, however often it is sent"
	return funcCheck("keys.effect", doc, "retries.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:appointment_audit")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the history could not be read")
		}
		scope := map[string]string{} // by operation
		for _, op := range rec.History.Operations {
			if kind := operationType[callOf(op)]; kind != "" && op.Key != "" {
				scope[op.ID] = fmt.Sprintf("%s %s %s", op.Caller, kind, op.Key)
			}
		}
		marks := map[string]string{} // by key and appointment: the operation
		var wrong []harness.Evidence
		for _, r := range rows.Rows {
			op := text(r, "overbook_op")
			event := text(r, "event")
			if scope[op] == "" || event == "CREATED" || event == "REJECTED" { // these are the server's own
				continue
			}
			mark := scope[op] + " on " + text(r, "appointment_id")
			if event == "BOOKED" {
				mark = scope[op] + " number " + fmt.Sprint(whole(r, "seq")) + text(r, "during")
			}
			if before, twice := marks[mark]; twice {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("%s: %s a second time", mark, event), Ops: []string{before, op}})
			}
			marks[mark] = op
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case len(marks) == 0:
			return harness.Undecided(harness.ReasonVacuous, "no key left a mark")
		}
		return harness.Passed("%s: %d marks", doc, len(marks))
	})
}
