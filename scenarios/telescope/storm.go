package telescope

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/overbook/overbook/harness"
)

// turn is the step in which a member books the slot, or cancels it if it has it.
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
		Doc: `Many clients go through steps that the seed chose, each without a pause between its own: members book, cancel what they have and read, staff close,
reopen and read. The slots lie in different months, so that no quota is in the way. What the clients were told must be explainable by
one order of all operations on each slot (linearizable), and the history must replay to what is stored.`,
		Sources: []string{"T-I2", "T-I10", "T-I12", "T-M2", "T-M3"},
		Params: []harness.Param{
			with(paramUsers, "16"), paramReplicas,
			with(atLeast(1, paramSlots), "3"),
			{Name: "staff", Kind: harness.IntParam, Default: "4", Min: 1, Max: 50, Doc: "staff who close and reopen"},
			{Name: "steps", Kind: harness.IntParam, Default: "8", Min: 2, Max: 100, Doc: "requests of each client, one after the other"},
		},
		Choose: chooseStorm,
		Drive:  driveStorm,
		Checks: func(harness.Params) []harness.Check { return served() },
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
		c.Members = append(c.Members, deal([]string{turn, turn, turn, turn, kindCancel, kindRead}))
	}
	for range p.Int("staff") {
		c.Staff = append(c.Staff, deal([]string{kindClose, kindReopen, kindReopen, kindReopen, kindRead}))
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
	done := make([][]harness.Operation, len(c.Members)+len(c.Staff))
	var wg sync.WaitGroup
	for i := range done {
		wg.Go(func() {
			<-start
			if i < len(c.Members) {
				done[i] = memberSteps(ctx, env, i, c)
			} else {
				done[i] = staffSteps(ctx, env, i-len(c.Members), c)
			}
		})
	}
	close(start)
	wg.Wait()
	var all []harness.Operation
	for _, ops := range done {
		all = append(all, ops...)
	}
	env.Witness("max_in_flight", float64(max(2, len(done)/4)), float64(overlapping(all)), "requests of the storm sent and unanswered at one instant")
	got := told(all)
	env.Measure("storm_200", float64(got["200"]))
	env.Measure("storm_201", float64(got["201"]))
	env.Measure("storm_refused", float64(len(all)-got["200"]-got["201"]))
	return ctx.Err()
}

// memberSteps goes through one member's steps. What it has it cancels at its
// next turn; who is to cancel outside its turn does so with a booking that is
// over, and reads when there is none.
func memberSteps(ctx context.Context, env harness.Env, n int, c stormChoices) (ops []harness.Operation) {
	who := member(n)
	held, over := map[int]string{}, map[int]string{} // bookings by the slot's place in the plan
	for i, s := range c.Members[n] {
		id := c.Slots[s.Slot].ID
		r := readSlot(n, who, id)
		switch {
		case s.Do == turn && held[s.Slot] != "":
			r = cancel(n, who, held[s.Slot], keyOf("cancel", i))
			held[s.Slot], over[s.Slot] = "", held[s.Slot]
		case s.Do == turn:
			r = book(n, who, id, keyOf("book", i))
		case s.Do == kindCancel && over[s.Slot] != "":
			r = cancel(n, who, over[s.Slot], keyOf("cancel", i))
		}
		op := env.Do(ctx, r)
		if b, err := bookingOf(op); err == nil {
			held[s.Slot] = b.BookingID
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

func maintenanceImport() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/maintenance-import",
		Title: "an import closes many slots while members book them, another one reopens them",
		Doc: `At one barrier an import closes all slots and a member each books them; at the next one an import reopens them all and another member each books
them. An import is a closure like any other: it takes the slots' rows, in order, before it changes one. A booking that came before it is flagged
and named in its answer, and stands again after the reopening; one that came after it was refused.`,
		Sources: []string{"T-I2", "T-I10", "T-M3", "T-M19"},
		Params:  []harness.Param{with(paramSlots, "40"), paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int("slots")
			return choices{Slots: slotsOfOneMonth(rng, n), Orders: [][]int{rng.Perm(n + 1), rng.Perm(n + 1)}}, nil
		},
		Drive: driveImport,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(), importedAll(p.Int("slots")))
		},
	}, nil)
}

func driveImport(ctx context.Context, env harness.Env) error {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	now, err := create(ctx, env, c.Slots)
	if err != nil {
		return err
	}
	for round, state := range []string{"closed", "open"} {
		b := harness.Burst{Name: state}
		for _, n := range c.Orders[round] {
			if n == len(c.Slots) {
				b.Requests = append(b.Requests, importOf(staffProcess, staff(0), c.Slots, now, state, state))
				continue
			}
			b.Requests = append(b.Requests, book(1000*round+n, roundMember(round, n), c.Slots[n].ID, "book"))
		}
		report, ops, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		witnessOverlap(env, report)
		got := told(ops)
		env.Measure(state+"_booked", float64(got["201"]))
		env.Measure(state+"_refused", float64(len(ops)-1-got["201"]))
	}
	return nil
}

// importedAll: the imports closed and reopened every slot and named exactly the
// bookings that came before; of the members each was told what the rows say.
func importedAll(slots int) harness.Check {
	const doc = "both imports changed every slot, the first named exactly the bookings that came before it, and each slot is held by who was answered 201"
	return funcCheck("T-I2.import", doc, "storm.go", true, func(rec harness.Record) harness.Verdict {
		stands, ok := standing(rec)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the slots could not be read")
		}
		holders := map[int64]string{}   // by the answers
		before := map[string]bool{}     // bookings of the first burst
		var imports []harness.Operation // both
		var wrong []harness.Evidence
		answered := 0
		for _, op := range rec.History.Operations {
			switch {
			case op.Burst == "" || op.Answered == 0:
				continue
			case op.Kind == kindImport:
				imports = append(imports, op)
			default:
				answered++
				if problem := bookedOnce(op, holders, before); problem != "" {
					wrong = append(wrong, about(op, problem))
				}
			}
		}
		if len(imports) < 2 || answered < 2*slots {
			return harness.Undecided(harness.ReasonUndelivered, "%d of 2 imports and %d of %d bookings were answered", len(imports), answered, 2*slots)
		}
		for _, op := range imports {
			if problem := importSays(op, slots, before); problem != "" {
				wrong = append(wrong, about(op, problem))
			}
		}
		for _, s := range planned(rec).Slots {
			if at := stands[s.ID]; at == nil || at.State != "open" || at.Holder != holders[s.ID] || at.FlagState != "" {
				wrong = append(wrong, pairEvidence(fmt.Sprintf("slot %d: answered to %q", s.ID, holders[s.ID]), at))
			}
		}
		if len(wrong) > 0 {
			return harness.Violated(few(wrong), "%s: %d differ", doc, len(wrong))
		}
		return harness.Passed("%s: %d before the closure, %d after the reopening", doc, len(before), len(holders)-len(before))
	})
}

// bookedOnce notes a 201, and says what is wrong with any other answer.
func bookedOnce(op harness.Operation, holders map[int64]string, before map[string]bool) string {
	switch word(op) {
	case "201":
		b, err := bookingOf(op)
		if err != nil || holders[slotOf(op)] != "" {
			return "a second booking of the slot"
		}
		holders[slotOf(op)] = b.BookingID
		if op.Burst == "closed" {
			before[b.BookingID] = true
		}
		return ""
	case "409 slot-closed":
		return ""
	case "409 slot-taken":
		if op.Burst == "open" && holders[slotOf(op)] != "" {
			return ""
		}
	}
	return "neither booked nor refused as closed or taken"
}

// importSays compares an import's answer with the bookings that came before it.
func importSays(op harness.Operation, slots int, before map[string]bool) string {
	var a struct {
		Created, Closed, Reopened, Unchanged int
		Flagged                              []string
	}
	if op.Status != http.StatusOK || op.Decode(&a) != nil || a.Created != 0 || a.Unchanged != 0 {
		return "want 200 with every slot changed"
	}
	if op.Burst == "open" {
		if a.Reopened != slots || len(a.Flagged) != 0 {
			return "want every slot reopened and nothing flagged"
		}
		return ""
	}
	for _, id := range a.Flagged {
		if !before[id] {
			return "flags " + id + ", which nobody was answered"
		}
	}
	if a.Closed != slots || len(a.Flagged) != len(before) {
		return fmt.Sprintf("want every slot closed and %d bookings flagged", len(before))
	}
	return ""
}
