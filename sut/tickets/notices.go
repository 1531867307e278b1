package tickets

import (
	"context"
	"time"

	"github.com/overbook/overbook/sut/outbox"
)

// noticing is how long one statement on outbox or notices may take.
const noticing = 5 * time.Second

// sqlNotice writes what members are told: marker and effect are one row, so
// that an event that comes again changes nothing.
const sqlNotice = `
insert into notices (event_id, hold_id, seq, login, type, at)
select e.event_id, e.hold_id, e.seq, h.login, e.type, $2
from outbox e join holds h using (hold_id) where e.event_id = any($1::text[]::uuid[])
on conflict (event_id) do nothing`

// notices tells members what became of their orders: it relays committed
// events into the table that GET /tickets/orders shows, in order for each order.
type notices struct {
	st    *store
	cfg   Config
	relay *outbox.Relay
}

func newNotices(st *store, cfg Config, m *meters) *notices {
	n := &notices{st: st, cfg: cfg}
	n.relay = outbox.New(noticeStore{outbox.NewPostgres(st.Pool(), "outbox", "hold_id")}, n.consume, outbox.Config{
		Interval: cfg.Tick, Clock: cfg.Clock, Log: cfg.Log,
	})
	m.gauge("overbook_tickets_outbox_oldest_pending_seconds", func() float64 { return n.relay.OldestPending().Seconds() })
	m.gauge("overbook_tickets_outbox_parked_total", func() float64 { return float64(n.relay.Parked()) })
	return n
}

// run relays until the context ends.
func (n *notices) run(ctx context.Context) { n.relay.Run(ctx) }

func (n *notices) consume(ctx context.Context, events []outbox.Event) error {
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	ctx, cancel := context.WithTimeout(ctx, noticing)
	defer cancel()
	_, err := n.st.Pool().Exec(ctx, sqlNotice, ids, n.cfg.Clock.Now())
	return err
}

// noticeStore is the outbox with a deadline for each statement, so that a
// database that fell silent does not silence the relay for good.
type noticeStore struct{ outbox *outbox.Postgres }

// Claim is of [outbox.Store].
func (s noticeStore) Claim(ctx context.Context, now, until time.Time, most int) ([]outbox.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, noticing)
	defer cancel()
	return s.outbox.Claim(ctx, now, until, most)
}

// Delivered is of [outbox.Store].
func (s noticeStore) Delivered(ctx context.Context, ids []string, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, noticing)
	defer cancel()
	return s.outbox.Delivered(ctx, ids, now)
}

// Failed is of [outbox.Store].
func (s noticeStore) Failed(ctx context.Context, id, reason string, now, again time.Time, park int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, noticing)
	defer cancel()
	return s.outbox.Failed(ctx, id, reason, now, again, park)
}

// OldestPending is of [outbox.Store].
func (s noticeStore) OldestPending(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, noticing)
	defer cancel()
	return s.outbox.OldestPending(ctx)
}
