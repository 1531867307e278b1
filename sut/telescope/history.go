package telescope

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
)

// What can happen to a slot.
const (
	eventCreated   = "CREATED"
	eventBooked    = "BOOKED"
	eventCancelled = "CANCELLED"
	eventClosed    = "CLOSED"
	eventReopened  = "REOPENED"
	eventFlagged   = "FLAGGED"
	eventKept      = "KEPT"
)

// A change is one transition of one slot, with the booking that it is about,
// if it is about one.
type change struct {
	slot            int64
	booking, member *string
}

// record writes down that an event happened to each of the slots, whose rows
// must be locked: the next number of the slot, a history row and an event for
// those who wait outside, all with that number.
func (w *work) record(ctx context.Context, event string, changes ...change) error {
	if len(changes) == 0 {
		return nil
	}
	slots := make([]int64, len(changes))
	for i, c := range changes {
		slots[i] = c.slot
	}
	type numbered struct {
		slot int64
		seq  int32
	}
	rows, err := database.Rows(ctx, w.tx, func(row pgx.CollectableRow) (n numbered, err error) {
		err = row.Scan(&n.slot, &n.seq)
		return n, err
	}, sqlAdvance, slots, w.clock.Now())
	if err != nil {
		return err
	}
	seqOf := make(map[int64]int32, len(rows))
	for _, n := range rows {
		seqOf[n.slot] = n.seq
	}
	seqs := make([]int32, len(changes))
	for i, c := range changes {
		if seqs[i] = seqOf[c.slot]; seqs[i] == 0 {
			return fmt.Errorf("slot %d has no number for %s: it does not exist, or is twice in one change", c.slot, event)
		}
	}
	return w.write(ctx, event, changes, seqs)
}

// write stores history rows and events under numbers that are known.
func (w *work) write(ctx context.Context, event string, changes []change, seqs []int32) error {
	slots, bookings, members, payloads := make([]int64, len(changes)), make([]*string, len(changes)), make([]*string, len(changes)), make([]string, len(changes))
	for i, c := range changes {
		slots[i], bookings[i], members[i] = c.slot, c.booking, c.member
		payload, err := w.payload(event, c)
		if err != nil {
			return err
		}
		payloads[i] = payload
	}
	now := w.clock.Now()
	if err := w.exec(ctx, sqlAudit, slots, seqs, bookings, members, event, w.op.scope.Principal, w.op.cause.Op, now); err != nil {
		return err
	}
	return w.exec(ctx, sqlEvents, slots, seqs, payloads, "telescope."+strings.ToLower(event), now)
}

// payload is what an event tells those outside.
func (w *work) payload(event string, c change) (string, error) {
	doc, err := json.Marshal(struct {
		Event       string  `json:"event"`
		Slot        int64   `json:"slot_id"`
		Booking     *string `json:"booking_id"`
		Member      *string `json:"member"`
		Actor       string  `json:"actor"`
		Traceparent string  `json:"traceparent"`
		Op          string  `json:"op"`
	}{event, c.slot, c.booking, c.member, w.op.scope.Principal, w.op.cause.Traceparent, w.op.cause.Op})
	return string(doc), err
}
