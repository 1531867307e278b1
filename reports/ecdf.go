package reports

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// An ecdfView is the distribution of response times of one kind of operation:
// the share of answers that came within a time. Every sample is a step.
type ecdfView struct {
	Kind    string
	Caption string
	Curve   string // path in a square of 1000 by 1000
	Rug     string // path: one stroke a sample, "" for many
	Lines   []ecdfLine
	Ticks   []tick
	Table   []fact
}

// An ecdfLine is a percentile in the picture.
type ecdfLine struct {
	X, Label      string
	TextY, Anchor string
}

// Bounds of the picture.
const (
	ecdfKinds = 3    // kinds of operations
	ecdfSteps = 2000 // samples drawn as they are; of more, this many ranks
	ecdfRug   = 400  // samples with a stroke of their own
)

// latencyCharts draws the kinds of operations that were sent in bursts and
// open loops, or all kinds where there were none.
func latencyCharts(rec harness.Record) []ecdfView {
	var kinds []string
	planned := len(rec.History.Bursts)+len(rec.History.Loads) > 0
	drawn := func(op harness.Operation) bool { return op.Burst != "" || op.Load != "" || !planned }
	for _, op := range rec.History.Operations {
		if drawn(op) && !slices.Contains(kinds, op.Kind) {
			kinds = append(kinds, op.Kind)
		}
	}
	var charts []ecdfView
	for _, kind := range kinds {
		var samples []time.Duration
		sent := 0
		for _, op := range rec.History.OfKind(kind) {
			if !drawn(op) {
				continue
			}
			sent++
			if d := op.ResponseTime(); op.Answered != 0 && d >= 0 {
				samples = append(samples, d)
			}
		}
		if len(samples) > 0 && len(charts) < ecdfKinds {
			charts = append(charts, ecdfOf(kind, samples, sent))
		}
	}
	return charts
}

func ecdfOf(kind string, samples []time.Duration, sent int) ecdfView {
	slices.Sort(samples)
	n := len(samples)
	top := samples[n-1]
	whole := max(time.Microsecond, top+top/50)
	v := ecdfView{Kind: kind, Caption: fmt.Sprintf("%d answers of %d sent, each a step", n, sent)}
	if n > ecdfSteps {
		v.Caption = fmt.Sprintf("%d answers of %d sent, drawn at %d ranks", n, sent, ecdfSteps)
	}
	if sent > n {
		v.Caption += fmt.Sprintf("; the %d without an answer are not in the curve", sent-n)
	}
	v.Curve = curve(samples, whole)
	if n <= ecdfRug {
		var rug strings.Builder
		for _, s := range samples {
			fmt.Fprintf(&rug, "M%.1f 0V1", 1000*float64(s)/float64(whole))
		}
		v.Rug = rug.String()
	}
	marked := []struct {
		name string
		p    float64
	}{{"p50", 0.5}, {"p95", 0.95}}
	if n >= 100 {
		marked = append(marked, struct {
			name string
			p    float64
		}{"p99", 0.99})
	}
	for i, m := range marked {
		at := samples[rank(m.p, n)]
		line := ecdfLine{X: percent(float64(at), float64(whole)), Label: m.name + " " + screen(span(at)), Anchor: "start", TextY: fmt.Sprint(178 - 15*i)}
		if at > whole/4*3 {
			line.Anchor = "end"
		}
		v.Lines = append(v.Lines, line)
		v.Table = append(v.Table, fact{m.name, screen(span(at))})
	}
	v.Table = append(v.Table, fact{"max", screen(span(top))}, fact{"n", fmt.Sprint(n)})
	by := time.Duration(step(float64(whole), 5))
	for at := time.Duration(0); at <= whole; at += by {
		v.Ticks = append(v.Ticks, tick{At: percent(float64(at), float64(whole)), Label: screen(tickSpan(at)), Level: 1})
	}
	return v
}

// curve is the staircase through the sorted samples.
func curve(samples []time.Duration, whole time.Duration) string {
	n := len(samples)
	steps := min(n, ecdfSteps)
	var b strings.Builder
	b.WriteString("M0 1000")
	for i := 1; i <= steps; i++ {
		k := i * n / steps // samples up to here
		x := 1000 * float64(samples[k-1]) / float64(whole)
		fmt.Fprintf(&b, "H%.1fV%.1f", x, 1000-1000*float64(k)/float64(n))
	}
	b.WriteString("H1000")
	return b.String()
}

// tickSpan writes a round time without needless digits: 0, 250 us, 1.5 ms, 2 s.
func tickSpan(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%d us", d.Microseconds())
	case d < time.Second:
		return number(d.Seconds()*1e3) + " ms"
	default:
		return number(d.Seconds()) + " s"
	}
}
