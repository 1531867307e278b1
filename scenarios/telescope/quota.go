package telescope

import (
	"context"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
)

// quota is how many active reservations a member may have in a month.
const quotaOfMonth = 2

func quota() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/quota",
		Title: "one member books many slots of one month at once",
		Doc: `One member, one month, one barrier, a free slot for every request: no two of them meet on a slot's row, so that only the member's quota row can
put them in order. Exactly two are answered 201, all others 409 quota-exceeded.`,
		Sources: []string{"T-I5", "T-M9"},
		Params:  []harness.Param{atLeast(quotaOfMonth+1, paramSlots), paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int("slots")
			return choices{Slots: slotsOfOneMonth(rng, n), Orders: [][]int{rng.Perm(n)}}, nil
		},
		Drive: driveQuota,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("slots")
			return append(served(),
				words("answers", "two bookings of the month are answered 201, all others 409 quota-exceeded", byBurst, fixed(tallies{
					"burst": {"201": quotaOfMonth, "409 quota-exceeded": n - quotaOfMonth},
				})),
				happened("two slots are booked", map[string]int{"CREATED": n, "BOOKED": quotaOfMonth}))
		},
	}, nil)
}

func driveQuota(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	b := harness.Burst{Name: "burst"}
	for _, n := range c.Orders[0] {
		b.Requests = append(b.Requests, book(n, member(0), c.Slots[n].ID, keyOf("book", n)))
	}
	report, _, err := env.Burst(ctx, b)
	if err != nil {
		return err
	}
	witnessOverlap(env, report)
	return nil
}

func quotaAtMonthBorder() harness.Scenario {
	s := quota()
	s.Name += "@month-border"
	s.Title = "one member books at once on both sides of the observatory's month border"
	s.Doc = `Half of the slots start in the last hours of a month at the observatory, half of them in the first hours of the next one; in UTC all of them
start on the first day of the same month. The month is the observatory's: two of each side are answered 201, all others 409 quota-exceeded.`
	s.Sources = []string{"T-I5", "T-M9", "T-M22"}
	s.Params = []harness.Param{with(harness.Param{
		Name: "slots", Kind: harness.IntParam, Min: quotaOfMonth + 1, Max: 20, Doc: "slots on each side of the border",
	}, "10"), paramReplicas}
	s.Choose = func(rng *rand.Rand, p harness.Params) (any, error) {
		n, month := p.Int("slots"), firstMonth+rng.IntN(9)
		c := choices{Orders: [][]int{rng.Perm(2 * n)}}
		for i, id := range slotIDs(rng, 2*n) {
			c.Slots = append(c.Slots, slot{ID: id, Month: month, HalfHours: i - n}) // -n … n-1: UTC is ten hours ahead
		}
		return c, nil
	}
	s.Checks = func(p harness.Params) []harness.Check {
		n := p.Int("slots")
		side := map[string]int{"201": quotaOfMonth, "409 quota-exceeded": n - quotaOfMonth}
		return append(served(),
			eachSide(side),
			happened("two slots are booked on each side", map[string]int{"CREATED": 2 * n, "BOOKED": 2 * quotaOfMonth}))
	}
	return s
}

// eachSide compares the answers on each side of the month border.
func eachSide(want map[string]int) harness.Check {
	const doc = "two bookings of each month are answered 201, all others 409 quota-exceeded"
	rule := func(side map[int64]string) func(harness.Operation) string {
		return func(op harness.Operation) string {
			if op.Kind != kindBook {
				return ""
			}
			return side[slotOf(op)]
		}
	}
	return funcCheck("answers", doc, "quota.go", false, func(rec harness.Record) harness.Verdict {
		side := map[int64]string{}
		for _, s := range planned(rec).Slots {
			side[s.ID] = "after the border"
			if s.HalfHours < 0 {
				side[s.ID] = "before the border"
			}
		}
		return words("answers", doc, rule(side), fixed(tallies{"before the border": want, "after the border": want})).Judge(rec)
	})
}
