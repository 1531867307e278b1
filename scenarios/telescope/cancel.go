package telescope

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"

	"github.com/overbook/overbook/harness"
)

// keyOf numbers a key.
func keyOf(what string, n int) string { return what + "-" + strconv.Itoa(n) }

func cancelAndRebook() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/cancel-and-rebook",
		Title: "a slot is cancelled and booked again, by others and by the same member",
		Doc: `A member books a slot and two more, which is one too many for the month; cancels the first and books the third, which is now allowed. At one
barrier many members book the slot that became free: one gets it. Then the first member's cancellation comes again: with its key it is told the same 200, with
another key 409 already-cancelled, and the new reservation is not touched. All that was ever booked and cancelled stays in the history.`,
		Sources: []string{"T-I1", "T-I5", "T-I10", "T-M12", "T-M13"},
		Params:  []harness.Param{with(paramUsers, "20"), paramReplicas},
		Choose:  chooseSlots(3),
		Drive:   driveRebook,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(),
				words("answers", "of those who book the freed slot one is answered 201", byBurst, fixed(tallies{
					"freed": {"201": 1, "409 slot-taken": p.Int("users") - 1},
				})),
				words("answers.steps", "each step of the member is answered as it should be", byKind, fixed(tallies{
					"first": {"201": 2}, "third": {"409 quota-exceeded": 1, "201": 1}, "cancel": {"200": 2}, "cancel-again": {"409 already-cancelled": 1},
				})),
				happened("booked four times, cancelled once", map[string]int{"CREATED": 3, "BOOKED": 4, "CANCELLED": 1}))
		},
	}, nil)
}

func driveRebook(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	me, id := member(0), c.Slots[0].ID
	held, err := booked(ctx, env, as("first", book(0, me, id, "first")))
	if err != nil {
		return err
	}
	env.Do(ctx, as("first", book(0, me, c.Slots[1].ID, "second")))
	env.Do(ctx, as("third", book(0, me, c.Slots[2].ID, "third")))
	leave := cancel(0, me, held, "leave")
	if op := env.Do(ctx, leave); op.Status != http.StatusOK {
		return fmt.Errorf("cancel: got %d %s %s, want 200", op.Status, op.Err, op.Output)
	}
	env.Do(ctx, as("third", book(0, me, c.Slots[2].ID, "third-again")))
	b := harness.Burst{Name: "freed"}
	for i := range env.Params().Int("users") {
		b.Requests = append(b.Requests, book(i+1, member(i+1), id, "freed"))
	}
	report, _, err := env.Burst(ctx, b)
	if err != nil {
		return err
	}
	witnessOverlap(env, report)
	env.Do(ctx, leave)
	env.Do(ctx, as("cancel-again", cancel(0, me, held, "leave-again")))
	return nil
}

func cancelVersusBook() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/cancel-versus-book",
		Title: "a reservation is cancelled twice while somebody else books the slot, many slots at once",
		Doc: `On each slot three requests meet at one barrier: its holder cancels with one key and with another one, and somebody else books. One
cancellation is answered 200, the other 409 already-cancelled, as a reservation ends once. The booking came before it (409 slot-taken) or after
it (201); the rows must say the same.`,
		Sources: []string{"T-I1", "T-I10", "T-M12", "T-M13"},
		Params:  []harness.Param{with(paramRounds, "15"), paramReplicas},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := choices{Slots: slotsOfOneMonth(rng, p.Int("rounds"))}
			for range c.Slots {
				c.Orders = append(c.Orders, rng.Perm(3))
			}
			return c, nil
		},
		Drive: driveCancelVersusBook,
		Checks: func(harness.Params) []harness.Check {
			return append(served(), cancelledOnce())
		},
	}, nil)
}

// triosAtOnce is how many slots are contended for at one barrier.
const triosAtOnce = 15

func driveCancelVersusBook(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	holds := make([]harness.Request, len(c.Slots))
	for i, s := range c.Slots {
		holds[i] = as("hold", book(i, member(i), s.ID, "hold"))
	}
	held := make([]string, len(c.Slots))
	for i, op := range env.DoAll(ctx, holds, 8) {
		b, err := bookingOf(op)
		if err != nil {
			return err
		}
		held[i] = b.BookingID
	}
	var won, overlapped int
	for from := 0; from < len(c.Slots); from += triosAtOnce {
		b := harness.Burst{Name: fmt.Sprintf("trios-%d", from/triosAtOnce+1)}
		for i := from; i < min(len(c.Slots), from+triosAtOnce); i++ {
			trio := []harness.Request{
				cancel(3*i, member(i), held[i], "leave"), cancel(3*i+1, member(i), held[i], "leave-too"), book(3*i+2, member(10_000+i), c.Slots[i].ID, "rival"),
			}
			for _, n := range c.Orders[i] {
				b.Requests = append(b.Requests, trio[n])
			}
		}
		_, ops, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		for trio := range slices.Chunk(ops, 3) {
			overlapped += int(count(overlapping(trio) > 1))
			won += int(count(slices.ContainsFunc(trio, func(op harness.Operation) bool { return op.Status == http.StatusCreated })))
		}
	}
	env.Measure("cancel_first", float64(won))
	env.Measure("booking_first", float64(len(c.Slots)-won))
	env.Witness("overlapping_trios", float64(max(1, len(c.Slots)/2)), float64(overlapped), "slots on which at least two requests were under way at once")
	return nil
}

// cancelledOnce: on each slot one cancellation counted, and the booking came
// before or after it, by answers and rows.
func cancelledOnce() harness.Check {
	const doc = "each reservation was cancelled once, and the other member's booking came before or after it"
	return funcCheck("T-I10.serial", doc, "cancel.go", true, func(rec harness.Record) harness.Verdict {
		stands, ok := standing(rec)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the slots could not be read")
		}
		var wrong []harness.Evidence
		missing, after := 0, 0
		for i, s := range planned(rec).Slots {
			rival := answeredOn(rec, s.ID, kindBook)
			cancels := cancelsOf(rec, member(i))
			if rival == nil || len(cancels) < 2 {
				missing++
				continue
			}
			if err := trioWent(told(cancels), *rival, stands[s.ID]); err != nil {
				wrong = append(wrong, pairEvidence(err.Error(), stands[s.ID], append(cancels, *rival)...))
			}
			after += int(count(rival.Status == http.StatusCreated))
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: not so on %d slots", doc, len(wrong))
		case missing > 0:
			return harness.Undecided(harness.ReasonUndelivered, "on %d slots not every request was answered", missing)
		}
		return harness.Passed("%s: %d before, %d after", doc, len(stands)-after, after)
	})
}

func cancelsOf(rec harness.Record, who string) (ops []harness.Operation) {
	for _, op := range rec.History.OfKind(kindCancel) {
		if op.Caller == who && op.Answered != 0 {
			ops = append(ops, op)
		}
	}
	return ops
}

// trioWent says what is wrong with the answers and rows of one slot, nil when
// they are those of a serial order.
func trioWent(cancels map[string]int, rival harness.Operation, s *stand) error {
	if cancels["200"] != 1 || cancels["409 already-cancelled"] != 1 {
		return fmt.Errorf("the two cancellations were told %s", tallyText(cancels))
	}
	if s == nil {
		return errors.New("the slot is gone")
	}
	switch word(rival) {
	case "201":
		var b booking
		if rival.Decode(&b) != nil || b.BookingID == "" || s.Holder != b.BookingID || !slices.Equal(s.History, []string{"CREATED", "BOOKED", "CANCELLED", "BOOKED"}) {
			return errors.New("booked after the cancellation, and the rows say otherwise")
		}
	case "409 slot-taken":
		if s.Holder != "" || !slices.Equal(s.History, []string{"CREATED", "BOOKED", "CANCELLED"}) {
			return errors.New("refused before the cancellation, and the rows say otherwise")
		}
	default:
		return fmt.Errorf("the booking was told %s", word(rival))
	}
	return nil
}
