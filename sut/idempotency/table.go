package idempotency

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrInProgress is an operation whose first request is still at work: the wait
// for its end was as long as a lock may be waited for.
var ErrInProgress = errors.New("an operation is in progress under this key")

// takeTries is how often a key is tried that others take and give up at the
// same time.
const takeTries = 3

// lockNotAvailable is the SQLSTATE of a wait for a lock that took too long.
const lockNotAvailable = "55P03"

// DB is what reading needs: a pool, a connection or a transaction.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// A Table is where keys and answers are stored: principal, type, key (together
// its primary key), fingerprint, status, content_type, body, overbook_op,
// created_at, completed_at, and columns of its owner's. The session's lock
// timeout bounds the wait for a key.
type Table struct {
	policy Policy

	take, look, forget, complete string
}

// NewTable gives a table. The names are put into SQL as they are: they come
// from the program, never from outside. owned are the owner's columns, which
// [Table.Complete] fills.
func NewTable(name string, policy Policy, owned ...string) *Table {
	var set strings.Builder
	for i, column := range owned {
		fmt.Fprintf(&set, ", %s = $%d", column, 8+i)
	}
	const scope = ` where principal = $1 and type = $2 and key = $3`
	return &Table{
		policy: policy,
		take: `insert into ` + name + ` (principal, type, key, fingerprint, overbook_op, created_at)
values ($1, $2, $3, $4, $5, $6) on conflict (principal, type, key) do nothing returning true`,
		look:   `select fingerprint, status, content_type, body, created_at, completed_at from ` + name + scope,
		forget: `delete from ` + name + scope + ` and created_at <= $4`,
		complete: `update ` + name + ` set status = $4, content_type = $5, body = $6, completed_at = $7` + set.String() +
			scope + ` and completed_at is null`,
	}
}

// Statements are the table's statements, to be prepared.
func (t *Table) Statements() []string { return []string{t.take, t.look, t.forget, t.complete} }

// Take takes the key for the transaction, or says what it was used for before.
// op is the request that asks. It waits for whoever is at work under the key;
// [ErrInProgress] says that this took too long, and has ended the transaction.
func (t *Table) Take(ctx context.Context, tx DB, s Scope, fingerprint, op string, now time.Time) (Verdict, Stored, error) {
	for range takeTries {
		var taken bool
		err := tx.QueryRow(ctx, t.take, s.Principal, s.Type, s.Key, fingerprint, op, now).Scan(&taken)
		if err == nil {
			return Taken, Stored{}, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return 0, Stored{}, inProgress(err)
		}
		stored, known, err := t.find(ctx, tx, s)
		if err != nil {
			return 0, Stored{}, err
		}
		if !known {
			continue // purged since the insert met it
		}
		if verdict := t.policy.judge(stored, fingerprint, now); verdict != Taken {
			return verdict, stored, nil
		}
		if _, err := tx.Exec(ctx, t.forget, s.Principal, s.Type, s.Key, now.Add(-t.policy.Retention)); err != nil {
			return 0, Stored{}, inProgress(err)
		}
	}
	return 0, Stored{}, ErrInProgress
}

func inProgress(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == lockNotAvailable {
		return fmt.Errorf("%w: %w", ErrInProgress, err)
	}
	return fmt.Errorf("take the key: %w", err)
}

// Look gives what is stored under a key; false when nothing is that counts.
func (t *Table) Look(ctx context.Context, db DB, s Scope, now time.Time) (Stored, bool, error) {
	stored, known, err := t.find(ctx, db, s)
	return stored, known && now.Sub(stored.CreatedAt) < t.policy.Retention, err
}

// find gives what is stored under a key, however old.
func (t *Table) find(ctx context.Context, db DB, s Scope) (Stored, bool, error) {
	var stored Stored
	var status *int
	var contentType *string
	var completed *time.Time
	err := db.QueryRow(ctx, t.look, s.Principal, s.Type, s.Key).
		Scan(&stored.Fingerprint, &status, &contentType, &stored.Body, &stored.CreatedAt, &completed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Stored{}, false, nil
	case err != nil:
		return Stored{}, false, fmt.Errorf("look up the key: %w", err)
	case status == nil || contentType == nil || completed == nil:
		return Stored{}, false, ErrInProgress // committed without its answer, which nobody should do
	}
	stored.Status, stored.ContentType, stored.CompletedAt = *status, *contentType, *completed
	return stored, true, nil
}

// Complete stores the answer of an operation whose key the transaction has
// taken, with the values of the owner's columns.
func (t *Table) Complete(ctx context.Context, tx DB, s Scope, a Answer, now time.Time, owned ...any) error {
	args := append([]any{s.Principal, s.Type, s.Key, a.Status, a.ContentType, a.Body, now}, owned...)
	tag, err := tx.Exec(ctx, t.complete, args...)
	if err != nil {
		return fmt.Errorf("store the answer: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("store the answer under the key %q: the transaction has not taken it", s.Key)
	}
	return nil
}
