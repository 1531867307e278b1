package calendar

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// kindOverlap is a conflict with somebody else's event, which has the time, too.
// The other kind is kindMissing.
const kindOverlap = "overlap"

// Who finds conflicts.
const (
	foundByCheck          = "check"
	foundByLook           = "look"
	foundByReconciliation = "reconciliation"
)

// clash writes down which events of others have the time of an appointment,
// which is locked and active. Known conflicts are not written down twice; one
// that staff keep is none. Under the policy reject a new one ends the
// appointment.
func (c *change) clash(ctx context.Context, m *meters, policy string, a *appointment, others []event, by string) error {
	found := false
	for _, e := range othersIn(period{a.start, a.end}, others) {
		fresh, err := c.dispute(ctx, a, kindOverlap, e.ID, e.period, by)
		if err != nil {
			return err
		}
		if fresh {
			m.conflictFound(by)
		}
		found = found || fresh
	}
	if !found || policy != policyReject {
		return nil
	}
	return c.end(ctx, a, stateRejected, reasonBusy, true)
}

// dispute writes a conflict down, unless it is known or kept. When the other
// event was first seen is what "it did not move" is judged by later.
func (c *change) dispute(ctx context.Context, a *appointment, kind, external string, during period, by string) (fresh bool, err error) {
	rows, err := database.Rows(ctx, c.tx, pgx.RowTo[uuid.UUID], sqlRecord, uuid.New(), a.resource, a.id, kind, external, c.now, by, during.Start, during.End)
	if err != nil || len(rows) == 0 {
		return false, wrapped(err, "appointment %s: write down its conflict with %q", a.id, external)
	}
	if kind == kindOverlap {
		_, err = c.tx.Exec(ctx, sqlSeen, a.resource, external, during.Start, during.End)
	}
	return true, wrapped(err, "appointment %s: write down the event %q", a.id, external)
}

// resolveEnded resolves the conflicts of an appointment that is over, now that
// the provider has nothing of it any more.
func (c *change) resolveEnded(ctx context.Context, a *appointment) error {
	_, err := c.tx.Exec(ctx, sqlResolveEnded, a.id, c.now, reasonConflict)
	return wrapped(err, "appointment %s: resolve its conflicts", a.id)
}

func scanConflictView(row pgx.CollectableRow) (v conflictView, err error) {
	err = row.Scan(&v.Conflict, &v.Resource, &v.Appointment, &v.Kind, &v.External, &v.FoundAt, &v.FoundBy)
	v.FoundAt = v.FoundAt.UTC()
	return v, err
}

// getConflicts lists what is unresolved, oldest first.
func (s *Service) getConflicts(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	list, err := database.Read(r.Context(), s.store.Store, scanConflictView, sqlConflicts)
	if err != nil {
		return httpapi.Answer{}, fmt.Errorf("read the conflicts: %w", err)
	}
	return httpapi.JSON(http.StatusOK, map[string]any{"conflicts": list}), nil
}
