package reports_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

// The second fixture: a booking that is crashed at each of its moments, over
// the Postgres wire. In the broken server the booking is committed before its
// key, so that a crash right after that COMMIT is not recovered by the key.

// A crashStep is one unit of the booking.
type crashStep struct {
	sql, tag string
	params   []string
}

func bookingSteps(broken bool) []crashStep {
	begin := crashStep{"begin", "BEGIN", nil}
	commit := crashStep{"commit", "COMMIT", nil}
	booking := crashStep{"insert into telescope_active_reservations (booking_id, slot_id, member_id, op) values ($1, $2, $3, $4)", "INSERT 0 1", nil}
	key := crashStep{"insert into telescope_idempotency_keys (scope, key, response, op) values ($1, $2, $3, $4)", "INSERT 0 1", nil}
	lock := crashStep{"select slot_id, state from telescope_slots where slot_id = $1 for update", "SELECT 1", []string{"7"}}
	if broken {
		return []crashStep{begin, lock, booking, commit, begin, key, commit}
	}
	return []crashStep{begin, lock, key, booking, commit}
}

// crashMoments is the moments of the steps: before and after each statement
// and each COMMIT, by the index of the step.
func crashMoments(steps []crashStep) (list []struct {
	step int
	at   harness.Moment
},
) {
	for i, s := range steps {
		before, after := harness.BeforeStatement, harness.AfterStatement
		switch s.tag {
		case "BEGIN":
			continue
		case "COMMIT":
			before, after = harness.BeforeCommit, harness.AfterCommit
		}
		for _, at := range []harness.Moment{before, after} {
			list = append(list, struct {
				step int
				at   harness.Moment
			}{i, at})
		}
	}
	return list
}

// A crashWriter writes the record of an enumeration, round after round.
type crashWriter struct {
	rec      harness.Record
	now      time.Duration
	ops      int
	sessions int
	tx       int
	session  int
}

func (w *crashWriter) event(kind harness.EventKind, subject, text string) {
	w.rec.History.Events = append(w.rec.History.Events, harness.Event{At: w.now, Kind: kind, Subject: subject, Text: text})
}

// operation sends the booking of a round until the moment, or to its end.
func (w *crashWriter) operation(kind, key string, steps []crashStep, stop int, at harness.Moment, fault harness.Fault, status int) harness.Operation {
	w.ops++
	w.now += time.Millisecond
	op := harness.Operation{
		ID: fmt.Sprintf("op-%d", w.ops), Process: 1, Kind: kind, Key: key, Server: "sut-1", Method: "POST", Path: "/telescope/slots/7/reservations",
		Input: json.RawMessage(`{}`), Intended: w.now, Sent: w.now, Outcome: harness.Info, Err: "read answer: connection reset by peer",
	}
	for i, s := range steps {
		if s.tag == "BEGIN" {
			w.tx++
		}
		struck := i == stop
		u := w.unit(op.ID, s, struck, at, fault)
		w.rec.Postgres = append(w.rec.Postgres, u)
		if struck {
			w.rec.History.Events = append(w.rec.History.Events, harness.Event{
				At: w.now, Kind: harness.EventFault, Subject: "sut-1", Text: fault.String() + ": " + s.sql,
			})
			return op
		}
	}
	w.now += 300 * time.Microsecond
	op.Answered, op.Status, op.Outcome, op.Err = w.now, status, harness.OK, ""
	op.Output = `{"booking_id":"b-7","slot_id":7,"state":"active"}`
	if status != 201 {
		op.Outcome, op.Output = harness.Fail, `{"type":"/problems/slot-taken","slot_id":7}`
	}
	return op
}

func (w *crashWriter) unit(op string, s crashStep, struck bool, at harness.Moment, fault harness.Fault) harness.Unit {
	params := s.params
	if strings.HasPrefix(s.sql, "insert") {
		params = []string{"b-7", "7", "member-1", op}
	}
	u := harness.Unit{
		Seq: len(w.rec.Postgres) + 1, Session: w.session, Server: "sut-1", PID: 4100 + w.session, Op: op, Tx: w.tx,
		Statements: []harness.Statement{{SQL: s.sql, Params: params, Tag: s.tag}}, Before: "T", After: "T", Arrived: w.now,
	}
	switch s.tag {
	case "BEGIN":
		u.Before = "I"
	case "COMMIT", "ROLLBACK":
		u.After, u.Committed = "I", s.tag == "COMMIT"
	}
	u.Forwarded = w.now + 20*time.Microsecond
	u.Answered = u.Forwarded + 240*time.Microsecond
	u.Delivered = u.Answered + 15*time.Microsecond
	w.now = u.Delivered + 90*time.Microsecond
	if struck {
		u.Fault, u.Delivered = fault.String(), 0
		w.now = u.Answered
		if at == harness.BeforeStatement || at == harness.BeforeCommit {
			u.Forwarded, u.Answered, u.After, u.Committed, u.Statements[0].Tag = 0, 0, "", false, ""
			u.Err = "closed by the fault"
			w.now = u.Arrived
		}
	}
	return u
}

// crashRecord enumerates the booking with both actions.
func crashRecord(broken bool) harness.Record {
	steps := bookingSteps(broken)
	moments := crashMoments(steps)
	w := &crashWriter{now: 800 * time.Millisecond, session: 1, sessions: 1}
	w.event(harness.EventProcess, "sut-1", "ready: sut-1 is ready")
	number := 0
	for _, action := range []harness.Action{harness.ActionDrop, harness.ActionKill} {
		for _, m := range moments {
			number++
			f := harness.Fault{Action: action, At: m.at, Match: "^" + regexp.QuoteMeta(steps[m.step].sql) + "$", Nth: 1}
			w.round(steps, m.step, f, number, 2*len(moments), broken)
		}
	}
	w.rec.Rows = map[string]harness.Rows{}
	return w.rec
}

// round is one point: the fault, the restart of a killed server, the retry.
func (w *crashWriter) round(steps []crashStep, step int, f harness.Fault, number, of int, broken bool) {
	key := fmt.Sprintf("key-%d", number)
	first := w.operation("book", key, steps, step, f.At, f, 201)
	struck := w.now
	w.rec.History.Operations = append(w.rec.History.Operations, first)
	w.now += 200 * time.Microsecond
	w.event(harness.EventHeal, "postgres", f.String())
	if f.Action == harness.ActionKill {
		w.now += 3 * time.Millisecond
		w.event(harness.EventProcess, "sut-1", "exit: signal: killed")
		w.now += 190 * time.Millisecond
		w.event(harness.EventProcess, "sut-1", "ready: sut-1 is ready")
	}
	w.sessions++
	w.session = w.sessions
	firstCommit := slices.IndexFunc(steps, func(s crashStep) bool { return s.tag == "COMMIT" })
	done := step > firstCommit || step == firstCommit && f.At == harness.AfterCommit
	lost := broken && done && step < len(steps)-1
	status, again := 201, steps
	if lost {
		status, again = 409, append(slices.Clone(steps[:2]), crashStep{"rollback", "ROLLBACK", nil})
	}
	retry := w.operation("book-again", key, again, -1, "", harness.Fault{}, status)
	w.rec.History.Operations = append(w.rec.History.Operations, retry)
	label := strings.ReplaceAll(string(f.At), "-commit", " COMMIT")
	if steps[step].tag != "COMMIT" {
		label = strings.TrimSuffix(string(f.At), "-statement") + " " + steps[step].sql[:59] + "…"
	}
	w.rec.History.Events = append(w.rec.History.Events, harness.Event{
		At: struck, Kind: harness.EventPoint, Subject: "booking",
		Text: fmt.Sprintf("point %d of %d: %s: %s; first no answer, retry %d", number, of, f.Action, label, status),
		Attrs: map[string]string{
			"number": strconv.Itoa(number), "of": strconv.Itoa(of), "label": label, "fault": f.String(), "action": string(f.Action),
			"done": strconv.FormatBool(done), "first": "no answer", "retry": strconv.Itoa(status), "op": first.ID, "again": retry.ID,
		},
	})
	w.now += 2 * time.Millisecond
}

func crashResult(name, title string, rec harness.Record) harness.Result {
	r := result(name, title)
	r.Params = harness.Params{"actions": "drop,kill"}
	r.DurationMS = 3120.4
	r.Responses = map[string]int{"201": len(rec.History.OfKind("book-again"))}
	return r
}

func recovered() (harness.Result, harness.Record) {
	rec := crashRecord(false)
	r := crashResult("telescope/booking-crash", "A booking is crashed at each of its moments", rec)
	r.Summary = "every point is recovered by its key"
	r.Checks = []harness.Verdict{{ID: "crash-points", Status: harness.Pass, Summary: "16 of 16 points of a booking: each retry was answered 201"}}
	return r, rec
}

func unrecovered() (harness.Result, harness.Record) {
	rec := crashRecord(true)
	r := crashResult("telescope/booking-crash", "A booking is crashed at each of its moments", rec)
	r.RunDir += "-T-M7"
	r.Verdict, r.Mutant = harness.Failed, "T-M7"
	r.Responses = map[string]int{"201": 14, "409": 6}
	v := harness.Verdict{ID: "crash-points", Status: harness.Failed, Rule: "scenarios/telescope/crash.go:41"}
	for _, e := range rec.History.Events {
		if e.Kind == harness.EventPoint && e.Attrs["retry"] != "201" {
			v.Evidence = append(v.Evidence, harness.Evidence{
				Ops:  []string{e.Attrs["op"], e.Attrs["again"]},
				Text: fmt.Sprintf("point %s (%s %s): the retry was answered %s, want 201", e.Attrs["number"], e.Attrs["action"], e.Attrs["label"], e.Attrs["retry"]),
			})
		}
	}
	v.Summary = fmt.Sprintf("%d of 20 points of a booking are not recovered by a retry", len(v.Evidence))
	r.Summary, r.Checks = v.Summary, []harness.Verdict{v}
	return r, rec
}

func crashPage() reports.Page {
	s := harness.Suite{
		SchemaVersion: 1, Tool: "overbook", Version: "0.1.0", Seed: 0x7f3a91c2, Started: begin, DurationMS: 7185.3, Host: host(), Verdict: harness.Failed,
	}
	records := map[string]harness.Record{}
	for _, build := range []func() (harness.Result, harness.Record){recovered, unrecovered} {
		r, rec := build()
		s.Scenarios = append(s.Scenarios, r)
		records[r.RunDir] = rec
	}
	return reports.Page{Suite: s, Records: records}
}
