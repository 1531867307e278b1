package stats

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHistogramOfAKnownDistribution(t *testing.T) {
	h := NewHistogram("confirm")
	for i := range 10_000 {
		h.Record(time.Duration(i+1) * 100 * time.Microsecond) // 0.1 ms to 1 s
	}
	for p, want := range map[Percentile]time.Duration{P50: 500 * time.Millisecond, P95: 950 * time.Millisecond, P99: 990 * time.Millisecond, P999: 999 * time.Millisecond} {
		if got, err := h.At(p); err != nil || got < want-want/500 || got > want+want/500 {
			t.Errorf("%s = %v, %v, want about %v", p, got, err, want)
		}
	}
	if h.Count() != 10_000 || h.Over() != 0 {
		t.Errorf("count %d, over %d", h.Count(), h.Over())
	}
}

func TestHistogramBounds(t *testing.T) {
	h := NewHistogram("x")
	if _, err := h.At(P50); err == nil {
		t.Error("a percentile of nothing")
	}
	for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, time.Hour} {
		h.Record(d)
	}
	if h.Count() != 4 || h.Over() != 1 || h.Max() < time.Minute || h.Max() > time.Minute+time.Minute/500 {
		t.Errorf("count %d, over %d, max %v", h.Count(), h.Over(), h.Max())
	}
	if _, err := h.At(P99); err == nil {
		t.Error("p99 of four samples")
	}
}

// TestMergedEqualsWhole: merging is the same as recording everything in one.
func TestMergedEqualsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, whole := NewHistogram("a"), NewHistogram("b"), NewHistogram("whole")
		for i, v := range rapid.SliceOfN(rapid.Int64Range(0, int64(70*time.Second)), 1, 200).Draw(t, "samples") {
			[]*Histogram{a, b}[i%2].Record(time.Duration(v))
			whole.Record(time.Duration(v))
		}
		if err := a.Merge(b); err != nil {
			t.Fatal(err)
		}
		got, _ := a.At(P50)
		want, _ := whole.At(P50)
		if a.Count() != whole.Count() || a.Over() != whole.Over() || a.Max() != whole.Max() || got != want {
			t.Fatalf("%d %d %v %v, want %d %d %v %v", a.Count(), a.Over(), a.Max(), got, whole.Count(), whole.Over(), whole.Max(), want)
		}
	})
}

func TestLogRoundTrip(t *testing.T) {
	a, b := NewHistogram("confirm"), NewHistogram("prepare")
	for i := range 500 {
		a.Record(time.Duration(i) * time.Millisecond)
		b.Record(time.Duration(i) * time.Microsecond)
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var log bytes.Buffer
	if err := WriteLog(&log, start, start.Add(time.Minute), a, b); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(log.String(), "#[Histogram log format version") {
		t.Errorf("the log begins with %.40q", log.String())
	}
	got, err := ReadLog(&log)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d histograms, %v", len(got), err)
	}
	for i, want := range []*Histogram{a, b} {
		gotP, _ := got[i].At(P99)
		wantP, _ := want.At(P99)
		if got[i].Tag() != want.Tag() || got[i].Count() != want.Count() || gotP != wantP || got[i].Max() != want.Max() {
			t.Errorf("%s: %d %v %v, want %s: %d %v %v", got[i].Tag(), got[i].Count(), gotP, got[i].Max(), want.Tag(), want.Count(), wantP, want.Max())
		}
	}
	if _, err := ReadLog(strings.NewReader("0.0,1.0,2.0,garbage\n")); err == nil {
		t.Error("garbage was read as a histogram")
	}
	if err := WriteLog(&log, start, start, NewHistogram("a, b")); err == nil {
		t.Error("a tag with a comma was written")
	}
}
