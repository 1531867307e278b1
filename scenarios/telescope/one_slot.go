package telescope

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
)

// choices are what the seed decides in most scenarios of this design.
type choices struct {
	Slots  []slot  `json:"slots"`
	Orders [][]int `json:"orders,omitempty"` // of the clients, per round
}

// chosen gives what the plan chose, with the slots created and open.
func chosen(ctx context.Context, env harness.Env) (choices, error) {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return c, err
	}
	_, err := create(ctx, env, c.Slots)
	return c, err
}

// planned gives the slots of a record's plan. A plan without slots is a
// mistake that the judge reports as the check's own.
func planned(rec harness.Record) choices {
	var c choices
	if err := rec.Plan.Decode(&c); err != nil {
		panic(err)
	}
	if len(c.Slots) == 0 {
		panic("the plan names no slot")
	}
	return c
}

// chooseRounds decides a slot and an order of clients for each round.
func chooseRounds(rng *rand.Rand, p harness.Params) (any, error) {
	c := choices{Slots: slotsOfOneMonth(rng, p.Int("rounds"))}
	for range c.Slots {
		c.Orders = append(c.Orders, rng.Perm(p.Int("users")))
	}
	return c, nil
}

func roundName(i int) string { return fmt.Sprintf("round-%d", i+1) }

// roundMember is client n of round r: everybody books once, so no quota is in the way.
func roundMember(round, n int) string { return member(round*1000 + n) }

func twoMembersOneSlot() harness.Scenario {
	return oneSlotScenario(harness.Scenario{
		Name:  "telescope/two-members-one-slot",
		Title: "two members book one slot at the same moment",
		Doc: `The smallest race there is: two members, one free slot, one barrier, some rounds on a slot each. One is answered 201 and has the
slot, the other 409 slot-taken; there is one reservation, one BOOKED in the history, one event, and a stored result for both keys.`,
		Params: []harness.Param{with(paramUsers, "2"), with(paramRounds, "5"), paramReplicas},
	})
}

// Kinds of the two who book in a known order.
const (
	kindFirst  = "first"
	kindSecond = "second"
)

func twoMembersInOrder() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/two-members-one-slot@in-order",
		Title: "two members wait for the same slot, one behind the other",
		Doc: `A session of ours holds the slot's row. The first member's booking is sent and seen waiting, then the second one's, then the row is let go. Whatever each of
them had looked up before it waited is out of date for the second: the first is answered 201, the second 409 slot-taken, in every round.`,
		Sources: []string{"T-I1", "T-I10", "T-M1", "T-M2"},
		Params:  []harness.Param{with(paramRounds, "3"), paramReplicas},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			return choices{Slots: slotsOfOneMonth(rng, p.Int("rounds"))}, nil
		},
		Drive: driveTwoInOrder,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("rounds")
			return append(served(),
				words("answers", "the first is answered 201, the second 409 slot-taken", byKind, fixed(tallies{kindFirst: {"201": n}, kindSecond: {"409 slot-taken": n}})),
				happened("each slot is booked once", map[string]int{"CREATED": n, "BOOKED": n}))
		},
		Latency: kindFirst,
	}, map[string]string{"TELESCOPE_LOCK_TIMEOUT": "10s", "TELESCOPE_STATEMENT_TIMEOUT": "15s"})
}

func driveTwoInOrder(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	queued := 0
	for round, s := range c.Slots {
		n, err := inOrder(ctx, env, s.ID, []harness.Request{
			as(kindFirst, book(0, roundMember(round, 0), s.ID, "book")), as(kindSecond, book(1, roundMember(round, 1), s.ID, "book")),
		})
		if err != nil {
			return err
		}
		queued += n
	}
	env.Witness("queued", float64(2*len(c.Slots)), float64(queued), "requests that were seen waiting for the slot's row, one after the other, while we held it")
	return nil
}

func hundredOnOneSlot() harness.Scenario {
	return oneSlotScenario(harness.Scenario{
		Name:  "telescope/hundred-on-one-slot",
		Title: "a hundred members book one slot at the same moment",
		Doc: `All members book the same free slot at one barrier. Exactly one is answered 201, everybody else 409 slot-taken; a unique violation
or a lost lock is an ordinary answer, so nobody sees a 5xx.`,
		Params: []harness.Param{paramUsers, paramRounds, paramReplicas},
	})
}

// oneSlotScenario fills in what bursts of bookings on one slot share.
func oneSlotScenario(s harness.Scenario) harness.Scenario {
	s.Sources = []string{"T-I1", "T-I4", "T-I6", "T-I10", "T-M1", "T-M2", "T-M15"}
	s.Choose, s.Drive, s.Rounds = chooseRounds, driveOneSlot, rounds
	s.Checks = func(p harness.Params) []harness.Check {
		n, want := p.Int("rounds"), tallies{}
		for i := range n {
			want[roundName(i)] = map[string]int{"201": 1, "409 slot-taken": p.Int("users") - 1}
		}
		return append(served(), words("answers", "each burst is answered with one 201, all others 409 slot-taken", byBurst, fixed(want)),
			happened("each slot is booked once", map[string]int{"CREATED": n, "BOOKED": n}))
	}
	return scenario(s, nil)
}

func driveOneSlot(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	for round, s := range c.Slots {
		b := harness.Burst{Name: roundName(round)}
		for _, n := range c.Orders[round] {
			b.Requests = append(b.Requests, book(n, roundMember(round, n), s.ID, "book"))
		}
		report, _, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		witnessOverlap(env, report)
	}
	return nil
}
