package telescope

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/overbook/overbook/harness"
)

// The traces of what staff do with a slot that is reserved.
var (
	releaseTrace = tracing{"release", `select
  1 - (select count(*) from active_reservations where slot_id = $1) as reservations_gone,
  (select count(*) from audit_history where slot_id = $1 and event = 'CANCELLED' and actor like 'staff-%') as audit_rows,
  (select count(*) from outbox where slot_id = $1 and type = 'telescope.cancelled') as events,
  (select count(*) from booking_operations where slot_id = $1 and type = 'resolve' and status = 200) as results,
  (select min(booking_id::text) from audit_history where slot_id = $1 and event = 'BOOKED') as booking`}

	reopeningTrace = tracing{"reopening", `select
  (select count(*) from observing_slots where slot_id = $1 and state = 'open') as slots_open,
  (select count(*) from active_reservations where slot_id = $1 and flag_state is null and flagged_at is null) as flags_gone,
  (select count(*) from audit_history where slot_id = $1 and event = 'REOPENED') as audit_rows,
  (select count(*) from outbox where slot_id = $1 and type = 'telescope.reopened') as events,
  (select count(*) from booking_operations where slot_id = $1 and type = 'reopen' and status = 200) as results,
  (select min(booking_id::text) from active_reservations where slot_id = $1) as booking`}

	// Of a plan's slot and the two behind it (see [companions]), of which the last
	// is nobody's. The least and the most of three differ when the import is torn
	// between slots. An import's result names no slot; its key does.
	importTrace = tracing{"import", fmt.Sprintf(`with slots as (
  select s.slot_id, (s.state = 'closed')::int as closed, (r.flag_state = 'open')::int as flagged,
    (select count(*)::int from audit_history a where a.slot_id = s.slot_id and a.event = 'CLOSED') as closed_rows,
    (select count(*)::int from outbox o where o.slot_id = s.slot_id and o.type = 'telescope.closed') as closed_events,
    (select count(*)::int from audit_history a where a.slot_id = s.slot_id and a.event = 'FLAGGED') as flagged_rows,
    (select count(*)::int from outbox o where o.slot_id = s.slot_id and o.type = 'telescope.flagged') as flagged_events,
    r.booking_id
  from observing_slots s left join active_reservations r using (slot_id) where s.slot_id in ($1::bigint, $1::bigint + %[1]d, $1::bigint + 2 * %[1]d)
) select min(closed) as least_closed, max(closed) as most_closed,
  min(closed_rows) as least_closed_rows, max(closed_rows) as most_closed_rows, min(closed_events) as least_closed_events, max(closed_events) as most_closed_events,
  min(coalesce(flagged, 0)) filter (where booking_id is not null) as least_flagged, max(coalesce(flagged, 0)) as most_flagged,
  min(flagged_rows) filter (where booking_id is not null) as least_flagged_rows, max(flagged_rows) as most_flagged_rows,
  min(flagged_events) filter (where booking_id is not null) as least_flagged_events, max(flagged_events) as most_flagged_events,
  (select count(*) from booking_operations where type = 'import' and status = 200 and key = 'import-' || $1::bigint::text) as results,
  min(booking_id::text) filter (where slot_id = $1::bigint) as booking
from slots`, pointSlots)}
)

// flagAll books each slot, has it closed, and gives the bookings, now flagged.
func flagAll(ctx context.Context, env harness.Env, slots []slot) ([]string, error) {
	bookings, err := bookAll(ctx, env, slots)
	if err != nil {
		return nil, err
	}
	requests := make([]harness.Request, len(slots))
	for i, s := range slots {
		requests[i] = closeSlot(staffProcess+i, staff(i), s.ID, keyOf("close", i))
	}
	for _, op := range env.DoAll(ctx, requests, 8) {
		if op.Status != http.StatusOK {
			return nil, fmt.Errorf("close %s: got %d %s %s, want 200", op.Path, op.Status, op.Err, op.Output)
		}
	}
	return bookings, nil
}

var enumeratedRelease = enumerated{
	name: "release", kind: kindResolve, status: 200, trace: releaseTrace,
	history: []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED", "CANCELLED"}, before: []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED"},
	prepare: func(ctx context.Context, env harness.Env, slots []slot) (func(int) harness.Request, error) {
		bookings, err := flagAll(ctx, env, slots)
		return func(round int) harness.Request {
			return resolveFlag(staffProcess+round, staff(round), bookings[round], decideRelease, keyOf("release", round))
		}, err
	},
}

var enumeratedReopening = enumerated{
	name: "reopening", kind: kindReopen, status: 200, trace: reopeningTrace,
	history: []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED", "REOPENED"}, before: []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED"},
	prepare: func(ctx context.Context, env harness.Env, slots []slot) (func(int) harness.Request, error) {
		_, err := flagAll(ctx, env, slots)
		return func(round int) harness.Request {
			return reopenSlot(staffProcess+round, staff(round), slots[round].ID, keyOf("reopen", round))
		}, err
	},
}

var enumeratedImport = enumerated{
	name: "maintenance import", kind: kindImport, status: 200, trace: importTrace,
	history: []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED"}, before: []string{"CREATED", "BOOKED"},
	prepare: func(ctx context.Context, env harness.Env, slots []slot) (func(int) harness.Request, error) {
		if _, err := bookAll(ctx, env, slots); err != nil {
			return nil, err
		}
		now, err := serverNow(ctx, env)
		if err != nil {
			return nil, err
		}
		var behind []slot
		holds := make([]harness.Request, len(slots))
		for i, s := range slots {
			list := companions(s)
			behind = append(behind, list...)
			holds[i] = as(kindHold, book(i, member(i), list[0].ID, keyOf("hold-too", i)))
		}
		more := as(kindHold, importOf(staffProcess, staff(0), behind, now, "open", "create-more"))
		if op := env.Do(ctx, more); op.Status != http.StatusOK {
			return nil, fmt.Errorf("create the slots behind those of the plan: got %d %s %s, want 200", op.Status, op.Err, op.Output)
		}
		for _, op := range env.DoAll(ctx, holds, 8) {
			if _, err := bookingOf(op); err != nil {
				return nil, err
			}
		}
		return func(round int) harness.Request {
			s := slots[round]
			return importOf(staffProcess+round, staff(round), append([]slot{s}, companions(s)...), now, "closed", fmt.Sprintf("import-%d", s.ID))
		}, nil
	},
}

// companions are the two slots that an import closes with one of the plan's.
// They are not of the plan, of which each slot is a round. The same member has
// the plan's slot and the first of them; nobody has the second.
func companions(s slot) []slot {
	list := make([]slot, 2)
	for i := range list {
		by := (i + 1) * pointSlots
		list[i] = slot{ID: s.ID + int64(by), Month: s.Month, HalfHours: s.HalfHours + by}
	}
	return list
}

// staffCrashPoints are the enumerations of what staff do beside closing one slot.
func staffCrashPoints() []harness.Scenario {
	return []harness.Scenario{crashPointsOfRelease(), crashPointsOfReopening(), crashPointsOfImport()}
}

func crashPointsOfRelease() harness.Scenario {
	return crashPoints(enumeratedRelease, harness.Scenario{
		Name:  "telescope/crash-points@resolution",
		Title: "the release of a flagged reservation is crashed at every one of its moments",
		Doc: `As crash-points@booking, for staff who release a reservation whose slot was closed: up to the COMMIT it is flagged and waits for them, from the COMMIT on it is gone,
cancelled by staff. The retry is answered 200 at every point (never 409 not-flagged, which is for another key), and the member gets the mail of one cancellation.`,
		Sources: []string{"T-I2", "T-I3", "T-I4", "T-I6", "T-I8", "T-M6", "T-M10"},
	}, nil)
}

func crashPointsOfReopening() harness.Scenario {
	return crashPoints(enumeratedReopening, harness.Scenario{
		Name:  "telescope/crash-points@reopening",
		Title: "the reopening of a slot with a flagged reservation is crashed at every one of its moments",
		Doc: `As crash-points@booking, for staff who reopen a slot: that it is open and that the reservation stands again, without its flag, are both true from the COMMIT on and
neither before. The retry is answered 200 at every point (never 409 already-open, which is for another key), and the slot is reopened once.`,
		Sources: []string{"T-I2", "T-I3", "T-I4", "T-I6", "T-M6", "T-M10"},
	}, nil)
}

func crashPointsOfImport() harness.Scenario {
	s := crashPoints(enumeratedImport, harness.Scenario{
		Name:  "telescope/crash-points@import",
		Title: "an import that closes three slots, two of them reserved, is crashed at every one of its moments",
		Doc: `As crash-points@booking, for an import that closes three slots in one transaction: up to the COMMIT all of them are open, from the COMMIT on all are closed and the two
reservations flagged, each with its audit rows and events. The retry is told what the first one did, 200 with both bookings, at every point.`,
		Sources: []string{"T-I2", "T-I3", "T-I4", "T-I6", "T-M6", "T-M10", "T-M19"},
	}, nil)
	checks := s.Checks
	s.Checks = func(p harness.Params) []harness.Check { return append(checks(p), importsTell()) }
	return s
}

// importsTell: whoever imports is told that three slots were closed and two
// reservations flagged, those of the slots that it named; also who was told
// only by a retry, when nothing was left to close.
func importsTell() harness.Check {
	const doc = "each import is told that it closed its three slots and flagged the two reservations of them"
	return funcCheck("T-I2.import", doc, "resolution_points.go", false, func(rec harness.Record) harness.Verdict {
		held := map[int64]string{}
		for _, op := range rec.History.OfKind(kindHold) {
			if b, err := bookingOf(op); err == nil {
				held[b.SlotID] = b.BookingID
			}
		}
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			if operationType(op) != "import" || op.Status != http.StatusOK || op.Kind == "create" || op.Kind == kindHold {
				continue
			}
			judged++
			var a struct {
				Created, Closed, Reopened, Unchanged int
				Flagged                              []string
			}
			var want []string
			for _, s := range importedSlots(op) {
				if id := held[s.SlotID]; id != "" {
					want = append(want, id)
				}
			}
			if op.Decode(&a) != nil || a.Closed != 3 || a.Created+a.Reopened+a.Unchanged != 0 || len(want) != 2 || !slices.Equal(a.Flagged, want) {
				wrong = append(wrong, about(op, fmt.Sprintf("want 3 closed and %v flagged", want)))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d are not", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no import was answered")
		}
		return harness.Passed("%s: %d answers", doc, judged)
	})
}
