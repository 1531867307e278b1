package telescope

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
)

// projectionTime is how long one refresh or one look may take.
const projectionTime = 5 * time.Second

// sqlTurn makes it this caller's turn to refresh: no row when somebody did
// within the interval. A stamp that lies further ahead than that was left by a
// clock that has been turned back. Those who come at the same time wait for
// the row, and then find that it is not their turn.
const sqlTurn = `
insert into schedule_refreshes (refreshed_at) values ($1)
on conflict (one) do update set refreshed_at = excluded.refreshed_at
where schedule_refreshes.refreshed_at not between $2 and $3`

// sqlRefresh writes what differs from the authoritative tables, if it is this
// caller's turn. It must be a statement of its own, after sqlTurn: only then
// does it see what the one before has written.
const sqlRefresh = `
insert into slot_schedule (slot_id, starts_at, state)
select s.slot_id, s.starts_at, f.state
from observing_slots s
left join active_reservations r using (slot_id)
left join slot_schedule h using (slot_id)
cross join lateral (select case when s.state = 'closed' then 'closed' when r.slot_id is null then 'free' else 'taken' end as state) f
where exists (select from schedule_refreshes where refreshed_at = $1)
  and (h.starts_at, h.state) is distinct from (s.starts_at, f.state)
on conflict (slot_id) do update set starts_at = excluded.starts_at, state = excluded.state`

// projection keeps slot_schedule, which the public reads, close behind the
// authoritative tables. One replica at a time refreshes it, whoever is first.
// It decides nothing: who books by an old line is rejected where it counts.
type projection struct {
	cfg    Config
	pool   *pgxpool.Pool
	meters *meters
	seen   atomic.Int64 // unix microseconds of the last refresh that this replica knows of, 0 for none
}

func newProjection(pool *pgxpool.Pool, cfg Config, m *meters) *projection {
	return &projection{cfg: cfg, pool: pool, meters: m}
}

// run keeps the schedule fresh until the context ends. Trouble is logged and
// tried again; meanwhile the schedule grows old, and says so.
func (p *projection) run(ctx context.Context) {
	for ctx.Err() == nil {
		at, began := p.cfg.Clock.Now(), clock.Mono()
		wrote, err := p.tick(ctx)
		if err != nil && ctx.Err() == nil {
			p.cfg.Log.Warn("the public schedule was not refreshed", "age", p.age(), "error", err)
		}
		if wrote || err != nil {
			p.meters.refreshed(clock.Mono()-began, err)
		}
		if sleepSince(ctx, p.cfg.Clock, at, p.cfg.ProjectionInterval) != nil {
			return
		}
	}
}

// age is how old the schedule is, in server time, as far as this replica
// knows; 0 before there was one.
func (p *projection) age() time.Duration {
	at := p.seen.Load()
	if at == 0 {
		return 0
	}
	return max(p.cfg.Clock.Now().Sub(time.UnixMicro(at)), 0)
}

// tick looks how old the schedule is and refreshes it when it is time to. It
// reports whether this replica did.
func (p *projection) tick(ctx context.Context) (refreshed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, projectionTime)
	defer cancel()
	due, err := p.look(ctx)
	if err != nil || !due {
		return false, err
	}
	if refreshed, err = p.refresh(ctx); err != nil || refreshed {
		return refreshed, err
	}
	_, err = p.look(ctx) // somebody else did
	return false, err
}

// fresh are the bounds within which a refresh is recent enough at that time. A
// tenth is taken off the interval, so that whoever wakes a moment early does
// not have to sleep a second time.
func (p *projection) fresh(now time.Time) (from, to time.Time) {
	return now.Add(-p.cfg.ProjectionInterval * 9 / 10), now.Add(p.cfg.ProjectionInterval)
}

// look reads when the last refresh was and says whether another is due.
func (p *projection) look(ctx context.Context) (due bool, err error) {
	rows, err := p.pool.Query(ctx, `select refreshed_at from schedule_refreshes`)
	if err != nil {
		return false, fmt.Errorf("look for the last refresh: %w", err)
	}
	at, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return false, fmt.Errorf("look for the last refresh: %w", err)
	}
	if len(at) == 0 {
		return true, nil
	}
	p.seen.Store(at[0].UnixMicro())
	from, to := p.fresh(p.cfg.Clock.Now())
	return at[0].Before(from) || at[0].After(to), nil
}

// refresh does both statements in one transaction, sent in one go. The stamp
// is read before either begins: the schedule shows at least what was committed
// until then.
func (p *projection) refresh(ctx context.Context) (bool, error) {
	now := p.cfg.Clock.Now()
	from, to := p.fresh(now)
	var turns int64
	batch := &pgx.Batch{} // without a begin of its own it is one transaction
	batch.Queue(sqlTurn, now, from, to).Exec(func(tag pgconn.CommandTag) error { turns = tag.RowsAffected(); return nil })
	batch.Queue(sqlRefresh, now)
	if err := p.pool.SendBatch(ctx, batch).Close(); err != nil {
		return false, fmt.Errorf("refresh the schedule: %w", err)
	}
	if turns > 0 {
		p.seen.Store(now.UnixMicro())
	}
	return turns > 0, nil
}
