package telescope

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/overbook/overbook/harness"
)

// turn is the step in which a member cancels what it has, or books the slot.
const turn = "turn"

// A step is one action of a client in a storm, on the n-th slot of the plan.
type step struct {
	Do   string `json:"do"`
	Slot int    `json:"slot"`
}

// stormChoices are each client's steps; the last ones are those of staff.
type stormChoices struct {
	Slots   []slot   `json:"slots"`
	Members [][]step `json:"members"`
	Staff   [][]step `json:"staff"`
}

func closureStorm() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/closure-storm",
		Title: "members book, cancel and read while staff close and reopen the same few slots",
		Doc: `Many clients go through steps that the seed chose, each without a pause between its own: members book, cancel what they have, read slots and their account,
staff close, reopen and read. The slots lie in different months, so that no quota is in the way. What the clients were told must be explainable by
one order of all operations on each slot (linearizable), and the history must replay to what is stored. A storm in which too little succeeded shows nothing.`,
		Sources: []string{"T-I2", "T-I10", "T-I12", "T-M2", "T-M3"},
		Params: []harness.Param{
			with(paramUsers, "12"), paramReplicas,
			with(atLeast(1, paramSlots), "3"),
			{Name: "staff", Kind: harness.IntParam, Default: "4", Min: 1, Max: 50, Doc: "staff who close and reopen"},
			{Name: "steps", Kind: harness.IntParam, Default: "12", Min: 2, Max: 100, Doc: "requests of each client, one after the other"},
		},
		Choose: chooseStorm,
		Drive:  driveStorm,
		Checks: func(harness.Params) []harness.Check {
			return append(served(), linearizable(), toldAmong("answers", "what is refused is refused for the slot's sake, never for a quota", map[string][]string{
				kindBook: bookedOrNot, kindCancel: {"200", "409 already-cancelled"}, kindClose: {"200", "409 already-closed"}, kindReopen: {"200", "409 already-open"},
			}))
		},
	}, nil)
}

func chooseStorm(rng *rand.Rand, p harness.Params) (any, error) {
	c := stormChoices{Slots: slotsOfManyMonths(rng, p.Int("slots"))}
	deal := func(actions []string) []step {
		list := make([]step, p.Int("steps"))
		for i := range list {
			list[i] = step{actions[rng.IntN(len(actions))], rng.IntN(len(c.Slots))}
		}
		return list
	}
	for range p.Int("users") {
		c.Members = append(c.Members, deal([]string{turn, turn, turn, turn, turn, kindCancel, kindRead, kindAccount}))
	}
	for range p.Int("staff") {
		c.Staff = append(c.Staff, deal([]string{kindClose, kindClose, kindReopen, kindReopen, kindReopen, kindRead}))
	}
	return c, nil
}

func driveStorm(ctx context.Context, env harness.Env) error {
	var c stormChoices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	if _, err := create(ctx, env, c.Slots); err != nil {
		return err
	}
	start := make(chan struct{})
	each := make([][]harness.Operation, len(c.Members)+len(c.Staff))
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() {
			<-start
			if i < len(c.Members) {
				each[i] = memberSteps(ctx, env, i, c)
			} else {
				each[i] = staffSteps(ctx, env, i-len(c.Members), c)
			}
		})
	}
	close(start)
	wg.Wait()
	var all []harness.Operation
	for _, ops := range each {
		all = append(all, ops...)
	}
	env.Witness("max_in_flight", float64(max(2, len(each)/4)), float64(overlapping(all)), "requests of the storm sent and unanswered at one instant")
	env.Witness("booked", float64(max(1, min(len(c.Members)/4, len(c.Slots)))), float64(done(all, kindBook, http.StatusCreated)), "bookings of the storm that were answered 201")
	for _, kind := range []string{kindCancel, kindClose, kindReopen} {
		env.Witness("done_"+kind, 1, float64(done(all, kind, http.StatusOK)), "requests of the storm, "+kind+", that were answered 200")
	}
	got := told(all)
	env.Measure("storm_200", float64(got["200"]))
	env.Measure("storm_201", float64(got["201"]))
	env.Measure("storm_refused", float64(len(all)-got["200"]-got["201"]))
	return ctx.Err()
}

// memberSteps goes through one member's steps. What it has, wherever that is, it
// cancels at its next turn, so that slots change hands often; who is to cancel
// outside its turn does so with a booking that is over, and reads when there is none.
func memberSteps(ctx context.Context, env harness.Env, n int, c stormChoices) (ops []harness.Operation) {
	who, held, over := member(n), "", ""
	for i, s := range c.Members[n] {
		id := c.Slots[s.Slot].ID
		r := readSlot(n, who, id)
		switch {
		case s.Do == turn && held != "":
			r = cancel(n, who, held, keyOf("cancel", i))
			held, over = "", held
		case s.Do == turn:
			r = book(n, who, id, keyOf("book", i))
		case s.Do == kindCancel && over != "":
			r = cancel(n, who, over, keyOf("cancel", i))
		case s.Do == kindAccount:
			r = account(n, who)
		}
		op := env.Do(ctx, r)
		if b, err := bookingOf(op); err == nil {
			held = b.BookingID
		}
		ops = append(ops, op)
	}
	return ops
}

func staffSteps(ctx context.Context, env harness.Env, n int, c stormChoices) (ops []harness.Operation) {
	who, process := staff(n), staffProcess+n
	for i, s := range c.Staff[n] {
		id := c.Slots[s.Slot].ID
		r := readSlot(process, who, id)
		switch s.Do {
		case kindClose:
			r = closeSlot(process, who, id, keyOf("close", i))
		case kindReopen:
			r = reopenSlot(process, who, id, keyOf("reopen", i))
		}
		ops = append(ops, env.Do(ctx, r))
	}
	return ops
}
