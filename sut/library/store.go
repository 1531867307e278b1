package library

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/database"
)

// Deadlines of database work. Past them a client is told 503 and may retry.
const (
	lockTimeout      = 2 * time.Second
	statementTimeout = 5 * time.Second
	tries            = 5 // of a transaction that deadlocked or could not be serialised
)

// A store speaks SQL. Each method is one short transaction sent in one go, or
// one statement; none of them waits for anything but Postgres.
type store struct {
	requests   *database.Store // clients
	background *database.Store // worker, reaper, relay: never queued behind a burst of clients
	clock      *clock.Clock
	replica    string
	instance   string // tells this process' notifications from those of others
}

// sessions is what every session of this server is opened with.
func sessions(cfg Config) database.Config {
	return database.Config{
		URL: cfg.DatabaseURL, Replica: cfg.Replica, LockTimeout: lockTimeout, StatementTimeout: statementTimeout, Tries: tries,
	}
}

// openStore opens every connection but the one that listens, and prepares
// every statement on it.
func openStore(ctx context.Context, cfg Config, instance string) (*store, error) {
	s := &store{clock: cfg.Clock, replica: cfg.Replica, instance: instance}
	background := database.BackgroundShare(cfg.PoolSize)
	ever := context.WithoutCancel(ctx) // what is under way ends within its deadline, always
	var err error
	if s.requests, err = database.Open(ctx, ever, sessions(cfg), cfg.PoolSize-background-1, statements, nil); err != nil {
		return nil, err
	}
	if s.background, err = database.Open(ctx, ever, sessions(cfg), background, statements, nil); err != nil {
		s.requests.Close()
		return nil, err
	}
	return s, nil
}

func (s *store) close() {
	s.requests.Close()
	s.background.Close()
}

// codeUniqueViolation is a SQLSTATE that is decided on.
const codeUniqueViolation = "23505"

func sqlCode(err error) (code, constraint string) {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code, pg.ConstraintName
	}
	return "", ""
}

// into collects a batch statement's rows.
func into[T any](out *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var err error
		*out, err = pgx.CollectRows(rows, scan)
		return err
	}
}

func scanRecord(row pgx.CollectableRow) (r record, err error) {
	err = row.Scan(&r.IntentID, &r.ActionID, &r.Student, &r.Seat, &r.State, &r.Kind)
	return r, err
}

func intentTargets(i *intent) []any {
	return []any{
		&i.IntentID, &i.ActionID, &i.Student, &i.Seat, &i.State, &i.Kind,
		&i.Path, &i.Fence, &i.LockedUntil, &i.Traceparent, &i.Op, &i.Looks,
	}
}

func scanIntent(row pgx.CollectableRow) (i intent, err error) {
	err = row.Scan(intentTargets(&i)...)
	return i, err
}
