package telescope

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
)

// A tracing tells what is stored of one request on a slot. The query gives one
// row for the slot $1 in which each part is 1 when it took effect and 0 when
// not, beside the booking that the slot has, if any.
type tracing struct {
	what string // that is traced
	sql  string
}

var (
	bookingTrace = tracing{"booking", `select
  (select count(*) from active_reservations where slot_id = $1) as reservations,
  (select count(*) from audit_history where slot_id = $1 and event = 'BOOKED') as audit_rows,
  (select count(*) from outbox where slot_id = $1 and type = 'telescope.booked') as events,
  (select count(*) from booking_operations where slot_id = $1 and type = 'book' and status = 201) as results,
  (select min(booking_id::text) from active_reservations where slot_id = $1) as booking`}

	cancellationTrace = tracing{"cancellation", `select
  1 - (select count(*) from active_reservations where slot_id = $1) as reservations_gone,
  (select count(*) from audit_history where slot_id = $1 and event = 'CANCELLED') as audit_rows,
  (select count(*) from outbox where slot_id = $1 and type = 'telescope.cancelled') as events,
  (select count(*) from booking_operations where slot_id = $1 and type = 'cancel' and status = 200) as results,
  (select min(booking_id::text) from audit_history where slot_id = $1 and event = 'BOOKED') as booking`}

	// Of a slot that is reserved: its closure flags the reservation.
	closureTrace = tracing{"closure", `select
  (select count(*) from observing_slots where slot_id = $1 and state = 'closed') as slots_closed,
  (select count(*) from active_reservations where slot_id = $1 and flag_state = 'open') as reservations_flagged,
  (select count(*) from audit_history where slot_id = $1 and event = 'CLOSED') as closed_rows,
  (select count(*) from audit_history where slot_id = $1 and event = 'FLAGGED') as flagged_rows,
  (select count(*) from outbox where slot_id = $1 and type = 'telescope.closed') as closed_events,
  (select count(*) from outbox where slot_id = $1 and type = 'telescope.flagged') as flagged_events,
  (select count(*) from booking_operations where slot_id = $1 and type = 'close' and status = 200) as results,
  (select min(booking_id::text) from active_reservations where slot_id = $1) as booking`}
)

// traceSubject marks the notes of what was looked at.
const traceSubject = "rows"

// A trace is one look at what is stored of a request.
type trace struct {
	What    string // booking, cancellation, closure
	Slot    int64
	Struck  bool // the request is the one that the fault struck
	Parts   map[string]int
	Booking string // that the slot has, "" for none
}

// What there may be of a request.
const (
	traceNothing = "nothing"
	traceWhole   = "whole"
	traceTorn    = "torn" // a part without another, or twice
)

// state says how much of the request there is.
func (t trace) state() string {
	parts := slices.Sorted(maps.Values(t.Parts))
	switch {
	case len(parts) == 0 || parts[0] != parts[len(parts)-1] || parts[0] < 0 || parts[0] > 1:
		return traceTorn
	case parts[0] == 0:
		return traceNothing
	}
	return traceWhole
}

func (t trace) String() string {
	parts := make([]string, 0, len(t.Parts))
	for _, name := range slices.Sorted(maps.Keys(t.Parts)) {
		parts = append(parts, fmt.Sprintf("%d %s", t.Parts[name], strings.ReplaceAll(name, "_", " ")))
	}
	return fmt.Sprintf("%s on slot %d: %s", t.What, t.Slot, strings.Join(parts, ", "))
}

// traceRows looks at what is stored of a request now and notes it in the
// history, where the checks find it.
func traceRows(ctx context.Context, env harness.Env, of tracing, slotID int64, struck bool) (trace, error) {
	t := trace{What: of.what, Slot: slotID, Struck: struck, Parts: map[string]int{}}
	rows, err := env.Database().Query(ctx, of.sql, slotID)
	if err != nil {
		return t, fmt.Errorf("look at the %s on slot %d: %w", of.what, slotID, err)
	}
	attrs := map[string]string{"what": of.what, "slot": strconv.FormatInt(slotID, 10), "struck": strconv.FormatBool(struck)}
	for name, v := range rows[0] {
		if n, ok := v.(float64); ok {
			t.Parts[name] = int(n)
			attrs["part "+name] = strconv.Itoa(int(n))
		}
	}
	t.Booking = text(rows[0], "booking")
	attrs["booking"] = t.Booking
	env.Record(harness.Event{Kind: harness.EventNote, Subject: traceSubject, Text: t.String(), Attrs: attrs})
	return t, nil
}

// tracesOf reads the notes of [traceRows] back.
func tracesOf(rec harness.Record) []trace {
	var list []trace
	for _, e := range rec.History.Events {
		if e.Kind != harness.EventNote || e.Subject != traceSubject {
			continue
		}
		t := trace{What: e.Attrs["what"], Struck: e.Attrs["struck"] == "true", Booking: e.Attrs["booking"], Parts: map[string]int{}}
		t.Slot, _ = strconv.ParseInt(e.Attrs["slot"], 10, 64)
		for name, v := range e.Attrs {
			if part, ok := strings.CutPrefix(name, "part "); ok {
				t.Parts[part], _ = strconv.Atoi(v) // we wrote it
			}
		}
		list = append(list, t)
	}
	return list
}

// leftBehind demands that what was looked at right after the fault, of the
// request that it struck, was in that state.
func leftBehind(id, doc, want string) harness.Check {
	return funcCheck(id, doc, "crash_rows.go", false, func(rec harness.Record) harness.Verdict {
		return judgeTraces(rec, doc, func(t trace) bool { return t.Struck }, want)
	})
}

// wholeOrNothing is T-I6 at the instants at which the rows were looked at.
func wholeOrNothing(id string) harness.Check {
	const doc = "whatever a crash left of a request was whole or nothing, before anybody retried"
	return funcCheck(id, doc, "crash_rows.go", false, func(rec harness.Record) harness.Verdict {
		return judgeTraces(rec, doc, func(trace) bool { return true }, traceNothing, traceWhole)
	})
}

func judgeTraces(rec harness.Record, doc string, among func(trace) bool, allowed ...string) harness.Verdict {
	var wrong []harness.Evidence
	n := map[string]int{}
	for _, t := range tracesOf(rec) {
		if !among(t) {
			continue
		}
		n[t.state()]++
		if !slices.Contains(allowed, t.state()) {
			wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("%s: want %s, got %s", t, strings.Join(allowed, " or "), t.state()), Ops: opsOnSlot(rec, t.Slot)})
		}
	}
	seen := 0
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(n)) {
		seen += n[state]
		parts = append(parts, fmt.Sprintf("%d %s", n[state], state))
	}
	switch {
	case len(wrong) > 0:
		return harness.Violated(few(wrong), "%s: %d of %d were not; %s", doc, len(wrong), seen, wrong[0].Text)
	case seen == 0:
		return harness.Undecided(harness.ReasonVacuous, "nobody looked at the rows between a crash and the retry")
	}
	return harness.Passed("%s: %s", doc, strings.Join(parts, ", "))
}

// opsOnSlot are the first writes that name the slot.
func opsOnSlot(rec harness.Record, id int64) []string {
	var ops []string
	for _, op := range rec.History.Operations {
		if slotOf(op) == id && len(ops) < 4 {
			ops = append(ops, op.ID)
		}
	}
	return ops
}

// recoveredBookings is the client's side of a crash: who was committed before
// the crash is told of that booking, and of no other.
func recoveredBookings() harness.Check {
	const doc = "a retry gets the booking that was there before it, not another one"
	return funcCheck("T-I4.recovered", doc, "crash_rows.go", false, func(rec harness.Record) harness.Verdict {
		before := map[int64]string{}
		for _, t := range tracesOf(rec) {
			if t.What == bookingTrace.what && t.Booking != "" {
				before[t.Slot] = t.Booking
			}
		}
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.OfKind(kindAgain) {
			b, err := bookingOf(op)
			want := before[slotOf(op)]
			if err != nil || want == "" {
				continue // whether everybody was answered is another check's business
			}
			judged++
			if b.BookingID != want {
				wrong = append(wrong, about(op, "the slot had the booking "+want))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d did not", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonVacuous, "no booking was there before its retry")
		}
		return harness.Passed("%s: %d", doc, judged)
	})
}
