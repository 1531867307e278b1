package reports

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The figures that the design's author measured, one local run of theirs.
var source = struct{ direct, intent map[string]string }{
	direct: map[string]string{"posts": "100", "outcomes": "2 / 98", "p95": "1.50 s"},
	intent: map[string]string{"posts": "1", "outcomes": "1 / 99", "p95": "3.08 s"},
}

const none = "—"

// amplifyTable is the comparison as rows of cells, the head first: ours by
// path, then the source's.
func amplifyTable(a Amplification) [][]string {
	d, i := a.Paths.Direct, a.Paths.Intent
	row := func(what, direct, intent, key string) []string {
		return []string{what, direct, intent, cmp.Or(source.direct[key], none), cmp.Or(source.intent[key], none)}
	}
	p99 := func(p AmplifyPath) string {
		if p.ConfirmMS.P99 == nil {
			return none
		}
		return millis(*p.ConfirmMS.P99)
	}
	return [][]string{
		{"", "direct", "intent", "source direct", "source intent"},
		row("upstream reserve POSTs a round", countText(d.ReservePosts), countText(i.ReservePosts), "posts"),
		row("SUCCEEDED / FAILED_RACE", outcomeText(d), outcomeText(i), "outcomes"),
		row("seat given twice", twiceText(d), twiceText(i), ""),
		row("confirm p50", millis(d.ConfirmMS.P50), millis(i.ConfirmMS.P50), ""),
		row("confirm p95", millis(d.ConfirmMS.P95), millis(i.ConfirmMS.P95), "p95"),
		row("confirm p99", p99(d), p99(i), ""),
		row("confirm max", millis(d.ConfirmMS.Max), millis(i.ConfirmMS.Max), ""),
		row("confirms measured, n", fmt.Sprint(d.ConfirmMS.N), fmt.Sprint(i.ConfirmMS.N), ""),
	}
}

// outcomeText says how many got the seat and how many lost the race, of all
// rounds; other ends are named.
func outcomeText(p AmplifyPath) string {
	if len(p.Outcomes) == 0 {
		return "not observed"
	}
	text := fmt.Sprintf("%d / %d", p.Outcomes["SUCCEEDED"], p.Outcomes["FAILED_RACE"])
	rest := map[string]int{}
	for name, n := range p.Outcomes {
		if name != "SUCCEEDED" && name != "FAILED_RACE" && n > 0 {
			rest[name] = n
		}
	}
	if len(rest) > 0 {
		text += ", " + tallyLine(rest)
	}
	return text
}

func twiceText(p AmplifyPath) string {
	if len(p.PerRound) == 0 {
		return "not observed"
	}
	rounds, _ := p.twice()
	return fmt.Sprintf("%d of %d rounds", rounds, len(p.PerRound))
}

// ratioLines state the two ratios with n and interval.
func ratioLines(a Amplification) []string {
	posts, p95 := "reserve POSTs: not comparable", "confirm p95: not comparable"
	if a.Ratio.ReservePosts > 0 {
		posts = fmt.Sprintf("reserve POSTs, direct to intent: %s to 1", number(a.Ratio.ReservePosts))
	}
	if a.Ratio.ConfirmP95 > 0 {
		p95 = fmt.Sprintf("confirm p95, intent over direct: %.2f (95 %% interval %.2f to %.2f, %d rounds of %d users on each path); the source's was 2.05",
			a.Ratio.ConfirmP95, a.Ratio.ConfirmP95Interval[0], a.Ratio.ConfirmP95Interval[1], a.Rounds, a.Users)
	}
	return []string{posts, p95}
}

func amplifyHead(a Amplification) string {
	return fmt.Sprintf("%d users confirm one seat at one barrier, %d rounds on each path; upstream: %s", a.Users, a.Rounds,
		cmp.Or(oneLine(a.Upstream.LatencyModel), "latency model not recorded"))
}

const sourceNote = "source: figures of the design's author, one local run of theirs on other hardware; not measured here"

// AmplifyText writes the comparison as a table for a terminal.
func AmplifyText(w io.Writer, a Amplification, o TextOptions) error {
	var b strings.Builder
	a = a.settled()
	m := marks[a.Verdict]
	fmt.Fprintf(&b, "%s  %s\n\n", painted(m.sign+" "+m.word, m.ansi, o), amplifyHead(a))
	for n, line := range aligned(amplifyTable(a)) {
		if n == 0 {
			line = painted(line, "1", o)
		}
		b.WriteString("  " + line + "\n")
	}
	b.WriteString("\n")
	for _, line := range ratioLines(a) {
		b.WriteString("  " + line + "\n")
	}
	fmt.Fprintf(&b, "  seed %s, %s\n  %s\n", a.Seed, oneLine(hostLine(a.Host)), dimmed(sourceNote, o))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write amplification table: %w", err)
	}
	return nil
}

// aligned sets cells in columns: the first to the left, the others to the right.
func aligned(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, r := range rows {
		var line strings.Builder
		fmt.Fprintf(&line, "%-*s", widths[0], r[0])
		for i, cell := range r[1:] {
			fmt.Fprintf(&line, "   %*s", widths[i+1], cell)
		}
		lines = append(lines, line.String())
	}
	return lines
}

// AmplifyMarkdown writes the comparison as Markdown, with the command that
// made it and the machine it was made on.
func AmplifyMarkdown(w io.Writer, a Amplification) error {
	var b strings.Builder
	a = a.settled()
	rows := amplifyTable(a)
	rows[0][0] = " "
	fmt.Fprintf(&b, "%s %s. %s.\n\n", marks[a.Verdict].sign, marks[a.Verdict].word, mdText(amplifyHead(a)))
	for n, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if n == 0 {
			b.WriteString("| --- |" + strings.Repeat(" ---: |", len(row)-1) + "\n")
		}
	}
	b.WriteString("\n")
	for _, line := range ratioLines(a) {
		b.WriteString("- " + mdText(line) + "\n")
	}
	fmt.Fprintf(&b, "- seed `%s`; %s; %s\n- %s\n\n", a.Seed, mdText(hostLine(a.Host)), a.Started.UTC().Format("2006-01-02 15:04 MST"), sourceNote)
	b.WriteString("Made with:\n\n" + mdFence(cmp.Or(a.Command, "not recorded")))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write amplification table: %w", err)
	}
	return nil
}
