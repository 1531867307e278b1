package reports

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
)

// Markdown writes the suite as [MarkdownPage] does, without records.
func Markdown(w io.Writer, s harness.Suite) error { return MarkdownPage(w, Page{Suite: s}) }

// MarkdownPage writes the page as summary.md, for step summaries of CI: one
// table of scenarios, a line for each enumeration of crash points with its
// table folded away, then a section for each scenario that did not pass.
func MarkdownPage(w io.Writer, page Page) error {
	s := page.Suite
	var b strings.Builder
	m := marks[overall(s)]
	fmt.Fprintf(&b, "## %s %s · %s\n\n", m.sign, m.word, mdText(cmp.Or(s.Tool, "overbook")))
	fmt.Fprintf(&b, "Seed `%s` · %s · %s\n\n", s.Seed, millis(s.DurationMS), mdText(hostLine(s.Host)))
	if len(s.Scenarios) > 0 {
		b.WriteString("| verdict | scenario | checks | answers | upstream | p50 | p95 | n | took |\n")
		b.WriteString("| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: |\n")
	}
	for _, r := range s.Scenarios {
		b.WriteString(mdRow(r))
	}
	for _, r := range s.Scenarios {
		if rec, ok := recordOf(page.Records, r); ok {
			mdPoints(&b, r, rec)
		}
		mdSideBySide(&b, r)
	}
	for _, r := range s.Scenarios {
		if severity(r) != harness.Pass {
			mdSection(&b, r)
		}
	}
	b.WriteString("\n" + lastLine(s) + "\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write Markdown report: %w", err)
	}
	return nil
}

func mdRow(r harness.Result) string {
	m := marks[severity(r)]
	passed := 0
	for _, v := range r.Checks {
		if checked(v) == harness.Pass {
			passed++
		}
	}
	var upstream []string
	for _, f := range upstreamFigures(r) {
		upstream = append(upstream, f.What+": "+countText(f.Count))
	}
	p50, p95, n := "", "", "0"
	if r.Latency != nil && r.Latency.N > 0 {
		p50, p95, n = millis(r.Latency.P50), millis(r.Latency.P95), strconv.Itoa(r.Latency.N)
	}
	return fmt.Sprintf("| %s %s | %s | %d of %d | %s | %s | %s | %s | %s | %s |\n", m.sign, m.word, mdText(r.Name), passed, len(r.Checks),
		mdText(tallyLine(r.Responses)), mdText(strings.Join(upstream, ", ")), p50, p95, n, millis(r.DurationMS))
}

// mdPoints writes what was enumerated in a scenario. The blank lines let the
// table in the HTML be read as Markdown.
func mdPoints(b *strings.Builder, r harness.Result, rec harness.Record) {
	for _, n := range enumerationsOf(r, rec) {
		line := mdText(r.Name + ": " + n.line())
		fmt.Fprintf(b, "\n%s\n\n<details><summary>the points</summary>\n\n", line)
		b.WriteString("| verdict | number | fault | where | first answer | there before the retry | retry |\n")
		b.WriteString("| --- | ---: | --- | --- | --- | --- | --- |\n")
		for _, row := range n.Rows[:min(len(n.Rows), pointsShown)] {
			fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s | %s |\n", mdText(row.Mark), row.Number, mdText(row.Action), mdText(row.At),
				mdText(row.First), row.There, mdText(row.Retry))
		}
		if left := len(n.Rows) - pointsShown; left > 0 {
			fmt.Fprintf(b, "\nand %d more, all in the run directory\n", left)
		}
		b.WriteString("\n</details>\n")
	}
}

func mdSection(b *strings.Builder, r harness.Result) {
	m := marks[severity(r)]
	fmt.Fprintf(b, "\n### %s %s · %s\n\n", m.sign, m.word, mdText(r.Name))
	for _, line := range witnessLines(r) {
		b.WriteString("- " + mdText(line) + "\n")
	}
	if len(r.Bursts)+len(r.Witness) > 0 {
		b.WriteString("\n")
	}
	if v, ok := unexplained(r); ok {
		mdVerdict(b, v)
	}
	for _, v := range worstFirst(r.Checks) {
		if checked(v) != harness.Pass {
			mdVerdict(b, v)
		}
	}
	b.WriteString("Replay:\n\n" + mdFence(cmp.Or(r.Replay, "not recorded")))
	if path := cmp.Or(r.Report, r.RunDir); path != "" {
		fmt.Fprintf(b, "\nReport: %s\n", mdText(path))
	}
}

func mdVerdict(b *strings.Builder, v harness.Verdict) {
	m := marks[checked(v)]
	text := v.Summary
	if checked(v) == harness.Unknown {
		text = unknownText(v)
	}
	fmt.Fprintf(b, "**%s %s** %s\n\n", m.word, mdText(v.ID), mdText(text))
	if checked(v) == harness.Unknown {
		fmt.Fprintf(b, "What to do: %s\n\n", mdText(adviceFor(v.Reason)))
	}
	if lines := evidenceLines(v, true); len(lines) > 0 {
		b.WriteString(mdFence(strings.Join(lines, "\n")) + "\n")
	}
	if v.Rule != "" {
		fmt.Fprintf(b, "Rule: %s\n\n", mdText(v.Rule))
	}
}

// mdText makes one line of text that Markdown and the HTML in it leave alone.
func mdText(s string) string {
	var b strings.Builder
	for _, r := range oneLine(s) {
		switch r {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '|', '`', '*', '_', '[', ']', '\\', '#', '~', '@', '!':
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// mdFence wraps text in a fence that is longer than any in it.
func mdFence(s string) string {
	text := printable(s)
	longest, run := 2, 0
	for _, r := range text {
		if r == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "text\n" + strings.TrimRight(text, "\n") + "\n" + fence + "\n"
}

// hostLine says in one line on what it was measured.
func hostLine(h harness.Host) string {
	parts := []string{fmt.Sprintf("%s/%s, %d cores", cmp.Or(h.OS, "?"), cmp.Or(h.Arch, "?"), h.Cores)}
	for _, p := range []struct{ name, version string }{{"", h.Go}, {"PostgreSQL ", h.Postgres}, {"WireMock ", h.WireMock}, {"Redis ", h.Redis}} {
		if p.version != "" {
			parts = append(parts, strings.TrimSpace(p.name+strings.TrimPrefix(p.version, strings.TrimSpace(p.name)+" ")))
		}
	}
	return strings.Join(parts, ", ")
}
