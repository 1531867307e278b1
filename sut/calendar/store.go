package calendar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

var (
	errNoResource    = errors.New("there is no such resource")
	errNoAppointment = errors.New("there is no such appointment")
)

// A cause is who and what a change is of. Without a request the actor is
// "server" and the rest is what the appointment says, or empty.
type cause struct{ op, traceparent, actor string }

const actorServer = "server"

// causeOf is of a request.
func causeOf(c httpapi.Cause, actor string) cause {
	return cause{op: c.Op, traceparent: c.Traceparent, actor: actor}
}

// A store is the calendar's database, for requests or for the background.
type store struct {
	*database.Store

	cfg Config
}

// newStore opens size connections. hard ends everything under way.
func newStore(ctx, hard context.Context, cfg Config, size int, prepared []string, retried func()) (*store, error) {
	db, err := database.Open(ctx, hard, database.Config{
		URL: cfg.DatabaseURL, Replica: cfg.Replica,
		LockTimeout: cfg.LockTimeout, StatementTimeout: cfg.StatementTimeout, Tries: cfg.Tries,
	}, size, prepared, retried)
	if err != nil {
		return nil, err
	}
	return &store{Store: db, cfg: cfg}, nil
}

// change runs do in one transaction on resources and appointments. What it
// changed is committed when it says so. A deadlock or serialization failure
// runs everything again: do must begin from nothing each time.
func (s *store) change(ctx context.Context, by cause, do func(ctx context.Context, c *change) (commit bool, err error)) error {
	return s.Transact(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		return do(ctx, &change{tx: tx, now: s.cfg.Clock.Now(), by: by, cfg: s.cfg})
	})
}

// overlaps reports what the one rule of overlap says: the exclusion constraint
// refused the rows.
func overlaps(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23P01" && pg.ConstraintName == noOverlap
}

// stamp is how instants are told.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// wrapped says what was being done when there was an error.
func wrapped(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
