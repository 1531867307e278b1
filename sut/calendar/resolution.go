package calendar

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// What staff may decide of a conflict, and what that makes of it.
const (
	decisionKeep   = "keep"
	decisionCancel = "cancel"

	resolutionKept      = "kept"
	resolutionCancelled = "cancelled"
)

// kindMissing is a conflict with nobody: our event is gone. The other kind is
// an overlap with an external event.
const kindMissing = "missing"

func (s *Service) postResolution(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	var in struct {
		Decision string `json:"decision"`
	}
	id, err := pathID(r, "conflict", unknownConflict)
	if err != nil {
		return httpapi.Answer{}, err
	}
	op, err := asked(r, who, opResolve, id.String(), &in)
	if err == nil && in.Decision != decisionKeep && in.Decision != decisionCancel {
		err = httpapi.BadRequest.With(`"decision" must be keep or cancel`).Err()
	}
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.operate(r.Context(), op, resolve(id, in.Decision))
}

// A dispute is a conflict's row, locked after its appointment.
type dispute struct {
	id          uuid.UUID
	resource    int64
	appointment uuid.UUID
	kind        string
	resolved    bool
}

func scanDispute(row pgx.CollectableRow) (d dispute, err error) {
	err = row.Scan(&d.id, &d.resource, &d.appointment, &d.kind, &d.resolved)
	return d, err
}

// lockDispute locks a conflict, its appointment and its resource, in the order
// of locks. An unknown one is a problem.
func (c *change) lockDispute(ctx context.Context, id uuid.UUID) (dispute, appointment, error) {
	seen, err := database.Rows(ctx, c.tx, scanDispute, sqlConflict, id)
	if err != nil {
		return dispute{}, appointment{}, fmt.Errorf("find conflict %s: %w", id, err)
	}
	if len(seen) == 0 {
		return dispute{}, appointment{}, unknownConflict.Err()
	}
	if _, err := c.lockResource(ctx, seen[0].resource); err != nil {
		return dispute{}, appointment{}, err
	}
	a, err := c.lockAppointment(ctx, seen[0].appointment)
	if err != nil {
		return dispute{}, appointment{}, err
	}
	locked, err := database.Rows(ctx, c.tx, scanDispute, sqlLockConflict, id)
	if err == nil && len(locked) != 1 {
		err = errors.New("it has gone, and conflicts never go")
	}
	if err != nil {
		return dispute{}, appointment{}, fmt.Errorf("lock conflict %s: %w", id, err)
	}
	return locked[0], a, nil
}

// resolve decides what staff say of a conflict. Kept, it is resolved at once;
// an event of ours that was missing is created again. Cancelled, it is resolved
// when the provider has deleted the event.
func resolve(id uuid.UUID, word string) decision {
	return func(ctx context.Context, c *change) (httpapi.Answer, error) {
		d, a, err := c.lockDispute(ctx, id)
		if err != nil {
			return httpapi.Answer{}, err
		}
		switch {
		case d.resolved:
			return refused(alreadyResolved, "conflict_id", id), nil
		case !a.active():
			return refused(beingResolved, "conflict_id", id), nil
		}
		resolution := resolutionCancelled
		if word == decisionKeep {
			resolution = resolutionKept
			err = c.keep(ctx, d, &a)
		} else {
			err = c.end(ctx, &a, stateCancelled, reasonConflict, true)
		}
		if err != nil {
			return httpapi.Answer{}, err
		}
		return httpapi.JSON(http.StatusOK, map[string]any{"conflict_id": id, "resolution": resolution}), nil
	}
}

// keep resolves a conflict in favour of its appointment. Both are locked.
func (c *change) keep(ctx context.Context, d dispute, a *appointment) error {
	if err := c.one(ctx, a.id, "keep it", sqlKeep, d.id, c.now, c.by.actor); err != nil {
		return err
	}
	if d.kind != kindMissing {
		return nil
	}
	if err := c.note(ctx, a, eventRestored, ""); err != nil {
		return err
	}
	return c.tell(ctx, a, typeRestored)
}

// postSync has a parked appointment's synchronisation tried again.
func (s *Service) postSync(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	id, err := pathID(r, "appointment", unknownAppointment)
	if err == nil {
		err = read(r, &struct{}{})
	}
	if err != nil {
		return httpapi.Answer{}, err
	}
	found, err := alter(r.Context(), s.store, pgx.RowTo[bool], sqlUnpark, id, httpapi.CauseOf(r).Op, s.cfg.Clock.Now())
	switch {
	case err != nil:
		return httpapi.Answer{}, fmt.Errorf("have appointment %s tried again: %w", id, err)
	case len(found) == 0:
		return httpapi.Answer{}, unknownAppointment.Err()
	case !found[0]:
		return httpapi.Answer{}, notParked.WithMembers(map[string]any{"appointment_id": id}).Err()
	}
	return httpapi.JSON(http.StatusOK, map[string]any{"appointment_id": id, "sync": syncPending}), nil
}
