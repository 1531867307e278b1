package telescope

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// importMost is how many slots one import may name.
const importMost = 500

// An entry is one slot of an import: what it shall be.
type entry struct {
	Slot   int64  `json:"slot_id"`
	Starts string `json:"starts_at"`
	State  string `json:"state"`

	starts time.Time
}

// A maintenance is an import's body.
type maintenance struct {
	Slots []entry `json:"slots"`
}

// check reads what JSON leaves open. The error is made of a problem.
func (m *maintenance) check() error {
	if len(m.Slots) == 0 || len(m.Slots) > importMost {
		return httpapi.BadRequest.With(fmt.Sprintf("\"slots\" must name 1 to %d slots, not %d", importMost, len(m.Slots))).Err()
	}
	seen := make(map[int64]bool, len(m.Slots))
	for i := range m.Slots {
		e := &m.Slots[i]
		var err error
		e.starts, err = time.Parse(time.RFC3339, e.Starts)
		e.starts = e.starts.UTC()
		var fault string
		switch {
		case e.Slot < 1:
			fault = "\"slot_id\" must be a whole number above zero"
		case seen[e.Slot]:
			fault = fmt.Sprintf("slot %d is named twice", e.Slot)
		case err != nil || e.starts.Nanosecond() != 0 || e.starts.Unix()%1800 != 0:
			fault = "\"starts_at\" must be a full or half hour like 2026-12-24T08:30:00Z"
		case e.starts.Year() < 2000 || e.starts.Year() >= 3000:
			fault = "\"starts_at\" must be of the years 2000 to 2999"
		case e.State != stateOpen && e.State != stateClosed:
			fault = "\"state\" must be open or closed"
		}
		if fault != "" {
			return httpapi.BadRequest.With(fmt.Sprintf("entry %d of \"slots\": %s", i+1, fault)).Err()
		}
		seen[e.Slot] = true
	}
	return nil
}

// imported is what an import answers. A slot that is new counts as created
// alone, also when it is closed from the beginning.
type imported struct {
	Created   int      `json:"created"`
	Closed    int      `json:"closed"`
	Reopened  int      `json:"reopened"`
	Unchanged int      `json:"unchanged"`
	Flagged   []string `json:"flagged"`
}

// maintain decides an import: new slots are made, others closed or reopened.
// All slots are locked, in ascending order, before any is changed; the new ones
// are locked by being made.
func maintain(entries []entry) decision {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return cmp.Compare(a.Slot, b.Slot) })
	ids := make([]int64, len(entries))
	for i, e := range entries {
		ids[i] = e.Slot
	}
	return func(ctx context.Context, w *work) (outcome, error) {
		moved, missing, err := w.compare(ctx, entries, ids)
		if err != nil {
			return outcome{}, err
		}
		if moved != 0 {
			return refused(slotMoved, moved), nil
		}
		created, err := w.create(ctx, missing)
		if err != nil {
			return outcome{}, err
		}
		locked, err := w.lockSlots(ctx, ids...)
		if err != nil {
			return outcome{}, err
		}
		return w.maintainLocked(ctx, entries, locked, created)
	}
}

// compare finds a slot that has another start than its entry (0 when there is
// none) and the entries of slots that don't exist. It needs no lock: a slot
// stays where it is, and stays.
func (w *work) compare(ctx context.Context, entries []entry, ids []int64) (moved int64, missing []entry, err error) {
	known, err := database.Rows(ctx, w.tx, func(row pgx.CollectableRow) (s slot, err error) {
		err = row.Scan(&s.id, &s.starts)
		return s, err
	}, sqlStarts, ids)
	if err != nil {
		return 0, nil, err
	}
	starts := make(map[int64]time.Time, len(known))
	for _, s := range known {
		starts[s.id] = s.starts
	}
	for _, e := range entries {
		at, exists := starts[e.Slot]
		if !exists {
			missing = append(missing, e)
		} else if !at.Equal(e.starts) {
			return e.Slot, nil, nil
		}
	}
	return 0, missing, nil
}

// create makes slots, open, and gives those that it made: others may have been
// made by somebody else since they were missing.
func (w *work) create(ctx context.Context, missing []entry) ([]int64, error) {
	if len(missing) == 0 {
		return nil, nil
	}
	ids, starts := make([]int64, len(missing)), make([]time.Time, len(missing))
	for i, e := range missing {
		ids[i], starts[i] = e.Slot, e.starts
	}
	created, err := database.Rows(ctx, w.tx, scanSlotID, sqlCreateSlots, ids, starts, w.clock.Now())
	if err != nil || len(created) == 0 {
		return nil, err
	}
	return created, w.write(ctx, eventCreated, changesOf(created), slices.Repeat([]int32{1}, len(created)))
}

// maintainLocked brings the locked slots into the states that the entries want.
func (w *work) maintainLocked(ctx context.Context, entries []entry, locked []slot, created []int64) (outcome, error) {
	if len(locked) != len(entries) {
		return outcome{}, fmt.Errorf("%d of %d slots of an import are locked", len(locked), len(entries))
	}
	answer := imported{Created: len(created), Flagged: []string{}}
	var closing, opening []int64
	for i, e := range entries { // both by ascending id
		s, isNew := locked[i], slices.Contains(created, e.Slot)
		switch {
		case !s.starts.Equal(e.starts):
			return outcome{}, database.ErrAgain // somebody made it elsewhere after we had compared
		case s.state == e.State && !isNew:
			answer.Unchanged++
		case s.state == e.State:
		case e.State == stateClosed:
			closing = append(closing, e.Slot)
			if !isNew {
				answer.Closed++
			}
		default:
			opening = append(opening, e.Slot)
			answer.Reopened++
		}
	}
	flagged, err := w.close(ctx, closing...)
	if err != nil {
		return outcome{}, err
	}
	if err := w.reopen(ctx, opening...); err != nil {
		return outcome{}, err
	}
	slices.SortFunc(flagged, func(a, b change) int { return cmp.Compare(a.slot, b.slot) })
	for _, c := range flagged {
		answer.Flagged = append(answer.Flagged, *c.booking)
	}
	return outcome{answer: httpapi.JSON(http.StatusOK, answer)}, nil
}
