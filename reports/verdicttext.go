package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
)

// Bounds of what is printed about one check. What is cut is said, and all of
// it is in the run directory.
const (
	evidenceShown     = 20       // pieces of evidence
	evidenceTextRunes = 4 * 1024 // of each piece
)

// unknownText is the sentence of an Unknown with its reason.
func unknownText(v harness.Verdict) string {
	return fmt.Sprintf("unknown (%s): %s", cmp.Or(string(v.Reason), "no reason given"), v.Summary)
}

// verdictText is everything about one check in plain text without colour, for
// places that are not a terminal: JUnit and annotations.
func verdictText(r harness.Result, v harness.Verdict) string {
	var b strings.Builder
	status := checked(v)
	if status == harness.Unknown {
		fmt.Fprintf(&b, "%s  %s\n", v.ID, unknownText(v))
		fmt.Fprintf(&b, "what to do: %s\n", adviceFor(v.Reason))
	} else {
		fmt.Fprintf(&b, "%s  %s\n", v.ID, v.Summary)
	}
	for _, line := range evidenceLines(v, true) {
		b.WriteString("  " + line + "\n")
	}
	for _, line := range deliveryLines(r) {
		b.WriteString(line + "\n")
	}
	if v.Rule != "" {
		b.WriteString("rule    " + v.Rule + "\n")
	}
	b.WriteString("replay  " + cmp.Or(r.Replay, "not recorded") + "\n")
	if path := cmp.Or(r.Report, r.RunDir); path != "" {
		b.WriteString("report  " + path + "\n")
	}
	return printable(b.String())
}

// evidenceLines is the evidence as lines, capped; with ids, each piece is
// followed by the operations that it is about.
func evidenceLines(v harness.Verdict, ids bool) []string {
	var lines []string
	for i, e := range v.Evidence {
		if i == evidenceShown {
			lines = append(lines, fmt.Sprintf("and %d more, all in the run directory", len(v.Evidence)-i))
			break
		}
		text := strings.TrimRight(e.Text, "\n")
		if cut := shortened(text, evidenceTextRunes); cut != text {
			text = cut + "\n(cut; all of it is in the run directory)"
		}
		lines = append(lines, strings.Split(text, "\n")...)
		if ids && len(e.Ops) > 0 {
			lines = append(lines, "operations "+strings.Join(capped(once(e.Ops), evidenceShown), ", "))
		}
	}
	return lines
}

// once is the names without repetitions, in the order in which they first came.
func once(names []string) []string {
	var kept []string
	for _, n := range names {
		if !slices.Contains(kept, n) {
			kept = append(kept, n)
		}
	}
	return kept
}

// capped is the first n of the names and how many were left out.
func capped(names []string, n int) []string {
	if len(names) <= n {
		return names
	}
	return append(append([]string{}, names[:n]...), fmt.Sprintf("and %d more", len(names)-n))
}
