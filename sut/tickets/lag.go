package tickets

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
)

// figuresEvery is how often the figures are counted.
const figuresEvery = time.Second

// sqlFigures counts charges and refunds, as of one moment. The lag of a charge
// that we sent is how long it was not known here what became of it: of one that
// was given up, until the provider told after all. Attempts of the provider's
// own are left out: when they began nobody here knows.
const sqlFigures = `
select
  coalesce(percentile_cont(0.95) within group (order by lag), 0)::float8, coalesce(max(lag), 0)::float8,
  count(*) filter (where state = 'CHARGING'), count(*) filter (where state <> 'CHARGING' and unresolved),
  min(sent_at) filter (where unresolved), count(*) filter (where without_seat),
  count(*) filter (where refund = 'PENDING' and not parked), count(*) filter (where refund = 'DONE'), count(*) filter (where refund = 'PENDING' and parked)
from (
  select c.state, c.sent_at, r.state as refund, r.parked_at is not null as parked, ` + isUnresolved + ` as unresolved, ` + isWithoutSeat + ` as without_seat,
    case when c.origin = 'request' and c.resolved_by <> 'answer' then extract(epoch from
      case when c.resolved_by = 'hard-timeout' then coalesce(c.settled_at, c.resolved_at) else c.resolved_at end - c.sent_at)::float8 end as lag
  from charges c join holds h using (hold_id) left join refunds r using (charge_id)) x`

// figures are counted in the database every second, of all replicas' work.
type figures struct {
	st   *store
	cfg  Config
	last atomic.Pointer[counts]
}

// A counts is what was counted at one moment.
type counts struct {
	lag95, lagMost      float64 // seconds
	charging, givenUp   int64   // unresolved ones
	oldest              *time.Time
	withoutSeat         int64
	pending, done, park int64 // refunds
}

func newFigures(st *store, cfg Config, m *meters) *figures {
	f := &figures{st: st, cfg: cfg}
	f.last.Store(&counts{})
	for name, read := range map[string]func(*counts) float64{
		`reconciliation_lag_seconds{quantile="0.95"}`: func(t *counts) float64 { return t.lag95 },
		`reconciliation_lag_seconds{quantile="1"}`:    func(t *counts) float64 { return t.lagMost },
		`unresolved_charges{state="CHARGING"}`:        func(t *counts) float64 { return float64(t.charging) },
		`unresolved_charges{state="REFUND_RESOLVED"}`: func(t *counts) float64 { return float64(t.givenUp) },
		`captured_without_seat`:                       func(t *counts) float64 { return float64(t.withoutSeat) },
		`refunds{state="PENDING"}`:                    func(t *counts) float64 { return float64(t.pending) },
		`refunds{state="DONE"}`:                       func(t *counts) float64 { return float64(t.done) },
		`refunds{state="PARKED"}`:                     func(t *counts) float64 { return float64(t.park) },
		`oldest_unresolved_seconds`:                   f.oldestUnresolved,
	} {
		m.gauge("overbook_tickets_"+name, func() float64 { return read(f.last.Load()) })
	}
	return f
}

// oldestUnresolved is the age, now, of the oldest charge that was unresolved
// at the last count; 0 when none was.
func (f *figures) oldestUnresolved(t *counts) float64 {
	if t.oldest == nil {
		return 0
	}
	return max(f.cfg.Clock.Now().Sub(*t.oldest).Seconds(), 0)
}

// run counts every second until the context ends; a clock that is turned on
// wakes it. When that fails, the last figures stay, and it is logged.
func (f *figures) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := f.cfg.Clock.Now()
		if err := f.count(ctx); err != nil && ctx.Err() == nil {
			f.cfg.Log.Warn("the figures could not be counted, the last ones stay", "error", err)
		}
		if sleepSince(ctx, f.cfg.Clock, began, figuresEvery) != nil {
			return
		}
	}
}

func (f *figures) count(ctx context.Context) error {
	found, err := database.Read(ctx, f.st.Store, func(row pgx.CollectableRow) (*counts, error) {
		t := &counts{}
		err := row.Scan(&t.lag95, &t.lagMost, &t.charging, &t.givenUp, &t.oldest, &t.withoutSeat, &t.pending, &t.done, &t.park)
		return t, err
	}, sqlFigures)
	if err != nil {
		return fmt.Errorf("count charges and refunds: %w", err)
	}
	f.last.Store(found[0]) // an aggregate always gives its one row
	return nil
}
