package telescope

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
	"github.com/overbook/overbook/sut/idempotency"
)

// Types of operation, which are part of a key's scope.
const (
	opBook    = "book"
	opCancel  = "cancel"
	opClose   = "close"
	opReopen  = "reopen"
	opImport  = "import"
	opResolve = "resolve"
)

// An operation is a write that somebody asks for under a key.
type operation struct {
	scope       idempotency.Scope
	fingerprint string
	cause       httpapi.Cause
}

// An outcome is what an operation was decided to be. It is stored with what it
// did, and then sent.
type outcome struct {
	answer  httpapi.Answer
	slot    *int64 // what it was about, if it was one slot
	booking *string
}

// A decision does an operation inside its transaction, after its key was
// taken. It may be called again, and then begins from nothing. An error, also
// one made of a problem, leaves nothing of the operation.
type decision func(ctx context.Context, w *work) (outcome, error)

// work is one transaction of an operation.
type work struct {
	tx    pgx.Tx
	op    operation
	clock *clock.Clock
	zone  *time.Location
}

// operate takes the operation's key, has it decided, stores the answer and
// commits. When the key was used before, it gives what that says, and does
// nothing.
func (s *Service) operate(ctx context.Context, op operation, decide decision) (httpapi.Answer, error) {
	var answer httpapi.Answer
	err := s.store.Transact(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		verdict, before, err := s.keys.Take(ctx, tx, op.scope, op.fingerprint, op.cause.Op, s.cfg.Clock.Now())
		if err != nil {
			return false, err
		}
		if verdict != idempotency.Taken {
			answer, err = answeredBefore(ctx, tx, verdict, before)
			return true, err
		}
		w := &work{tx: tx, op: op, clock: s.cfg.Clock, zone: s.cfg.TimeZone}
		out, err := decide(ctx, w)
		if err != nil {
			return false, err
		}
		answer = out.answer
		stored := idempotency.Answer{Status: answer.Status, ContentType: answer.ContentType, Body: answer.Body}
		return true, s.keys.Complete(ctx, tx, op.scope, stored, w.clock.Now(), out.slot, out.booking)
	})
	if errors.Is(err, idempotency.ErrInProgress) {
		return httpapi.Answer{}, inProgress.Err()
	}
	return answer, err
}

// answeredBefore is the answer to a request whose key was used before.
func answeredBefore(ctx context.Context, tx pgx.Tx, verdict idempotency.Verdict, stored idempotency.Stored) (httpapi.Answer, error) {
	switch verdict {
	case idempotency.Reused:
		return httpapi.Answer{}, keyReused.Err()
	case idempotency.WindowOver:
		return httpapi.Answer{}, retryWindowOver.Err()
	default: // a retry
	}
	_, err := tx.Exec(ctx, sqlBarrier)
	return httpapi.Answer{
		Status: stored.Status, ContentType: stored.ContentType, Body: stored.Body, Kind: "replayed",
		Header: http.Header{"Idempotency-Replayed": {"true"}},
	}, err
}

// refused is an outcome that is kept like any other: the operation was decided,
// against it.
func refused(p *httpapi.Problem, slot int64) outcome {
	return outcome{answer: p.WithMembers(map[string]any{"slot_id": slot}).Answer(), slot: &slot}
}

// done is the outcome of an operation on one slot.
func done(status int, body any, slot int64, booking *string) outcome {
	return outcome{answer: httpapi.JSON(status, body), slot: &slot, booking: booking}
}

// A slot is a slot's row while it is locked.
type slot struct {
	id     int64
	starts time.Time
	state  string
}

const (
	stateOpen   = "open"
	stateClosed = "closed"
)

// lockSlots locks the slots' rows, in ascending order, and gives those that exist.
func (w *work) lockSlots(ctx context.Context, ids ...int64) ([]slot, error) {
	return database.Rows(ctx, w.tx, func(row pgx.CollectableRow) (s slot, err error) {
		err = row.Scan(&s.id, &s.starts, &s.state)
		return s, err
	}, sqlLockSlots, ids)
}

// lockSlot locks one slot's row. A slot that does not exist is a problem.
func (w *work) lockSlot(ctx context.Context, id int64) (slot, error) {
	locked, err := w.lockSlots(ctx, id)
	if err != nil {
		return slot{}, err
	}
	if len(locked) == 0 {
		return slot{}, unknownSlot.Err()
	}
	return locked[0], nil
}

// one runs a statement that gives one value or none.
func one[T any](ctx context.Context, w *work, sql string, args ...any) (v T, found bool, err error) {
	err = w.tx.QueryRow(ctx, sql, args...).Scan(&v)
	if errors.Is(err, pgx.ErrNoRows) {
		return v, false, nil
	}
	return v, err == nil, err
}

func (w *work) exec(ctx context.Context, sql string, args ...any) error {
	_, err := w.tx.Exec(ctx, sql, args...)
	return err
}
