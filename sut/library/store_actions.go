package library

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// prepare stores an action for the student to confirm.
func (s *store) prepare(ctx context.Context, student, seat string, ttl time.Duration) (actionID string, expires time.Time, err error) {
	now := s.clock.Now()
	actionID, expires = uuid.NewString(), now.Add(ttl)
	err = s.requests.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlPrepare, now, actionID, student, seat, expires)
	})
	return actionID, expires, err
}

// A consent is a confirm, or the registration of a wait.
type consent struct {
	actionID, intentID, student string
	cause                       httpapi.Cause
}

// confirmIntent consumes the action and stores its intent. false: the action
// could not be consumed, and nothing was stored.
func (s *store) confirmIntent(ctx context.Context, c consent) (r record, ok bool, err error) {
	var got []record
	err = s.requests.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlConfirmIntent, s.clock.Now(), s.replica, c.actionID, c.student, c.intentID, c.cause.Traceparent, c.cause.Op).
			Query(into(&got, scanRecord))
	})
	if err != nil || len(got) == 0 {
		return record{}, false, err
	}
	return got[0], true, nil
}

// confirmDirect is confirmIntent for the direct path: the intent is RESERVING
// at once, under a lease until the given time.
func (s *store) confirmDirect(ctx context.Context, c consent, until time.Time) (r record, ok bool, err error) {
	var got []record
	err = s.requests.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlConfirmDirect, s.clock.Now(), s.replica, c.actionID, c.student, c.intentID, c.cause.Traceparent, c.cause.Op, until).
			Query(into(&got, scanRecord))
	})
	if err != nil || len(got) == 0 {
		return record{}, false, err
	}
	return got[0], true, nil
}

// registerWait stores a wait for one of the wanted seats, or any when there are none.
func (s *store) registerWait(ctx context.Context, c consent, wanted []string, ttl time.Duration) error {
	now := s.clock.Now()
	if wanted == nil {
		wanted = []string{}
	}
	return s.requests.TransactBatch(ctx, func(b *pgx.Batch) {
		b.Queue(sqlRegisterWait, now, s.replica, c.actionID, c.student, c.intentID, c.cause.Traceparent, c.cause.Op, now.Add(ttl), wanted)
	})
}

// An action is what is known about one, with its intent once it is consumed.
type action struct {
	student, state string
	expires        time.Time
	intent         record
}

// lookUpAction gives an action; false when there is none.
func (s *store) lookUpAction(ctx context.Context, actionID string) (action, bool, error) {
	got, err := database.Read(ctx, s.requests, func(row pgx.CollectableRow) (a action, err error) {
		err = row.Scan(&a.student, &a.state, &a.expires, &a.intent.IntentID, &a.intent.Seat, &a.intent.State, &a.intent.Kind)
		a.intent.ActionID, a.intent.Student = actionID, a.student
		return a, err
	}, sqlLookUpAction, actionID)
	if err != nil || len(got) == 0 {
		return action{}, false, err
	}
	return got[0], true, nil
}

// lookUpIntent gives an intent; false when there is none.
func (s *store) lookUpIntent(ctx context.Context, intentID string) (record, bool, error) {
	got, err := database.Read(ctx, s.requests, scanRecord, sqlLookUpIntent, intentID)
	if err != nil || len(got) == 0 {
		return record{}, false, err
	}
	return got[0], true, nil
}

// endedAmong gives those of the intents that are terminal.
func (s *store) endedAmong(ctx context.Context, intentIDs []string) ([]record, error) {
	return database.Read(ctx, s.background, scanRecord, sqlEndedAmong, intentIDs)
}
