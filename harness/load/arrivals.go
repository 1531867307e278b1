package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// Poisson gives n arrivals of clients who know nothing of each other: the gaps
// are exponential, rate a second on average. The first comes after a gap. A
// rate that is not above 0 gives nobody.
func Poisson(rng *rand.Rand, n int, rate float64) []time.Duration {
	if !(rate > 0) {
		return nil
	}
	arrivals := make([]time.Duration, 0, max(n, 0))
	at := 0.0
	for range n {
		at += rng.ExpFloat64() / rate
		arrivals = append(arrivals, seconds(at))
	}
	return arrivals
}

// Uniform gives n arrivals, rate a second, all gaps alike; the first comes at
// once. A rate that is not above 0 gives nobody.
func Uniform(n int, rate float64) []time.Duration {
	if !(rate > 0) {
		return nil
	}
	arrivals := make([]time.Duration, 0, max(n, 0))
	for i := range n {
		arrivals = append(arrivals, seconds(float64(i)/rate))
	}
	return arrivals
}

// Ramp gives n Poisson arrivals whose rate goes in a straight line from one
// value to another (a second), over as long as n clients take on average; then
// it stays. Both rates must be at least 0 and one above it, else it gives nobody.
func Ramp(rng *rand.Rand, n int, from, to float64) []time.Duration {
	if !(from >= 0) || !(to >= 0) || !(from+to > 0) || n <= 0 {
		return nil
	}
	length := 2 * float64(n) / (from + to) // the mean rate over it is (from+to)/2
	slope := (to - from) / length
	arrivals := make([]time.Duration, 0, n)
	clients := 0.0 // expected until now, by unit-rate arrivals: time is then stretched by the rate
	last := 0.0
	for range n {
		clients += rng.ExpFloat64()
		at := rampTime(clients, from, to, slope, length, float64(n))
		last = max(last, at)
		arrivals = append(arrivals, seconds(last))
	}
	return arrivals
}

// rampTime is when so many clients are expected to have come: the inverse of
// from*t + slope*t²/2 on the ramp. A ramp that ends at no one at all has its
// last clients at its end.
func rampTime(clients, from, to, slope, length, n float64) float64 {
	switch {
	case clients <= 0:
		return 0
	case clients >= n && to > 0:
		return length + (clients-n)/to
	case clients >= n:
		return length
	}
	// The form without a difference of nearly equal numbers, which is right
	// also where the slope is 0.
	return 2 * clients / (from + math.Sqrt(max(0, from*from+2*slope*clients)))
}

func seconds(s float64) time.Duration {
	const longest = float64(math.MaxInt64 / 2)
	return time.Duration(min(s*float64(time.Second), longest))
}
