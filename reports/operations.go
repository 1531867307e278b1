package reports

import (
	"fmt"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// operationsShown bounds the operations and wire moments printed under a check.
const operationsShown = 12

// recordOf finds the record of a result, by run directory or by name.
func recordOf(records map[string]harness.Record, r harness.Result) (harness.Record, bool) {
	if rec, ok := records[r.RunDir]; ok && r.RunDir != "" {
		return rec, true
	}
	rec, ok := records[r.Name]
	return rec, ok
}

// named is the ids of the operations that a verdict's evidence is about, each once.
func named(v harness.Verdict) []string {
	var ids []string
	seen := map[string]bool{}
	for _, e := range v.Evidence {
		for _, id := range e.Ops {
			if !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// setOf is for asking whether an operation is one of many: a large load has
// tens of thousands, and a check may name a good part of them.
func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// releases is the instant of release of each burst, by name.
func releases(rec harness.Record) map[string]time.Duration {
	at := map[string]time.Duration{}
	for _, b := range rec.History.Bursts {
		at[b.Name] = b.Released
	}
	return at
}

// operationLines writes the operations with their times, from the release of
// their burst or else of the first burst.
func operationLines(rec harness.Record, v harness.Verdict, ids []string) []string {
	var lines []string
	released, from, among := releases(rec), originOf(ids, rec), setOf(ids)
	for _, op := range rec.History.Operations {
		if !among[op.ID] || mentioned(v, op.ID) {
			continue
		}
		if len(lines) > operationsShown {
			lines = append(lines, fmt.Sprintf("  and %d more operations, all in the run directory", len(ids)-operationsShown))
			break
		}
		if len(lines) == 0 {
			lines = append(lines, operationsHead(rec, from))
		}
		lines = append(lines, "  "+operationLine(op, zeroOf(op, released, from)))
	}
	return lines
}

func operationsHead(rec harness.Record, from origin) string {
	if len(rec.History.Bursts) > 0 {
		return "operations, timed from the release of their burst:"
	}
	return "operations" + from.words() + ":"
}

// mentioned reports whether the evidence prints the operation already.
func mentioned(v harness.Verdict, id string) bool {
	for _, e := range v.Evidence {
		for line := range strings.Lines(e.Text) {
			if strings.Contains(line, id+"  ") && strings.Contains(line, "ms") {
				return true
			}
		}
	}
	return false
}

// zeroOf is the instant from which an operation's times are told: the release
// of its own burst, else that of all.
func zeroOf(op harness.Operation, released map[string]time.Duration, from origin) time.Duration {
	if at, ok := released[op.Burst]; ok {
		return at
	}
	return from.at
}

func operationLine(op harness.Operation, zero time.Duration) string {
	answer := "no answer"
	if op.Status != 0 {
		answer = fmt.Sprintf("%d %s", op.Status, shortened(oneLine(op.Output), 80))
	}
	if op.Err != "" {
		answer += " (" + shortened(oneLine(op.Err), 80) + ")"
	}
	return fmt.Sprintf("%s  client %d  %-4s  [%s]  %s %s%s  -> %s", oneLine(op.ID), op.Process, op.Outcome, interval(op, zero),
		op.Method, oneLine(op.Path), inputText(op), strings.TrimSpace(answer))
}

func inputText(op harness.Operation) string {
	if len(op.Input) == 0 {
		return ""
	}
	return "  " + shortened(oneLine(string(op.Input)), 80)
}

// interval is from the send to the last byte of the answer.
func interval(op harness.Operation, zero time.Duration) string {
	switch {
	case op.Sent == 0:
		return "not sent"
	case op.Answered == 0:
		return offset(op.Sent-zero) + " ... no whole answer"
	default:
		return offset(op.Sent-zero) + " ... " + offset(op.Answered-zero)
	}
}

// An origin is the instant from which the times of some operations are told.
type origin struct {
	at   time.Duration
	what string // "the release", "the first request"; "" for the start of the run
}

// words ends a heading.
func (o origin) words() string {
	if o.what == "" {
		return ""
	}
	return fmt.Sprintf(", from %s at %s of the run", o.what, offset(o.at))
}

// originOf is the release of the first burst that one of the operations
// belongs to, else of the first burst at all; without bursts the first of them
// that was sent.
func originOf(ids []string, rec harness.Record) origin {
	released := releases(rec)
	var first origin
	among := setOf(ids)
	for _, op := range rec.History.Operations {
		if !among[op.ID] {
			continue
		}
		if at, ok := released[op.Burst]; ok {
			return origin{at, "the release"}
		}
		if op.Sent != 0 && (first.what == "" || op.Sent < first.at) {
			first = origin{op.Sent, "the first request"}
		}
	}
	if len(released) > 0 {
		return origin{rec.History.Bursts[0].Released, "the release"}
	}
	return first
}
