package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
)

// writeBlock writes everything a person needs about a scenario that did not
// pass: first the rule and its value, then what was seen, last how to do it again.
func writeBlock(b *strings.Builder, r harness.Result, o TextOptions) {
	status := severity(r)
	m := marks[status]
	fmt.Fprintf(b, "%s %s  seed %s", painted(m.sign+" "+m.word, m.ansi, o), oneLine(r.Name), r.Seed)
	if r.Mutant != "" {
		b.WriteString("  mutant " + oneLine(r.Mutant))
	}
	if line := paramLine(r.Params); line != "" {
		b.WriteString("  " + dimmed(oneLine(line), o))
	}
	b.WriteString("\n")
	for _, line := range witnessLines(r) {
		b.WriteString("  " + line + "\n")
	}
	rec, have := recordOf(o.Records, r)
	var points []string
	if have {
		points = pointLines(r, rec, !o.Verbose)
		for _, t := range rec.Trouble {
			if conducted(r) {
				break // that check says it, with its evidence
			}
			b.WriteString("  trouble of the run itself (" + oneLine(string(t.Reason)) + "): " + oneLine(t.Text) + "\n")
		}
	}
	b.WriteString("\n")
	if len(points) > 0 { // which points went wrong is the first thing to know; their faults are in the table
		writeLines(b, points)
		b.WriteString("\n")
	}
	seen := map[string]string{}
	if v, ok := unexplained(r); ok {
		v.ID = ""
		writeCheck(b, r, v, o, seen)
	}
	passed := 0
	for _, v := range alike(worstFirst(r.Checks)) {
		if checked(v) == harness.Pass && !o.Verbose {
			passed++
			continue
		}
		writeCheck(b, r, v, o, seen)
	}
	if passed > 0 {
		fmt.Fprintf(b, "  %s  %d of %d checks\n", painted("PASS   ", marks[harness.Pass].ansi, o), passed, len(r.Checks))
	}
	b.WriteString("\n")
	writeFigures(b, r)
	if have && len(points) == 0 {
		writeLines(b, faultLines(r, rec))
	}
	fmt.Fprintf(b, "  replay    %s\n", cmp.Or(oneLine(r.Replay), "not recorded"))
	fmt.Fprintf(b, "  report    %s\n", cmp.Or(oneLine(r.Report), oneLine(r.RunDir), "not kept"))
}

func writeLines(b *strings.Builder, lines []string) {
	for _, line := range lines {
		b.WriteString(strings.TrimRight("  "+line, " ") + "\n")
	}
}

// alike joins checks that are Unknown for the same reason in the same words:
// one cause, one entry.
func alike(verdicts []harness.Verdict) []harness.Verdict {
	var joined []harness.Verdict
	at := map[string]int{}
	for _, v := range verdicts {
		key := string(v.Reason) + v.Summary
		i, seen := at[key]
		if checked(v) != harness.Unknown || !seen {
			at[key] = len(joined)
			joined = append(joined, v)
			continue
		}
		joined[i].ID, joined[i].Rule = joined[i].ID+", "+v.ID, ""
	}
	return joined
}

// writeFigures writes what was counted and measured.
func writeFigures(b *strings.Builder, r harness.Result) {
	if len(r.Responses) > 0 {
		fmt.Fprintf(b, "  answers   %s\n", oneLine(tallyLine(r.Responses)))
	}
	if len(r.Outcomes) > 0 {
		fmt.Fprintf(b, "  outcomes  %s\n", oneLine(tallyLine(r.Outcomes)))
	}
	for _, f := range upstreamFigures(r) {
		fmt.Fprintf(b, "  upstream  %s: %s\n", oneLine(f.What), countText(f.Count))
	}
	if r.Latency != nil {
		fmt.Fprintf(b, "  latency   %s\n", latencyLine(r.Latency))
	}
	for _, l := range latencyFacts(r) {
		fmt.Fprintf(b, "  latency   %s: %s\n", oneLine(l.Name), l.Value)
	}
	writeSideBySide(b, r)
}

const checkIndent = "           "

// writeCheck writes one check; evidence only when it did not pass. In seen are
// the checks of the block by the operations they are about.
func writeCheck(b *strings.Builder, r harness.Result, v harness.Verdict, o TextOptions, seen map[string]string) {
	status := checked(v)
	m := marks[status]
	text := v.Summary
	if status == harness.Unknown {
		text = unknownText(v)
	}
	id := oneLine(v.ID)
	if id != "" {
		id = fmt.Sprintf("%-12s  ", id)
	}
	fmt.Fprintf(b, "  %s  %s%s\n", painted(fmt.Sprintf("%-7s", m.word), m.ansi, o), id, oneLine(text))
	if status == harness.Pass {
		return
	}
	for _, line := range checkDetails(r, v, o, seen) {
		b.WriteString(strings.TrimRight(checkIndent+line, " ") + "\n")
	}
}

// conducted reports whether the check of the run itself found its trouble.
func conducted(r harness.Result) bool {
	return slices.ContainsFunc(r.Checks, func(v harness.Verdict) bool { return v.ID == "conduct" && checked(v) != harness.Pass })
}

// checkDetails is the body under a check: what to do, the evidence, the
// operations it names, the interleaving if a wire saw one, and the rule.
// Operations that a check above is about, too, are not told twice.
func checkDetails(r harness.Result, v harness.Verdict, o TextOptions, seen map[string]string) []string {
	var lines []string
	if checked(v) == harness.Unknown {
		lines = append(lines, "what to do: "+adviceFor(v.Reason))
	}
	rec, ok := recordOf(o.Records, r)
	for _, l := range fullRows(rec, ok, v) {
		lines = append(lines, strings.Split(printable(l), "\n")...)
	}
	if ids, of := shownOps(v, rec); checked(v) == harness.Failed || len(ids) > 0 {
		key := strings.Join(ids, " ")
		if above := seen[key]; above != "" && key != "" {
			lines = append(lines, "operations and interleaving: those of "+above+", above")
		} else {
			seen[key] = oneLine(v.ID)
			if of > 1 {
				lines = append(lines, fmt.Sprintf("the first of %d crash points in the evidence:", of))
			}
			lines = append(lines, operationLines(rec, v, ids)...)
			lines = append(lines, interleavingLines(rec, ok, ids)...)
		}
	}
	if v.Rule != "" {
		lines = append(lines, "rule: "+oneLine(v.Rule))
	}
	return lines
}

// Bounds of rows that are written in full.
const (
	fullRowsShown = 3
	fullCellRunes = 160
)

// fullRows is the evidence as lines. A table of few rows whose cells had to be
// cut is written from the stored rows instead, one column a line. The operations of one
// piece are not named here where the record shows them below it.
func fullRows(rec harness.Record, have bool, v harness.Verdict) []string {
	rows, ok := rec.Find(v.ID)
	wide := func(e harness.Evidence) bool { return strings.Contains(e.Text, "…") && tabular(e.Text) != nil }
	if !ok || len(v.Evidence) != 1 || len(rows.Rows) == 0 || len(rows.Rows) > fullRowsShown || !wide(v.Evidence[0]) {
		return evidenceLines(v, !have || len(v.Evidence) > 1)
	}
	var lines []string
	for i, row := range rows.Rows {
		if len(rows.Rows) > 1 {
			lines = append(lines, fmt.Sprintf("row %d", i+1))
		}
		for _, name := range rowColumns(rows.Rows) {
			lines = append(lines, fmt.Sprintf("%-10s  %s", oneLine(name), shortened(oneLine(cellText(row[name])), fullCellRunes)))
		}
	}
	return lines
}
