package library

import (
	"context"
	"sync"
	"time"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/lease"
)

// Bounds of the worker's memory.
const (
	pendingMost = 10_000 // seats that wait for a free worker; what is more, the tick finds again
	scanMost    = 500    // seats taken from one look at the database
	// patience with a seat lock that another replica holds: the holder may be
	// dead, and claiming is safe without the lock.
	seatLockPatience = time.Second
)

// A worker executes intents: one goroutine a seat, at most cfg.Workers at once.
type worker struct {
	svc *Service

	mu       sync.Mutex
	stopped  bool
	running  map[string]*seatRun
	pending  map[string]struct{}
	order    []string // of pending, oldest first
	refused  map[string]time.Duration
	busy     int
	finished sync.WaitGroup
}

// A seatRun is a goroutine at work on a seat.
type seatRun struct{ again bool }

func newWorker(s *Service) *worker {
	return &worker{svc: s, running: map[string]*seatRun{}, pending: map[string]struct{}{}, refused: map[string]time.Duration{}}
}

// wake has the seat's queue looked at, soon and at least once after now.
func (w *worker) wake(seat string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if run := w.running[seat]; run != nil {
		run.again = true
		return
	}
	if w.busy >= w.svc.cfg.Workers {
		if _, known := w.pending[seat]; !known && len(w.order) < pendingMost {
			w.pending[seat] = struct{}{}
			w.order = append(w.order, seat)
		}
		return
	}
	w.start(seat)
}

// start begins a seat's goroutine; the caller holds the lock and has seen a
// free worker. Its calls end when the service is closed, not before.
func (w *worker) start(seat string) {
	run := &seatRun{}
	w.running[seat] = run
	w.busy++
	w.finished.Go(func() {
		for {
			more := w.turn(w.svc.hard, seat)
			if !w.goOn(seat, run, more) {
				return
			}
		}
	})
}

// goOn says whether the seat is to be looked at again; if not, its worker is
// free, and the seat that has waited longest gets it.
func (w *worker) goOn(seat string, run *seatRun, more bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped && w.svc.hard.Err() == nil && (more || run.again) {
		run.again = false
		return true
	}
	delete(w.running, seat)
	w.free()
	return false
}

// free gives a worker back, or on to the seat that has waited longest; the
// caller holds the lock.
func (w *worker) free() {
	w.busy--
	if !w.stopped && len(w.order) > 0 {
		next := w.order[0]
		w.order = w.order[1:]
		delete(w.pending, next)
		w.start(next)
	}
}

// turn makes one claim on the seat and sees it through. It reports whether
// somebody else may be waiting whose turn it is now.
func (w *worker) turn(ctx context.Context, seat string) (more bool) {
	s := w.svc
	release, taken := s.seats.Acquire(ctx, seat)
	if !w.mayClaim(seat, taken) {
		return false // the holder's notification or the tick brings us back
	}
	defer release()
	asked, now := clock.Mono(), s.cfg.Clock.Now()
	until := now.Add(s.cfg.Lease)
	c, err := s.store.claimSeat(ctx, seat, now, now.Add(-s.cfg.ActionTTL), until)
	if err != nil {
		s.log.Warn("claim on a seat did not work", "seat", seat, "error", err)
		return false // the tick brings us back
	}
	if len(c.suppressed) > 0 {
		s.metrics.suppressed.Add(len(c.suppressed))
		s.metrics.ended(c.suppressed)
		s.waiters.deliver(c.suppressed)
	}
	if c.winner == nil {
		return false
	}
	return w.execute(ctx, *c.winner, lease.Take(s.cfg.Clock, c.winner.Fence, until, asked, s.cfg.Lease))
}

// execute goes upstream with a claimed intent and stores what came of it.
func (w *worker) execute(ctx context.Context, i intent, l lease.Lease) (more bool) {
	e, known := w.svc.attempt(ctx, i, l)
	if !known {
		return false
	}
	_, stored := w.svc.conclude(ctx, i, e)
	return stored && !e.Decisive
}

// mayClaim leaves a seat whose lock another replica holds to that replica,
// but not for longer than our patience lasts.
func (w *worker) mayClaim(seat string, taken bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := clock.Mono()
	since, refused := w.refused[seat]
	if !taken || (refused && now-since >= seatLockPatience) {
		delete(w.refused, seat)
		return true
	}
	if !refused {
		if len(w.refused) >= pendingMost {
			clear(w.refused) // forgetting only makes us patient again
		}
		w.refused[seat] = now
	}
	return false
}

// tick is the fallback for everything that wakes: it looks at the database for
// seats with work and for answers that somebody here waits for.
func (w *worker) tick(ctx context.Context) {
	s := w.svc
	for s.cfg.Clock.Sleep(ctx, s.cfg.Tick) == nil {
		seats, err := s.store.seatsWithWork(ctx, scanMost)
		if err != nil {
			s.log.Warn("worker could not look for work", "error", err)
			continue
		}
		for _, seat := range seats {
			w.wake(seat)
		}
		s.recheck(ctx, "")
	}
}

// halt takes no new claims from now on.
func (w *worker) halt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

// stop takes no new claims and waits until those that are under way are done,
// or the context ends.
func (w *worker) stop(ctx context.Context) error {
	w.halt()
	done := make(chan struct{})
	go func() {
		w.finished.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
