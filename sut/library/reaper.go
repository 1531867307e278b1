package library

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Bounds of the reaper.
const (
	reapMost    = 50 // leases taken over in one round
	reapAtOnce  = 4  // charges read at once
	reapRetries = 4  // reaper intervals between two readings of a charge that can't be read
)

// reap decides intents whose lease ran out, by reading the student's charge:
// a charge is a success, none a failure, a rejected credential says so. It
// never reserves: the first call may have been accepted.
func (s *Service) reap(ctx context.Context) {
	for s.cfg.Clock.Sleep(ctx, s.cfg.ReaperInterval) == nil {
		taken, err := s.store.takeOver(ctx, s.cfg.Clock.Now().Add(s.cfg.Lease), reapMost)
		if err != nil {
			s.log.Warn("reaper could not look for leases", "error", err)
			continue
		}
		var group errgroup.Group
		group.SetLimit(reapAtOnce)
		for _, i := range taken {
			group.Go(func() error {
				s.decide(ctx, i)
				return nil
			})
		}
		_ = group.Wait() // decide logs; it gives no error
	}
}

func (s *Service) decide(ctx context.Context, i intent) {
	s.log.Info("lease ran out, reading the charge", "intent", i.IntentID, "seat", i.Seat, "fence", i.Fence)
	e, known := s.read(ctx, i)
	if !known {
		at := s.cfg.Clock.Now().Add(min(reapRetries*s.cfg.ReaperInterval, s.cfg.Lease))
		if err := s.store.comeBack(ctx, i, at); err != nil {
			s.log.Warn("lease could not be shortened", "intent", i.IntentID, "error", err)
		}
		return
	}
	e.Reason = "lease ran out: " + e.Reason
	ended, stored := s.conclude(ctx, i, e)
	if !stored {
		return
	}
	s.metrics.reaped(ended[0].State)
	if i.Path == pathIntent && !s.cfg.WakeByTick {
		s.worker.wake(i.Seat) // whoever queued behind it
	}
}
