package tickets

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
)

func (b *backstage) reconciler() *reconciler {
	b.t.Helper()
	m := newMeters()
	return newReconciler(b.store(), newProvider(b.cfg, m), b.cfg, m)
}

// askDue asks what is due once and gives how many questions that were.
func (b *backstage) askDue(r *reconciler) int {
	b.t.Helper()
	due, err := r.claim(b.t.Context(), 100)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, q := range due {
		r.ask(b.t.Context(), q)
	}
	return len(due)
}

// asksIn is in how long the next question about a charge is due; -1: never.
func (b *backstage) asksIn(charge uuid.UUID) time.Duration {
	b.t.Helper()
	at := row[*time.Time](b, `select next_ask_at from charges where charge_id = $1`, charge)
	if at == nil {
		return -1
	}
	return at.Sub(b.now()).Round(time.Second)
}

// What nobody told us the provider is asked for, after a minute in flight.
func TestLostCallbackIsReconciled(t *testing.T) {
	b := newBackstage(t)
	young, old := b.hold(2*time.Minute, policyQuarantine), b.hold(2*time.Minute, policyQuarantine)
	b.bank.captures(b.sent(young, 58*time.Second), young)
	charge := b.sent(old, 61*time.Second)
	b.bank.captures(charge, old)
	r := b.reconciler()
	if n := b.askDue(r); n != 1 {
		t.Errorf("%d questions, want 1", n)
	}
	b.is(young, "RESERVED HELD CHARGING")
	b.is(old, "CONFIRMED SOLD CAPTURED")
	if by := row[string](b, `select resolved_by from charges where charge_id = $1`, charge); by != byReconciliation {
		t.Errorf("resolved by %q", by)
	}
	if calls := b.bank.got("payments", charge.String()); len(calls) != 1 || calls[0].op != "op-"+charge.String()[:8] || calls[0].traceparent == "" {
		t.Errorf("calls %+v, want one with what the charge's request said of itself", calls)
	}
	b.later(48 * time.Hour)
	running(t, r.run)
	b.becomes(young, "CONFIRMED SOLD CAPTURED") // its seat has waited, as no tick came by to give it up
	if n := len(b.bank.got("payments", charge.String())); n != 1 {
		t.Errorf("a captured charge is asked about %d times", n)
	}
}

// That the provider does not know a charge decides nothing before the hard
// timeout, nor does a provider that does not answer: it is asked again.
func TestUnknownDecidesNothing(t *testing.T) {
	b := newBackstage(t)
	hold := b.hold(2*time.Minute, policyQuarantine)
	charge := b.sent(hold, time.Minute)
	r := b.reconciler()
	answers := []int{properly, http.StatusServiceUnavailable, dropped, http.StatusInternalServerError, properly}
	for asked, answer := range answers {
		b.bank.answers(func(string, string) int { return answer })
		if n := b.askDue(r); n != 1 {
			t.Errorf("round %d: %d questions, want 1", asked, n)
		}
		b.is(hold, "RESERVED HELD CHARGING")
		if in := b.asksIn(charge); in != b.cfg.ReconcileEvery {
			t.Errorf("round %d: asked again in %v, want %v", asked, in, b.cfg.ReconcileEvery)
		}
		b.later(b.cfg.ReconcileEvery - time.Second)
		if n := b.askDue(r); n != 0 {
			t.Errorf("round %d: asked again too early", asked)
		}
		b.later(time.Second)
	}
	if n := row[int](b, `select asked from charges`); n != len(answers) {
		t.Errorf("asked %d times, want %d", n, len(answers))
	}
}

// When a question is over: see the contract's rules.
func TestWhenQuestionsEnd(t *testing.T) {
	const givenUp = "REFUND_RESOLVED"
	b := newBackstage(t)
	b.cfg.Hold = 72 * time.Hour
	tests := []struct {
		name  string
		sent  time.Duration // ago
		state string        // before, "" for in flight
		bank  []string      // statuses of its payments there
		after string
		next  time.Duration // until the next question, -1 for none

		id uuid.UUID
	}{
		{name: "in flight and pending", sent: time.Minute, bank: []string{pending}, after: "CHARGING", next: 30 * time.Second},
		{name: "in flight and unknown, for days", sent: 50 * time.Hour, after: "CHARGING", next: 30 * time.Second},
		{name: "in flight, now declined: once more, at its hard timeout", sent: time.Minute, bank: []string{declined}, after: "DECLINED", next: 14 * time.Minute},
		{name: "in flight, now declined, and tried again by the provider", sent: time.Minute, bank: []string{declined, pending}, after: "DECLINED", next: 30 * time.Second},
		{name: "given up, unknown", sent: 20 * time.Minute, state: givenUp, after: givenUp, next: 30 * time.Second},
		{name: "given up, pending", sent: 20 * time.Minute, state: givenUp, bank: []string{pending}, after: givenUp, next: 30 * time.Second},
		{name: "given up, declined", sent: 20 * time.Minute, state: givenUp, bank: []string{declined}, after: givenUp, next: -1},
		{name: "given up, captured", sent: 20 * time.Minute, state: givenUp, bank: []string{paymentCaptured}, after: givenUp, next: -1},
		{name: "given up, declined, and tried again by the provider", sent: 20 * time.Minute, state: givenUp, bank: []string{declined, pending}, after: givenUp, next: 30 * time.Second},
		{name: "given up, unknown for a day", sent: 25 * time.Hour, state: givenUp, after: givenUp, next: -1},
		{name: "given up, pending for a day", sent: 25 * time.Hour, state: givenUp, bank: []string{pending}, after: givenUp, next: -1},
		{name: "declined, at its hard timeout", sent: 15 * time.Minute, state: "DECLINED", after: "DECLINED", next: -1},
		{name: "declined, and tried again by the provider", sent: 15 * time.Minute, state: "DECLINED", bank: []string{pending}, after: "DECLINED", next: 30 * time.Second},
		{name: "failed, at its hard timeout", sent: 15 * time.Minute, state: "FAILED", after: "FAILED", next: -1},
	}
	for i := range tests {
		tt := &tests[i]
		hold := b.hold(tt.sent, policyQuarantine)
		tt.id = b.sent(hold, tt.sent)
		if tt.state != "" {
			b.over(tt.id, tt.state, "hard-timeout", b.now().Add(-time.Minute))
		}
		for _, status := range tt.bank {
			b.bank.has(tt.id, hold, status)
		}
	}
	if n := b.askDue(b.reconciler()); n != len(tests) {
		t.Errorf("%d questions are due, want %d", n, len(tests))
	}
	for _, tt := range tests {
		if got := row[string](b, `select state from charges where charge_id = $1`, tt.id); got != tt.after {
			t.Errorf("%s: the charge is %s, want %s", tt.name, got, tt.after)
		}
		if got := b.asksIn(tt.id); got < tt.next-20*time.Second || got > tt.next {
			t.Errorf("%s: the next question is in %v, want %v", tt.name, got, tt.next)
		}
	}
}

// A provider that tries again by itself after a decline: that attempt buys the
// seat, or goes back when the hold is over, also when nobody tells us of it.
func TestProvidersOwnAttemptIsFound(t *testing.T) {
	b := newBackstage(t)
	hold := b.hold(2*time.Minute, policyQuarantine)
	charge := b.sent(hold, time.Minute)
	b.bank.has(charge, hold, declined)
	own := b.bank.has(charge, hold, pending)
	r := b.reconciler()
	b.askDue(r)
	b.is(hold, "RESERVED HELD DECLINED")
	b.later(31 * time.Second)
	b.askDue(r)
	b.is(hold, "RESERVED HELD DECLINED")
	b.bank.decides(own, paymentCaptured)
	b.later(31 * time.Second)
	b.askDue(r)
	b.is(hold, "CONFIRMED SOLD DECLINED,CAPTURED")
	if got := row[string](b, `select c.payment_id from charges c join holds h on winning_charge = charge_id`); got != own {
		t.Errorf("payment %s pays for the seat, want the provider's own %s", got, own)
	}
}

// Two replicas ask about the same charges, but not both at once, and what one
// claimed and left behind the other asks about later.
func TestQuestionsAreSharedByReplicas(t *testing.T) {
	b := newBackstage(t)
	const orders = 30
	for range orders {
		hold := b.hold(2*time.Minute, policyQuarantine)
		b.bank.captures(b.sent(hold, 2*time.Minute), hold)
	}
	dead := b.reconciler()
	left, err := dead.claim(t.Context(), 3) // and then it dies
	if err != nil || len(left) != 3 {
		t.Fatalf("claimed %d: %v", len(left), err)
	}
	running(t, b.reconciler().run, b.reconciler().run)
	sold := func() int { return row[int](b, `select count(*) from seats where state = 'SOLD'`) }
	until(t, "what nobody has claimed", func() (string, bool) { return "", sold() == orders-3 })
	if n := len(b.bank.got("payments", "")); n != orders-3 {
		t.Errorf("%d questions, want %d", n, orders-3)
	}
	b.later(b.cfg.ReconcileEvery)
	until(t, "what the dead one had claimed", func() (string, bool) { return "", sold() == orders })
	if n := len(b.bank.got("payments", "")); n != orders || b.bank.atOnce() != 1 {
		t.Errorf("%d questions, up to %d at once about one charge; want %d, never two at once", n, b.bank.atOnce(), orders)
	}
}
