package reports

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/overbook/overbook/harness"
)

// TextOptions says for which terminal text is written.
type TextOptions struct {
	Color   bool // ANSI colours; without it there is no escape sequence at all
	Width   int  // columns for the one line of a scenario; 0 does not cut
	Verbose bool // every check of every scenario, also of those that passed

	// Streamed says that the line of each scenario was printed already, as
	// soon as it was done: only the blocks and the last line are written.
	Streamed bool

	// Records, when given, lets failure blocks show the operations that the
	// evidence names, with times from their burst's release, the order in
	// which the wires saw them, and the faults that took place; and every
	// scenario how many crash points were tried. Keys as in [Page].
	Records map[string]harness.Record
	_       struct{}
}

// Text writes the suite for a terminal: one line a scenario, then a block for
// each that did not pass, then, alone on the last line, the count
// "12 passed, 1 failed, 0 skipped" (an UNKNOWN counts as failed there).
func Text(w io.Writer, s harness.Suite, o TextOptions) error {
	var b strings.Builder
	names := 0
	for _, r := range s.Scenarios {
		names = max(names, utf8.RuneCountInString(oneLine(r.Name)))
	}
	for _, r := range s.Scenarios {
		if !o.Streamed || o.Verbose {
			b.WriteString(scenarioLine(r, o, names) + "\n")
		}
		switch {
		case severity(r) != harness.Pass:
		case o.Verbose:
			writePassed(&b, r, o)
		default:
			writeEnumerations(&b, r, o)
			writeSideBySide(&b, r)
		}
	}
	for _, r := range s.Scenarios {
		if severity(r) != harness.Pass {
			b.WriteString("\n")
			writeBlock(&b, r, o)
		}
	}
	b.WriteString("\n" + lastLine(s) + "\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write text report: %w", err)
	}
	return nil
}

// Line is the one line about a scenario, without a line feed, for printing as
// soon as the scenario is done.
func Line(r harness.Result, o TextOptions) string { return scenarioLine(r, o, 32) }

func lastLine(s harness.Suite) string {
	t := count(s)
	return fmt.Sprintf("%d passed, %d failed, %d skipped", t.passed, t.failed, len(s.Skipped))
}

// marks are the signs of the verdicts; each goes with its word, so that
// neither colour nor sign has to be understood.
var marks = map[harness.Status]struct{ sign, word, ansi string }{
	harness.Pass:    {"✓", "PASS", "32"},
	harness.Unknown: {"?", "UNKNOWN", "33"},
	harness.Failed:  {"✗", "FAIL", "31"},
}

func painted(text, ansi string, o TextOptions) string {
	if !o.Color {
		return text
	}
	return "\x1b[" + ansi + "m" + text + "\x1b[0m"
}

func dimmed(text string, o TextOptions) string { return painted(text, "2", o) }

func scenarioLine(r harness.Result, o TextOptions, nameWidth int) string {
	status := severity(r)
	m := marks[status]
	head := fmt.Sprintf("%s %-7s", m.sign, m.word)
	tail := fmt.Sprintf("  %-*s  %7s  %s", nameWidth, oneLine(r.Name), millis(r.DurationMS), lineTail(r, status))
	if o.Width > 0 {
		tail = shortened(tail, max(1, o.Width-utf8.RuneCountInString(head)))
	}
	return painted(head, m.ansi, o) + strings.TrimRight(tail, " ")
}

// lineTail is what is worth saying on the one line: figures of a pass, the
// broken rule of anything else.
func lineTail(r harness.Result, status harness.Status) string {
	if status == harness.Unknown {
		if reason := unknownReason(r); reason != "" {
			return oneLine(string(reason) + ": " + sentence(r))
		}
		return oneLine(sentence(r))
	}
	if status == harness.Failed {
		return oneLine(sentence(r))
	}
	var parts []string
	if len(r.Responses) > 0 {
		parts = append(parts, tallyLine(r.Responses))
	}
	for _, f := range upstreamFigures(r) {
		if f.Count != (harness.CountPair{}) {
			parts = append(parts, f.What+" "+countText(f.Count))
		}
	}
	if r.Latency != nil && r.Latency.N > 0 {
		parts = append(parts, fmt.Sprintf("p95 %s (n=%d)", millis(r.Latency.P95), r.Latency.N))
	}
	return oneLine(strings.Join(parts, " · "))
}

func writePassed(b *strings.Builder, r harness.Result, o TextOptions) {
	for _, line := range witnessLines(r) {
		b.WriteString("    " + dimmed(line, o) + "\n")
	}
	for _, v := range r.Checks {
		writeCheck(b, r, v, o, nil)
	}
	writeFigures(b, r)
	if rec, ok := recordOf(o.Records, r); ok {
		writeLines(b, faultLines(r, rec))
		writeLines(b, pointLines(r, rec, false))
	}
	b.WriteString("\n")
}

// writeEnumerations says below a scenario that passed what was enumerated in
// it. Where its own line was printed before, it is named.
func writeEnumerations(b *strings.Builder, r harness.Result, o TextOptions) {
	rec, _ := recordOf(o.Records, r)
	for _, n := range enumerationsOf(r, rec) {
		head := "  "
		if o.Streamed {
			head += oneLine(r.Name) + "  "
		}
		b.WriteString(head + dimmed(n.line(), o) + "\n")
	}
}

// witnessLines is the evidence that a race took place.
func witnessLines(r harness.Result) []string {
	lines := deliveryLines(r)
	lines = append(lines, witnessesByKind(r.Witness)...)
	for i, l := range lines {
		lines[i] = oneLine(l)
	}
	return lines
}

// witnessesByKind gives a line to each witness that does not hold and to the
// first of each kind that does; the others of the kind are counted.
func witnessesByKind(list []harness.Witness) []string {
	var lines []string
	first, more := map[string]int{}, map[string]int{}
	for _, w := range list {
		_, seen := first[w.Kind]
		switch {
		case !w.Holds() || !seen:
			if w.Holds() {
				first[w.Kind] = len(lines)
			}
			lines = append(lines, witnessLine(w))
		default:
			more[w.Kind]++
		}
	}
	for kind, n := range more {
		lines[first[kind]] += fmt.Sprintf("; seen %d times more", n)
	}
	return lines
}
