package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/overbook/overbook/harness"
)

// span writes a duration with the unit that suits it: 84 us, 9.871 ms, 412 ms, 1.50 s.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%d us", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.3f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	default:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
}

// millis is span for milliseconds.
func millis(ms float64) string { return span(time.Duration(ms * float64(time.Millisecond))) }

// offset writes a distance from a burst's release to the microsecond: +1.204 ms.
func offset(d time.Duration) string { return fmt.Sprintf("%+.3f ms", d.Seconds()*1e3) }

// number writes a measurement without a tail of zeros.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// latencyLine is one line of percentiles, always with n.
func latencyLine(l *harness.Latency) string {
	if l == nil || l.N == 0 {
		return "no answer to measure (n=0)"
	}
	p99 := ""
	if l.P99 != nil {
		p99 = "  p99 " + millis(*l.P99)
	}
	return fmt.Sprintf("p50 %s  p95 %s%s  max %s  (n=%d)", millis(l.P50), millis(l.P95), p99, millis(l.Max), l.N)
}

// tallyLine writes counts by name in order of the names: 201×1 409×99.
func tallyLine(counts map[string]int) string {
	parts := make([]string, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s×%d", name, counts[name]))
	}
	return strings.Join(parts, " ")
}

// countText writes what the two observers counted; once when they agree.
func countText(c harness.CountPair) string {
	switch {
	case c.WireMock < 0:
		return fmt.Sprintf("%d (wiremock could not be read)", c.Ledger)
	case c.WireMock != c.Ledger:
		return fmt.Sprintf("ledger %d, wiremock %d", c.Ledger, c.WireMock)
	default:
		return strconv.Itoa(c.Ledger)
	}
}

// An upstreamFigure is one counted call of an upstream: "pyxis POST /reserve".
type upstreamFigure struct {
	What  string
	Count harness.CountPair
}

func upstreamFigures(r harness.Result) []upstreamFigure {
	var figures []upstreamFigure
	for _, name := range slices.Sorted(maps.Keys(r.Upstream)) {
		for _, call := range slices.Sorted(maps.Keys(r.Upstream[name])) {
			figures = append(figures, upstreamFigure{name + " " + call, r.Upstream[name][call]})
		}
	}
	return figures
}

// paramLine writes parameters in order of their names: path=direct users=100.
func paramLine(p harness.Params) string {
	parts := make([]string, 0, len(p))
	for _, name := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, name+"="+p[name])
	}
	return strings.Join(parts, " ")
}

// burstLine is the witness line of one burst.
func burstLine(b harness.BurstReport, named bool) string {
	head := "burst"
	if named && b.Name != head {
		head += " " + b.Name
	}
	parts := []string{fmt.Sprintf("%s: %d requests, %s, spread %s, %d in flight at once",
		head, b.Requests, cmp.Or(b.Technique, "technique not recorded"), span(b.Spread), b.MaxInFlight)}
	for _, short := range []struct {
		what string
		got  int
	}{{"ready", b.Ready}, {"sent", b.Sent}, {"answered", b.Answered}} {
		switch {
		case short.got >= b.Requests:
		case short.got == 0:
			parts = append(parts, "none "+short.what)
		default:
			parts = append(parts, fmt.Sprintf("only %d %s", short.got, short.what))
		}
	}
	if b.Early > 0 {
		parts = append(parts, fmt.Sprintf("%d answered BEFORE the release", b.Early))
	}
	if b.ServerSpread > 0 {
		parts = append(parts, fmt.Sprintf("arrived within %s", span(b.ServerSpread)))
	}
	return strings.Join(parts, ", ")
}

// burstLines gives a line a burst, or one line about all when there are many
// and all went as planned.
func burstLines(bursts []harness.BurstReport) []string {
	const many = 4
	lines := make([]string, 0, many)
	if len(bursts) <= many {
		for _, b := range bursts {
			lines = append(lines, burstLine(b, len(bursts) > 1))
		}
		return lines
	}
	spreads := make([]time.Duration, 0, len(bursts))
	least, short := bursts[0].MaxInFlight, 0
	for _, b := range bursts {
		spreads = append(spreads, b.Spread)
		least = min(least, b.MaxInFlight)
		if b.Early > 0 || min(b.Ready, b.Sent, b.Answered) < b.Requests {
			short++
			if short <= many {
				lines = append(lines, burstLine(b, true))
			}
		}
	}
	slices.Sort(spreads)
	all := fmt.Sprintf("%d bursts: %s, spread %s to %s (median %s), at least %d in flight at once, %d not as planned",
		len(bursts), cmp.Or(bursts[0].Technique, "technique not recorded"), span(spreads[0]), span(spreads[len(spreads)-1]),
		span(spreads[rank(0.5, len(spreads))]), least, short)
	return append([]string{all}, lines...)
}

// witnessLine says what was needed to call it a race and what was seen.
func witnessLine(w harness.Witness) string {
	state := "seen"
	if !w.Holds() {
		state = "NOT SEEN"
	}
	line := fmt.Sprintf("witness: %s %s, wanted at least %s: %s", w.Kind, number(w.Got), number(w.Want), state)
	if w.Text != "" {
		line += " (" + w.Text + ")"
	}
	return line
}

// rank is the index of the exact percentile (nearest rank) in n sorted samples.
func rank(p float64, n int) int {
	i := int(p * float64(n))
	if float64(i) < p*float64(n) {
		i++
	}
	return max(0, min(n-1, i-1))
}

// printable makes text safe for a terminal: line feeds and tabs stay, every
// other control or formatting character and broken UTF-8 becomes visible.
func printable(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\r' && strings.HasPrefix(s[i+size:], "\n"): // CRLF reads as LF
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		i += size
	}
	return b.String()
}

// oneLine is printable text without line breaks.
func oneLine(s string) string {
	return strings.Join(strings.Fields(printable(s)), " ")
}

// shortened cuts text to n runes and marks the cut; n <= 0 does not cut.
func shortened(s string, n int) string {
	if n <= 0 || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
