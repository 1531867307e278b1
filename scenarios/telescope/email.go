package telescope

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/email"
)

// mailing is the provider's one call.
const mailing = "POST /messages"

func chooseSlotsOfParam(rng *rand.Rand, p harness.Params) (any, error) {
	return choices{Slots: slotsOfOneMonth(rng, p.Int(paramSlots.Name))}, nil
}

// paramMailed is how many slots the email scenarios act on. Each member has
// one of them, so that no quota is in the way.
var paramMailed = harness.Param{
	Name: "slots", Kind: harness.IntParam, Default: "12", Min: 4, Max: 200,
	Doc: "slots that are booked; a third of them is cancelled, another third closed",
}

func emailDown() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "telescope/email-down",
		Title: "the email provider is down while members book, cancel and are flagged; then it comes back",
		Doc: `While the provider answers 503 to everything, slots are booked, a third of them cancelled and another third closed. All of that is answered as always: nobody
waits for a mail. When every slot has had a failed attempt the provider is up again, fails a few more times, and then works. Every event that owes its member a
mail must reach it, at least once, always under the same event id, those of one slot in order; none is parked, none is lost, none is acknowledged without having been sent.`,
		Sources: []string{"T-I8", "T-M11", "T-M21"},
		Params:  []harness.Param{paramMailed},
		Choose:  chooseSlotsOfParam,
		Drive:   driveEmailDown,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramSlots.Name)
			return append(served(), everyEventMailed(mailRules{}), mailsInOrder(), sqlCheck("T-I8.rows", "email_rows.sql"), eventsOf(n))
		},
	}, map[string]string{"TELESCOPE_EMAIL_PARK_AFTER": "1000"})
}

// eventsOf is what happens to n slots in the email scenarios.
func eventsOf(n int) harness.Check {
	third := n / 3
	return happened("every slot is booked, a third cancelled, a third closed", map[string]int{
		"CREATED": n, "BOOKED": n, "CANCELLED": third, "CLOSED": third, "FLAGGED": third,
	})
}

func driveEmailDown(ctx context.Context, env harness.Env) error {
	provider := env.Upstream(email.Name)
	if err := provider.Configure(ctx, map[string]any{"mode": email.Down}); err != nil {
		return err
	}
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	if err := bookCancelClose(ctx, env, c.Slots); err != nil {
		return err
	}
	failed := func() int {
		events := map[string]bool{}
		for _, call := range provider.Calls() {
			if call.Status == 503 {
				events[eventOf(call)] = true
			}
		}
		return len(events)
	}
	err = env.Await(ctx, "an attempt for each slot has failed", patience, func(context.Context) (bool, string, error) {
		return failed() >= len(c.Slots), fmt.Sprintf("%d of %d", failed(), len(c.Slots)), nil
	})
	if err != nil {
		return err
	}
	env.Witness("events_refused", float64(len(c.Slots)), float64(failed()), "events that the provider answered 503 before it took them")
	return provider.Configure(ctx, map[string]any{"mode": email.Up, "fail_first": 5})
}

// bookCancelClose books every slot, then cancels the first third and closes
// the second.
func bookCancelClose(ctx context.Context, env harness.Env, slots []slot) error {
	requests := make([]harness.Request, len(slots))
	for i, s := range slots {
		requests[i] = book(i, member(i), s.ID, "book")
	}
	third := len(slots) / 3
	var changes []harness.Request
	for i, op := range env.DoAll(ctx, requests, 8) {
		b, err := bookingOf(op)
		switch {
		case err != nil:
			return err
		case i < third:
			changes = append(changes, cancel(i, member(i), b.BookingID, "cancel"))
		case i < 2*third:
			changes = append(changes, closeSlot(staffProcess+i, staff(0), b.SlotID, keyOf("close", i)))
		}
	}
	for _, op := range env.DoAll(ctx, changes, 8) {
		if op.Status != 200 {
			return fmt.Errorf("%s %s: got %d %s %s, want 200", op.Method, op.Path, op.Status, op.Err, op.Output)
		}
	}
	return nil
}

// parkAfter is how many attempts an event has in email-down@refused.
const parkAfter = 3

func emailRefused() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "telescope/email-down@refused",
		Title: "the email provider refuses one kind of mail for good",
		Doc: `The provider answers 422 to every FLAGGED mail. Each such event is tried three times (TELESCOPE_EMAIL_PARK_AFTER=3) and parked, not dropped and not tried for ever. It holds up
nothing for longer: the reservations that were flagged are cancelled by their members, and those mails, of the same slots, arrive, as do all others.`,
		Sources: []string{"T-I8", "T-M11", "T-M21"},
		Params:  []harness.Param{paramMailed},
		Choose:  chooseSlotsOfParam,
		Drive:   driveEmailRefused,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramSlots.Name)
			third := n / 3
			return append(served(), everyEventMailed(mailRules{refused: "FLAGGED", attempts: parkAfter}), parkedInTime("FLAGGED", parkAfter), mailsInOrder(), sqlCheck("T-I8.rows", "email_rows.sql"),
				happened("every slot is booked, a third cancelled, a third closed and then cancelled", map[string]int{
					"CREATED": n, "BOOKED": n, "CANCELLED": 2 * third, "CLOSED": third, "FLAGGED": third,
				}))
		},
	}, map[string]string{"TELESCOPE_EMAIL_PARK_AFTER": fmt.Sprint(parkAfter)})
}

func driveEmailRefused(ctx context.Context, env harness.Env) error {
	provider := env.Upstream(email.Name)
	if err := provider.Configure(ctx, map[string]any{"refuse_kinds": []string{"FLAGGED"}}); err != nil {
		return err
	}
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	if err := bookCancelClose(ctx, env, c.Slots); err != nil {
		return err
	}
	rows, err := env.Database().Query(ctx, "select booking_id::text as booking, member from active_reservations where flag_state is not null order by slot_id")
	if err != nil {
		return err
	}
	leave := make([]harness.Request, len(rows))
	for i, r := range rows {
		leave[i] = cancel(i, text(r, "member"), text(r, "booking"), "leave")
	}
	env.DoAll(ctx, leave, 8)
	if late := quiet(ctx, env); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if late != nil { // judged by what is seen of the events
		env.Record(harness.Event{Kind: harness.EventNote, Subject: waitingSubject, Text: late.Error()})
	}
	refused := 0
	for _, call := range provider.Calls() {
		refused += int(count(call.Status == 422))
	}
	env.Witness("refused", float64(len(c.Slots)/3), float64(refused), "mails that the provider answered 422")
	return nil
}

// afterClaim is far enough for an event that a dead server had claimed to be
// offered again.
const afterClaim = time.Minute

func crashAfterEmail() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "telescope/crash-after-email",
		Title: "the server is killed when the email provider has taken a mail and before it hears of it",
		Doc: `The moment: the provider has accepted the mail and answered, the answer has not reached the server; then SIGKILL. The reservation stands, the member has the
mail, and no row says so. After the restart (and when the dead server's claim has run out, for which the clock is moved) the mail is sent again, under the same
event id: the provider's ledger has two deliveries of that event, or more, and one message. A mail may repeat; it is never lost, and never another mail.`,
		Sources: []string{"T-I8", "T-M11", "T-M21"},
		Params:  []harness.Param{with(paramMailed, "6")},
		Choose:  chooseSlotsOfParam,
		Drive:   driveCrashAfterEmail,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramSlots.Name)
			return append(retried(), everyEventMailed(mailRules{}), sentTwice(), sqlCheck("T-I8.rows", "email_rows.sql"), answeredInTheEnd(),
				happened("each slot is booked once", map[string]int{"CREATED": n, "BOOKED": n}))
		},
	}, nil)
}

func driveCrashAfterEmail(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	fault := env.Inject(harness.Fault{Action: harness.ActionKill, At: harness.MomentAccepted, Match: mailing, Nth: 1})
	requests := make([]harness.Request, len(c.Slots))
	for i, s := range c.Slots {
		requests[i] = book(i, member(i), s.ID, "book")
	}
	ops := env.DoAll(ctx, requests, len(requests))
	strike, err := struck(ctx, env, fault)
	if err != nil {
		return err
	}
	event, err := struckMail(ctx, env, strike)
	if err != nil {
		return err
	}
	if err := restart(ctx, env); err != nil {
		return err
	}
	var again []harness.Request
	for i, op := range ops {
		if op.Status == 0 {
			again = append(again, as(kindAgain, requests[i]))
		}
	}
	env.DoAll(ctx, again, len(requests))
	env.DoAll(ctx, onceMore(requests), len(requests))
	if err := env.Advance(ctx, afterClaim); err != nil || event == "" {
		return err
	}
	return awaitDelivered(ctx, env, event)
}

// struckMail notes which event's mail was struck, what the provider had said,
// and that no row tells of it. It gives "" for a mail that names no event of
// ours: there is nothing to wait for, and T-I8 says so.
func struckMail(ctx context.Context, env harness.Env, strike harness.Strike) (event string, err error) {
	accepted := false
	for _, call := range env.Upstream(email.Name).Calls() {
		if call.Seq == strike.Call {
			event, accepted = eventOf(call), call.Status == 202
		}
	}
	rows, err := env.Database().Query(ctx, `select o.delivered_at is not null or d.event_id is not null as known
from outbox o left join email_deliveries d using (event_id) where o.event_id::text = $1`, event)
	if err != nil {
		return "", fmt.Errorf("look at the event %q of the mail that was struck: %w", event, err)
	}
	env.Witness("killed_after_accept", 1, count(accepted), "mails that the provider had answered 202 when the server was killed")
	known := len(rows) == 1 && rows[0]["known"] == true
	env.Record(harness.Event{
		Kind: harness.EventNote, Subject: mailSubject, Text: fmt.Sprintf("event %s: taken by the provider, known to us: %t", event, known),
		Attrs: map[string]string{"event": event, "known": fmt.Sprint(known)},
	})
	if len(rows) == 0 {
		return "", nil
	}
	return event, nil
}

// awaitDelivered waits until the event is delivered or parked.
func awaitDelivered(ctx context.Context, env harness.Env, event string) error {
	return env.Await(ctx, "the mail is sent again", patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, "select coalesce(delivered_at, parked_at) is not null as over, attempts from outbox where event_id = $1::text::uuid", event)
		if err != nil || len(rows) != 1 {
			return false, "", err
		}
		return rows[0]["over"] == true, fmt.Sprint(rows[0]), nil
	})
}
