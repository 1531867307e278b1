package tickets

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/database"
)

// alter runs one statement that changes rows of a queue, as a transaction of
// its own, and gives what it returns of them.
func alter[T any](ctx context.Context, st *store, scan pgx.RowToFunc[T], sql string, args ...any) (out []T, err error) {
	ctx, end := st.Bounded(ctx)
	defer end()
	err = st.WithConn(ctx, func(conn *pgxpool.Conn) error {
		out, err = database.Rows(ctx, conn, scan, sql, args...)
		return err
	})
	return out, err
}

// rowID scans the id of a row that was changed.
func rowID(row pgx.CollectableRow) (id uuid.UUID, err error) {
	err = row.Scan(&id)
	return id, err
}

// A queue is due work of one kind, done by several hands at once, on several
// replicas. Claiming keeps the others away from what was claimed, for a while:
// whoever dies over it leaves it to them.
type queue[T any] struct {
	cfg   Config
	hands int
	claim func(ctx context.Context, most int) ([]T, error) // what is due now, at most so many
	do    func(ctx context.Context, item T)                // has its own deadlines
	what  string                                           // is looked for, for the log
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

// run looks for work every tick until the context ends; a clock that is turned
// on wakes it. Then it begins nothing more, but lets what
// is under way end: do gets a context that does not end with this one.
func (q queue[T]) run(ctx context.Context) {
	free := make(chan struct{}, q.hands)
	for range q.hands {
		free <- struct{}{}
	}
	var under sync.WaitGroup
	defer under.Wait()
	for {
		n, err := takeFree(ctx, free)
		if err != nil {
			return
		}
		began := q.cfg.Clock.Now()
		items, err := q.claim(ctx, n)
		if err != nil && ctx.Err() == nil {
			q.cfg.Log.Warn("could not look for "+q.what+", trying again", "error", err)
		}
		for range n - len(items) {
			free <- struct{}{}
		}
		for _, item := range items {
			under.Go(func() {
				defer func() { free <- struct{}{} }()
				q.do(context.WithoutCancel(ctx), item)
			})
		}
		if len(items) < n && sleepSince(ctx, q.cfg.Clock, began, q.cfg.Tick) != nil {
			return
		}
	}
}

// takeFree waits for a free hand and gives how many it took, all that were free.
func takeFree(ctx context.Context, free <-chan struct{}) (int, error) {
	select {
	case <-free:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for n := 1; ; n++ {
		select {
		case <-free:
		default:
			return n, ctx.Err()
		}
	}
}
