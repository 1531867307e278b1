package telescope

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// What a failover measures.
const (
	measuredBeforeKill   = "acknowledged_before_kill"
	measuredAcknowledged = "acknowledged"
	measuredPresent      = "present"
	measuredLost         = "lost"
)

// Subjects of a failover's notes.
const (
	fencedSubject   = "former primary"
	failoverSubject = "failover"
	lostSubject     = "lost"
)

// milestones are the instants of a failover.
type milestones struct {
	killed   time.Duration // just before the primary was
	promoted time.Duration // the servers are led to the standby
}

// acknowledgedBookings are the bookings that clients were told of, before
// anybody asked again.
func acknowledgedBookings(ops []harness.Operation) []harness.Operation {
	return slices.DeleteFunc(slices.Clone(ops), func(op harness.Operation) bool {
		return (op.Kind != kindBook && op.Kind != kindRetry) || op.Status != 201
	})
}

// bookingID is the booking that an answer names.
func bookingID(op harness.Operation) string {
	b, err := bookingOf(op)
	if err != nil {
		return ""
	}
	return b.BookingID
}

// countLoss compares what clients were told with what the promoted standby
// has, and looks for what is missing on the former primary. It gives the
// requests that were acknowledged, to be asked for again.
func countLoss(ctx context.Context, env harness.Env, old harness.Database, m milestones, told []harness.Operation) ([]harness.Request, error) {
	present, err := bookingsIn(ctx, env.Database())
	if err != nil {
		return nil, fmt.Errorf("read the bookings of the promoted standby: %w", err)
	}
	onOld, err := bookingsIn(ctx, old)
	if err != nil {
		return nil, fmt.Errorf("read the bookings of the former primary: %w", err)
	}
	env.Record(harness.Event{Kind: harness.EventNote, Subject: failoverSubject, Text: "the primary was killed, the standby promoted", Attrs: map[string]string{
		"killed_ns": strconv.FormatInt(int64(m.killed), 10), "promoted_ns": strconv.FormatInt(int64(m.promoted), 10),
	}})
	var again []harness.Request
	before, lost := 0, 0
	for _, op := range told {
		if op.Answered < m.killed {
			before++
		}
		id := bookingID(op)
		if !present[id] {
			lost++
			env.Record(harness.Event{
				Kind: harness.EventNote, Subject: lostSubject,
				Text:  fmt.Sprintf("%s was told of the booking %s on slot %d, which the promoted standby does not have", op.Caller, id, slotOf(op)),
				Attrs: map[string]string{"booking": id, "op": op.ID, "on_old": strconv.FormatBool(onOld[id])},
			})
		}
		again = append(again, as(kindAgain, book(op.Process, op.Caller, slotOf(op), op.Key)))
	}
	env.Measure(measuredBeforeKill, float64(before))
	env.Measure(measuredAcknowledged, float64(len(told)))
	env.Measure(measuredPresent, float64(len(told)-lost))
	env.Measure(measuredLost, float64(lost))
	env.Witness(measuredBeforeKill, 1, float64(before), "bookings that were acknowledged before the primary was killed")
	return again, nil
}

// bookingsIn gives the bookings that a database knows.
func bookingsIn(ctx context.Context, db harness.Database) (map[string]bool, error) {
	rows, err := db.Query(ctx, "select booking_id::text as booking from audit_history where event = 'BOOKED'")
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(rows))
	for _, r := range rows {
		known[text(r, "booking")] = true
	}
	return known, nil
}

// failoverChecks are those that hold on either sort of pair.
func failoverChecks(p harness.Params) []harness.Check {
	total := p.Int(paramClients.Name) * p.Int(paramEach.Name)
	checks := slices.DeleteFunc(always(), func(c harness.Check) bool {
		return c.ID == "T-I4" || c.ID == "T-I4.result" // an acknowledged booking may be lost on one of them: judged by checks of their own
	})
	return append(checks, fenced(), answeredInTheEnd(),
		onlyTold("answers", "nobody is told anything but 201, a 503 or that it is in progress, or nothing",
			"201", "503 busy", "503 outcome-unknown", "409 in-progress", "none"),
		words("answers.booked", "each slot's client is told 201 once", bookedSlots, fixed(tallies{"201": {"201": total}})))
}

// bookedSlots groups the answers that told of a booking.
func bookedSlots(op harness.Operation) string {
	if op.Status == 201 && (op.Kind == kindBook || op.Kind == kindRetry) {
		return "201"
	}
	return ""
}

// fenced: the former primary, started again, refuses a write because it is a
// standby now.
func fenced() harness.Check {
	const doc = "the former primary takes no writes when it is started again"
	return funcCheck("T-I4.fenced", doc, "failover_loss.go", false, func(rec harness.Record) harness.Verdict {
		i := slices.IndexFunc(rec.History.Events, func(e harness.Event) bool { return e.Kind == harness.EventNote && e.Subject == fencedSubject })
		if i < 0 {
			return harness.Undecided(harness.ReasonVacuous, "nobody tried to write to the former primary")
		}
		said := rec.History.Events[i].Attrs["said"]
		switch {
		case strings.Contains(said, "25006"): // read-only transaction
			return harness.Passed("%s: %s", doc, said)
		case said == writeDone:
			return harness.Violated([]harness.Evidence{{Text: "a write on the former primary was done"}}, "%s: there are two primaries", doc)
		}
		return harness.Undecided(harness.ReasonEnvironment, "a write on the former primary failed for another reason: %s", said)
	})
}

// A loss is what a record says of acknowledged bookings.
type loss struct {
	milestones

	told    []harness.Operation
	missing []harness.Operation // of those, not on the promoted standby
	present map[string]bool
	onOld   map[string]bool // of the missing

	vanished []harness.Operation // lookups that told of a booking which is not there
}

// lossOf recomputes the loss from answers and rows; "" for why it can't be.
func lossOf(rec harness.Record) (l loss, why string) {
	history, ok := rec.Find("table:audit_history")
	if !ok {
		return l, "the history could not be read"
	}
	i := slices.IndexFunc(rec.History.Events, func(e harness.Event) bool { return e.Kind == harness.EventNote && e.Subject == failoverSubject })
	if i < 0 {
		return l, "there was no failover"
	}
	for name, at := range map[string]*time.Duration{"killed_ns": &l.killed, "promoted_ns": &l.promoted} {
		ns, _ := strconv.ParseInt(rec.History.Events[i].Attrs[name], 10, 64) // we wrote it
		*at = time.Duration(ns)
	}
	l.present, l.onOld = map[string]bool{}, map[string]bool{}
	for _, r := range history.Rows {
		if r["event"] == "BOOKED" {
			l.present[text(r, "booking_id")] = true
		}
	}
	for _, e := range rec.History.Events {
		if e.Kind == harness.EventNote && e.Subject == lostSubject && e.Attrs["on_old"] == "true" {
			l.onOld[e.Attrs["booking"]] = true
		}
	}
	l.told = acknowledgedBookings(rec.History.Operations)
	for _, op := range l.told {
		if !l.present[bookingID(op)] {
			l.missing = append(l.missing, op)
		}
	}
	for _, op := range rec.History.OfKind(kindLookup) {
		var found struct {
			Status int     `json:"status"`
			Body   booking `json:"body"`
		}
		if op.Status == 200 && op.Decode(&found) == nil && found.Status == 201 && !l.present[found.Body.BookingID] {
			l.vanished = append(l.vanished, op)
		}
	}
	return l, ""
}

// noneLost is T-I4 through the death of the primary.
func noneLost() harness.Check {
	const doc = "no acknowledged booking is lost with the primary"
	return funcCheck("T-I4", doc, "failover_loss.go", true, func(rec harness.Record) harness.Verdict {
		l, why := lossOf(rec)
		switch {
		case why != "":
			return harness.Undecided(harness.ReasonEnvironment, "%s", why)
		case len(l.told) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no booking was acknowledged")
		case len(l.missing)+len(l.vanished) > 0:
			var wrong []harness.Evidence
			for _, op := range l.missing {
				wrong = append(wrong, about(op, "not on the promoted standby"))
			}
			for _, op := range l.vanished {
				wrong = append(wrong, about(op, "looked up, and not on the promoted standby"))
			}
			return harness.Violated(few(wrong), "%s: %d of %d are, and %d of the outcomes that were looked up", doc, len(l.missing), len(l.told), len(l.vanished))
		}
		return harness.Passed("%s: %d acknowledged, all of them there (%.0f before the kill)", doc, len(l.told), rec.Measured[measuredBeforeKill])
	})
}

// toldAgain: whoever was told of a booking is told again by its key.
func toldAgain() harness.Check {
	return words("answers.again", "whoever was answered 201 is answered 201 again", byKind, func(rec harness.Record) tallies {
		n := int(rec.Measured[measuredAcknowledged])
		if n == 0 {
			return nil
		}
		return tallies{kindAgain: {"201": n}}
	})
}

// lossCounted is T-I4 where the loss is allowed: it must be counted, and be
// one that asynchronous replication explains.
func lossCounted() harness.Check {
	const doc = "acknowledged bookings that are lost with the primary are counted, and asynchronous replication explains each of them"
	return funcCheck("T-I4.async", doc, "failover_loss.go", true, func(rec harness.Record) harness.Verdict {
		l, why := lossOf(rec)
		counted, measured := rec.Measured[measuredLost]
		switch {
		case why != "":
			return harness.Undecided(harness.ReasonEnvironment, "%s", why)
		case len(l.told) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no booking was acknowledged")
		case !measured:
			return harness.Undecided(harness.ReasonVacuous, "the loss was not counted")
		}
		var wrong []harness.Evidence
		for _, op := range l.missing {
			if problem := l.unexplained(op); problem != "" {
				wrong = append(wrong, about(op, problem))
			}
		}
		if int(counted) != len(l.missing) {
			wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("%.0f were counted as lost, %d are", counted, len(l.missing))})
		}
		if len(wrong) > 0 {
			return harness.Violated(few(wrong), "%s: %s", doc, firstLine(wrong[0].Text))
		}
		v := harness.Passed("%d of %d acknowledged bookings were lost, as asynchronous replication allows", len(l.missing), len(l.told))
		for _, op := range l.missing {
			v.Evidence = append(v.Evidence, about(op, "lost"))
		}
		return v
	})
}

// unexplained says why the loss of the booking is not the replication's, "" if
// it may be.
func (l loss) unexplained(lost harness.Operation) string {
	switch {
	case lost.Answered >= l.promoted:
		return "acknowledged after the promotion, and not there"
	case !l.onOld[bookingID(lost)]:
		return "acknowledged, and the former primary never had it"
	}
	for _, op := range l.told { // the log is sent in order
		if op.Sent > lost.Answered && op.Answered < l.killed && l.present[bookingID(op)] {
			return "lost, although the later " + op.ID + " is there"
		}
	}
	return ""
}
