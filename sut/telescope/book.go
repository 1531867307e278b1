package telescope

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
)

// quotaMost is how many active reservations a member may have in a month of
// the observatory's.
const quotaMost = 2

// book decides a reservation of the slot by the operation's principal. Who has
// reached the quota is told so whatever the slot is like, and without its lock;
// then a closed slot is closed also when somebody has it.
func book(id int64) decision {
	return func(ctx context.Context, w *work) (outcome, error) {
		starts, known, err := one[time.Time](ctx, w, sqlStart, id)
		if err != nil {
			return outcome{}, err
		}
		if !known {
			return outcome{}, unknownSlot.Err()
		}
		if !starts.After(w.clock.Now()) {
			return outcome{}, slotPast.Err()
		}
		member, month := w.op.scope.Principal, starts.In(w.zone).Format("2006-01")
		if err := w.exec(ctx, sqlLockQuota, member, month); err != nil {
			return outcome{}, err
		}
		has, _, err := one[int](ctx, w, sqlCountBookings, member, month)
		if err != nil {
			return outcome{}, err
		}
		if has >= quotaMost {
			return refused(quotaExceeded, id), nil
		}
		return w.reserve(ctx, id, month)
	}
}

// reserve makes the reservation once the quota allows it.
func (w *work) reserve(ctx context.Context, id int64, month string) (outcome, error) {
	locked, err := w.lockSlot(ctx, id)
	if err != nil {
		return outcome{}, err
	}
	if locked.state != stateOpen {
		return refused(slotClosed, id), nil
	}
	now := w.clock.Now()
	if !locked.starts.After(now) { // it has begun while we waited
		return outcome{}, slotPast.Err()
	}
	member, booking := w.op.scope.Principal, uuid.NewString()
	_, reserved, err := one[bool](ctx, w, sqlReserve, id, booking, member, month, now)
	if err != nil {
		return outcome{}, err
	}
	if !reserved {
		return refused(slotTaken, id), nil
	}
	if err := w.record(ctx, eventBooked, change{id, &booking, &member}); err != nil {
		return outcome{}, err
	}
	return done(http.StatusCreated, reservation{booking, id, member, stamp(locked.starts), "active"}, id, &booking), nil
}

// A reservation is what a booking answers.
type reservation struct {
	Booking string `json:"booking_id"`
	Slot    int64  `json:"slot_id"`
	Member  string `json:"member"`
	Starts  string `json:"starts_at"`
	State   string `json:"state"`
}

// A booked is a booking's history: where and whose it is.
type booked struct {
	slot   int64
	member string
}

// booking finds a booking, whatever became of it since.
func (w *work) booking(ctx context.Context, id string) (booked, error) {
	found, err := database.Rows(ctx, w.tx, func(row pgx.CollectableRow) (b booked, err error) {
		err = row.Scan(&b.slot, &b.member)
		return b, err
	}, sqlBooking, id)
	if err != nil {
		return booked{}, err
	}
	if len(found) == 0 {
		return booked{}, unknownBooking.Err()
	}
	return found[0], nil
}

// cancel decides the end of a booking of the operation's principal.
func cancel(id string) decision {
	return func(ctx context.Context, w *work) (outcome, error) {
		b, err := w.booking(ctx, id)
		if err != nil {
			return outcome{}, err
		}
		if b.member != w.op.scope.Principal {
			return outcome{}, unknownBooking.Err()
		}
		if _, err := w.lockSlot(ctx, b.slot); err != nil {
			return outcome{}, err
		}
		_, released, err := one[bool](ctx, w, sqlRelease, id)
		if err != nil {
			return outcome{}, err
		}
		if !released {
			return refused(alreadyCancelled, b.slot), nil
		}
		if err := w.record(ctx, eventCancelled, change{b.slot, &id, &b.member}); err != nil {
			return outcome{}, err
		}
		body := struct {
			Booking string `json:"booking_id"`
			Slot    int64  `json:"slot_id"`
			State   string `json:"state"`
		}{id, b.slot, "cancelled"}
		return done(http.StatusOK, body, b.slot, &id), nil
	}
}
