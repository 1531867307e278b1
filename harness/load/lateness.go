package load

import (
	"slices"
	"time"
)

// Lateness says how far behind its schedule a generator was: of how late each
// client was started, the median, the 99th percentile and the maximum by nearest
// rank. Under 100 clients the 99th percentile is the maximum; of nobody all are 0.
func Lateness(late []time.Duration) (p50, p99, most time.Duration) {
	n := len(late)
	if n == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(late))
	rank := func(percent int) time.Duration { return sorted[(percent*n+99)/100-1] }
	p50, most = rank(50), sorted[n-1]
	if n < 100 {
		return p50, most, most
	}
	return p50, rank(99), most
}
