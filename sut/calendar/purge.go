package calendar

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
)

// Bounds of the purger's work.
const (
	purgeBatch = 1000        // rows in one statement
	purgeEvery = time.Minute // of server time
	purgeTime  = 5 * time.Second
)

// purger deletes results of operations that are older than Retention. Nobody
// waits for it: a result that old counts as gone from the second on.
type purger struct {
	cfg  Config
	pool *pgxpool.Pool
}

func newPurger(pool *pgxpool.Pool, cfg Config) *purger { return &purger{cfg: cfg, pool: pool} }

// run purges every minute of server time until the context ends; a clock that
// is turned on wakes it. Trouble is logged and tried again.
func (p *purger) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := p.cfg.Clock.Now()
		if n, err := p.purge(ctx); err != nil && ctx.Err() == nil {
			p.cfg.Log.Warn("purging old results ended early, what is left stays until the next round", "deleted", n, "error", err)
		}
		if sleepSince(ctx, p.cfg.Clock, began, purgeEvery) != nil {
			return
		}
	}
}

// sleepSince sleeps until d of server time has passed since a round began, so
// that a clock that is turned on during the round ends the sleep as well.
func sleepSince(ctx context.Context, c *clock.Clock, began time.Time, d time.Duration) error {
	left := min(began.Add(d).Sub(c.Now()), d) // no longer, when it is turned back
	if left <= 0 {
		return ctx.Err()
	}
	return c.Sleep(ctx, left)
}

// purge deletes what is too old now, batch by batch, and gives how many rows
// it was. Rows that somebody works on are left to the next round.
func (p *purger) purge(ctx context.Context) (int, error) {
	before, deleted := p.cfg.Clock.Now().Add(-p.cfg.Retention), 0
	for {
		n, err := p.batch(ctx, before)
		deleted += n
		if err != nil || n < purgeBatch {
			return deleted, err
		}
	}
}

func (p *purger) batch(ctx context.Context, before time.Time) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTime)
	defer cancel()
	tag, err := p.pool.Exec(ctx, `
delete from appointment_operations where ctid = any(array(
  select ctid from appointment_operations where created_at < $1 order by created_at limit $2 for update skip locked))`, before, purgeBatch)
	if err != nil {
		return 0, fmt.Errorf("delete results of before %s: %w", before.Format(time.RFC3339), err)
	}
	return int(tag.RowsAffected()), nil
}
