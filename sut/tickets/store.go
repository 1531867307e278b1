package tickets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// errNoOrder is of a hold that does not exist.
var errNoOrder = errors.New("there is no such order")

// A cause is who and what a transition is of. Without a request the actor is
// "server" and the rest is empty.
type cause struct{ op, traceparent, actor string }

const (
	actorProvider = "provider"
	actorServer   = "server"
)

// causeOf is of a request.
func causeOf(c httpapi.Cause, actor string) cause {
	return cause{op: c.Op, traceparent: c.Traceparent, actor: actor}
}

// A store is the ticket shop's database, for requests or for the background.
type store struct {
	*database.Store

	cfg Config
}

// newStore opens size connections. hard ends everything under way.
func newStore(ctx, hard context.Context, cfg Config, size int, retried func()) (*store, error) {
	db, err := database.Open(ctx, hard, database.Config{
		URL: cfg.DatabaseURL, Replica: cfg.Replica,
		LockTimeout: cfg.LockTimeout, StatementTimeout: cfg.StatementTimeout, Tries: cfg.Tries,
	}, size, statements, retried)
	if err != nil {
		return nil, err
	}
	return &store{Store: db, cfg: cfg}, nil
}

// changeOrder runs do with the order under its hold's lock, everything of it
// loaded, in one transaction. What do changed is committed, with its history,
// when it says so. A deadlock or serialization failure runs everything again:
// do must begin from nothing each time. [errNoOrder] when there is no such hold.
func (s *store) changeOrder(ctx context.Context, hold uuid.UUID, by cause, do func(ctx context.Context, o *order) (commit bool, err error)) error {
	return s.Transact(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		o, err := loadOrder(ctx, tx, hold, by, s.cfg)
		if err != nil {
			return false, err
		}
		keep, err := do(ctx, o)
		if err != nil || !keep {
			return false, err
		}
		return true, o.writeHistory(ctx)
	})
}

// loadOrder locks the hold and reads what belongs to it. Whoever changes any of
// that has the hold's lock, so the rest needs none.
func loadOrder(ctx context.Context, tx pgx.Tx, id uuid.UUID, by cause, cfg Config) (*order, error) {
	holds, err := database.Rows(ctx, tx, scanHold, sqlLockHold, id, by.op)
	if err != nil {
		return nil, fmt.Errorf("lock hold %s: %w", id, err)
	}
	if len(holds) == 0 {
		return nil, errNoOrder
	}
	o := &order{tx: tx, by: by, cfg: cfg, hold: holds[0]}
	if o.charges, err = database.Rows(ctx, tx, scanCharge, sqlCharges, id); err != nil {
		return nil, fmt.Errorf("read the charges of hold %s: %w", id, err)
	}
	if o.refunds, err = database.Rows(ctx, tx, scanRefund, sqlRefunds, id); err != nil {
		return nil, fmt.Errorf("read the refunds of hold %s: %w", id, err)
	}
	seats, err := database.Rows(ctx, tx, pgx.RowTo[string], sqlSeat, o.hold.show, o.hold.seat, id)
	if err != nil {
		return nil, fmt.Errorf("read the seat of hold %s: %w", id, err)
	}
	if len(seats) > 0 {
		o.seat = seat{state: seats[0]}
	}
	return o, nil
}

func scanHold(row pgx.CollectableRow) (h hold, err error) {
	err = row.Scan(&h.id, &h.show, &h.seat, &h.login, &h.state, &h.amount, &h.currency, &h.policy, &h.winner, &h.version, &h.createdAt, &h.expiresAt)
	return h, err
}

func scanCharge(row pgx.CollectableRow) (c charge, err error) {
	err = row.Scan(&c.id, &c.hold, &c.intent, &c.payment, &c.amount, &c.currency, &c.card, &c.state, &c.origin, &c.captured, &c.capturedCurrency,
		&c.sentAt, &c.resolvedAt, &c.settledAt, &c.nextAskAt, &c.asked, &c.op, &c.traceparent)
	return c, err
}

func scanRefund(row pgx.CollectableRow) (r refund, err error) {
	err = row.Scan(&r.id, &r.charge, &r.payment, &r.amount, &r.currency, &r.reason, &r.state, &r.attempts, &r.nextAttemptAt, &r.lastError, &r.parkedAt)
	return r, err
}

// stamp is how instants are told.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
