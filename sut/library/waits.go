package library

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/overbook/overbook/sut/cache"
	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/lease"
	"github.com/overbook/overbook/sut/upstream"
)

// waitsMost is how many due waits are looked at in one round.
const waitsMost = 50

// watchWaits looks at waits whose time has come, tick by tick. Each goes for
// a seat that pyxis calls free, or rests longer than the last time.
func (w *worker) watchWaits(ctx context.Context) {
	s := w.svc
	for s.cfg.Clock.Sleep(ctx, s.cfg.Tick) == nil {
		due, err := s.store.dueWaits(ctx, waitsMost)
		if err != nil {
			s.log.Warn("worker could not look for waits", "error", err)
			continue
		}
		given := map[string]bool{} // seats handed out in this round
		for _, wt := range due {
			if ctx.Err() != nil || w.isStopped() {
				return
			}
			if !w.serveWait(ctx, wt, given) {
				break
			}
		}
	}
}

func (w *worker) isStopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped
}

// serveWait sees one wait through, up to its upstream call. false: pyxis gives
// no answer, so there is no use in asking for the others now.
func (w *worker) serveWait(ctx context.Context, wt wait, given map[string]bool) bool {
	s := w.svc
	list, err := s.freeSeats(ctx, callerOf(wt.intent))
	if err != nil {
		s.log.Warn("seats could not be read for a wait", "intent", wt.IntentID, "error", err)
	}
	if seat := candidate(wt, list, given); seat != "" {
		given[seat] = true
		if w.reserveFor(ctx, wt, seat, list) {
			return true
		}
	}
	if err := s.store.postpone(ctx, wt, s.cfg.Clock.Now().Add(s.cfg.backoff(wt.Looks))); err != nil {
		s.log.Warn("wait could not be postponed", "intent", wt.IntentID, "error", err)
	}
	return !errors.Is(err, upstream.ErrUnavailable)
}

// candidate picks a free seat for a wait: the first wanted one, or the first
// at all when any will do; "" when there is none.
func candidate(wt wait, list cache.Value[[]upstream.Seat], given map[string]bool) string {
	free := func(s upstream.Seat) bool { return s.Free && !given[s.Seat] }
	if len(wt.wanted) == 0 {
		if i := slices.IndexFunc(list.V, free); i >= 0 {
			return list.V[i].Seat
		}
		return ""
	}
	for _, want := range wt.wanted {
		if slices.ContainsFunc(list.V, func(s upstream.Seat) bool { return s.Seat == want && free(s) }) {
			return want
		}
	}
	return ""
}

// reserveFor claims the wait for a seat and goes upstream on a worker of its
// own. false: there is no free worker, or the seat is not to be had now.
func (w *worker) reserveFor(ctx context.Context, wt wait, seat string, list cache.Value[[]upstream.Seat]) bool {
	if !w.occupy() {
		return false
	}
	s := w.svc
	asked, until := clock.Mono(), s.cfg.Clock.Now().Add(s.cfg.Lease)
	// What was learnt about the seat at the same instant counts as later.
	claimed, err := s.store.claimWait(ctx, wt.IntentID, seat, list.AsOf.Add(-time.Microsecond), until)
	if err != nil || claimed == nil {
		if err != nil {
			s.log.Warn("claim for a wait did not work", "intent", wt.IntentID, "seat", seat, "error", err)
		}
		w.vacate()
		return false
	}
	go func() { // vacate is its end, stop waits for it
		defer w.vacate()
		w.execute(s.hard, *claimed, lease.Take(s.cfg.Clock, claimed.Fence, until, asked, s.cfg.Lease))
		if !s.cfg.WakeByTick {
			w.wake(seat) // immediate intents may have queued behind it
		}
	}()
	return true
}

// occupy takes a free worker for something that is not a seat's queue.
func (w *worker) occupy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.busy >= w.svc.cfg.Workers {
		return false
	}
	w.busy++
	w.finished.Add(1)
	return true
}

// vacate ends what occupy began.
func (w *worker) vacate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free()
	w.finished.Done()
}
