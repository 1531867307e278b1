package calendar

import (
	"context"
	"sync"
	"time"
)

// A queue is due work of one kind, done by several hands at once, on several
// replicas. Claiming keeps the others away from what was claimed, for a while:
// whoever dies over it leaves it to them.
type queue[T any] struct {
	cfg   Config
	every time.Duration // between two looks for work, server time
	hands int
	claim func(ctx context.Context, most int) ([]T, error) // what is due now, at most so many
	do    func(ctx context.Context, item T)                // has its own deadlines, and begins nothing when the context ends
	what  string                                           // is looked for, for the log
}

// run looks for work until the context ends; a clock that is turned on wakes
// it. Then it claims nothing more, and waits for the hands.
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
				q.do(ctx, item)
			})
		}
		if len(items) < n && sleepSince(ctx, q.cfg.Clock, began, q.every) != nil {
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
