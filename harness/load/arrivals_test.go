package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Whatever the rates, there are n arrivals, none before the start, none before
// the one ahead of it, and the same seed gives the same ones.
func TestArrivalsByProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 500).Draw(t, "n")
		seed := rapid.Uint64().Draw(t, "seed")
		rate := rapid.Float64Range(0.001, 1e6).Draw(t, "rate")
		from := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1e6)).Draw(t, "from")
		to := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1e6), rapid.Just(from)).Draw(t, "to")
		if from+to == 0 {
			to = 1
		}
		for name, plan := range map[string]func() []time.Duration{
			"poisson": func() []time.Duration { return Poisson(seeded(seed), n, rate) },
			"uniform": func() []time.Duration { return Uniform(n, rate) },
			"ramp":    func() []time.Duration { return Ramp(seeded(seed), n, from, to) },
		} {
			got := plan()
			if len(got) != n || !slices.IsSorted(got) || (n > 0 && got[0] < 0) {
				t.Fatalf("%s: %d arrivals of %d, sorted %v: %v", name, len(got), n, slices.IsSorted(got), got)
			}
			if !slices.Equal(got, plan()) {
				t.Fatalf("%s: the same seed gives other arrivals", name)
			}
		}
	})
}

func TestRatesThatMakeNoSense(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN()} {
		if a := Poisson(seeded(1), 10, rate); len(a) != 0 {
			t.Errorf("poisson at %g: %v", rate, a)
		}
		if a := Uniform(10, rate); len(a) != 0 {
			t.Errorf("uniform at %g: %v", rate, a)
		}
		if a := Ramp(seeded(1), 10, rate, 0); len(a) != 0 {
			t.Errorf("ramp from %g to 0: %v", rate, a)
		}
	}
	if a := Poisson(seeded(1), 3, 1e-300); !slices.IsSorted(a) || a[0] < 0 {
		t.Errorf("a rate near nothing overflows: %v", a)
	}
}

// The mean rate is the one asked for: 10,000 Poisson arrivals are within 5 %
// of it (five standard deviations), evenly spread ones exactly.
func TestMeanRates(t *testing.T) {
	const n, rate = 10_000, 250.0
	for seed := range uint64(20) {
		a := Poisson(seeded(seed), n, rate)
		if got := n / a[n-1].Seconds(); math.Abs(got/rate-1) > 0.05 {
			t.Errorf("seed %d: %g a second, want about %g", seed, got, rate)
		}
		// gaps of a Poisson process vary as much as they last: not an even spread
		if cv := variation(a); math.Abs(cv-1) > 0.05 {
			t.Errorf("seed %d: the gaps' coefficient of variation is %g, want about 1", seed, cv)
		}
	}
	if a := Uniform(1001, rate); a[0] != 0 || a[1000] != 4*time.Second || a[1] != 4*time.Millisecond {
		t.Errorf("uniform: %v, %v ... %v", a[0], a[1], a[1000])
	}
}

func variation(a []time.Duration) float64 {
	mean := a[len(a)-1].Seconds() / float64(len(a))
	sum, last := 0.0, time.Duration(0)
	for _, at := range a {
		d := (at - last).Seconds() - mean
		sum, last = sum+d*d, at
	}
	return math.Sqrt(sum/float64(len(a))) / mean
}

// On a ramp, each quarter of the time has its share of the clients.
func TestRampFollowsItsLine(t *testing.T) {
	const n = 40_000
	for _, tc := range []struct{ from, to float64 }{{0, 200}, {200, 0}, {100, 100}, {50, 400}} {
		a := Ramp(seeded(3), n, tc.from, tc.to)
		length := 2 * n / (tc.from + tc.to)
		for q := range 4 {
			lo, hi := float64(q)/4*length, float64(q+1)/4*length
			got := 0
			for _, at := range a {
				if s := at.Seconds(); s >= lo && s < hi {
					got++
				}
			}
			mid := tc.from + (tc.to-tc.from)*(float64(q)+0.5)/4
			if want := mid * length / 4; math.Abs(float64(got)-want) > 6*math.Sqrt(want)+0.01*n {
				t.Errorf("%g to %g: %d clients in quarter %d, want about %g", tc.from, tc.to, got, q+1, want)
			}
		}
	}
}

func TestLateness(t *testing.T) {
	ramp := func(n int) []time.Duration {
		list := make([]time.Duration, n)
		for i := range list {
			list[i] = time.Duration(n - i)
		}
		return list
	}
	for _, tc := range []struct {
		n              int
		p50, p99, most time.Duration
	}{{0, 0, 0, 0}, {1, 1, 1, 1}, {10, 5, 10, 10}, {99, 50, 99, 99}, {100, 50, 99, 100}, {1000, 500, 990, 1000}} {
		if p50, p99, most := Lateness(ramp(tc.n)); p50 != tc.p50 || p99 != tc.p99 || most != tc.most {
			t.Errorf("of %d: %d, %d, %d, want %d, %d, %d", tc.n, p50, p99, most, tc.p50, tc.p99, tc.most)
		}
	}
}
