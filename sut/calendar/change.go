package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
)

// States of an appointment. BOOKED and CREATED are active: no two of a
// resource overlap.
const (
	stateBooked    = "BOOKED"    // here; the provider may not have it yet
	stateCreated   = "CREATED"   // the provider has it
	stateRejected  = "REJECTED"  // somebody else's event was there, and the policy is to give way
	stateCancelled = "CANCELLED" // by its member, or by staff because of a conflict
)

// Audit events that are no states.
const (
	eventMoved    = "MOVED"
	eventRestored = "RESTORED"
)

// Types of outbox events.
const (
	typeBooked    = "appointment.booked"
	typeMoved     = "appointment.moved"
	typeRestored  = "appointment.restored"
	typeCancelled = "appointment.cancelled"
	typeRejected  = "appointment.rejected"
)

// States of a resource.
const (
	resourceInactive   = "INACTIVE"
	resourceActivating = "ACTIVATING"
	resourceActive     = "ACTIVE"
)

// reasonConflict is why staff cancelled: an unresolved conflict. Its audit row
// has staff as the actor; of a member's own cancellation the reason is empty.
const reasonConflict = "conflict"

// A resource is a resource's row, locked when it came from [change.lockResource].
type resource struct {
	id                                int64
	calendar, state, contract, policy string
	limit                             int32
}

// An appointment is an appointment's row, locked when it came from one of a
// change's locks.
type appointment struct {
	id             uuid.UUID
	resource       int64
	member         string
	start, end     time.Time // half-open
	zone           string
	state, eventID string
	series         *uuid.UUID
	seriesNo       *int32
	version        int32 // number of its last audit row
}

// active reports whether it takes its time from others.
func (a appointment) active() bool { return a.state == stateBooked || a.state == stateCreated }

// A change is one transaction on resources and appointments, with what it
// writes down of them. Locks are taken in this order: resources ascending,
// appointments ascending, syncs.
type change struct {
	tx  pgx.Tx
	now time.Time // server time, of the last lock: who waited for it decides by when they got it
	by  cause
	cfg Config
}

// lockResource locks a resource's row. [errNoResource] when there is none.
func (c *change) lockResource(ctx context.Context, id int64) (resource, error) {
	found, err := database.Rows(ctx, c.tx, scanResource, sqlLockResource, id)
	if err != nil {
		return resource{}, fmt.Errorf("lock resource %d: %w", id, err)
	}
	if len(found) == 0 {
		return resource{}, errNoResource
	}
	c.now = c.cfg.Clock.Now()
	return found[0], nil
}

// lockAppointment locks an appointment's row; its resource is locked already.
// [errNoAppointment] when there is none.
func (c *change) lockAppointment(ctx context.Context, id uuid.UUID) (appointment, error) {
	found, err := c.lockAppointments(ctx, []uuid.UUID{id})
	if err != nil {
		return appointment{}, err
	}
	if len(found) == 0 {
		return appointment{}, errNoAppointment
	}
	return found[0], nil
}

// lockAppointments locks the rows that exist, in ascending order.
func (c *change) lockAppointments(ctx context.Context, ids []uuid.UUID) ([]appointment, error) {
	found, err := database.Rows(ctx, c.tx, scanAppointment, sqlLockAppointments, ids)
	if err != nil {
		return nil, fmt.Errorf("lock %d appointments: %w", len(ids), err)
	}
	c.now = c.cfg.Clock.Now()
	return found, nil
}

// note gives the appointment its next version and an audit row of that number,
// which says what happened and when the appointment is after it.
func (c *change) note(ctx context.Context, a *appointment, event, reason string) error {
	a.version++
	return c.one(ctx, a.id, "write its audit row", sqlNote, a.id, a.version, event, reason, c.by.actor, c.by.op, c.now)
}

// tell has the provider brought to what the appointment is now: an outbox event
// with the number of its last audit row, and its sync row due, whatever became
// of it before.
func (c *change) tell(ctx context.Context, a *appointment, kind string) error {
	doc, err := json.Marshal(payload{
		Appointment: a.id.String(), Resource: a.resource, Member: a.member, Event: a.eventID, Start: stamp(a.start), End: stamp(a.end),
		Zone: a.zone, State: a.state, Seq: a.version, Actor: c.by.actor, Op: c.by.op, Traceparent: c.by.traceparent,
	})
	if err != nil {
		return err
	}
	if err := c.one(ctx, a.id, "write its event", sqlTell, a.id, a.version, kind, string(doc), c.now); err != nil {
		return err
	}
	return c.one(ctx, a.id, "have it synchronised", sqlDue, a.id, c.now)
}

// A payload is what an outbox event says, as of its transaction.
type payload struct {
	Appointment string `json:"appointment_id"`
	Resource    int64  `json:"resource_id"`
	Member      string `json:"member"`
	Event       string `json:"event_id"`
	Start       string `json:"start"`
	End         string `json:"end"`
	Zone        string `json:"time_zone"`
	State       string `json:"state"`
	Seq         int32  `json:"seq"`
	Actor       string `json:"actor"`
	Op          string `json:"op"`
	Traceparent string `json:"traceparent"`
}

// end ends an active appointment, which is locked: CANCELLED or REJECTED. tell
// says whether the provider has to hear of it.
func (c *change) end(ctx context.Context, a *appointment, state, reason string, tell bool) error { //nolint:unparam // whether the provider hears of it is said where it ends
	if err := c.one(ctx, a.id, "end it", sqlEnd, a.id, state, c.now); err != nil {
		return err
	}
	a.state = state
	if err := c.note(ctx, a, state, reason); err != nil || !tell {
		return err
	}
	kind := typeCancelled
	if state == stateRejected {
		kind = typeRejected
	}
	return c.tell(ctx, a, kind)
}

// created says that the provider has a BOOKED appointment, which is locked.
func (c *change) created(ctx context.Context, a *appointment) error {
	if err := c.one(ctx, a.id, "say that the provider has it", sqlCreated, a.id); err != nil {
		return err
	}
	a.state = stateCreated
	return c.note(ctx, a, stateCreated, "")
}

// one runs a statement that changes exactly one row of the appointment's.
func (c *change) one(ctx context.Context, id uuid.UUID, what, sql string, args ...any) error {
	tag, err := c.tx.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("appointment %s: %s: %w", id, what, err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("appointment %s: %s: %d rows changed instead of one, it is not what its lock promised", id, what, tag.RowsAffected())
	}
	return nil
}

func scanResource(row pgx.CollectableRow) (r resource, err error) {
	err = row.Scan(&r.id, &r.calendar, &r.state, &r.contract, &r.policy, &r.limit)
	return r, err
}

// scanAppointment scans what appointmentColumns selects.
func scanAppointment(row pgx.CollectableRow) (a appointment, err error) {
	err = row.Scan(&a.id, &a.resource, &a.member, &a.start, &a.end, &a.zone, &a.state, &a.eventID, &a.series, &a.seriesNo, &a.version)
	return a, err
}
