package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is what [Postgres] needs of a pool. Sessions have their own lock and
// statement deadlines.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Postgres is a [Store] over a table with the columns event_id uuid, the
// subject's (uuid), seq, type, payload, created_at, claimed_until,
// delivered_at, attempts, last_error, parked_at.
type Postgres struct {
	db DB

	claim, delivered, failed, oldest string
}

// NewPostgres gives the store over a table. Both names are put into SQL as
// they are: they come from the program, never from outside.
func NewPostgres(db DB, table, subject string) *Postgres {
	in := func(sql string) string { return fmt.Sprintf(sql, table, subject) }
	return &Postgres{
		db: db,
		claim: in(`
update %[1]s set claimed_until = $2, attempts = attempts + 1
where event_id in (
  select e.event_id from %[1]s e
  where e.delivered_at is null and e.parked_at is null and (e.claimed_until is null or e.claimed_until <= $1)
    and not exists (
      select 1 from %[1]s b
      where b.%[2]s = e.%[2]s and b.seq < e.seq and b.delivered_at is null and b.parked_at is null)
  order by e.created_at, e.seq limit $3 for update of e skip locked)
returning event_id::text, %[2]s::text, seq, type, payload::text`),
		delivered: in(`update %[1]s set delivered_at = $2, claimed_until = null, last_error = null
where event_id = any($1::text[]::uuid[]) and delivered_at is null`),
		failed: in(`
update %[1]s set last_error = $2, claimed_until = $4, parked_at = case when attempts >= $5 then $3::timestamptz end
where event_id = $1 and delivered_at is null
returning parked_at is not null`),
		oldest: in(`select min(created_at) from %[1]s where delivered_at is null and parked_at is null`),
	}
}

// Claim is of [Store].
func (p *Postgres) Claim(ctx context.Context, now, until time.Time, most int) ([]Event, error) {
	rows, err := p.db.Query(ctx, p.claim, now, until, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		var payload string
		err = row.Scan(&e.ID, &e.Subject, &e.Seq, &e.Type, &payload)
		e.Payload = []byte(payload)
		return e, err
	})
}

// Delivered is of [Store].
func (p *Postgres) Delivered(ctx context.Context, ids []string, now time.Time) error {
	_, err := p.db.Exec(ctx, p.delivered, ids, now)
	return err
}

// Failed is of [Store].
func (p *Postgres) Failed(ctx context.Context, id, reason string, now, again time.Time, park int) (bool, error) {
	var parked bool
	err := p.db.QueryRow(ctx, p.failed, id, reason, now, again, park).Scan(&parked)
	return parked, err
}

// OldestPending is of [Store].
func (p *Postgres) OldestPending(ctx context.Context) (time.Time, error) {
	var at *time.Time
	if err := p.db.QueryRow(ctx, p.oldest).Scan(&at); err != nil || at == nil {
		return time.Time{}, err
	}
	return *at, nil
}
