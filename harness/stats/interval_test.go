package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestProportion compares with published exact intervals.
func TestProportion(t *testing.T) {
	for _, tc := range []struct {
		k, n   int
		lo, hi float64
	}{
		{0, 10, 0, 0.3085},
		{10, 10, 0.6915, 1},
		{1, 10, 0.0025, 0.4450},
		{5, 10, 0.1871, 0.8129},
		{50, 50, 0.9289, 1},
		{0, 50, 0, 0.0711},
		{20, 20, 0.8316, 1},
		{81, 263, 0.2527, 0.3676},
		{0, 0, 0, 1},
		{3, 2, 0, 1},
		{-1, 2, 0, 1},
		{0, 1, 0, 0.975},
		{1, 1, 0.025, 1},
	} {
		lo, hi := Proportion(tc.k, tc.n)
		if math.Abs(lo-tc.lo) > 6e-5 || math.Abs(hi-tc.hi) > 6e-5 {
			t.Errorf("%d of %d: %.4f to %.4f, want %.4f to %.4f", tc.k, tc.n, lo, hi, tc.lo, tc.hi)
		}
	}
}

// TestProportionIsExact checks the definition itself: at the bounds the
// binomial tails hold 2.5 % each.
func TestProportionIsExact(t *testing.T) {
	for _, n := range []int{1, 7, 40, 1000} {
		for k := 0; k <= n; k += max(n/7, 1) {
			lo, hi := Proportion(k, n)
			if k > 0 && math.Abs(1-binomial(k-1, n, lo)-0.025) > 1e-6 {
				t.Errorf("%d of %d: upper tail at %v is %v", k, n, lo, 1-binomial(k-1, n, lo))
			}
			if k < n && math.Abs(binomial(k, n, hi)-0.025) > 1e-6 {
				t.Errorf("%d of %d: lower tail at %v is %v", k, n, hi, binomial(k, n, hi))
			}
		}
	}
}

// binomial is the probability of at most k of n.
func binomial(k, n int, p float64) float64 {
	sum := 0.0
	for i := 0; i <= k; i++ {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(i + 1))
		c, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(a - b - c + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}

func TestRuleOfThree(t *testing.T) {
	for n, want := range map[int]float64{0: 1, 2: 1, 3: 1, 30: 0.1, 300: 0.01} {
		if got := RuleOfThree(n); got != want {
			t.Errorf("%d trials: %v, want %v", n, got, want)
		}
	}
}

func rounds(rng *rand.Rand, n, per int, mean float64) [][]time.Duration {
	all := make([][]time.Duration, n)
	for i := range all {
		level := mean * (1 + 0.1*rng.NormFloat64()) // rounds differ more than samples within one
		for range per {
			all[i] = append(all[i], time.Duration(max(level*(1+0.02*rng.NormFloat64()), 1)))
		}
	}
	return all
}

// TestRatioIntervalCovers: of many experiments with a known ratio of two,
// about 95 % of the intervals hold it. A bootstrap of single samples instead
// of rounds would cover far less.
func TestRatioIntervalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	const experiments = 80
	covered := 0
	for range experiments {
		a, b := rounds(rng, 20, 10, 2e6), rounds(rng, 20, 10, 1e6)
		ratio, lo, hi := RatioInterval(rng, a, b, P50, 150)
		if !(lo <= ratio && ratio <= hi) {
			t.Fatalf("%v is not between %v and %v", ratio, lo, hi)
		}
		if lo <= 2 && 2 <= hi {
			covered++
		}
	}
	if covered < experiments*85/100 {
		t.Errorf("%d of %d intervals hold the true ratio", covered, experiments)
	}
}

func TestRatioIntervalIsRepeatable(t *testing.T) {
	data := rand.New(rand.NewPCG(1, 1))
	a, b := rounds(data, 10, 10, 2e6), rounds(data, 10, 10, 1e6)
	r1, lo1, hi1 := RatioInterval(rand.New(rand.NewPCG(3, 3)), a, b, P95, 300)
	r2, lo2, hi2 := RatioInterval(rand.New(rand.NewPCG(3, 3)), a, b, P95, 300)
	if r1 != r2 || lo1 != lo2 || hi1 != hi2 {
		t.Errorf("%v %v %v, then %v %v %v", r1, lo1, hi1, r2, lo2, hi2)
	}
}

func TestRatioIntervalThatCannotBeKnown(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	one := [][]time.Duration{{2}}
	if r, lo, hi := RatioInterval(rng, one, one, P50, 100); r != 1 || !math.IsNaN(lo) || !math.IsNaN(hi) {
		t.Errorf("one round: %v %v %v", r, lo, hi)
	}
	for name, a := range map[string][][]time.Duration{"none": nil, "empty rounds": {{}, {}}} {
		if r, lo, hi := RatioInterval(rng, a, one, P50, 100); !math.IsNaN(r) || !math.IsNaN(lo) || !math.IsNaN(hi) {
			t.Errorf("%s: %v %v %v", name, r, lo, hi)
		}
	}
	if r, _, _ := RatioInterval(rng, rounds(rng, 3, 10, 1), rounds(rng, 3, 10, 1), P99, 100); !math.IsNaN(r) {
		t.Errorf("p99 of 30 samples: %v", r)
	}
	if r, _, _ := RatioInterval(rng, one, [][]time.Duration{{0}}, P50, 100); !math.IsNaN(r) {
		t.Errorf("ratio to zero: %v", r)
	}
}
