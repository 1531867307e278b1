package calendar

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
)

// Reasons of a rejection, in the audit row.
const (
	reasonBusy    = "external event"  // somebody else's event has the time
	reasonMissing = "event went away" // somebody took ours out of the calendar
)

// errSpent is of an appointment that the provider never takes any more.
var errSpent = errors.New("the provider says that the event's id is spent, but the appointment is not over: staff have to cancel it")

// store keeps what came of a task, under the appointment's lock and only while
// the claim is still its own: who was slow has nothing to say any more. The
// events that the task did not know of stay pending.
func (y *synchroniser) store(ctx context.Context, t task, out outcome) error {
	return y.st.change(ctx, t.by, func(ctx context.Context, c *change) (bool, error) {
		res, err := c.lockResource(ctx, t.a.resource)
		if err != nil {
			return false, err
		}
		a, err := c.lockAppointment(ctx, t.a.id)
		if err != nil {
			return false, err
		}
		mine, err := database.Rows(ctx, c.tx, pgx.RowTo[bool], sqlHoldClaim, t.a.id, t.claim)
		if err != nil || len(mine) == 0 {
			return false, wrapped(err, "appointment %s: hold its claim", t.a.id)
		}
		done, err := y.apply(ctx, c, res, &a, t, &out)
		if err != nil {
			return false, err
		}
		if done && len(t.known) > 0 {
			if _, err := c.tx.Exec(ctx, sqlEventsDone, t.a.id, t.known, out.result, c.now); err != nil {
				return false, fmt.Errorf("appointment %s: say what became of its events: %w", t.a.id, err)
			}
		}
		return true, c.one(ctx, t.a.id, "give it back", sqlSynced, t.a.id, t.claim, c.now)
	})
}

// apply does to the appointment, which is locked, what follows from the
// outcome. done says that the events that the task knew of are.
func (y *synchroniser) apply(ctx context.Context, c *change, res resource, a *appointment, t task, out *outcome) (done bool, err error) {
	switch {
	case out.spent && a.active():
		return false, errSpent
	case out.spent: // it ended meanwhile, and somebody else has deleted it
		out.result = resultNotNeeded
		return true, nil
	case out.result == resultRefused:
		return y.refuse(ctx, c, a, t)
	case out.result == resultCreated || out.result == resultUpdated:
		return true, y.placed(ctx, c, res, a, out)
	case out.result == resultDeleted || out.result == resultNotNeeded:
		return true, c.resolveEnded(ctx, a)
	}
	return true, nil
}

// refuse rejects an appointment whose time somebody else has. One that was
// moved meanwhile is judged anew: that was about another time.
func (y *synchroniser) refuse(ctx context.Context, c *change, a *appointment, t task) (done bool, err error) {
	if !a.active() {
		return true, nil
	}
	if !t.during().same(period{a.start, a.end}) {
		return false, nil
	}
	return true, c.end(ctx, a, stateRejected, reasonBusy, true)
}

// placed says that the provider has the event, and writes down whose events are
// there as well. One that ended meanwhile stays so: its last event has the
// provider's deleted.
func (y *synchroniser) placed(ctx context.Context, c *change, res resource, a *appointment, out *outcome) error {
	if !a.active() {
		return nil
	}
	if a.state == stateBooked {
		if err := c.created(ctx, a); err != nil {
			return err
		}
	}
	if err := c.clash(ctx, y.meters, policyKeep, a, out.found, foundByCheck); err != nil {
		return err
	}
	return c.clash(ctx, y.meters, res.policy, a, out.seen, foundByLook)
}
