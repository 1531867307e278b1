package calendar

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/scenarios/answers"
)

// said are the answers that the contract has for each call, beside those that
// it has for all of them.
var said = map[string][]string{
	callAdd:        {"201", "409 resource-exists"},
	callActivate:   {"200", "409 activation-busy", "409 already-active", "404 unknown-resource", "422 unknown-word", "503 provider-unavailable", "503 authorisation-failed"},
	callDeactivate: {"200", "409 not-active", "404 unknown-resource"},
	callResource:   {"200", "404 unknown-resource"}, callAvailability: {"200", "404 unknown-resource", "422 bad-range"},
	callBook:       {"201", "404 unknown-resource", "409 resource-inactive", "409 overlap", "422 time-gap", "422 time-ambiguous", "422 unknown-time-zone", "422 bad-range", "422 unknown-word"},
	callMove:       {"200", "404 unknown-appointment", "409 overlap", "409 appointment-over", "422 time-gap", "422 time-ambiguous", "422 unknown-time-zone", "422 bad-range", "422 unknown-word"},
	callMoveSeries: {"200", "404 unknown-series", "409 overlap", "409 appointment-over", "422 time-gap", "422 time-ambiguous", "422 unknown-time-zone", "422 bad-range", "422 unknown-word"},
	callReschedule: {"200", "404 unknown-appointment", "409 overlap", "409 appointment-over", "422 time-gap", "422 time-ambiguous", "422 unknown-time-zone", "422 bad-range", "422 unknown-word"},
	callCancel:     {"200", "404 unknown-appointment", "409 appointment-over"},
	callRead:       {"200", "404 unknown-appointment"},
	callSync:       {"200", "404 unknown-appointment", "409 not-parked"},
	callConflicts:  {"200"},
	callResolve:    {"200", "404 unknown-conflict", "409 already-resolved", "409 being-resolved"},
}

// everywhere are the answers that any call may be given.
var everywhere = []string{"400 bad-request", "401 unauthorized", "401 token-expired", "403 forbidden", "413 too-large", "415 unsupported-media-type", "503 busy", "503 outcome-unknown"}

// withKey are those of calls that need a key.
var withKey = []string{"400 key-missing", "400 key-invalid", "422 key-reused", "409 in-progress", "409 retry-window-over"}

// operationType is the type of the operation that a write with a key is, as the
// server scopes its keys; "" for other calls.
var operationType = map[string]string{callBook: "book", callMove: "move", callMoveSeries: "move-series", callReschedule: "reschedule", callCancel: "cancel", callResolve: "resolve"}

// contractAnswers: whatever a client was told is something that the contract has
// for that call.
func contractAnswers() harness.Check {
	const doc = "each answer is one that the contract has for its call; one of 500 or above says when to come again"
	return funcCheck("answers.contract", doc, "told.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			call := callOf(op)
			if call == "" || op.Status == 0 || (op.Status >= 500 && check.Broken(rec)) {
				continue
			}
			judged++
			w := answers.Word(op)
			switch {
			case !slices.Contains(said[call], w) && !slices.Contains(everywhere, w) && (operationType[call] == "" || !slices.Contains(withKey, w)):
				wrong = append(wrong, answers.About(op, w+" to "+call))
			case op.Status >= 500 && op.Header["Retry-After"] == "":
				wrong = append(wrong, answers.About(op, "no Retry-After"))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d are not; %s", doc, len(wrong), judged, wrong[0].Text)
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no client was answered")
		}
		return harness.Passed("%s: %d answers", doc, judged)
	})
}

// toldIsStored compares what clients were told to have happened with the rows:
// a booking has its appointment, a move is in the history, who gave an
// appointment up has it cancelled.
func toldIsStored() harness.Check {
	const doc = "what clients were told of bookings, moves, cancellations and decisions is what is stored"
	return funcCheck("told", doc, "told.go", true, func(rec harness.Record) harness.Verdict {
		b, missing := booksOf(rec)
		if missing != "" {
			return harness.Undecided(harness.ReasonEnvironment, "%s", missing)
		}
		times := b.timesEver()
		var wrong []harness.Evidence
		judged := 0
		for _, op := range rec.History.Operations {
			problem, told := b.told(op, times)
			if told {
				judged++
			}
			if problem != "" {
				wrong = append(wrong, answers.About(op, problem))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d answers are not so; %s", doc, len(wrong), judged, wrong[0].Text)
		case len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody was told of anything")
		}
		return harness.Passed("%s: %d answers", doc, judged)
	})
}

// timesEver are the times that each appointment was ever at, by its history.
func (b books) timesEver() map[string][]interval {
	ever := map[string][]interval{}
	for _, r := range b.audit {
		if at, ok := during(r, "during"); ok {
			ever[text(r, "appointment_id")] = append(ever[text(r, "appointment_id")], at)
		}
	}
	return ever
}

// told says what is wrong with an answer, and whether it told of anything.
func (b books) told(op harness.Operation, times map[string][]interval) (problem string, told bool) {
	if op.Status != http.StatusOK && op.Status != http.StatusCreated {
		return "", false
	}
	switch callOf(op) {
	case callBook, callMove, callMoveSeries, callReschedule:
		list, err := appointmentsTold(op)
		if err != nil || len(list) == 0 {
			return "can't be read", true
		}
		for _, a := range list {
			if problem := b.toldOf(op, a, times[a.ID]); problem != "" {
				return problem, true
			}
		}
		return "", true
	case callCancel:
		if r := b.appointments[target(op)]; text(r, "state") != "CANCELLED" || text(r, "member") != op.Caller {
			return fmt.Sprintf("tells of a cancellation, and the appointment of %s is %s", orNone(text(r, "member")), orNone(text(r, "state"))), true
		}
		return "", true
	case callResolve:
		for _, list := range b.conflicts {
			for _, c := range list {
				if text(c, "conflict_id") == target(op) && !strings.Contains(op.Output, `"`+text(c, "resolution")+`"`) && c["resolved_at"] != nil {
					return "tells of another resolution than " + text(c, "resolution"), true
				}
			}
		}
		return "", true
	}
	return "", false
}

// toldOf compares one appointment of an answer with its row and its history. In
// a series that is moved, what is over stays as it was.
func (b books) toldOf(op harness.Operation, a appointmentAnswer, times []interval) string {
	r, known := b.appointments[a.ID]
	switch {
	case !known:
		return "tells of appointment " + a.ID + ", which is not stored"
	case text(r, "member") != op.Caller:
		return fmt.Sprintf("tells of appointment %s, which is of %s", a.ID, text(r, "member"))
	case whole(r, "resource_id") != a.ResourceID || text(r, "event_id") != a.EventID:
		return fmt.Sprintf("tells of appointment %s with resource %d and event %s, stored are %d and %s", a.ID, a.ResourceID, a.EventID, whole(r, "resource_id"), text(r, "event_id"))
	case !slices.ContainsFunc(times, func(i interval) bool { return i.Start.Equal(a.Start) && i.End.Equal(a.End) }):
		return fmt.Sprintf("tells of appointment %s at %s, where it never was", a.ID, a.interval())
	}
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// rowsWereTold is the other side, and C-I2 for those who lost: each appointment,
// and so each creation event, is of one booking that was answered with it, or of
// one that was not answered. Who was refused has neither.
func rowsWereTold() harness.Check {
	const doc = "each appointment, with its creation event, was told to exactly one booking, or its booking got no answer; whoever was refused has none"
	return funcCheck("C-I2.told", doc, "told.go", false, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:appointments")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the appointments could not be read")
		}
		bookings := map[string]map[string]bool{} // by appointment: the keys of the bookings that were told of it
		open := map[string]bool{}                // ids of bookings without an answer that says what became of them
		asked := map[string]bool{}               // by op: bookings
		for _, op := range rec.History.Operations {
			if callOf(op) != callBook {
				continue
			}
			asked[op.ID] = true
			open[op.ID] = op.Status == 0 || op.Status >= 500
			if op.Status != http.StatusCreated {
				continue
			}
			list, _ := appointmentsTold(op) // what can't be read is another check's
			for _, a := range list {
				if bookings[a.ID] == nil {
					bookings[a.ID] = map[string]bool{}
				}
				bookings[a.ID][op.Caller+" "+op.Key] = true
			}
		}
		var wrong []harness.Evidence
		for _, r := range rows.Rows {
			id := text(r, "appointment_id")
			switch n := len(bookings[id]); {
			case n > 1:
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("appointment %s was told to %d bookings", id, n), Ops: opOf(r)})
			case n == 0 && asked[text(r, "overbook_op")] && !open[text(r, "overbook_op")] && !check.Broken(rec):
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("appointment %s of %s is stored, and its booking was told something else", id, text(r, "member")), Ops: opOf(r)})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %s", doc, wrong[0].Text)
		case len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody booked anything")
		}
		return harness.Passed("%s: %d appointments", doc, len(rows.Rows))
	})
}

// clockMoves are the instants at which the servers' time was moved. What holds
// for copies of a request holds between two of them.
func clockMoves(rec harness.Record) []time.Duration {
	var at []time.Duration
	for _, e := range rec.History.Events {
		if e.Kind == harness.EventFault && e.Subject == "clock" {
			at = append(at, e.At)
		}
	}
	return at
}

// isStored reports whether an answer is one that the server keeps for its key.
func isStored(op harness.Operation) bool {
	w := answers.Word(op)
	return (op.Status >= 200 && op.Status < 300) || (op.Status == http.StatusConflict && w != "409 in-progress" && w != "409 retry-window-over")
}

// sameAnswers: whatever is retried under its key is told the same. Demanded, it
// is open where nothing was told twice.
func sameAnswers(demanded bool) harness.Check {
	const doc = "every copy of a request is told the same, status and body, byte for byte"
	return funcCheck("keys", doc, "told.go", false, func(rec harness.Record) harness.Verdict {
		moves := clockMoves(rec)
		first := map[string]harness.Operation{}
		told := 0
		var wrong []harness.Evidence
		for _, op := range rec.History.Operations {
			kind := operationType[callOf(op)]
			if op.Key == "" || op.Caller == "" || kind == "" || !isStored(op) {
				continue
			}
			told++
			epoch, _ := slices.BinarySearch(moves, op.Intended)
			request := fmt.Sprintf("%s %s %s %d %s %s", op.Caller, kind, op.Key, epoch, op.Path, op.Input)
			if one, seen := first[request]; !seen {
				first[request] = op
			} else if one.Status != op.Status || one.Output != op.Output {
				e := answers.About(one, "one copy")
				e.Text += "\n" + answers.About(op, "another").Text
				e.Ops = append(e.Ops, op.ID)
				wrong = append(wrong, e)
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(answers.Few(wrong), "%s: %d of %d answers differ from the first", doc, len(wrong), told)
		case len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody was answered")
		case demanded && told == len(first):
			return harness.Undecided(harness.ReasonVacuous, "%d requests were answered, none of them repeatedly", told)
		}
		return harness.Passed("%s: %d answers to %d requests", doc, told, len(first))
	})
}
