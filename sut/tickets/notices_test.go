package tickets

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/outbox"
)

func (b *backstage) notices() *notices {
	b.t.Helper()
	return newNotices(b.store(), b.cfg, newMeters())
}

// Two relays write every event's notice once, in the order of the order.
func TestNotices(t *testing.T) {
	b := newBackstage(t)
	b.cfg.RefundParkAfter = 100
	holds := make([]uuid.UUID, 10)
	for i := range holds {
		var payment string
		holds[i], payment = b.late()
		b.refundedBack(payment)
	}
	running(t, b.notices().run, b.notices().run)
	events := row[int](b, `select count(*) from outbox`)
	until(t, "all notices", func() (string, bool) {
		return "", row[int](b, `select count(*) from outbox where delivered_at is not null`) == events
	})
	for _, hold := range holds {
		got := row[string](b, `select string_agg(seq || ' ' || type, ', ' order by seq) from notices where hold_id = $1`, hold)
		want := "1 hold.expired, 2 charge.captured, 3 refund.pending, 4 charge.refunding, 5 refund.done, 6 charge.refunded"
		if got != want {
			t.Errorf("notices %q, want %q", got, want)
		}
	}
	if n := row[int](b, `select count(*) from notices n join holds h using (hold_id) join outbox e using (event_id)
		where n.login = h.login and n.type = e.type and n.seq = e.seq`); n != events || events != 60 {
		t.Errorf("%d of %d notices fit their event and are to the hold's login, want 60", n, events)
	}
}

// A relay that dies after it has written notices: they are written once.
func TestNoticesAreWrittenOnce(t *testing.T) {
	b := newBackstage(t)
	hold, _ := b.late()
	dead := b.notices()
	store := noticeStore{outbox.NewPostgres(b.pool, "outbox", "hold_id")}
	events, err := store.Claim(t.Context(), b.now(), b.now().Add(1), 1)
	if err != nil || len(events) != 1 {
		t.Fatalf("claimed %d: %v", len(events), err)
	}
	for range 2 {
		if err := dead.consume(context.Background(), events); err != nil {
			t.Fatal(err)
		}
	}
	running(t, b.notices().run)
	until(t, "all notices", func() (string, bool) {
		return "", row[int](b, `select count(*) from outbox where delivered_at is null`) == 0
	})
	if n := row[int](b, `select count(*) from notices where hold_id = $1 and seq = 1`, hold); n != 1 {
		t.Errorf("%d notices of the first event", n)
	}
}
