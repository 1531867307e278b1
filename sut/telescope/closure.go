package telescope

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
)

// closure decides the closing of a slot. Whoever has it keeps the reservation,
// flagged for staff.
func closure(id int64) decision {
	return func(ctx context.Context, w *work) (outcome, error) {
		locked, err := w.lockSlot(ctx, id)
		if err != nil {
			return outcome{}, err
		}
		if locked.state == stateClosed {
			return refused(alreadyClosed, id), nil
		}
		flagged, err := w.close(ctx, id)
		if err != nil {
			return outcome{}, err
		}
		body := struct {
			Slot    int64   `json:"slot_id"`
			State   string  `json:"state"`
			Flagged *string `json:"flagged"`
		}{id, stateClosed, nil}
		if len(flagged) > 0 {
			body.Flagged = flagged[0].booking
		}
		return done(http.StatusOK, body, id, body.Flagged), nil
	}
}

// close closes slots that are locked and open, and gives the reservations that
// it flagged.
func (w *work) close(ctx context.Context, ids ...int64) ([]change, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if err := w.exec(ctx, sqlSetState, ids, stateClosed, w.clock.Now()); err != nil {
		return nil, err
	}
	if err := w.record(ctx, eventClosed, changesOf(ids)...); err != nil {
		return nil, err
	}
	flagged, err := database.Rows(ctx, w.tx, func(row pgx.CollectableRow) (c change, err error) {
		err = row.Scan(&c.slot, &c.booking, &c.member)
		return c, err
	}, sqlFlag, ids, w.clock.Now())
	if err != nil {
		return nil, err
	}
	return flagged, w.record(ctx, eventFlagged, flagged...)
}

// reopening decides that a slot is open again; a reservation that was flagged
// stands again.
func reopening(id int64) decision {
	return func(ctx context.Context, w *work) (outcome, error) {
		locked, err := w.lockSlot(ctx, id)
		if err != nil {
			return outcome{}, err
		}
		if locked.state == stateOpen {
			return refused(alreadyOpen, id), nil
		}
		if err := w.reopen(ctx, id); err != nil {
			return outcome{}, err
		}
		body := struct {
			Slot  int64  `json:"slot_id"`
			State string `json:"state"`
		}{id, stateOpen}
		return done(http.StatusOK, body, id, nil), nil
	}
}

// reopen opens slots that are locked and closed.
func (w *work) reopen(ctx context.Context, ids ...int64) error {
	if len(ids) == 0 {
		return nil
	}
	if err := w.exec(ctx, sqlSetState, ids, stateOpen, w.clock.Now()); err != nil {
		return err
	}
	if err := w.exec(ctx, sqlUnflag, ids); err != nil {
		return err
	}
	return w.record(ctx, eventReopened, changesOf(ids)...)
}

// changesOf are transitions of slots that are about no booking.
func changesOf(ids []int64) []change {
	changes := make([]change, len(ids))
	for i, id := range ids {
		changes[i].slot = id
	}
	return changes
}

// What staff decide about a flagged reservation.
const (
	decisionRelease = "release"
	decisionKeep    = "keep"
)

// resolution decides what becomes of a flagged reservation: released, which
// cancels it, or kept although its slot is closed. It is decided once.
func resolution(id, verdict string) decision {
	return func(ctx context.Context, w *work) (outcome, error) {
		b, err := w.booking(ctx, id)
		if err != nil {
			return outcome{}, err
		}
		if _, err := w.lockSlot(ctx, b.slot); err != nil {
			return outcome{}, err
		}
		flag, _, err := one[string](ctx, w, sqlFlagState, id)
		if err != nil {
			return outcome{}, err
		}
		if flag != "open" {
			return refused(notFlagged, b.slot), nil
		}
		sql, event := sqlKeep, eventKept
		if verdict == decisionRelease {
			sql, event = sqlRelease, eventCancelled
		}
		if err := w.exec(ctx, sql, id); err != nil {
			return outcome{}, err
		}
		if err := w.record(ctx, event, change{b.slot, &id, &b.member}); err != nil {
			return outcome{}, err
		}
		body := struct {
			Booking  string `json:"booking_id"`
			Slot     int64  `json:"slot_id"`
			Decision string `json:"decision"`
		}{id, b.slot, verdict}
		return done(http.StatusOK, body, b.slot, &id), nil
	}
}

func scanSlotID(row pgx.CollectableRow) (id int64, err error) {
	err = row.Scan(&id)
	return id, err
}
