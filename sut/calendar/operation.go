package calendar

import (
	"context"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/httpapi"
	"github.com/overbook/overbook/sut/idempotency"
)

// Types of operation, which are part of a key's scope.
const (
	opBook       = "book"
	opMove       = "move"
	opMoveSeries = "move-series"
	opReschedule = "reschedule"
	opCancel     = "cancel"
	opResolve    = "resolve"
)

// An operation is a write that somebody asks for under a key.
type operation struct {
	scope       idempotency.Scope
	fingerprint string
	by          cause
}

// A decision does an operation inside its transaction, after its key was
// taken, and gives the answer, which is stored with what it did, refusals
// included. It may be called again, and then begins from nothing. An error,
// also one made of a problem, leaves nothing of the operation.
type decision func(ctx context.Context, c *change) (httpapi.Answer, error)

// operate takes the operation's key, has it decided, stores the answer and
// commits. When the key was used before, it gives what that says, and does
// nothing.
func (s *Service) operate(ctx context.Context, op operation, decide decision) (httpapi.Answer, error) {
	var answer httpapi.Answer
	err := s.store.change(ctx, op.by, func(ctx context.Context, c *change) (bool, error) {
		verdict, before, err := s.keys.Take(ctx, c.tx, op.scope, op.fingerprint, op.by.op, c.now)
		if err != nil {
			return false, err
		}
		if verdict != idempotency.Taken {
			answer, err = answeredBefore(ctx, c.tx, verdict, before)
			return true, err
		}
		if answer, err = decide(ctx, c); err != nil {
			return false, err
		}
		stored := idempotency.Answer{Status: answer.Status, ContentType: answer.ContentType, Body: answer.Body}
		return true, s.keys.Complete(ctx, c.tx, op.scope, stored, s.cfg.Clock.Now())
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

// refused is an answer that is kept like any other: the operation was decided,
// against it.
func refused(p *httpapi.Problem, member string, of any) httpapi.Answer {
	return p.WithMembers(map[string]any{member: of}).Answer()
}
