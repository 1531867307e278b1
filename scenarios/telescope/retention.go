package telescope

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
)

// The instants of the retention scenario, each from the one before: within the
// retry window, past it, and past the time for which results are kept.
const (
	untilLate    = 23 * time.Hour
	untilTooLate = 2 * time.Hour                             // 25 hours after the booking
	untilGone    = 8*24*time.Hour - untilLate - untilTooLate // 8 days after it
)

// Kinds of operations of the retention scenario, by when they are made.
const (
	kindLate        = "after-23h"
	kindTooLate     = "after-25h"
	kindLookupLate  = "lookup-after-25h"
	kindLookupGone  = "lookup-after-8d"
	kindAnew        = "after-8d"
	kindAnewFreed   = "freed-after-8d"
	kindFree        = "free"
	kindMemberLooks = "account-after-25h"
)

func retention() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "telescope/retention",
		Title: "a booking is asked for again with its key after 23 hours, 25 hours and 8 days",
		Doc: `The servers' clock is moved. 23 hours after a booking its key still gets the stored answer, byte for byte. After 25 hours the retry is told 409
retry-window-over and nothing is done, but the outcome can be looked up, and the account shows the booking. After 8 days the outcome is gone (404) and the key is as good as new:
who still has the slot is told 409 slot-taken by their own booking, and has it once; who gave it up meanwhile books it anew.`,
		Sources: []string{"T-I3", "T-I4", "T-M16"},
		Params:  []harness.Param{with(paramMailed, "6")},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			return choices{Slots: slotsOfOneMonth(rng, p.Int(paramSlots.Name))}, nil
		},
		Drive: driveRetention,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramSlots.Name)
			freed := n / 2
			return append(served(), storedForADay(), lookedUpForAWeek(), everyEventMailed(mailRules{}),
				words("answers", "each retry is answered as its age asks for", byKind, fixed(tallies{
					kindBook: {"201": n}, kindFree: {"200": freed}, kindLate: {"201": n}, kindTooLate: {"409 retry-window-over": n},
					kindLookupLate: {"200": n}, kindMemberLooks: {"200": n}, kindLookupGone: {"404 unknown-operation": n},
					kindAnew: {"409 slot-taken": n - freed}, kindAnewFreed: {"201": freed},
				})),
				happened("each slot is booked once, those that were given up twice", map[string]int{"CREATED": n, "BOOKED": n + freed, "CANCELLED": freed}))
		},
	}, nil)
}

func driveRetention(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	requests := make([]harness.Request, len(c.Slots))
	var free []harness.Request
	for i, s := range c.Slots {
		requests[i] = book(i, member(i), s.ID, "book")
	}
	for i, op := range env.DoAll(ctx, requests, 4) {
		b, err := bookingOf(op)
		if err != nil {
			return err
		}
		if i < len(c.Slots)/2 {
			free = append(free, as(kindFree, cancel(i, member(i), b.BookingID, "free")))
		}
	}
	all := func(kind string) {
		for _, r := range requests {
			env.Do(ctx, as(kind, r))
		}
	}
	ask := func(kind string) {
		for i := range c.Slots {
			env.Do(ctx, as(kind, lookup(i, member(i), "book", "book")))
		}
	}
	moved := 0
	advance := func(by time.Duration) error {
		if err := quiet(ctx, env); err != nil { // so that no mail is under way for days
			return err
		}
		moved++
		if err := env.Advance(ctx, by); err != nil {
			return err
		}
		return quiet(ctx, env) // what is purged at that age is purged now
	}
	if err := advance(untilLate); err != nil {
		return err
	}
	all(kindLate)
	if err := advance(untilTooLate); err != nil {
		return err
	}
	all(kindTooLate)
	ask(kindLookupLate)
	for i := range c.Slots {
		env.Do(ctx, as(kindMemberLooks, account(i, member(i))))
	}
	env.DoAll(ctx, free, 4)
	if err := advance(untilGone); err != nil {
		return err
	}
	ask(kindLookupGone)
	for i, r := range requests {
		kind := kindAnew
		if i < len(free) {
			kind = kindAnewFreed
		}
		env.Do(ctx, as(kind, r))
	}
	env.Witness("clock_moves", 3, float64(moved), "times that the servers' clock was moved: to 23 hours, 25 hours and 8 days after the bookings")
	return nil
}

// byCaller gives the operations of a kind by who made them.
func byCaller(rec harness.Record, kind string) map[string]harness.Operation {
	list := map[string]harness.Operation{}
	for _, op := range rec.History.OfKind(kind) {
		list[op.Caller] = op
	}
	return list
}

// storedForADay: what a key is answered within 24 hours is the first answer,
// byte for byte. (T-I3 compares only what lies between two moves of the clock.)
func storedForADay() harness.Check {
	const doc = "23 hours later the key has the same answer, byte for byte"
	return funcCheck("T-I3.day", doc, "retention.go", false, func(rec harness.Record) harness.Verdict {
		late := byCaller(rec, kindLate)
		var wrong []harness.Evidence
		for _, op := range rec.History.OfKind(kindBook) {
			if other, asked := late[op.Caller]; asked && other.Status != 0 && (other.Status != op.Status || other.Output != op.Output) {
				wrong = append(wrong, differ(op, other))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d have not", doc, len(wrong), len(late))
		case len(late) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody asked again after 23 hours")
		}
		return harness.Passed("%s: %d", doc, len(late))
	})
}

// lookedUpForAWeek: past the retry window the outcome can still be looked up:
// it is the first answer.
func lookedUpForAWeek() harness.Check {
	const doc = "25 hours later the outcome that is looked up is the first answer"
	return funcCheck("T-I3.week", doc, "retention.go", false, func(rec harness.Record) harness.Verdict {
		first := byCaller(rec, kindBook)
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.OfKind(kindLookupLate) {
			if op.Status != http.StatusOK {
				continue // that it must be 200 is said by "answers"
			}
			var found struct {
				Status int     `json:"status"`
				Body   booking `json:"body"`
			}
			var want booking
			b, asked := first[op.Caller]
			judged++
			if err := op.Decode(&found); err != nil || !asked || json.Unmarshal([]byte(b.Output), &want) != nil || found.Status != b.Status || found.Body != want {
				wrong = append(wrong, differ(b, op))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d are not", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no outcome was looked up after 25 hours")
		}
		return harness.Passed("%s: %s", doc, fmt.Sprint(judged))
	})
}
