package tickets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// crashes gives the scenarios in which the server dies between the money and
// the rows.
func crashes() []harness.Scenario {
	return []harness.Scenario{
		crashAfterCharge(), crashAfterChargeLost(), crashAfterCapture(), crashMidRefund(), crashMidRefundTold(), crashInCallback(), crashAtExpiry(),
		crashPointsOfHold(), crashPointsOfCharge(), crashPointsOfLostCharge(), crashPointsOfCallback(), crashPointsOfRefund(),
	}
}

// The transactions that crashes strike are known by a statement in them.
const (
	capturing = `update holds set state` // of the outcome that sells a seat
	taking    = `update seats`           // of a callback that sells one: nothing else is under way then
)

// kindOrderAfter is the question of a member who got no answer.
const kindOrderAfter = "order-after"

// paymentTimeout is how long a server of these scenarios waits for the
// provider, in machine time. A refund that somebody died over is taken up again
// after it and a second more, in server time.
const (
	paymentTimeout = 2 * time.Second
	refundClaim    = paymentTimeout + time.Second
)

// crashScenario fills in what scenarios of this kind share: one server behind
// the Postgres wire, which is started again by the drive.
func crashScenario(s harness.Scenario) harness.Scenario {
	s.Tags = append(s.Tags, "fault")
	return scenario(s, map[string]string{
		"TICKETS_PAYMENT_TIMEOUT": paymentTimeout.String(),
		"POOL_SIZE":               "6", // one client at a time; a server that is started so often need not open more
	})
}

// chooseCrashRounds draws a show with so many seats for each round.
func chooseCrashRounds(seats int) func(*rand.Rand, harness.Params) (any, error) {
	return func(rng *rand.Rand, p harness.Params) (any, error) {
		return choices{Show: chooseShow(rng, p, seats*rounds(p))}, nil
	}
}

// restarted starts every server that is down and waits until it is ready.
func restarted(ctx context.Context, env harness.Env) error {
	for _, s := range env.Servers() {
		if s.URL() == "" {
			if err := s.Start(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// struckBy waits until the fault has struck and what it left undone in Postgres
// is rolled back, and takes the fault back.
func struckBy(ctx context.Context, env harness.Env, f harness.Injected) error {
	_, err := f.Await(ctx, patience)
	f.Heal()
	if err != nil {
		return err
	}
	return env.Postgres().AwaitGone(ctx)
}

// orderRows is what the rows say of an order.
type orderRows struct {
	hold, seat, charge, refund string // states; "" for none
	by                         string // who brought the charge's outcome
	charges, refunds           int
}

const orderState = `select h.state as hold, s.state as seat, c.state as charge, c.resolved_by as by, r.state as refund,
  (select count(*) from charges where hold_id = h.hold_id) as charges,
  (select count(*) from refunds join charges using (charge_id) where hold_id = h.hold_id) as refunds
from holds h left join seats s on s.hold_id = h.hold_id left join charges c on c.hold_id = h.hold_id left join refunds r on r.charge_id = c.charge_id
where h.hold_id = $1::text::uuid order by c.sent_at desc limit 1`

// rowsOf looks at an order's rows.
func rowsOf(ctx context.Context, env harness.Env, holdID string) (o orderRows, err error) {
	rows, err := env.Database().Query(ctx, orderState, holdID)
	if err != nil {
		return o, fmt.Errorf("look at the rows of order %s: %w", holdID, err)
	}
	if len(rows) == 0 {
		return o, nil
	}
	r := rows[0]
	return orderRows{
		hold: text(r, "hold"), seat: text(r, "seat"), charge: text(r, "charge"), refund: text(r, "refund"), by: text(r, "by"),
		charges: int(whole(r, "charges")), refunds: int(whole(r, "refunds")),
	}, nil
}

// brief is the standing in a line.
func (o orderRows) brief() string {
	return fmt.Sprintf("hold %s, seat %s, %d charges %s, %d refunds %s", orNone(o.hold), orNone(o.seat), o.charges, orNone(o.charge), o.refunds, orNone(o.refund))
}

// Events of crashes: what the rows said between the death and the restart.
const (
	subjectLeft = "left by the crash"
	attrOrder   = "order"
	attrState   = "state"
	attrMoment  = "moment"
)

// noteLeft records what a crash left of an order, for [leftBy].
func noteLeft(ctx context.Context, env harness.Env, holdID, moment string) error {
	o, err := rowsOf(ctx, env, holdID)
	if err != nil {
		return err
	}
	env.Record(harness.Event{
		Kind: harness.EventNote, Subject: subjectLeft, Text: fmt.Sprintf("order %s, struck at %s: %s", holdID, moment, o.brief()),
		Attrs: map[string]string{attrOrder: holdID, attrState: o.brief(), attrMoment: moment},
	})
	return nil
}

// leftBy demands what the rows said after each crash at the moment, before the
// server was there again.
func leftBy(id, doc, moment string, want orderRows) harness.Check {
	return funcCheck(id, doc, "crash.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		seen := 0
		for _, e := range rec.History.Events {
			if e.Subject != subjectLeft || e.Attrs[attrMoment] != moment {
				continue
			}
			seen++
			if e.Attrs[attrState] != want.brief() {
				wrong = append(wrong, harness.Evidence{Text: e.Text + "; want " + want.brief()})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d times it was not so: %s", doc, len(wrong), seen, wrong[0].Text)
		case seen == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody looked at the rows after a crash at %s", moment)
		}
		return harness.Passed("%s: %d times", doc, seen)
	})
}

// broughtBy demands who brought the outcome of each captured charge.
func broughtBy(doc, want string, n int) harness.Check {
	return funcCheck("S-I8.by", doc, "crash.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:charges")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the charges could not be read")
		}
		got := map[string]int{}
		for _, r := range rows.Rows {
			if r["captured_amount"] != nil {
				got[text(r, "resolved_by")]++
			}
		}
		switch {
		case len(rows.Rows) == 0 && len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody paid")
		case got[want] != n || len(got) != 1:
			return harness.Violated([]harness.Evidence{{Text: answers.Text(got)}}, "%s: got %s, want %d x %s", doc, answers.Text(got), n, want)
		}
		return harness.Passed("%s: %d", doc, n)
	})
}

func crashAfterCharge() harness.Scenario {
	return afterCharge(harness.Scenario{
		Name:  "tickets/crash-after-charge",
		Title: "the server is killed when the provider has taken a charge and before it hears of it; a callback finishes it",
		Doc: `The moment: the provider has captured the payment and answered, the answer has not reached the server; then SIGKILL. The charge must be there, CHARGING,
and the hold RESERVED: they were stored before the provider was called. The server is started again; the member, who got no answer, charges once more and is told
charge-in-flight, not charged again. The provider's callback then sells the seat. One payment an order, no refund.`,
	}, payments.AtOnce, "callback")
}

func crashAfterChargeLost() harness.Scenario {
	return afterCharge(harness.Scenario{
		Name:  "tickets/crash-after-charge@lost",
		Title: "the server is killed when the provider has taken a charge, and the callback is lost; reconciliation finishes it",
		Doc: `As crash-after-charge, but the provider's callback never comes: when the charge has been in flight for as long as reconciliation waits, in server time, the
server asks the provider by itself and sells the seat.`,
	}, payments.Lost, "reconciliation")
}

// afterCharge fills in what the two share. callbacks is what becomes of the
// provider's, by is who has to bring the outcome.
func afterCharge(s harness.Scenario, callbacks, by string) harness.Scenario {
	s.Sources = []string{"S-I2", "S-I5", "S-I8", "S-M17", "S-M19"}
	s.Params = []harness.Param{with(paramRounds, "3")}
	s.Rounds, s.Choose, s.Latency = rounds, chooseCrashRounds(1), kindCharge
	s.Drive = func(ctx context.Context, env harness.Env) error {
		return driveCrashAfterCharge(ctx, env, callbacks)
	}
	s.Checks = func(p harness.Params) []harness.Check {
		n := rounds(p)
		return append(served(p),
			leftBy("S-I8.crash", "a charge that the provider has taken is known here when the server dies", string(harness.MomentAccepted),
				orderRows{hold: "RESERVED", seat: "HELD", charge: "CHARGING", charges: 1}),
			words("answers", "nobody hears of the charge at first, a second one is refused, and the order tells that it is paid", answers.ByKind, answers.Fixed(answers.Tallies{
				kindCharge: {"none": n}, kindAgain: {"409 charge-in-flight": n}, kindOrderAfter: {"200": n},
			})),
			orderTells("CONFIRMED", n), oneChargeEach(), broughtBy("each payment's outcome came by "+by, by, n),
			holdStates("each hold is paid for", map[string]int{"CONFIRMED": n}),
			seatStates("each seat is sold", map[string]int{"SOLD": n}))
	}
	return crashScenario(s)
}

// kindAgain is the same request once more, of a member who got no answer.
const kindAgain = "again"

func driveCrashAfterCharge(ctx context.Context, env harness.Env, callbacks string) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	standard := payments.Behaviour{Callbacks: callbacks}
	if err := configure(ctx, env, payments.Config{Default: &standard}); err != nil {
		return err
	}
	post, killed := newCourier(env), 0
	for i, seat := range c.Show.Seats {
		h, err := claimed(ctx, env, claim(i, member(i), c.Show.ID, seat))
		if err != nil {
			return err
		}
		pay := charge(i, member(i), h.HoldID, roundCard(i))
		fault := env.Inject(harness.Fault{Action: harness.ActionKill, At: harness.MomentAccepted, Match: "POST /charges", Nth: 1})
		env.Do(ctx, pay)
		if err := struckBy(ctx, env, fault); err != nil {
			return err
		}
		killed++
		if err := noteLeft(ctx, env, h.HoldID, string(harness.MomentAccepted)); err != nil {
			return err
		}
		if err := restarted(ctx, env); err != nil {
			return err
		}
		env.Do(ctx, answers.As(kindAgain, pay))
		if err := bringOutcome(ctx, env, post, h.HoldID, callbacks); err != nil {
			return err
		}
		env.Do(ctx, answers.As(kindOrderAfter, order(i, member(i), h.HoldID)))
	}
	env.Witness("killed_at_moment", float64(len(c.Show.Seats)), float64(killed), "charges that the provider had taken when the server was killed")
	return finish(ctx, env, post)
}

// bringOutcome has a charge in flight decided here: by callback or, where these
// are lost, by moving the clock to where the server asks.
func bringOutcome(ctx context.Context, env harness.Env, post *courier, holdID, callbacks string) error {
	if callbacks == payments.Lost {
		if err := env.Advance(ctx, reconcileAfter+time.Second); err != nil {
			return err
		}
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	if err := awaitHold(ctx, env, holdID, "CONFIRMED"); err != nil {
		// A server that does not do this is judged by its rows, not by our wait.
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "open after a crash", Text: err.Error()})
	}
	return ctx.Err()
}

// pendingCard has payments answered as pending, though the provider decides at
// once: its callback is due with the answer.
func pendingCard() payments.Behaviour { return payments.Behaviour{Answer: payments.Pending} }

// givenUpInFlight makes an order whose member gave it up while its payment was
// in flight, and whose payment is captured: the callback that tells so is due.
func givenUpInFlight(ctx context.Context, env harness.Env, n int, show int64, seat string) (holdAnswer, error) {
	h, err := chargedInFlight(ctx, env, n, show, seat)
	if err != nil {
		return h, err
	}
	if op := env.Do(ctx, release(n, member(n), h.HoldID)); op.Status != http.StatusOK {
		return h, fmt.Errorf("give up hold %s: got %d %s %s, want 200", h.HoldID, op.Status, op.Err, op.Output)
	}
	return h, nil
}

// chargedInFlight makes an order with a charge of which the server has yet to
// hear what became.
func chargedInFlight(ctx context.Context, env harness.Env, n int, show int64, seat string) (holdAnswer, error) {
	h, err := claimed(ctx, env, claim(n, member(n), show, seat))
	if err != nil {
		return h, err
	}
	op := env.Do(ctx, charge(n, member(n), h.HoldID, roundCard(n)))
	if op.Status != http.StatusAccepted {
		return h, fmt.Errorf("charge hold %s: got %d %s %s, want 202", h.HoldID, op.Status, op.Err, op.Output)
	}
	return h, nil
}

// callbackOf is the newest callback of the member's card of this type.
func callbackOf(ctx context.Context, env harness.Env, card, kind string) (payments.Callback, error) {
	ledger, err := ledgerNow(ctx, env)
	if err != nil {
		return payments.Callback{}, err
	}
	for _, cb := range slices.Backward(ledger.Callbacks) {
		if cb.Card == card && cb.Type == kind {
			return cb, nil
		}
	}
	return payments.Callback{}, fmt.Errorf("the provider has no callback %s of card %s", kind, card)
}
