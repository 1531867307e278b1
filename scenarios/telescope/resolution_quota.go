package telescope

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/overbook/overbook/harness"
)

// kindRelease is a release that only prepares what is tried.
const kindRelease = "release"

// flaggedTries are the slots that each member tries beside those that they have.
const flaggedTries = 2

// The bursts of the flagged quota.
const (
	whileFlagged  = "flagged"
	afterReleased = "released"
)

func quotaFlagged() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/quota@flagged",
		Title: "members who have two reservations of a month, one of them flagged, book more at once, and again when it is released",
		Doc: `Each member has booked two slots of one month, and staff have closed one of them. A flagged reservation counts: at one barrier every member books two more
slots of that month, free ones that nobody else wants, and all are told 409 quota-exceeded. Staff release the flagged ones, and everybody books the same two again, with new keys:
of each member exactly one is answered 201, the other 409 quota-exceeded.`,
		Sources: []string{"T-I5", "T-I2", "T-M9"},
		Params:  []harness.Param{with(paramUsers, "10"), paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int("users")
			if most := 1200 / (quotaOfMonth + flaggedTries); n > most {
				return nil, fmt.Errorf("users=%d: a month has slots for %d, want at least as many", n, most)
			}
			return choices{Slots: slotsOfOneMonth(rng, n*(quotaOfMonth+flaggedTries)), Orders: [][]int{rng.Perm(n * flaggedTries), rng.Perm(n * flaggedTries)}}, nil
		},
		Drive: driveQuotaFlagged,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			slots := n * (quotaOfMonth + flaggedTries)
			return append(served(), linearizable(),
				words("answers", "no member books while a flagged reservation fills the quota, and each books one slot when it is released", byBurstAndCaller, fixed(flaggedAnswers(n))),
				words("answers.steps", "what prepares it is answered as it should be", byKind, fixed(tallies{
					kindHold: {"201": quotaOfMonth * n}, kindClose: {"200": n}, kindRelease: {"200": n},
				})),
				happened("three bookings of each member, one of them released", map[string]int{
					"CREATED": slots, "BOOKED": 3 * n, "CLOSED": n, "FLAGGED": n, "CANCELLED": n,
				}))
		},
	}, nil)
}

// byBurstAndCaller groups what each client of a burst was told.
func byBurstAndCaller(op harness.Operation) string {
	if op.Burst == "" {
		return ""
	}
	return op.Burst + " " + op.Caller
}

// flaggedAnswers are those to n members, each for itself.
func flaggedAnswers(n int) tallies {
	want := tallies{}
	for i := range n {
		want[whileFlagged+" "+member(i)] = map[string]int{"409 quota-exceeded": flaggedTries}
		want[afterReleased+" "+member(i)] = map[string]int{"201": 1, "409 quota-exceeded": flaggedTries - 1}
	}
	return want
}

// driveQuotaFlagged gives each member four slots, one after the other: the
// first is booked and closed, the second booked, the others are tried.
func driveQuotaFlagged(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	const each = quotaOfMonth + flaggedTries
	n := len(c.Slots) / each
	var holds, closures, releases []harness.Request
	for i := range n {
		for k := range quotaOfMonth {
			holds = append(holds, as(kindHold, book(i, member(i), c.Slots[i*each+k].ID, keyOf("hold", k))))
		}
		closures = append(closures, closeSlot(staffProcess+i, staff(0), c.Slots[i*each].ID, keyOf("close", i)))
	}
	for i, op := range env.DoAll(ctx, holds, 4) {
		b, err := bookingOf(op)
		if err != nil {
			return err
		}
		if i%quotaOfMonth == 0 {
			releases = append(releases, as(kindRelease, resolveFlag(staffProcess+i, staff(0), b.BookingID, decideRelease, keyOf("release", i))))
		}
	}
	for round, steps := range [][]harness.Request{closures, releases} {
		for _, op := range env.DoAll(ctx, steps, 4) {
			if op.Status != http.StatusOK {
				return fmt.Errorf("%s: got %d %s %s, want 200", op.Kind, op.Status, op.Err, op.Output)
			}
		}
		b := harness.Burst{Name: []string{whileFlagged, afterReleased}[round]}
		for _, k := range c.Orders[round] {
			i := k / flaggedTries
			id := c.Slots[i*each+quotaOfMonth+k%flaggedTries].ID
			b.Requests = append(b.Requests, book(k, member(i), id, keyOf(b.Name, k)))
		}
		report, _, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		witnessOverlap(env, report)
	}
	return nil
}
