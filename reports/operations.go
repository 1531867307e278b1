package reports

import (
	"fmt"
	"slices"
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
	for _, e := range v.Evidence {
		for _, id := range e.Ops {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
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
	released := releases(rec)
	for _, op := range rec.History.Operations {
		if !slices.Contains(ids, op.ID) || mentioned(v, op.ID) {
			continue
		}
		if len(lines) > operationsShown {
			lines = append(lines, fmt.Sprintf("  and %d more operations, all in the run directory", len(ids)-operationsShown))
			break
		}
		if len(lines) == 0 {
			lines = append(lines, "operations, timed from the release of their burst:")
		}
		lines = append(lines, "  "+operationLine(op, zeroOf(op, released, rec)))
	}
	return lines
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

// zeroOf is the instant from which an operation's times are told.
func zeroOf(op harness.Operation, released map[string]time.Duration, rec harness.Record) time.Duration {
	if at, ok := released[op.Burst]; ok {
		return at
	}
	if len(rec.History.Bursts) > 0 {
		return rec.History.Bursts[0].Released
	}
	return 0
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

// zeroOfAll is the release of the first burst that one of the operations
// belongs to, else of the first burst at all; 0 without bursts.
func zeroOfAll(ids []string, rec harness.Record) time.Duration {
	released := releases(rec)
	if len(released) == 0 {
		return 0
	}
	for _, op := range rec.History.Operations {
		if at, ok := released[op.Burst]; ok && slices.Contains(ids, op.ID) {
			return at
		}
	}
	return rec.History.Bursts[0].Released
}
