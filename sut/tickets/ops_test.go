package tickets

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// refundCall is the body of POST /tickets/ops/refunds.
func refundCall(payment string, amount int64) string {
	return fmt.Sprintf(`{"payment_id":%q,"amount":%d}`, payment, amount)
}

func TestRefundsByStaffAreValidated(t *testing.T) {
	b := newBackstage(t)
	b.cfg.ReconcileAfter = 24 * time.Hour
	b.bank.answers(func(kind, _ string) int {
		if kind == "refund" {
			return http.StatusServiceUnavailable
		}
		return properly
	})
	b.seats("A-100", "A-101", "A-102")
	r := b.replica("sut-1")
	paid, _ := r.buy("member-100", "A-100", paymentCaptured)
	refused, _ := r.buy("member-101", "A-101", declined)
	waiting, _ := r.buy("member-102", "A-102", pending)
	_, late := b.late()
	_, done := b.late()
	b.refundedBack(done)
	id := func(hold uuid.UUID) string { return b.bank.under(hold)[0].ID }
	for _, tt := range []struct{ name, who, body, want string }{
		{"no one", "", refundCall(late, 4500), "401 unauthorized"},
		{"a member", "member-100", refundCall(late, 4500), "403 forbidden"},
		{"no JSON", "staff-1", `{`, "400 bad-request"},
		{"a part of a cent", "staff-1", `{"payment_id":"x","amount":4500.5}`, "400 bad-request"},
		{"no amount", "staff-1", `{"payment_id":"` + late + `"}`, "400 bad-request"},
		{"less than nothing", "staff-1", refundCall(late, -1), "400 bad-request"},
		{"no payment", "staff-1", `{"amount":4500}`, "400 bad-request"},
		{"one member more", "staff-1", `{"payment_id":"x","amount":4500,"force":true}`, "400 bad-request"},
		{"unknown, whatever the amount", "staff-1", refundCall("pay-0", 1), "404 unknown-payment"},
		{"too much", "staff-1", refundCall(late, 4501), "422 refund-too-large"},
		{"too little", "staff-1", refundCall(late, 4499), "422 refund-partial"},
		{"the amount comes first", "staff-1", refundCall(done, 4499), "422 refund-partial"},
		{"the amount comes first, also of what pays for a seat", "staff-1", refundCall(id(paid), 4501), "422 refund-too-large"},
		{"pays for a seat", "staff-1", refundCall(id(paid), 4500), "409 not-refundable"},
		{"declined", "staff-1", refundCall(id(refused), 4500), "409 not-refundable"},
		{"not decided", "staff-1", refundCall(id(waiting), 4500), "409 not-refundable"},
		{"done", "staff-1", refundCall(done, 4500), "409 already-refunded"},
		{"waiting", "staff-1", refundCall(late, 4500), "202"},
	} {
		if kind, doc := r.send("POST", "/tickets/ops/refunds", tt.who, tt.body); kind != tt.want {
			t.Errorf("%s: %s %v, want %s", tt.name, kind, doc, tt.want)
		}
	}
	b.is(paid, "CONFIRMED SOLD CAPTURED")
}

// A parked refund waits for staff for ever, is shown to them, and is tried at
// once when they say so.
func TestStaffHaveAParkedRefundTried(t *testing.T) {
	b := newBackstage(t)
	b.cfg.RefundParkAfter = 1
	b.bank.answers(func(string, string) int { return http.StatusServiceUnavailable })
	hold, payment := b.late()
	r := b.replica("sut-1")
	type shown struct {
		state        string
		parked       bool
		attempts     float64
		captured, at bool
	}
	look := func() (s shown, why string) {
		_, doc := r.send("GET", "/tickets/ops/desync", "staff-1", "")
		list, _ := doc["captured_without_seat"].([]any)
		if len(list) != 1 {
			return s, fmt.Sprint(doc)
		}
		one := list[0].(map[string]any)
		refund := one["refund"].(map[string]any)
		since, err := time.Parse(time.RFC3339, one["since"].(string))
		s = shown{
			refund["state"].(string), refund["parked"].(bool), refund["attempts"].(float64),
			one["payment_id"] == payment && one["hold_id"] == hold.String() && one["amount"] == 4500.0 && one["currency"] == "EUR" && one["state"] == "REFUNDING" && one["login"] == "member-1" && one["seat"] == "A-1" && one["show_id"] == 1.0,
			err == nil && !since.After(b.now()) && since.After(b.now().Add(-time.Hour)),
		}
		return s, refund["last_error"].(string)
	}
	until(t, "it to be parked", func() (string, bool) {
		s, why := look()
		return fmt.Sprint(s, why), s == shown{"PENDING", true, 1, true, true} && strings.Contains(why, "answered 503")
	})
	until(t, "the figures", func() (string, bool) {
		seen := r.metric(`overbook_tickets_refunds{state="PARKED"}`) + r.metric(`overbook_tickets_captured_without_seat`) + r.metric(`overbook_tickets_refunds{state="PENDING"}`)
		return seen, seen == "110"
	})
	for attempt := 2; attempt <= 3; attempt++ { // parked again each time
		kind, doc := r.send("POST", "/tickets/ops/refunds", "staff-1", refundCall(payment, 4500))
		if kind != "202" || doc["state"] != "PENDING" || doc["payment_id"] != payment || doc["amount"] != 4500.0 || doc["refund_id"] != b.bank.got("refund", "")[0].about {
			t.Errorf("answered %s %v", kind, doc)
		}
		until(t, "another attempt", func() (string, bool) { s, why := look(); return why, s.parked && s.attempts == float64(attempt) })
	}
	b.bank.answers(nil)
	r.send("POST", "/tickets/ops/refunds", "staff-1", refundCall(payment, 4500))
	b.becomes(hold, "EXPIRED - REFUNDED DONE")
	if n := b.bank.returned(payment); n != 1 {
		t.Errorf("given back %d times", n)
	}
	if kind, _ := r.send("POST", "/tickets/ops/refunds", "staff-1", refundCall(payment, 4500)); kind != "409 already-refunded" {
		t.Errorf("once more: %s", kind)
	}
}

// A refund that rests after a failure is tried when staff say so.
func TestStaffEndARest(t *testing.T) {
	b := newBackstage(t)
	hold, payment := b.late()
	b.exec(`update refunds set attempts = 2, last_error = 'down', next_attempt_at = $1`, b.now().Add(30*time.Second))
	r := b.replica("sut-1")
	if kind, _ := r.send("POST", "/tickets/ops/refunds", "staff-1", refundCall(payment, 4500)); kind != "202" {
		t.Errorf("answered %s", kind)
	}
	b.becomes(hold, "EXPIRED - REFUNDED DONE")
	if late := row[bool](b, `select done_at > created_at + interval '20 s' from refunds`); late {
		t.Error("it was left to rest")
	}
}

// Staff who are impatient don't have a refund tried twice at a time.
func TestStaffDontDoubleARefund(t *testing.T) {
	b := newBackstage(t)
	_, payment := b.late()
	arrived, free := make(chan struct{}, 10), make(chan struct{})
	b.bank.answers(func(string, string) int { arrived <- struct{}{}; <-free; return properly })
	t.Cleanup(func() { b.bank.answers(nil) })
	one, two := b.replica("sut-1"), b.replica("sut-2")
	<-arrived
	for _, r := range []*replica{one, two, one, two} {
		if kind, _ := r.send("POST", "/tickets/ops/refunds", "staff-1", refundCall(payment, 4500)); kind != "202" {
			t.Errorf("answered %s", kind)
		}
	}
	other := b.refunder()
	if due, err := other.claim(t.Context(), 10); err != nil || len(due) != 0 {
		t.Errorf("what is being tried is due: %v %v", due, err)
	}
	close(free)
	until(t, "the refund", func() (string, bool) {
		return "", row[int](b, `select count(*) from refunds where state = 'DONE'`) == 1
	})
	if n := len(b.bank.got("refund", "")); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// What the ops view and the gauges tell, of orders of every kind.
func TestWhatIsOutOfStep(t *testing.T) {
	b := newBackstage(t)
	m := newMeters()
	f := newFigures(b.store(), b.cfg, m)
	capture := func(hold uuid.UUID, payment string) {
		b.callback(hold, func(ctx context.Context, o *order) (string, error) {
			return o.outcome(ctx, b.now(), b.bank.told(payment), byCallback)
		})
	}
	paid := b.hold(time.Minute, policyQuarantine) // its first charge was declined by the answer, then captured after all; a second one had won by then
	first := b.sent(paid, 50*time.Second)
	firstPayment := b.bank.has(first, paid, declined)
	b.over(first, "DECLINED", byAnswer, b.now().Add(-49*time.Second))
	b.exec(`update charges set payment_id = $2 where charge_id = $1`, first, firstPayment)
	winner := b.sent(paid, 40*time.Second)
	capture(paid, b.bank.captures(winner, paid))
	b.bank.decides(firstPayment, paymentCaptured)
	capture(paid, firstPayment)
	_, late := b.late()
	_, back := b.late()
	b.refundedBack(back)
	forgotten := b.hold(time.Hour, policyRelease) // its questions are over
	b.over(b.sent(forgotten, 50*time.Minute), "REFUND_RESOLVED", "hard-timeout", b.now())
	b.exec(`update charges set next_ask_at = null where hold_id = $1`, forgotten)
	flying := b.sent(b.hold(2*time.Minute, policyQuarantine), 100*time.Second)
	given := b.sent(b.hold(20*time.Minute, policyQuarantine), 1000*time.Second)
	b.over(given, "REFUND_RESOLVED", "hard-timeout", b.now())

	kinds := func(doc map[string]any, list string) (got []string) {
		for _, one := range doc[list].([]any) {
			got = append(got, one.(map[string]any)["charge_id"].(string)+" "+one.(map[string]any)["state"].(string))
		}
		return got
	}
	b.cfg.Tick, b.cfg.ReconcileAfter = time.Hour, time.Hour
	b.bank.answers(func(string, string) int { return http.StatusServiceUnavailable })
	r := b.replica("sut-1")
	_, doc := r.send("GET", "/tickets/ops/desync", "staff-1", "")
	lateID := row[string](b, `select charge_id::text from charges where payment_id = $1`, late)
	if diff := cmp.Diff([]string{first.String() + " DECLINED", lateID + " REFUNDING"}, kinds(doc, "captured_without_seat")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{given.String() + " REFUND_RESOLVED", flying.String() + " CHARGING"}, kinds(doc, "unresolved")); diff != "" {
		t.Error(diff)
	}
	if err := f.count(t.Context()); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	m.write(&text)
	contains(t, text.String(), `unresolved_charges{state="CHARGING"} 1`, `unresolved_charges{state="REFUND_RESOLVED"} 1`, `captured_without_seat 2`,
		`refunds{state="PENDING"} 2`, `refunds{state="DONE"} 1`, `refunds{state="PARKED"} 0`)
	if age := f.oldestUnresolved(f.last.Load()); age < 1000 || age > 1100 {
		t.Errorf("the oldest is unresolved for %v s, want 1000", age)
	}
}

// The lag is of charges that their answer did not settle, from when they were
// sent to when that was stored.
func TestReconciliationLag(t *testing.T) {
	b := newBackstage(t)
	f := newFigures(b.store(), b.cfg, newMeters())
	count := func() (p95, most float64) {
		t.Helper()
		if err := f.count(t.Context()); err != nil {
			t.Fatal(err)
		}
		return f.last.Load().lag95, f.last.Load().lagMost
	}
	if p95, most := count(); p95 != 0 || most != 0 {
		t.Errorf("before anything: %v, %v", p95, most)
	}
	resolve := func(after time.Duration, by string) uuid.UUID {
		id := b.sent(b.hold(0, policyQuarantine), 2*time.Hour)
		b.over(id, "DECLINED", by, row[time.Time](b, `select sent_at from charges where charge_id = $1`, id).Add(after))
		return id
	}
	resolve(time.Hour, byAnswer) // however late
	for n := range 100 {
		resolve(time.Duration(n+1)*time.Second, []string{byCallback, byReconciliation}[n%2])
	}
	b.sent(b.hold(0, policyQuarantine), 3*time.Hour) // nobody knows yet
	if p95, most := count(); p95 < 95.0499 || p95 > 95.0501 || most != 100 {
		t.Errorf("p95 %v, max %v; want 95.05 and 100", p95, most)
	}
	late := resolve(900*time.Second, "hard-timeout")
	if _, most := count(); most != 900 {
		t.Errorf("given up after 900 s: max %v", most)
	}
	b.exec(`update charges set settled_at = sent_at + interval '5000 s' where charge_id = $1`, late)
	if _, most := count(); most != 5000 {
		t.Errorf("given up, settled after 5000 s: max %v", most)
	}
}
