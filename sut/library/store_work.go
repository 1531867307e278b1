package library

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
)

// A claim is what one look at a seat's queue came to: at most one intent to
// go upstream with, and those that were closed because the seat is decided.
type claim struct {
	winner     *intent
	suppressed []record
}

// claimSeat takes the oldest immediate intent on the seat for an upstream
// attempt, unless another one is RESERVING or somebody was found to hold the
// seat after the cutoff: then all who waited by asOf are closed, nobody who came later.
func (s *store) claimSeat(ctx context.Context, seat string, asOf, cutoff, until time.Time) (claim, error) {
	var won []intent
	var c claim
	err := s.background.TransactBatch(ctx, func(b *pgx.Batch) {
		now := s.clock.Now()
		b.Queue(sqlCreateSeat, seat)
		b.Queue(sqlLockSeat, seat)
		b.Queue(sqlSuppress, now, s.replica, seat, cutoff, asOf).Query(into(&c.suppressed, scanRecord))
		b.Queue(sqlClaim, now, s.replica, seat, cutoff, until).Query(into(&won, scanIntent))
	})
	if err != nil {
		return claim{}, err
	}
	if len(won) > 0 {
		c.winner = &won[0]
	}
	if len(c.suppressed) > 0 {
		s.tell(ctx, seat)
	}
	return c, nil
}

// claimWait takes a wait for an attempt on a seat that pyxis called free at asOf.
func (s *store) claimWait(ctx context.Context, intentID, seat string, asOf, until time.Time) (*intent, error) {
	var won []intent
	err := s.background.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlCreateSeat, seat)
		b.Queue(sqlLockSeat, seat)
		b.Queue(sqlClaimWait, s.clock.Now(), s.replica, seat, asOf, until, intentID).Query(into(&won, scanIntent))
	})
	if err != nil || len(won) == 0 {
		return nil, err
	}
	return &won[0], nil
}

// finish stores how the attempt ended, if the intent is still ours under its
// fence. It gives every intent that ended by it: first ours, then the losers.
// None means that the intent was not ours any more and nothing was stored; so
// does errOthersCharge, after which another ending has to be found.
func (s *store) finish(ctx context.Context, i intent, e ending, cutoff time.Time) ([]record, error) {
	ended, err := s.finishOnce(ctx, i, e, cutoff)
	if code, constraint := sqlCode(err); code == codeUniqueViolation && constraint == "library_one_intent_per_charge" {
		return nil, errOthersCharge
	}
	return ended, err
}

// errOthersCharge: the charge that was found belongs to another intent of the student.
var errOthersCharge = errors.New("the charge belongs to another intent")

func (s *store) finishOnce(ctx context.Context, i intent, e ending, cutoff time.Time) ([]record, error) {
	var ended []record
	err := s.background.TransactBatch(ctx, func(b *pgx.Batch) {
		now := s.clock.Now()
		if i.Path == pathDirect {
			b.Queue(sqlFinishDirect, now, s.replica, i.IntentID, i.Fence, e.State, e.ChargeID, e.Failure, e.Reason).
				Query(into(&ended, scanRecord))
			return
		}
		var next *time.Time
		if e.State == stateWaiting {
			next = &e.Next
		}
		b.Queue(sqlLockSeat, i.Seat)
		b.Queue(sqlFinish, now, s.replica, i.IntentID, i.Fence, e.State, e.ChargeID, e.Failure, e.Reason, e.Decisive, e.Outcome, cutoff, next).
			Query(into(&ended, scanRecord))
		b.Queue(sqlNotify, s.instance+" "+i.Seat)
	})
	return ended, err
}

// tell lets the other replicas know that something ended on the seat. If it
// can't, they find out at their next tick.
func (s *store) tell(ctx context.Context, seat string) {
	_ = s.background.TransactBatch(ctx, func(b *pgx.Batch) { b.Queue(sqlNotify, s.instance+" "+seat) })
}

// told reads a notification: which seat, and whether it was our own.
func (s *store) told(payload string) (seat string, own bool) {
	instance, seat, _ := strings.Cut(payload, " ")
	return seat, instance == s.instance
}

// takeOver gives intents whose lease ran out, now under a lease of ours.
func (s *store) takeOver(ctx context.Context, until time.Time, most int) ([]intent, error) {
	var taken []intent
	err := s.background.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlTakeOver, s.clock.Now(), s.replica, until, most).Query(into(&taken, scanIntent))
	})
	return taken, err
}

// comeBack shortens our lease of an intent that could not be decided yet.
func (s *store) comeBack(ctx context.Context, i intent, at time.Time) error {
	return s.background.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlComeBack, at, s.clock.Now(), i.IntentID, i.Fence)
	})
}

// seatsWithWork gives seats that somebody waits for and nobody works on.
func (s *store) seatsWithWork(ctx context.Context, most int) ([]string, error) {
	return database.Read(ctx, s.background, pgx.RowTo[string], sqlSeatsWithWork, most)
}

// A wait is an intent that waits for one of the wanted seats (none: any).
type wait struct {
	intent

	wanted []string
}

// dueWaits moves new waits to WAITING_FOR_SEAT and gives those whose time has
// come, longest due first.
func (s *store) dueWaits(ctx context.Context, most int) ([]wait, error) {
	if err := s.background.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlBeginWaiting, s.clock.Now(), s.replica, most)
	}); err != nil {
		return nil, err
	}
	return database.Read(ctx, s.background, func(row pgx.CollectableRow) (w wait, err error) {
		err = row.Scan(append(intentTargets(&w.intent), &w.wanted)...)
		return w, err
	}, sqlDueWaits, s.clock.Now(), most)
}

// postpone lets a wait rest until next.
func (s *store) postpone(ctx context.Context, w wait, next time.Time) error {
	return s.background.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlPostpone, s.clock.Now(), next, w.IntentID, w.Looks)
	})
}
