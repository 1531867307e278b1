package stats

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func upTo(n int) []time.Duration {
	s := make([]time.Duration, n)
	for i := range s {
		s[i] = time.Duration(i+1) * time.Millisecond
	}
	return s
}

func TestNearestRank(t *testing.T) {
	fives := []time.Duration{15, 20, 35, 40, 50} // the textbook's example of the definition
	for _, tc := range []struct {
		samples []time.Duration
		p       string
		want    time.Duration
	}{
		{fives, "p5", 15},
		{fives, "p30", 20},
		{fives, "p40", 20},
		{fives, "p50", 35},
		{fives, "p95", 50},
		{[]time.Duration{7}, "p1", 7},
		{[]time.Duration{7}, "p95", 7},
		{upTo(100), "p50", 50 * time.Millisecond},
		{upTo(100), "p95", 95 * time.Millisecond},
		{upTo(100), "p99", 99 * time.Millisecond},
		{upTo(200), "p99", 198 * time.Millisecond},
		{upTo(1000), "p99.9", 999 * time.Millisecond},
		{upTo(101), "p50", 51 * time.Millisecond},
	} {
		p, err := ParsePercentile(tc.p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Exact(tc.samples, p); err != nil || got != tc.want {
			t.Errorf("%s of %d samples: %v, %v, want %v", tc.p, len(tc.samples), got, err, tc.want)
		}
	}
}

func TestTooFewSamples(t *testing.T) {
	for _, tc := range []struct {
		n    int
		p    Percentile
		want bool
	}{{0, P50, true}, {1, P50, false}, {3, P95, false}, {99, P99, true}, {100, P99, false}, {999, P999, true}, {1000, P999, false}} {
		_, err := Exact(upTo(tc.n), tc.p)
		var few *TooFewError
		if errors.As(err, &few) != tc.want {
			t.Errorf("%s of %d: %v", tc.p, tc.n, err)
		}
	}
	if _, err := Exact(upTo(5), Percentile{}); err == nil {
		t.Error("the zero percentile was answered")
	}
	if got := Median(nil); got != 0 {
		t.Errorf("median of nothing: %v", got)
	}
}

func TestParsePercentile(t *testing.T) {
	for text, want := range map[string]Percentile{"p50": P50, "p90": P90, "p95": P95, "p99": P99, "p99.9": P999} {
		if got, err := ParsePercentile(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "p", "95", "0.95", "p0.95", "p100", "p-1", "pNaN", "p99.9x"} {
		if got, err := ParsePercentile(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestPercentilesAreInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Minute)), 100, 400).Draw(t, "samples")
		samples := make([]time.Duration, len(raw))
		for i, v := range raw {
			samples[i] = time.Duration(v)
		}
		before := slices.Clone(samples)
		at := []time.Duration{slices.Min(samples)}
		for _, p := range []Percentile{P50, P90, P95, P99} {
			v, err := Exact(samples, p)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(samples, v) {
				t.Fatalf("%s = %v is not a sample", p, v)
			}
			atMost := 0
			for _, s := range samples {
				if s <= v {
					atMost++
				}
			}
			if atMost*10000 < p.hundredths*len(samples) {
				t.Fatalf("only %d of %d samples are at most %s", atMost, len(samples), p)
			}
			at = append(at, v)
		}
		if at = append(at, slices.Max(samples)); !slices.IsSorted(at) {
			t.Fatalf("min, p50, p90, p95, p99, max: %v", at)
		}
		if !slices.Equal(before, samples) {
			t.Fatal("the samples were moved")
		}
	})
}

func TestSummarise(t *testing.T) {
	if Summarise(nil) != nil {
		t.Error("figures of no samples")
	}
	few := Summarise(upTo(99))
	if few.N != 99 || few.P50 != 50 || few.P95 != 95 || few.P99 != nil || few.Max != 99 {
		t.Errorf("%+v", few)
	}
	enough := Summarise(upTo(100))
	if enough.P99 == nil || *enough.P99 != 99 || math.Abs(enough.Max-100) > 1e-9 {
		t.Errorf("%+v", enough)
	}
}
