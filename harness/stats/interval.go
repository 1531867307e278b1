package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// confidence of every interval of this package.
const confidence = 0.95

// RatioInterval gives the ratio of a percentile of a to the same percentile
// of b over all rounds pooled, and its 95 % interval by bootstrap. a and b
// hold the raw samples of each round. Whole rounds are drawn with
// replacement, as the samples of one round are not independent of each other;
// resamples is how often (1,000 is usual). When the percentile cannot be
// given (no samples, p99 of fewer than 100) all three are NaN; with fewer
// than two rounds on a side the interval is NaN, as it cannot be known.
func RatioInterval(rng *rand.Rand, a, b [][]time.Duration, p Percentile, resamples int) (ratio, lo, hi float64) {
	nan := math.NaN()
	ratio, ok := ratioOf(a, b, p)
	if !ok {
		return nan, nan, nan
	}
	if len(a) < 2 || len(b) < 2 || resamples < 1 {
		return ratio, nan, nan
	}
	ratios := make([]float64, 0, resamples)
	for range resamples {
		if r, ok := ratioOf(redraw(rng, a), redraw(rng, b), p); ok {
			ratios = append(ratios, r)
		}
	}
	if len(ratios) == 0 {
		return ratio, nan, nan
	}
	slices.Sort(ratios)
	tail := (1 - confidence) / 2
	return ratio, quantile(ratios, tail), quantile(ratios, 1-tail)
}

func ratioOf(a, b [][]time.Duration, p Percentile) (float64, bool) {
	top, errA := Exact(slices.Concat(a...), p)
	bottom, errB := Exact(slices.Concat(b...), p)
	if errA != nil || errB != nil || bottom == 0 {
		return 0, false
	}
	return float64(top) / float64(bottom), true
}

func redraw(rng *rand.Rand, rounds [][]time.Duration) [][]time.Duration {
	drawn := make([][]time.Duration, len(rounds))
	for i := range drawn {
		drawn[i] = rounds[rng.IntN(len(rounds))]
	}
	return drawn
}

// quantile is the nearest rank of a share between 0 and 1.
func quantile(sorted []float64, share float64) float64 {
	i := int(math.Ceil(share*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Proportion gives the exact (Clopper-Pearson) 95 % interval of a share of
// which k in n trials were seen. Without trials, or with k outside 0..n,
// everything is possible: 0 to 1.
func Proportion(k, n int) (lo, hi float64) {
	if n <= 0 || k < 0 || k > n {
		return 0, 1
	}
	tail := (1 - confidence) / 2
	lo, hi = 0, 1
	if k > 0 {
		lo = betaQuantile(tail, float64(k), float64(n-k+1))
	}
	if k < n {
		hi = betaQuantile(1-tail, float64(k+1), float64(n-k))
	}
	return lo, hi
}

// RuleOfThree gives the upper 95 % bound of a share of which none was seen in
// n trials: 3/n, at most 1. It is one-sided; Proportion(0, n) is two-sided
// and so a little wider.
func RuleOfThree(n int) float64 {
	if n <= 3 {
		return 1
	}
	return 3 / float64(n)
}

// betaQuantile inverts the beta distribution by bisection: sixty halvings
// leave less than a double can tell apart near one.
func betaQuantile(p, a, b float64) float64 {
	lo, hi := 0.0, 1.0
	for range 60 {
		mid := (lo + hi) / 2
		if betaCDF(mid, a, b) < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

// betaCDF is the regularised incomplete beta function, by its continued
// fraction on the side on which that converges fast.
func betaCDF(x, a, b float64) float64 {
	if x <= 0 || x >= 1 {
		return min(max(x, 0), 1)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab - la - lb + a*math.Log(x) + b*math.Log1p(-x))
	if x < (a+1)/(a+b+2) {
		return front * betaFraction(x, a, b) / a
	}
	return 1 - front*betaFraction(1-x, b, a)/b
}

// betaFraction evaluates the continued fraction by Lentz's method. It needs
// about sqrt(max(a, b)) terms; the bound is far above that for any n we meet.
func betaFraction(x, a, b float64) float64 {
	const tiny = 1e-300
	away := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/away(1-(a+b)*x/(a+1))
	f := d
	for i := 1; i <= 10000; i++ {
		m := float64(i)
		for _, term := range [2]float64{
			m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m)),
			-(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1)),
		} {
			d = 1 / away(1+term*d)
			c = away(1 + term/c)
			f *= c * d
		}
		if math.Abs(c*d-1) < 1e-15 {
			break
		}
	}
	return f
}
