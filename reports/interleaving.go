package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// momentsShown bounds the wire moments that are printed under a check; a
// transaction of a booking has a dozen.
const momentsShown = 40

// waitedLong is how long a statement must have been in Postgres for that to be told.
const waitedLong = 2 * time.Millisecond

// A moment is one thing that a wire saw, for an interleaving.
type moment struct {
	at   time.Duration
	text string
}

// moments is what the wires saw of the operations, in order of time, and what
// became of the servers meanwhile. It says which wires those were.
func moments(rec harness.Record, ids []string) (seen []moment, wires string) {
	calls := callMoments(rec, ids)
	statements := statementMoments(rec, ids)
	switch {
	case len(calls) > 0 && len(statements) > 0:
		wires = "the wires"
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
	for _, e := range rec.History.Events {
		if e.Kind == harness.EventProcess && e.At > first && e.At < last {
			seen = append(seen, moment{e.At, "        " + oneLine(e.Text)})
		}
	}
	slices.SortStableFunc(seen, byTime)
	return seen, wires
}

func callMoments(rec harness.Record, ids []string) (seen []moment) {
	for _, c := range rec.Upstream {
		if !slices.Contains(ids, c.Op) {
			continue
		}
		what := oneLine(fmt.Sprintf("%s: %s %s %s by %s", c.Op, c.Upstream, c.Method, c.Path, c.Caller))
		seen = append(seen, moment{c.Received, what + "  received"})
		if c.Accepted != 0 {
			seen = append(seen, moment{c.Accepted, what + fmt.Sprintf("  -> %d", c.Status)})
		}
		if c.Fault != "" {
			seen = append(seen, moment{cmp.Or(c.Accepted, c.Received), what + "  fault: " + oneLine(c.Fault)})
		}
	}
	return seen
}

// statementMoments has a line for each unit that did something, at the instant
// at which it was handed to Postgres, and one more for the end of a long wait.
func statementMoments(rec harness.Record, ids []string) (seen []moment) {
	for _, u := range rec.Postgres {
		if !u.Step() || !slices.Contains(ids, u.Op) {
			continue
		}
		what := oneLine(fmt.Sprintf("%s: %s session %d: %s", u.Op, u.Server, u.Session, sqlText(u)))
		outcome := oneLine(unitOutcome(u))
		at := cmp.Or(u.Forwarded, u.Arrived)
		if waited := u.Answered - u.Forwarded; u.Answered != 0 && u.Forwarded != 0 && waited >= waitedLong {
			seen = append(seen, moment{at, what + "  sent"})
			at, outcome = u.Answered, outcome+fmt.Sprintf(" (after %.1f ms)", float64(waited)/float64(time.Millisecond))
		}
		if u.Fault != "" {
			outcome += "  fault: " + oneLine(u.Fault)
		}
		seen = append(seen, moment{at, what + "  -> " + outcome})
	}
	return seen
}

// sqlText is what a unit executes, shortened; a long batch by its ends.
func sqlText(u harness.Unit) string {
	texts := make([]string, 0, len(u.Statements))
	for _, s := range u.Statements {
		texts = append(texts, shortened(oneLine(s.SQL), 70))
	}
	if n := len(texts); n > 3 {
		return fmt.Sprintf("%s; ... %d more ...; %s", texts[0], n-2, texts[n-1])
	}
	return strings.Join(texts, "; ")
}

// unitOutcome is what Postgres said to the last statement that was answered.
func unitOutcome(u harness.Unit) string {
	for _, s := range slices.Backward(u.Statements) {
		switch {
		case s.Code != "":
			return s.Code + " " + shortened(oneLine(s.Text), 60)
		case s.Tag != "":
			return s.Tag
		}
	}
	switch {
	case u.Forwarded == 0:
		return "not given to Postgres"
	case u.Err != "":
		return shortened(oneLine(u.Err), 60)
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
	zero := zeroOfAll(ids, rec)
	lines := []string{fmt.Sprintf("interleaving, as %s saw it:", wires)}
	if zero != 0 {
		lines[0] = fmt.Sprintf("interleaving, as %s saw it, from the release at %s of the run:", wires, offset(zero))
	}
	for i, m := range seen {
		if i == momentsShown {
			lines = append(lines, fmt.Sprintf("  and %d more moments, all in the run directory", len(seen)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("  %14s  %s", offset(m.at-zero), m.text))
	}
	return lines
}
