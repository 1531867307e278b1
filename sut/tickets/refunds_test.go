package tickets

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func (b *backstage) refunder() *refunder {
	b.t.Helper()
	m := newMeters()
	return newRefunder(b.store(), newProvider(b.cfg, m), b.cfg, m)
}

func TestPausesOfRefundsDouble(t *testing.T) {
	var got []time.Duration
	for attempts := range 9 {
		got = append(got, backoff(time.Second, attempts)/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{1, 1, 2, 4, 8, 16, 32, 60, 60}, got); diff != "" {
		t.Error(diff)
	}
	if got := backoff(5*time.Minute, 7); got != 5*time.Minute {
		t.Errorf("a first pause of five minutes becomes %v", got)
	}
	if got := backoff(time.Nanosecond, 1_000_000); got != time.Minute {
		t.Errorf("after a million attempts the pause is %v", got)
	}
}

// Two replicas share the queue: every refund is made once, and none is asked
// for by two at the same time.
func TestRefundsAreSharedByReplicas(t *testing.T) {
	b := newBackstage(t)
	const orders = 30
	var payments []string
	var last int
	for range orders {
		hold, payment := b.late()
		b.is(hold, "EXPIRED - REFUNDING PENDING")
		payments = append(payments, payment)
	}
	running(t, b.refunder().run, b.refunder().run)
	until(t, "all refunds to be done", func() (string, bool) {
		last = row[int](b, `select count(*) from charges c join refunds r using (charge_id) where c.state = 'REFUNDED' and r.state = 'DONE' and r.attempts = 1`)
		return "", last == orders
	})
	for _, p := range payments {
		if n := b.bank.returned(p); n != 1 {
			t.Errorf("payment %s was given back %d times", p, n)
		}
	}
	if n := len(b.bank.got("refund", "")); n != orders || b.bank.atOnce() != 1 {
		t.Errorf("%d calls, up to %d at once about one refund; want %d, never two at once", n, b.bank.atOnce(), orders)
	}
	for _, c := range b.bank.got("refund", "") {
		if c.op == "" || c.traceparent == "" {
			t.Errorf("call %+v does not say which request it is of", c)
		}
	}
}

// Who dies between claim and call, or between call and store, leaves a refund
// that another takes up once the claim has run out, under the same id.
func TestRefundOfADeadReplicaIsTakenUp(t *testing.T) {
	t.Parallel()
	for _, called := range []bool{false, true} {
		t.Run(map[bool]string{false: "before the call", true: "after the call"}[called], func(t *testing.T) {
			b := newBackstage(t)
			hold, payment := b.late()
			dead := b.refunder()
			claimed, err := dead.claim(t.Context(), 10)
			if err != nil || len(claimed) != 1 {
				t.Fatalf("claimed %d: %v", len(claimed), err)
			}
			if called {
				if err := dead.provider.refund(t.Context(), claimed[0].refund, claimed[0].by); err != nil {
					t.Fatal(err)
				}
			}
			alive := b.refunder()
			if others, err := alive.claim(t.Context(), 10); err != nil || len(others) != 0 {
				t.Errorf("another one claims it meanwhile: %v, %v", others, err)
			}
			b.later(b.cfg.PaymentTimeout + 2*refundStoring)
			running(t, alive.run)
			b.becomes(hold, "EXPIRED - REFUNDED DONE")
			if n := b.bank.returned(payment); n != 1 {
				t.Errorf("the bank gave the money back %d times", n)
			}
		})
	}
}

// A provider that refuses or is down, in any way, costs attempts whose pauses
// double in server time; then the refund waits for staff, and is never forgotten.
func TestRefundFailsAndIsParked(t *testing.T) {
	b := newBackstage(t)
	answers := []int{http.StatusServiceUnavailable, http.StatusUnprocessableEntity, http.StatusNotFound, http.StatusConflict, http.StatusAccepted, dropped}
	of := map[string]int{} // answer by refund
	for _, answer := range answers {
		hold, payment := b.late()
		b.is(hold, "EXPIRED - REFUNDING PENDING")
		of[row[string](b, `select refund_id::text from refunds where payment_id = $1`, payment)] = answer
	}
	b.bank.answers(func(_, refund string) int { return of[refund] })
	r := b.refunder()
	for _, step := range []struct {
		later time.Duration
		want  int // attempts of each until then
	}{{0, 1}, {0, 1}, {1100 * time.Millisecond, 2}, {1100 * time.Millisecond, 2}, {time.Second, 3}, {time.Hour, 3}} {
		b.later(step.later)
		due, err := r.claim(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range due {
			r.try(t.Context(), a)
		}
		for refund, answer := range of {
			if n := len(b.bank.got("refund", refund)); n != step.want {
				t.Errorf("answered with %d: %d attempts, want %d", answer, n, step.want)
			}
		}
	}
	if n := row[int](b, `select count(*) from refunds join charges c using (charge_id) where parked_at is not null and refunds.state = 'PENDING' and c.state = 'REFUNDING'
		and attempts = 3 and last_error <> ''`); n != len(answers) {
		t.Errorf("%d are parked with their reason, want %d", n, len(answers))
	}
}

// A callback that says that the money is back is enough, whichever comes first;
// the failure of an attempt that was under way then changes nothing.
func TestRefundDoneByCallbackWhileItIsTried(t *testing.T) {
	b := newBackstage(t)
	b.cfg.RefundParkAfter = 1
	hold, payment := b.late()
	var once sync.Once
	b.bank.answers(func(string, string) int {
		once.Do(func() { b.refundedBack(payment) })
		return http.StatusServiceUnavailable
	})
	stop := running(t, b.refunder().run)
	b.becomes(hold, "EXPIRED - REFUNDED DONE")
	stop()
	if n := row[int](b, `select count(*) from refunds where attempts = 1 and last_error is null and parked_at is null`); n != 1 {
		t.Error("the failure of an attempt that nobody needed any more is stored")
	}
	if n := row[int](b, `select count(*) from ticket_audit where subject = 'refund' and to_state = 'DONE'`); n != 1 {
		t.Errorf("it was done %d times", n)
	}
	b.refundedBack(payment)
	b.later(time.Hour)
	again := b.refunder()
	if due, err := again.claim(t.Context(), 10); err != nil || len(due) != 0 {
		t.Errorf("what is done is claimed: %v, %v", due, err)
	}
}

// refundedBack tells of a refund as a callback does.
func (b *backstage) refundedBack(payment string) {
	b.callback(row[uuid.UUID](b, `select hold_id from charges where payment_id = $1`, payment), func(ctx context.Context, o *order) (string, error) {
		return o.refundDone(ctx, b.now(), payment)
	})
}
