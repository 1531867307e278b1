package stats

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// A Percentile names a share of the samples. It cannot be made from a bare
// number, so that 0.95 and 95 cannot be taken for each other: use the named
// ones or [ParsePercentile].
type Percentile struct {
	hundredths int // of a per cent: p99.9 is 9990
}

// The percentiles in use.
var (
	P50  = Percentile{5000}
	P90  = Percentile{9000}
	P95  = Percentile{9500}
	P99  = Percentile{9900}
	P999 = Percentile{9990}
)

// ParsePercentile reads "p50" to "p99.99".
func ParsePercentile(text string) (Percentile, error) {
	v, err := strconv.ParseFloat(strings.TrimPrefix(text, "p"), 64)
	if !strings.HasPrefix(text, "p") || err != nil || !(v >= 1 && v < 100) {
		return Percentile{}, fmt.Errorf("percentile %q: want p1 to p99.99, like p95", text)
	}
	return Percentile{hundredths: int(v*100 + 0.5)}, nil
}

// String gives "p95", "p99.9".
func (p Percentile) String() string { return "p" + strconv.FormatFloat(p.percent(), 'f', -1, 64) }

func (p Percentile) percent() float64 { return float64(p.hundredths) / 100 }

// needs is the least number of samples for which the percentile is more than
// a name for the maximum: 100 for p99, 1,000 for p99.9. Below p99 the exact
// rank of even a few samples is given, together with n.
func (p Percentile) needs() int {
	if p.hundredths < P99.hundredths {
		return 1
	}
	beyond := 10000 - p.hundredths
	return (10000 + beyond - 1) / beyond
}

// TooFewError says that a percentile was asked of too few samples.
type TooFewError struct {
	Percentile Percentile
	N, Needs   int
}

// Error names the percentile, what it needs and what there is.
func (e *TooFewError) Error() string {
	return fmt.Sprintf("%s needs at least %d samples, there are %d", e.Percentile, e.Needs, e.N)
}

// Exact gives the percentile of raw samples by nearest rank: the smallest
// sample that at least p per cent of the samples do not exceed. It is always
// one of the samples. The samples need no order and are left as they are.
// Too few samples (none; under 100 for p99) are a [*TooFewError].
func Exact(samples []time.Duration, p Percentile) (time.Duration, error) {
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	return exactSorted(sorted, p)
}

func exactSorted(sorted []time.Duration, p Percentile) (time.Duration, error) {
	n := len(sorted)
	if p.hundredths <= 0 {
		return 0, fmt.Errorf("the zero percentile was asked for")
	}
	if n < p.needs() {
		return 0, &TooFewError{Percentile: p, N: n, Needs: p.needs()}
	}
	return sorted[(p.hundredths*n+9999)/10000-1], nil
}

// Median gives the nearest-rank median; 0 of no samples.
func Median(samples []time.Duration) time.Duration {
	m, err := Exact(samples, P50)
	if err != nil {
		return 0
	}
	return m
}

// Summarise gives the latency figures of raw samples in milliseconds; nil of
// no samples, and no p99 of fewer than 100.
func Summarise(samples []time.Duration) *harness.Latency {
	if len(samples) == 0 {
		return nil
	}
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	at := func(p Percentile) float64 {
		v, _ := exactSorted(sorted, p) // cannot be refused: n >= 1, and p99 is guarded below
		return Milliseconds(v)
	}
	l := &harness.Latency{N: len(sorted), P50: at(P50), P95: at(P95), Max: Milliseconds(sorted[len(sorted)-1])}
	if len(sorted) >= P99.needs() {
		p99 := at(P99)
		l.P99 = &p99
	}
	return l
}

// Milliseconds gives a duration as a number of milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
