package telescope

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/overbook/overbook/sut/outbox"
)

// Bounds of the mailer's work.
const (
	mailLanes   = 8               // calls of the provider at once
	mailBatch   = 2 * mailLanes   // events claimed at once
	mailLooking = 5 * time.Second // one statement on the outbox
	mailStoring = 2 * time.Second // storing what the provider took
)

// mailer tells members by mail what became of their bookings. It relays
// committed events to the email provider: at least once, always under the
// event's id, those of one slot in order. What the provider has taken is a row
// in email_deliveries, written after the provider's answer; who dies between
// the two leaves an event that is sent again.
//
// No transaction and no connection is held while the provider is waited for.
type mailer struct {
	cfg      Config
	pool     *pgxpool.Pool
	provider *provider
	relay    *outbox.Relay    // nil: there is no provider, events stay pending
	verdicts map[string]error // by event, of a batch that failed; used by the relay's one goroutine
}

// newMailer gives a mailer; run makes it work. Without EmailURL it never does.
func newMailer(pool *pgxpool.Pool, cfg Config, m *meters) *mailer {
	out := &mailer{cfg: cfg, pool: pool}
	if cfg.EmailURL == "" {
		return out
	}
	out.provider = newProvider(cfg, m)
	out.relay = outbox.New(newMailStore(pool, cfg.EmailInterval), out.consume, outbox.Config{
		Interval: cfg.EmailInterval,
		// A batch takes no longer, even when no call is answered. Who outlasts it
		// all the same costs a second mail, nothing else.
		Claim:     mailBatch/mailLanes*cfg.EmailTimeout + mailStoring,
		Batch:     mailBatch,
		ParkAfter: cfg.EmailParkAfter,
		Clock:     cfg.Clock,
		Log:       cfg.Log,
	})
	return out
}

// run relays until the context ends. Then it begins no more calls, but lets
// those under way end and keeps what they brought: it gives back control after
// EmailTimeout and two seconds for the rows at the latest. Events that it had
// claimed are offered again when the claim has run out; those whose mail went
// out are known by their rows.
func (m *mailer) run(ctx context.Context) {
	if m.relay == nil {
		return
	}
	defer m.provider.close()
	m.relay.Run(ctx)
}

// oldestPending is the age of the oldest event that waits, in server time, as
// of the last look; 0 when none does, or when there is no provider.
func (m *mailer) oldestPending() time.Duration {
	if m.relay == nil {
		return 0
	}
	return m.relay.OldestPending()
}

// parked is how many events this replica has parked since it started.
func (m *mailer) parked() int {
	if m.relay == nil {
		return 0
	}
	return m.relay.Parked()
}

// A mail is what one event has to tell its member.
type mail struct {
	event, kind, to, booking string
	slot                     int64
	traceparent, op          string // of the request that made the event
}

// mailOf reads an event. needed is false when nobody gets a mail for it.
func mailOf(e outbox.Event) (m mail, needed bool, err error) {
	var payload struct {
		Event       string `json:"event"`
		Booking     string `json:"booking_id"`
		Member      string `json:"member"`
		Traceparent string `json:"traceparent"`
		Op          string `json:"op"`
	}
	if err := json.Unmarshal(e.Payload, &payload); err != nil {
		return mail{}, false, fmt.Errorf("read the payload of event %s: %w", e.ID, err)
	}
	switch payload.Event {
	case "BOOKED", "CANCELLED", "FLAGGED":
	default:
		return mail{}, false, nil
	}
	slot, err := strconv.ParseInt(e.Subject, 10, 64)
	if err != nil {
		return mail{}, false, fmt.Errorf("read the slot of event %s: %w", e.ID, err)
	}
	if payload.Booking == "" || payload.Member == "" {
		return mail{}, false, fmt.Errorf("event %s, a %s, names no booking or no member", e.ID, payload.Event)
	}
	return mail{
		event: e.ID, kind: payload.Event, to: payload.Member, booking: payload.Booking, slot: slot,
		traceparent: payload.Traceparent, op: payload.Op,
	}, true, nil
}

// consume is the relay's consumer. When some of a batch fail, the relay offers
// each event again, alone, to learn which: that is known then, and nothing is
// sent a second time for it.
func (m *mailer) consume(ctx context.Context, events []outbox.Event) error {
	if len(events) == 1 {
		if err, known := m.verdicts[events[0].ID]; known {
			delete(m.verdicts, events[0].ID)
			return err
		}
	}
	m.verdicts = nil
	errs := m.deliver(ctx, events)
	err := errors.Join(errs...)
	if err != nil {
		m.verdicts = make(map[string]error, len(events))
		for i, e := range events {
			m.verdicts[e.ID] = errs[i]
		}
	}
	return err
}

// deliver sends the mails of a batch that were not sent before, several at
// once: a claim holds at most one event of a slot, so that none overtakes an
// earlier one. It gives what went wrong with each event, nil for nothing.
func (m *mailer) deliver(ctx context.Context, events []outbox.Event) []error {
	errs := make([]error, len(events))
	sent, err := m.alreadySent(ctx, events)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	var lanes errgroup.Group
	lanes.SetLimit(mailLanes)
	for i, e := range events {
		letter, needed, err := mailOf(e)
		if err != nil || !needed || sent[e.ID] {
			errs[i] = err
			continue
		}
		lanes.Go(func() error {
			errs[i] = m.send(ctx, letter)
			return nil
		})
	}
	_ = lanes.Wait() // each error is in its place
	return errs
}

// alreadySent gives those of the events that the provider is known to have.
func (m *mailer) alreadySent(ctx context.Context, events []outbox.Event) (map[string]bool, error) {
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	ctx, cancel := context.WithTimeout(ctx, mailLooking)
	defer cancel()
	rows, err := m.pool.Query(ctx, `select event_id::text from email_deliveries where event_id = any($1::text[]::uuid[])`, ids)
	if err != nil {
		return nil, fmt.Errorf("look for mails that were sent: %w", err)
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for mails that were sent: %w", err)
	}
	sent := make(map[string]bool, len(known))
	for _, id := range known {
		sent[id] = true
	}
	return sent, nil
}

// send hands one mail to the provider, then notes that it did. Once begun it
// goes on when the context ends: what the provider took should be known.
func (m *mailer) send(ctx context.Context, letter mail) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	message, err := m.provider.post(ctx, letter)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, mailStoring)
	defer cancel()
	_, err = m.pool.Exec(ctx, `
insert into email_deliveries (event_id, message_id, sent_at) values ($1, $2, $3) on conflict (event_id) do nothing`,
		letter.event, message, m.cfg.Clock.Now())
	if err != nil {
		return fmt.Errorf("the provider took the mail as %q, but that could not be stored, so it will be sent again: %w", message, err)
	}
	return nil
}
