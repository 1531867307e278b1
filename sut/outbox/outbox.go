// Package outbox relays events that were committed together with what they
// tell. Delivery is at least once, under the event's stable id, in order per
// subject; the consumer commits its processed marker together with its effect,
// so that a second delivery changes nothing. An event that keeps failing is
// parked for inspection, never dropped, and no longer holds up those behind it.
//
// What must not happen here: writing events (their transaction does that),
// knowing what an event means.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// An Event is one committed event.
type Event struct {
	ID      string // stable over all deliveries
	Subject string // what it is about; events of one subject come in order of Seq
	Seq     int
	Type    string
	Payload []byte // JSON
}

// A Consumer takes events and returns nil once marker and effect of all of
// them are committed. On an error the relay offers them again, one by one.
type Consumer func(ctx context.Context, events []Event) error

// A Store is the outbox table, as the relay needs it. Times are server time.
type Store interface {
	// Claim reserves up to most due events until the given time, so that
	// other relays leave them alone.
	Claim(ctx context.Context, now, until time.Time, most int) ([]Event, error)
	// Delivered notes that the consumer has them.
	Delivered(ctx context.Context, ids []string, now time.Time) error
	// Failed notes why the consumer did not take it and when to offer it
	// again; from the park-th failed attempt on it is parked instead.
	Failed(ctx context.Context, id, reason string, now, again time.Time, park int) (parked bool, err error)
	// OldestPending is when the oldest event that waits was written; zero when none does.
	OldestPending(ctx context.Context) (time.Time, error)
}

// Config of a relay. Zero fields take the defaults that are given with them.
type Config struct {
	Interval  time.Duration // between looks when nothing is due: 200ms
	Claim     time.Duration // how long a claim keeps other relays away, also when its relay died: 2s
	Batch     int           // events at once: 200
	ParkAfter int           // failed attempts: 10
	Clock     *clock.Clock
	Log       *slog.Logger
}

// A Relay moves events from a store to a consumer until told to stop.
type Relay struct {
	cfg     Config
	store   Store
	consume Consumer
	oldest  atomic.Int64 // unix microseconds of the oldest pending event, 0 for none
	parked  atomic.Int64
}

// New gives a relay; [Relay.Run] makes it work.
func New(store Store, consume Consumer, cfg Config) *Relay {
	if cfg.Interval == 0 {
		cfg.Interval = 200 * time.Millisecond
	}
	if cfg.Claim == 0 {
		cfg.Claim = 2 * time.Second
	}
	if cfg.Batch == 0 {
		cfg.Batch = 200
	}
	if cfg.ParkAfter == 0 {
		cfg.ParkAfter = 10
	}
	return &Relay{cfg: cfg, store: store, consume: consume}
}

// OldestPending is the age of the oldest event that waits for delivery, as of
// the relay's last look; 0 when none waited.
func (r *Relay) OldestPending() time.Duration {
	us := r.oldest.Load()
	if us == 0 {
		return 0
	}
	return max(r.cfg.Clock.Now().Sub(time.UnixMicro(us)), 0)
}

// Parked is how many events this relay has parked.
func (r *Relay) Parked() int { return int(r.parked.Load()) }

// Run relays until the context ends. Trouble is logged and tried again.
func (r *Relay) Run(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := r.Pass(ctx)
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("outbox relay: pass ended early", "error", err)
		}
		if n > 0 && err == nil {
			continue // what was behind them may be due now
		}
		if r.cfg.Clock.Sleep(ctx, r.cfg.Interval) != nil {
			return
		}
	}
}

// Pass delivers what is due once and gives how many events it took on.
func (r *Relay) Pass(ctx context.Context) (int, error) {
	now := r.cfg.Clock.Now()
	events, err := r.store.Claim(ctx, now, now.Add(r.cfg.Claim), r.cfg.Batch)
	if err != nil {
		return 0, fmt.Errorf("claim events: %w", err)
	}
	if len(events) > 0 {
		err = r.deliver(ctx, events)
	}
	if oldest, lookErr := r.store.OldestPending(ctx); lookErr != nil {
		err = errors.Join(err, fmt.Errorf("look for the oldest pending event: %w", lookErr))
	} else if oldest.IsZero() {
		r.oldest.Store(0)
	} else {
		r.oldest.Store(oldest.UnixMicro())
	}
	return len(events), err
}

func (r *Relay) deliver(ctx context.Context, events []Event) error {
	if err := r.consume(ctx, events); err == nil {
		return r.delivered(ctx, events)
	}
	// One of them may be poison: offer each alone, so that it fails alone.
	var errs []error
	for _, e := range events {
		if err := r.consume(ctx, []Event{e}); err != nil {
			errs = append(errs, r.failed(ctx, e, err))
			continue
		}
		errs = append(errs, r.delivered(ctx, []Event{e}))
	}
	return errors.Join(errs...)
}

func (r *Relay) delivered(ctx context.Context, events []Event) error {
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	if err := r.store.Delivered(ctx, ids, r.cfg.Clock.Now()); err != nil {
		return fmt.Errorf("note %d deliveries: %w", len(ids), err)
	}
	return nil
}

func (r *Relay) failed(ctx context.Context, e Event, why error) error {
	if ctx.Err() != nil {
		return ctx.Err() // we are stopping; that says nothing about the event
	}
	now := r.cfg.Clock.Now()
	parked, err := r.store.Failed(ctx, e.ID, why.Error(), now, now.Add(r.cfg.Interval), r.cfg.ParkAfter)
	if err != nil {
		return fmt.Errorf("note the failure of event %s: %w", e.ID, err)
	}
	if parked {
		r.parked.Add(1)
		r.cfg.Log.Error("outbox relay: event parked, it needs a person", "event", e.ID, "type", e.Type, "subject", e.Subject, "error", why)
	}
	return nil
}
