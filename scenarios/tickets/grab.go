package tickets

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// Kinds of what happens in a round of drop-and-grab.
const (
	kindEarly    = "rival-early" // somebody else claims A while the money is on its way
	kindEarlyPay = "rival-early-pays"
	kindGrab     = "grab" // the login claims B
	kindSecond   = "order-of-b"
	kindPayB     = "pay-b"
	kindLate     = "rival-late" // somebody else claims A when the money went back
	kindLatePay  = "rival-late-pays"
)

func dropAndGrab() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/drop-and-grab",
		Title: "a hold is dropped while its charge is in flight, another seat grabbed, and then the charge succeeds",
		Doc: `Many logins at once: each holds seat A and pays with a card that the provider takes its time for, drops A, grabs seat B, and only then is the first charge
captured. The money of A goes back, once and whole; B is untouched, and can be paid for. Somebody else wants A all the while: under quarantine it is taken
until the payment is resolved, then it is theirs; under release it is theirs at once, and the late capture does not take it from them.`,
		Sources: []string{"S-I2", "S-I4", "S-I5", "S-I6", "S-I10", "S-M1", "S-M4"},
		Params:  []harness.Param{with(paramRounds, "12"), paramReplicas, paramPolicy},
		Rounds:  rounds,
		Choose:  chooseOrders(func(harness.Params) int { return 2 }, 2),
		Drive:   driveGrab,
		Checks: func(p harness.Params) []harness.Check {
			n := rounds(p)
			want := answers.Tallies{
				kindClaim: {"201": n}, kindCharge: {"202": n}, kindRelease: {"200": n}, kindGrab: {"201": n}, kindSecond: {"200": n}, kindPayB: {"201": n},
				kindEarly: {"409 seat-taken": n}, kindLate: {"201": n}, kindLatePay: {"201": n},
			}
			if p.Text(paramPolicy.Name) == policyRelease {
				want[kindEarly], want[kindEarlyPay] = map[string]int{"201": n}, map[string]int{"201": n}
				delete(want, kindLate)
				delete(want, kindLatePay)
			}
			return append(served(p),
				words("answers", "the dropped seat is another's as the policy says, the grabbed one stays and is paid for", answers.ByKind, answers.Fixed(want)),
				droppedTo(p.Text(paramPolicy.Name)),
				orderIs("answers.b", "the grabbed seat is still held when the money of the dropped one has gone back", kindSecond, "RESERVED"),
				holdStates("each dropped hold stays released, all others are paid for", map[string]int{"RELEASED": n, "CONFIRMED": 2 * n}),
				tallied("states.refunds", "each dropped hold's money went back", "refunds", map[string]int{"DONE": n}))
		},
	}, nil)
}

func driveGrab(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	behave := payments.Config{Cards: map[string]payments.Behaviour{}}
	for round := range c.Orders {
		behave.Cards[roundCard(round)] = undecided()
	}
	if err := configure(ctx, env, behave); err != nil {
		return err
	}
	post := newCourier(env)
	stop := post.run(ctx)
	err = together(len(c.Orders), func(round int) error { return grabRound(ctx, env, post, c.Show, round) })
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	env.Witness("late_captures", float64(len(c.Orders)), float64(lateCaptures(ctx, env)), "payments that were captured after their hold had been dropped")
	return finish(ctx, env, post)
}

// together does n things at once, waits for all of them and joins their errors.
func together(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// grabRound is what one login and its rival do.
func grabRound(ctx context.Context, env harness.Env, post *courier, s show, round int) error {
	who, rival := roundMember(round, 0), roundMember(round, 1)
	mine, theirs := 2*round, 2*round+1 // clients
	seatA, seatB := s.Seats[2*round], s.Seats[2*round+1]
	a, err := claimed(ctx, env, claim(mine, who, s.ID, seatA))
	if err != nil {
		return err
	}
	env.Do(ctx, charge(mine, who, a.HoldID, roundCard(round)))
	env.Do(ctx, release(mine, who, a.HoldID))
	early := env.Do(ctx, answers.As(kindEarly, claim(theirs, rival, s.ID, seatA)))
	if h, err := holdOf(early); err == nil {
		env.Do(ctx, answers.As(kindEarlyPay, charge(theirs, rival, h.HoldID, "card-of-"+rival)))
	}
	b, err := claimed(ctx, env, answers.As(kindGrab, claim(mine, who, s.ID, seatB)))
	if err != nil {
		return err
	}
	if err := configure(ctx, env, payments.Config{Release: []string{roundCard(round)}}); err != nil {
		return err
	}
	post.wake()
	if err := awaitRefund(ctx, env, a.HoldID); err != nil {
		return err
	}
	env.Do(ctx, answers.As(kindSecond, order(mine, who, b.HoldID)))
	env.Do(ctx, answers.As(kindPayB, charge(mine, who, b.HoldID, "card-of-"+who)))
	if early.Status == 201 {
		return ctx.Err()
	}
	late := env.Do(ctx, answers.As(kindLate, claim(theirs, rival, s.ID, seatA)))
	if h, err := holdOf(late); err == nil {
		env.Do(ctx, answers.As(kindLatePay, charge(theirs, rival, h.HoldID, "card-of-"+rival)))
	}
	return ctx.Err()
}

// awaitRefund waits until money of the order went back, or until it has had the
// time to: that it did not is for the checks to say.
func awaitRefund(ctx context.Context, env harness.Env, holdID string) error {
	err := env.Await(ctx, "the money of hold "+holdID+" goes back", patience/3, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, `select r.state from refunds r join charges c using (charge_id) where c.hold_id = $1::text::uuid and r.state = 'DONE'`, holdID)
		return len(rows) > 0, "it did not", err
	})
	if err != nil && ctx.Err() == nil {
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "refund", Text: err.Error()})
		return nil
	}
	return err
}

// lateCaptures counts captures that were stored after their hold was over.
func lateCaptures(ctx context.Context, env harness.Env) int64 {
	rows, err := env.Database().Query(ctx, `select count(*) as n from charges c join holds h using (hold_id)
where c.captured_amount is not null and h.winning_charge is distinct from c.charge_id and h.ended_at <= coalesce(c.resolved_at, c.settled_at)`)
	if err != nil || len(rows) != 1 {
		return 0 // then it was not seen
	}
	return whole(rows[0], "n")
}

// droppedTo: who drops a hold with a payment in flight is told what becomes of
// the seat, by the policy.
func droppedTo(policy string) harness.Check {
	const doc = "who drops a hold with a payment in flight is told what becomes of its seat, as the policy says"
	return funcCheck("answers.dropped", doc, "grab.go", false, func(rec harness.Record) harness.Verdict {
		want := map[string]string{policyQuarantine: "QUARANTINED", policyRelease: "FREE"}[policy]
		return compareField(rec.History.OfKind(kindRelease), doc, "seat_state", want)
	})
}

// orderIs: answers of the kind say that the order is in the state.
func orderIs(id, doc, kind, state string) harness.Check {
	return funcCheck(id, doc, "grab.go", false, func(rec harness.Record) harness.Verdict {
		return compareField(rec.History.OfKind(kind), doc, "state", state)
	})
}

// compareField compares one field of the answers of 200 and 201.
func compareField(ops []harness.Operation, doc, field, want string) harness.Verdict {
	var wrong []harness.Evidence
	judged := 0
	for _, op := range ops {
		if op.Status/100 != 2 {
			continue
		}
		judged++
		if got := fields(op)[field]; got != want {
			wrong = append(wrong, answers.About(op, fmt.Sprintf("%s is %v, want %s", field, got, want)))
		}
	}
	switch {
	case len(wrong) > 0:
		return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
	case judged == 0:
		return harness.Undecided(harness.ReasonUndelivered, "nobody was told")
	}
	return harness.Passed("%s: %s, %d times", doc, want, judged)
}
