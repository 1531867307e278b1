package telescope

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/sut/clock"
)

// One event in a full batch is poison: it is tried as often as it may be, one
// call an attempt, then parked. All others go out once, at once, but for the
// one behind it on the same slot.
func TestPoisonIsParkedAndHoldsUpNobodyElse(t *testing.T) {
	b := newBackstage(t)
	var poison string
	o := newPostOffice(t, func(p post, _ int) int {
		if p.Event == poison {
			return http.StatusUnprocessableEntity
		}
		return http.StatusAccepted
	})
	var others []string
	for slot := range int64(mailBatch) {
		others = append(others, b.event(slot+10, 1, "BOOKED"))
	}
	poison = others[3]
	others = slices.Delete(others, 3, 4)
	behind := b.event(13, 2, "CANCELLED")
	m := b.mailer(o)
	b.pump(m)
	for _, id := range others {
		if n := o.times(id); n != 1 {
			t.Errorf("event %s was sent %d times, want once", id, n)
		}
	}
	if o.times(poison) != 1 || o.times(behind) != 0 {
		t.Errorf("after a round: poison %d times, the one behind it %d times; want 1 and 0", o.times(poison), o.times(behind))
	}
	for range b.cfg.EmailParkAfter {
		b.later(m)
	}
	if o.times(poison) != b.cfg.EmailParkAfter || o.times(behind) != 1 {
		t.Errorf("in the end: poison %d times, the one behind it %d times; want %d and 1", o.times(poison), o.times(behind), b.cfg.EmailParkAfter)
	}
	why := value[string](b, `select last_error from outbox where parked_at is not null and delivered_at is null and event_id = $1`, poison)
	if !strings.Contains(why, "answered 422") || m.parked() != 1 || m.oldestPending() != 0 {
		t.Errorf("parked %d for %q, oldest pending %v", m.parked(), why, m.oldestPending())
	}
	if n := value[int](b, `select count(*) from email_deliveries where event_id = $1`, poison); n != 0 {
		t.Error("a mail that was refused has a row")
	}
}

func TestUnreadableEventsAreParkedWithoutACall(t *testing.T) {
	b := newBackstage(t)
	o := newPostOffice(t, nil)
	for slot, payload := range []string{`[]`, `{"event":"BOOKED"}`, `{"event":"BOOKED","booking_id":"b","member":null}`} {
		b.exec(`insert into outbox (slot_id, seq, type, payload, created_at) values ($1, 1, 'telescope.booked', $2, $3)`, slot, payload, b.cfg.Clock.Now())
	}
	m := b.mailer(o)
	for range b.cfg.EmailParkAfter {
		b.later(m)
	}
	if m.parked() != 3 || len(o.got()) != 0 {
		t.Errorf("parked %d, want 3; the provider got %v", m.parked(), o.got())
	}
}

// The provider is away for a while, in every way: all mails come, in order,
// under their own ids, and none is parked.
func TestOutageLosesNothing(t *testing.T) {
	b := newBackstage(t)
	b.cfg.EmailTimeout = 100 * time.Millisecond
	ways := []int{http.StatusServiceUnavailable, dropped, http.StatusOK, http.StatusFound}
	o := newPostOffice(t, func(p post, n int) int {
		if n == 3 {
			return http.StatusAccepted
		}
		return ways[(int(p.Slot)+n)%len(ways)]
	})
	var want []string
	for slot := range int64(8) {
		want = append(want, b.event(slot+1, 1, "BOOKED"), b.event(slot+1, 2, "CANCELLED"))
	}
	m := b.mailer(o)
	for range 6 {
		b.later(m)
	}
	for _, id := range want {
		if n := o.times(id); n != 3 {
			t.Errorf("event %s: %d posts, want 3", id, n)
		}
	}
	last := map[int64]string{}
	for _, p := range o.got() {
		if p.Key != p.Event {
			t.Errorf("post %+v: key and event differ", p)
		}
		if last[p.Slot] == "CANCELLED" && p.Kind == "BOOKED" {
			t.Errorf("slot %d: BOOKED after CANCELLED", p.Slot)
		}
		last[p.Slot] = p.Kind
	}
	if n := value[int](b, `select count(*) from outbox where delivered_at is null or attempts <> 3`); n != 0 || m.parked() != 0 {
		t.Errorf("%d not delivered at the third attempt, %d parked", n, m.parked())
	}
}

// A provider that does not answer costs one event its attempt; the others of
// the batch go on beside it.
func TestSilentProviderIsGivenUp(t *testing.T) {
	b := newBackstage(t)
	b.cfg.EmailTimeout = 150 * time.Millisecond
	release := make(chan struct{})
	o := newPostOffice(t, func(p post, n int) int {
		if p.Slot == 1 && n == 1 {
			<-release
		}
		return http.StatusAccepted
	})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	silent := b.event(1, 1, "BOOKED")
	other := b.event(2, 1, "BOOKED")
	m := b.mailer(o)
	b.pump(m)
	if n := value[int](b, `select count(*) from outbox where event_id = $1 and delivered_at is not null`, other); n != 1 {
		t.Error("the other event is not delivered")
	}
	if why := value[string](b, `select last_error from outbox where event_id = $1`, silent); !strings.Contains(why, "no answer") {
		t.Errorf("the reason is %q", why)
	}
	b.cfg.Clock.Set(3 * time.Second)
	if age := value[int](b, `select count(*) from outbox where delivered_at is null`); age != 1 || m.oldestPending() < 3*time.Second {
		t.Errorf("%d pending, the oldest for %v", age, m.oldestPending())
	}
	free()
	b.later(m)
	if o.times(silent) != 2 || m.oldestPending() != 0 {
		t.Errorf("sent %d times, oldest pending %v", o.times(silent), m.oldestPending())
	}
}

// The transport would send a request with an Idempotency-Key again by itself
// when a kept connection turns out to be dead. An attempt is one request.
func TestOneAttemptIsOneRequest(t *testing.T) {
	b := newBackstage(t)
	o := newPostOffice(t, func(p post, n int) int {
		if p.Slot == 2 && n == 1 {
			return dropped
		}
		return http.StatusAccepted
	})
	b.event(1, 1, "BOOKED")
	m := b.mailer(o)
	b.pump(m) // leaves a connection behind
	id := b.event(2, 1, "BOOKED")
	b.pump(m)
	if n := o.times(id); n != 1 {
		t.Errorf("one attempt made %d requests", n)
	}
	b.later(m)
	if n := o.times(id); n != 2 {
		t.Errorf("two attempts made %d requests", n)
	}
}

func TestEachEventIsTriedOnItsOwn(t *testing.T) {
	b := newBackstage(t)
	o := newPostOffice(t, func(post, int) int { return http.StatusServiceUnavailable })
	b.event(1, 1, "BOOKED")
	b.event(2, 1, "BOOKED")
	m := b.mailer(o)
	b.pump(m)
	if n := len(o.got()); n != 2 {
		t.Errorf("a round in which all fail makes %d calls, want one for each of the two", n)
	}
	b.cfg.EmailInterval = time.Millisecond
	b.cfg.Clock.Set(time.Minute)
	m = b.mailer(o)
	stop := background(t, m.run)
	until(t, "both to be parked", func() bool { return m.parked() == 2 })
	stop()
	if n := len(o.got()); n != 2*b.cfg.EmailParkAfter {
		t.Errorf("%d calls until both were parked, want %d for each", n, b.cfg.EmailParkAfter)
	}
}

func TestPausesBetweenAttemptsDouble(t *testing.T) {
	var got []int
	for attempts := range 9 {
		got = append(got, int(pauseAfter(attempts, 100*time.Millisecond).Milliseconds()))
	}
	if diff := cmp.Diff([]int{100, 100, 200, 400, 800, 1600, 3200, 3200, 3200}, got); diff != "" {
		t.Error(diff)
	}
	b := newBackstage(t)
	b.cfg.EmailInterval = time.Hour
	o := newPostOffice(t, func(post, int) int { return http.StatusServiceUnavailable })
	b.event(1, 1, "BOOKED")
	m := b.mailer(o)
	for _, at := range []struct {
		hours    float64
		attempts int
	}{{0, 1}, {0.9, 1}, {1.1, 2}, {3, 2}, {3.2, 3}, {7.1, 3}, {7.3, 4}} {
		b.cfg.Clock.Set(time.Duration(at.hours * float64(time.Hour)))
		b.pump(m)
		if n := len(o.got()); n != at.attempts {
			t.Errorf("%d attempts after %g hours, want %d", n, at.hours, at.attempts)
		}
	}
}

// A database that is gone while mails go out: nothing is lost, and the mailer
// goes on by itself.
func TestMailerOutlivesItsConnections(t *testing.T) {
	b := newBackstage(t)
	o := newPostOffice(t, func(_ post, n int) int {
		if n == 1 {
			ctx, cancel := context.WithTimeout(context.Background(), soon)
			defer cancel()
			_, _ = b.pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'backstage' and pid <> pg_backend_pid()`)
		}
		return http.StatusAccepted
	})
	for slot := range int64(5) {
		b.event(slot+1, 1, "BOOKED")
	}
	b.cfg.EmailInterval, b.cfg.EmailParkAfter = 10*time.Millisecond, 100
	background(t, b.mailer(o).run)
	var mailed int
	until(t, "all events to be delivered", func() bool {
		b.cfg.Clock.Set(b.cfg.Clock.Offset() + time.Second) // so that claims of lost rounds run out
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		_ = clock.Pause(ctx, 20*time.Millisecond)
		var left int
		err := b.pool.QueryRow(ctx, `select count(*) filter (where o.delivered_at is null), count(d.event_id)
			from outbox o left join email_deliveries d using (event_id)`).Scan(&left, &mailed)
		return err == nil && left == 0 // the connection may be one of those that were cut
	})
	if mailed != 5 {
		t.Errorf("%d events have their mail, want all 5", mailed)
	}
}
