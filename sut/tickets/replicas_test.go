package tickets

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// soundly checks what must hold of the records after any run. It is for orders
// that were made by replicas: those put there by hand have no history.
func (b *backstage) soundly() {
	b.t.Helper()
	for what, sql := range unsound {
		if n := row[int](b, sql); n != 0 {
			b.t.Errorf("%d %s", n, what)
		}
	}
}

// The bank takes the money, and neither its answer nor a callback arrives. Two
// replicas find out, and one of them tells.
func TestCapturedWithoutAWord(t *testing.T) {
	b := newBackstage(t)
	b.seats("A-1", "A-2")
	b.bank.answers(func(kind, _ string) int {
		if kind == "charge" {
			return lost
		}
		return properly
	})
	one, two := b.replica("sut-1"), b.replica("sut-2")
	paid, kind := one.buy("member-1", "A-1", paymentCaptured)
	if kind != "202" {
		t.Errorf("the charge was answered %s", kind)
	}
	refused, _ := two.buy("member-2", "A-2", declined)
	b.later(b.cfg.ReconcileAfter)
	b.becomes(paid, "CONFIRMED SOLD CAPTURED")
	b.becomes(refused, "RESERVED HELD DECLINED")
	for _, r := range []*replica{one, two} {
		until(t, "the lag to be told", func() (string, bool) {
			seen := r.metric(`overbook_tickets_reconciliation_lag_seconds{quantile="1"}`)
			return seen, strings.HasPrefix(seen, "60.") || strings.HasPrefix(seen, "61.") || strings.HasPrefix(seen, "62.")
		})
	}
	b.later(8 * time.Minute)
	b.becomes(refused, "EXPIRED - DECLINED")
	until(t, "all notices", func() (string, bool) {
		_, doc := two.send("GET", "/tickets/orders/"+paid.String(), "member-1", "")
		var types []string
		for _, n := range doc["notices"].([]any) {
			types = append(types, n.(string))
		}
		seen := strings.Join(types, " ")
		return seen, seen == "hold.reserved charge.charging charge.captured hold.confirmed"
	})
	b.soundly()
}

// Both policies: the hold runs out with a charge in flight, and then the bank
// says that it took the money, or that it did not, or nothing.
func TestHoldRunsOutUnderACharge(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{policyQuarantine, policyRelease} {
		t.Run(policy, func(t *testing.T) {
			b := newBackstage(t)
			b.cfg.ReconcileAfter = 9 * time.Minute // nobody asks before the hold has run out
			b.exec(`update shows set policy = $1`, policy)
			b.seats("A-1", "A-2", "A-3")
			one, two := b.replica("sut-1"), b.replica("sut-2")
			var holds [3]uuid.UUID
			for i, seat := range []string{"A-1", "A-2", "A-3"} {
				holds[i], _ = one.buy("member-"+seat[2:], seat, pending)
			}
			want := map[string][4]string{
				policyQuarantine: {"RESERVED QUARANTINED CHARGING", "CONFIRMED SOLD CAPTURED", "EXPIRED - DECLINED", "EXPIRED - REFUND_RESOLVED"},
				policyRelease:    {"EXPIRED - CHARGING", "EXPIRED - REFUNDED DONE", "EXPIRED - DECLINED", "EXPIRED - REFUND_RESOLVED"},
			}[policy]
			b.later(8 * time.Minute)
			for _, hold := range holds {
				b.becomes(hold, want[0])
			}
			kind, _ := two.send("POST", "/tickets/shows/1/holds", "member-9", `{"seat":"A-1"}`)
			if taken := policy == policyQuarantine; taken != (kind == "409 seat-taken") {
				t.Errorf("the seat of a payment in flight is claimed: %s", kind)
			}
			for i, outcome := range []string{paymentCaptured, declined} {
				for _, p := range b.bank.under(holds[i]) {
					b.bank.decides(p.ID, outcome)
				}
			}
			b.later(61 * time.Second)
			b.becomes(holds[0], want[1])
			b.becomes(holds[1], want[2])
			b.later(6 * time.Minute)
			b.becomes(holds[2], want[3])
			b.soundly()
		})
	}
}

// The bank takes the money after the hard timeout: it goes back, once, however
// often and by whomever we are told, and its seat stays with its new owner.
func TestCaptureAfterTheHardTimeout(t *testing.T) {
	b := newBackstage(t)
	b.seats("A-1")
	one, two := b.replica("sut-1"), b.replica("sut-2")
	hold, _ := one.buy("member-1", "A-1", pending)
	b.later(b.cfg.HardTimeout)
	b.becomes(hold, "EXPIRED - REFUND_RESOLVED")
	owner, kind := two.buy("member-2", "A-1", paymentCaptured)
	if kind != "201" {
		t.Errorf("the next one's charge: %s", kind)
	}
	_, before := two.send("GET", "/tickets/ops/desync", "staff-1", "")
	if n := len(before["unresolved"].([]any)); n != 1 {
		t.Errorf("%d unresolved charges are told of, want the one that was given up", n)
	}
	p := b.bank.under(hold)[0]
	b.bank.decides(p.ID, paymentCaptured)
	told := event("evt-1", "payment.captured", p.ID, p.Reference, p.Intent, p.Amount)
	b.later(b.cfg.ReconcileEvery) // reconciliation and callbacks come together
	for i := range 6 {
		one.callback(told)
		two.callback(strings.Replace(told, "evt-1", "evt-"+string(rune('a'+i)), 1))
	}
	b.becomes(hold, "EXPIRED - REFUND_RESOLVED DONE")
	b.later(2 * time.Hour)
	one.callback(told)
	until(t, "nothing to be left to ask", func() (string, bool) {
		n := row[int](b, `select count(*) from charges where next_ask_at is not null`)
		return "", n == 0
	})
	b.is(owner, "CONFIRMED SOLD CAPTURED")
	if n := b.bank.returned(p.ID); n != 1 || len(b.bank.got("refund", "")) != 1 {
		t.Errorf("given back %d times, by %d calls; want one", n, len(b.bank.got("refund", "")))
	}
	_, after := two.send("GET", "/tickets/ops/desync", "staff-1", "")
	if diff := cmp.Diff(map[string]any{"captured_without_seat": []any{}, "unresolved": []any{}}, after); diff != "" {
		t.Error(diff)
	}
	b.soundly()
}

// A bank that is down for a quarter of an hour, for questions and refunds:
// everything that was left is done once it is back.
func TestBankIsAwayForAWhile(t *testing.T) {
	b := newBackstage(t)
	b.cfg.RefundParkAfter = 1000
	lates := make([]uuid.UUID, 4)
	for i := range lates {
		lates[i], _ = b.late()
	}
	asked := make([]uuid.UUID, 4)
	for i := range asked {
		asked[i] = b.hold(2*time.Minute, policyQuarantine)
		b.bank.captures(b.sent(asked[i], 2*time.Minute), asked[i])
	}
	b.bank.answers(func(kind, about string) int {
		return []int{http.StatusServiceUnavailable, dropped, lost}[(len(kind)+int(about[0]))%3]
	})
	one := b.replica("sut-1")
	b.replica("sut-2")
	for range 10 {
		calls := len(b.bank.got("payments", ""))
		b.later(b.cfg.ReconcileEvery)
		until(t, "questions", func() (string, bool) { n := len(b.bank.got("payments", "")); return "", n >= calls+len(asked) })
	}
	for _, hold := range asked {
		b.is(hold, "RESERVED HELD CHARGING")
	}
	one.end() // in the middle of it
	b.bank.answers(nil)
	b.later(time.Minute)
	for i := range asked {
		b.becomes(asked[i], "CONFIRMED SOLD CAPTURED")
		b.becomes(lates[i], "EXPIRED - REFUNDED DONE")
	}
	if n := b.bank.atOnce(); n != 1 {
		t.Errorf("up to %d calls at once about one thing", n)
	}
}

// callback delivers a callback.
func (r *replica) callback(body string) string {
	req, err := http.NewRequest(http.MethodPost, r.url+"/tickets/provider-callbacks", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Payments-Signature", signatureBy(r.b.cfg.CallbackSecret, body, r.b.now()))
	res, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		r.b.t.Errorf("callback %s: %d", body, res.StatusCode)
	}
	return res.Status
}

// under gives the payments of an order.
func (b *bank) under(hold uuid.UUID) (found []payment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.payments {
		found = append(found, slices.DeleteFunc(slices.Clone(list), func(p payment) bool { return p.Intent != hold.String() })...)
	}
	return found
}
