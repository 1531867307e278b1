package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/overbook/overbook/harness"
)

// Bounds of an interleaving. Of a long one its beginning and its end are
// printed: how the operations met, and how it ended.
const (
	momentsFirst = 40
	momentsLast  = 20
	placeRunes   = 28 // of the column that says where
	opRunes      = 24 // of the column with the operation
)

// waitedLong is how long a statement must have been held by the wire, or must
// have been in Postgres, for that to be told.
const waitedLong = 2 * time.Millisecond

// A moment is one thing that a wire saw, for an interleaving.
type moment struct {
	at    time.Duration
	op    string // "" for what became of servers and of faults
	place string // "sut-1 session 3", "sut-1 > pyxis", "sut-1"
	text  string
	open  bool // the line is only worth it if something else comes before what ends it
}

// moments is what the wires saw of the operations, in order of time, and what
// became of servers and faults meanwhile. It says which wires those were.
func moments(rec harness.Record, ids []string) (seen []moment, wires string) {
	calls := callMoments(rec, ids)
	statements := statementMoments(rec, ids)
	switch {
	case len(calls) > 0 && len(statements) > 0:
		wires = "the upstream and Postgres wires"
	case len(statements) > 0:
		wires = "the Postgres wire"
	default:
		wires = "the upstream wire"
	}
	seen = append(calls, statements...)
	byTime := func(a, b moment) int { return cmp.Compare(a.at, b.at) }
	slices.SortStableFunc(seen, byTime)
	if len(seen) == 0 {
		return nil, wires
	}
	first, last := seen[0].at, seen[len(seen)-1].at
	seen = append(append(seen, eventMoments(rec, ids, first, last)...), answerMoments(rec, ids, statements)...)
	slices.SortStableFunc(seen, byTime)
	return closed(seen), wires
}

// answerMoments is when the client had the answer of an operation whose
// statements are shown: whether that is before or after its COMMIT is what a
// reader looks for.
func answerMoments(rec harness.Record, ids []string, statements []moment) (seen []moment) {
	among := setOf(ids)
	for _, op := range rec.History.Operations {
		if op.Status == 0 || !among[op.ID] {
			continue
		}
		if slices.ContainsFunc(statements, func(m moment) bool { return m.op == oneLine(op.ID) }) {
			seen = append(seen, moment{at: op.Answered, op: oneLine(op.ID), place: fmt.Sprintf("client %d", op.Process), text: fmt.Sprintf("has its answer: %d", op.Status)})
		}
	}
	return seen
}

// closed leaves out the beginning of a wait during which nothing else was seen.
func closed(seen []moment) []moment {
	kept := make([]moment, 0, len(seen))
	for i, m := range seen {
		if m.open && i+1 < len(seen) && seen[i+1].op == m.op && seen[i+1].place == m.place {
			continue
		}
		kept = append(kept, m)
	}
	return kept
}

// eventMoments is what became of servers and faults from the first to the last
// moment, without the faults that a moment tells already. The next fault at the
// server of an operation that got no answer belongs to it: it struck after the
// last statement.
func eventMoments(rec harness.Record, ids []string, first, last time.Duration) (seen []moment) {
	lost := map[string]bool{} // servers that owe an answer
	among := setOf(ids)
	for _, op := range rec.History.Operations {
		if among[op.ID] && op.Answered == 0 && op.Server != "" {
			lost[op.Server] = true
		}
	}
	told := faultsOf(rec, ids)
	events := slices.Clone(rec.History.Events)
	slices.SortStableFunc(events, func(a, b harness.Event) int { return cmp.Compare(a.At, b.At) })
	for _, e := range events {
		fault := tookPlace(e)
		switch {
		case e.At < first || !fault && e.Kind != harness.EventProcess:
			continue
		case fault && slices.ContainsFunc(told, func(known string) bool { return strings.HasPrefix(e.Text, known) }):
			lost[e.Subject] = false
			continue
		case e.At > last && (!fault || !lost[e.Subject]):
			continue
		}
		text := oneLine(e.Text)
		if fault {
			text = "fault: " + shortened(faultText(text), 120)
			lost[e.Subject] = lost[e.Subject] && e.At <= last
		}
		seen = append(seen, moment{at: e.At, place: oneLine(e.Subject), text: text})
	}
	return seen
}

// faultsOf is the faults that struck calls and statements of the operations.
func faultsOf(rec harness.Record, ids []string) (faults []string) {
	among := setOf(ids)
	for _, c := range rec.Upstream {
		if c.Fault != "" && among[c.Op] {
			faults = append(faults, c.Fault)
		}
	}
	for _, u := range rec.Postgres {
		if u.Fault != "" && among[u.Op] {
			faults = append(faults, u.Fault)
		}
	}
	return faults
}

func callMoments(rec harness.Record, ids []string) (seen []moment) {
	among := setOf(ids)
	for _, c := range rec.Upstream {
		if !among[c.Op] {
			continue
		}
		place := oneLine(c.Caller + " > " + c.Upstream)
		what := oneLine(c.Method + " " + c.Path)
		add := func(at time.Duration, text string) {
			seen = append(seen, moment{at: at, op: oneLine(c.Op), place: place, text: what + "  " + text})
		}
		fault := ""
		if c.Fault != "" {
			fault = "  fault: " + faultText(oneLine(c.Fault))
		}
		switch {
		case c.Accepted != 0 && c.Answered == 0:
			add(c.Received, "received")
			add(c.Accepted, fmt.Sprintf("-> %d, and %s did not get it", c.Status, oneLine(c.Caller))+fault)
		case c.Accepted != 0:
			add(c.Received, "received")
			add(c.Accepted, fmt.Sprintf("-> %d", c.Status)+fault)
		case c.Err != "":
			add(c.Received, "received, no answer ("+shortened(oneLine(c.Err), 60)+")"+fault)
		default:
			add(c.Received, "received, no answer"+fault)
		}
	}
	return seen
}

func statementMoments(rec harness.Record, ids []string) (seen []moment) {
	among := setOf(ids)
	for _, u := range rec.Postgres {
		if u.Step() && among[u.Op] {
			seen = append(seen, unitMoments(u)...)
		}
	}
	return seen
}

// unitMoments is a unit at the instant at which it was handed to Postgres, and
// lines of their own for what took long: being held before Postgres, waiting in
// it, being held on the way back.
func unitMoments(u harness.Unit) (seen []moment) {
	place := oneLine(fmt.Sprintf("%s session %d", u.Server, u.Session))
	sql := sqlText(u)
	add := func(at time.Duration, parts ...string) {
		seen = append(seen, moment{at: at, op: oneLine(u.Op), place: place, text: strings.Join(parts, "  ")})
	}
	end := "-> " + unitOutcome(u)
	if u.Answered != 0 && u.Delivered == 0 {
		end += ", and " + oneLine(u.Server) + " did not get this answer"
	}
	if u.Fault != "" {
		end += "  fault: " + faultText(oneLine(u.Fault))
	}
	at := u.Forwarded
	held := u.Forwarded - u.Arrived
	switch {
	case u.Forwarded == 0:
		add(u.Arrived, sql, end)
		return seen
	case held >= waitedLong:
		add(u.Arrived, sql, "here, held")
		sql += "  let go after " + span(held)
	}
	if waited := u.Answered - u.Forwarded; u.Answered != 0 && waited >= waitedLong {
		add(at, sql, "given to Postgres")
		seen[len(seen)-1].open = held < waitedLong
		at, end = u.Answered, end+" after "+span(waited)
		sql = sqlText(u)
	}
	add(at, sql, end)
	if held := u.Delivered - u.Answered; u.Answered != 0 && u.Delivered != 0 && held >= waitedLong {
		add(u.Delivered, sqlText(u), "its answer let go after "+span(held))
	}
	return seen
}

// sqlText is what a unit executes with its parameters, shortened; a long batch
// by its ends.
func sqlText(u harness.Unit) string {
	texts := make([]string, 0, len(u.Statements))
	for _, s := range u.Statements {
		text := shortened(oneLine(s.SQL), 80)
		if len(s.Params) > 0 {
			text += " [" + shortened(oneLine(strings.Join(s.Params, ", ")), 60) + "]"
		}
		texts = append(texts, text)
	}
	if n := len(texts); n > 3 {
		return fmt.Sprintf("%s; ... %d more ...; %s", texts[0], n-2, texts[n-1])
	}
	return strings.Join(texts, "; ")
}

// unitOutcome is what Postgres said to the last statement that was answered,
// and what kept it from saying more.
func unitOutcome(u harness.Unit) string {
	lost := ""
	if u.Err != "" {
		lost = shortened(oneLine(u.Err), 60)
	}
	for i, s := range slices.Backward(u.Statements) {
		of := ""
		if len(u.Statements) > 1 {
			of = fmt.Sprintf("%d of %d: ", i+1, len(u.Statements))
		}
		switch {
		case s.Code != "":
			return of + "ERROR " + oneLine(s.Code) + " " + shortened(oneLine(s.Text), 80)
		case s.Tag != "" && lost != "":
			return of + oneLine(s.Tag) + ", then " + lost
		case s.Tag != "" && u.Before == "I" && u.Committed:
			return of + oneLine(s.Tag) + ", committed"
		case s.Tag != "":
			return of + oneLine(s.Tag)
		}
	}
	switch {
	case u.Forwarded == 0 && lost != "":
		return "not given to Postgres (" + lost + ")"
	case u.Forwarded == 0:
		return "not given to Postgres"
	case lost != "":
		return "no answer: " + lost
	}
	return "no answer"
}

// interleavingLines is the order in which the wires saw the operations, or the
// statement that none did.
func interleavingLines(rec harness.Record, have bool, ids []string) []string {
	if len(ids) == 0 {
		return []string{"interleaving: none to show, the evidence names no operation"}
	}
	if !have {
		return []string{"interleaving: not looked up, the run's record was not given to this report"}
	}
	seen, wires := moments(rec, ids)
	if len(seen) == 0 {
		return []string{"interleaving: none recorded, no wire saw these operations"}
	}
	from := originOf(ids, rec)
	lines := []string{fmt.Sprintf("interleaving, as %s saw it%s:", wires, from.words())}
	ops, places := 0, 0
	for _, m := range seen {
		ops = max(ops, min(opRunes, utf8.RuneCountInString(m.op)))
		places = max(places, min(placeRunes, utf8.RuneCountInString(m.place)))
	}
	out := len(seen) - momentsFirst - momentsLast
	for i, m := range seen {
		if out > 0 && i >= momentsFirst && i < momentsFirst+out {
			if i == momentsFirst {
				lines = append(lines, fmt.Sprintf("  %14s  %d moments are left out here, all are in the run directory", "...", out))
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("  %14s  %-*s  %-*s  %s", offset(m.at-from.at), ops, shortened(m.op, opRunes), places, shortened(m.place, placeRunes), m.text))
	}
	return lines
}
