package tickets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/overbook/overbook/sut/database"
)

// expiryPage is how many orders are looked up at once.
const expiryPage = 100

// sqlRunningOut finds holds that have run out and for which there may be
// something to do: not those whose seat waits in quarantine for a payment. It
// skips what somebody works on at the moment, who sees the same.
const sqlRunningOut = `
select h.expires_at, h.hold_id from holds h join seats s using (show_id, seat)
where h.state = 'RESERVED' and h.expires_at <= $1 and (h.expires_at, h.hold_id) > ($2::timestamptz, $3::uuid)
  and not (s.state = 'QUARANTINED' and s.hold_id = h.hold_id
           and exists (select from charges c where c.hold_id = h.hold_id and c.state = 'CHARGING'))
order by 1, 2 limit $4 for no key update of h skip locked`

// sqlOverdue finds orders with a charge that was sent too long ago.
const sqlOverdue = `
select sent_at, hold_id from charges
where state = 'CHARGING' and sent_at <= $1 and (sent_at, hold_id) > ($2::timestamptz, $3::uuid)
order by 1, 2 limit $4 for no key update skip locked`

// expiry ends what has run out: holds, and charges at their hard timeout. It
// only finds them; whether there is really something to do is decided under
// each order's lock, so that any number of replicas may do it at once.
type expiry struct {
	st  *store
	cfg Config
}

func newExpiry(st *store, cfg Config) *expiry { return &expiry{st: st, cfg: cfg} }

// run looks every tick until the context ends; a clock that is turned on wakes
// it. Trouble is logged and tried again.
func (e *expiry) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := e.cfg.Clock.Now()
		if err := e.pass(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("not everything that has run out could be ended, the rest is tried again at the next tick", "error", err)
		}
		if sleepSince(ctx, e.cfg.Clock, began, e.cfg.Tick) != nil {
			return
		}
	}
}

// pass ends all that has run out by now. Hard timeouts come first: a seat need
// not go into quarantine for a charge that is given up in the same pass.
func (e *expiry) pass(ctx context.Context) error {
	now := e.cfg.Clock.Now()
	return errors.Join(
		e.each(ctx, sqlOverdue, now.Add(-e.cfg.HardTimeout), e.giveUp),
		e.each(ctx, sqlRunningOut, now, e.runOut))
}

// A lapse is an order in which something has run out, and since when.
type lapse struct {
	at   time.Time
	hold uuid.UUID
}

// each does something to every order that the query finds, page by page, so
// that an order that fails is in nobody's way.
func (e *expiry) each(ctx context.Context, sql string, until time.Time, do func(context.Context, *order) (bool, error)) error {
	var errs []error
	var last lapse
	for {
		page, err := database.Read(ctx, e.st.Store, func(row pgx.CollectableRow) (d lapse, err error) {
			err = row.Scan(&d.at, &d.hold)
			return d, err
		}, sql, until, last.at, last.hold, expiryPage)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("look for what has run out: %w", err))...)
		}
		errs = append(errs, e.endAll(ctx, page, do)...)
		if len(page) < expiryPage || ctx.Err() != nil {
			return errors.Join(errs...)
		}
		last = page[len(page)-1]
	}
}

// endAll works on the orders of a page, as many at once as there are
// connections for it.
func (e *expiry) endAll(ctx context.Context, page []lapse, do func(context.Context, *order) (bool, error)) []error {
	errs := make([]error, len(page))
	var lanes errgroup.Group
	lanes.SetLimit(database.BackgroundShare(e.cfg.PoolSize))
	for i, d := range page {
		if ctx.Err() != nil {
			break
		}
		lanes.Go(func() error {
			if err := e.st.changeOrder(ctx, d.hold, cause{actor: actorServer}, do); err != nil {
				errs[i] = fmt.Errorf("end what has run out of order %s: %w", d.hold, err)
			}
			return nil
		})
	}
	_ = lanes.Wait() // each error is in its place
	return errs
}

func (e *expiry) runOut(ctx context.Context, o *order) (bool, error) {
	return o.runOut(ctx, e.cfg.Clock.Now())
}

func (e *expiry) giveUp(ctx context.Context, o *order) (bool, error) {
	now, c := e.cfg.Clock.Now(), o.inFlight()
	if c == nil || c.sentAt.Add(e.cfg.HardTimeout).After(now) {
		return false, nil // decided, or another one by now
	}
	return true, o.giveUp(ctx, now, c)
}
