package library

import (
	"context"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/httpapi"
	"github.com/overbook/overbook/sut/lease"
)

// confirm consumes the action and gives its intent when that has ended, or as
// it is when the wait is over. Every confirm of one action gives the same intent.
func (s *Service) confirm(ctx context.Context, student, actionID string, cause httpapi.Cause) (record, error) {
	c := consent{actionID: actionID, intentID: uuid.NewString(), student: student, cause: cause}
	if s.cfg.Path == pathDirect {
		return s.confirmDirect(ctx, c)
	}
	w := s.waiters.join(c.intentID, "")
	defer w.leave()
	r, ok, err := s.store.confirmIntent(ctx, c)
	if err != nil {
		return record{}, err
	}
	if !ok {
		return s.confirmedBefore(ctx, c)
	}
	w.on(r.Seat)
	if !s.cfg.WakeByTick {
		s.worker.wake(r.Seat)
	}
	return s.await(ctx, w, r)
}

// confirmDirect is the baseline: this request's own goroutine goes upstream,
// between two short transactions. It goes on when the client leaves.
func (s *Service) confirmDirect(ctx context.Context, c consent) (record, error) {
	w := s.waiters.join(c.intentID, "")
	defer w.leave()
	asked, until := clock.Mono(), s.cfg.Clock.Now().Add(s.cfg.Lease)
	r, ok, err := s.store.confirmDirect(ctx, c, until)
	if err != nil {
		return record{}, err
	}
	if !ok {
		return s.confirmedBefore(ctx, c)
	}
	w.on(r.Seat)
	i := intent{record: r, Path: pathDirect, Fence: 1, LockedUntil: until, Traceparent: c.cause.Traceparent, Op: c.cause.Op}
	lasting, end := s.outlive(ctx)
	defer end()
	if e, known := s.attempt(lasting, i, lease.Take(s.cfg.Clock, i.Fence, until, asked, s.cfg.Lease)); known {
		if ended, stored := s.conclude(lasting, i, e); stored {
			return ended[0], nil
		}
	}
	return s.await(ctx, w, r)
}

// confirmedBefore answers a confirm that did not consume the action: it is not
// the student's, it has expired, or it was confirmed before; then the answer
// is that of the intent it made.
func (s *Service) confirmedBefore(ctx context.Context, c consent) (record, error) {
	a, known, err := s.store.lookUpAction(ctx, c.actionID)
	switch {
	case err != nil:
		return record{}, err
	case !known || a.student != c.student:
		return record{}, unknownAction.Err()
	case a.intent.IntentID == "":
		return record{}, actionExpired.Err()
	case terminal(a.intent.State) || a.intent.Kind == kindWait:
		return a.intent, nil
	}
	w := s.waiters.join(a.intent.IntentID, a.intent.Seat)
	defer w.leave()
	if r, known, err := s.store.lookUpIntent(ctx, a.intent.IntentID); err == nil && known && terminal(r.State) {
		return r, nil // ended before we had joined
	}
	return s.await(ctx, w, a.intent)
}
