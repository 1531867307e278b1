package stats

import (
	"errors"
	"fmt"
	"io"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// The range and precision of a histogram: three significant digits from a
// microsecond to a minute, in about 139 KB.
const (
	lowest  = time.Microsecond
	highest = time.Minute
	digits  = 3
)

// maxLogHistograms bounds how many histograms are read from one log; a log
// with more is refused.
const maxLogHistograms = 100_000

// A Histogram counts the latencies of a long run. Values are representatives
// of buckets, within 0.1 %; keep raw samples where there are few (bursts). It
// is not safe for concurrent use: give each goroutine its own and merge them.
type Histogram struct {
	h    *hdr.Histogram
	over int64
	tag  string
}

// NewHistogram makes an empty one. The tag names it in a log: "confirm".
// It may not hold commas or white space.
func NewHistogram(tag string) *Histogram {
	return &Histogram{h: hdr.New(int64(lowest), int64(highest), digits), tag: tag}
}

// Record counts one latency. What is longer than a minute counts as a minute
// and is told by Over; what is negative counts as zero.
func (h *Histogram) Record(d time.Duration) {
	if d > highest {
		h.over++
		d = highest
	}
	_ = h.h.RecordValue(int64(max(d, 0))) // refuses only values above the range
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other *Histogram) error {
	if dropped := h.h.Merge(other.h); dropped != 0 {
		return fmt.Errorf("merge histogram %s into %s: %d values are out of its range", other.tag, h.tag, dropped)
	}
	h.over += other.over
	return nil
}

// Tag is the name it was given.
func (h *Histogram) Tag() string { return h.tag }

// Count is the number of recorded latencies.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Over is how many of them were longer than a minute. It is not kept in a log.
func (h *Histogram) Over() int64 { return h.over }

// Max is the greatest recorded latency, within 0.1 %.
func (h *Histogram) Max() time.Duration { return time.Duration(h.h.Max()) }

// At gives a percentile within 0.1 %. Too few samples are a [*TooFewError].
func (h *Histogram) At(p Percentile) (time.Duration, error) {
	if n := h.Count(); n < int64(p.needs()) || n == 0 {
		return 0, &TooFewError{Percentile: p, N: int(n), Needs: max(p.needs(), 1)}
	}
	return time.Duration(h.h.ValueAtQuantile(p.percent())), nil
}

// WriteLog writes histograms in the standard log format (compressed V2
// payloads, values in nanoseconds), the content of latency.hdr. start and end
// are the wall-clock times of the run.
func WriteLog(w io.Writer, start, end time.Time, histograms ...*Histogram) error {
	log := hdr.NewHistogramLogWriter(w)
	err := errors.Join(
		log.OutputLogFormatVersion(),
		log.OutputStartTime(start.UnixMilli()),
		log.OutputLegend(),
	)
	if err != nil {
		return fmt.Errorf("write histogram log: %w", err)
	}
	for _, h := range histograms {
		h.h.SetTag(h.tag)
		h.h.SetStartTimeMs(start.UnixMilli())
		h.h.SetEndTimeMs(end.UnixMilli())
		if err := log.OutputIntervalHistogram(h.h); err != nil {
			return fmt.Errorf("write histogram log: histogram %q: %w", h.tag, err)
		}
	}
	return nil
}

// ReadLog reads what WriteLog wrote, or any log with values in the same unit.
func ReadLog(r io.Reader) ([]*Histogram, error) {
	log := hdr.NewHistogramLogReader(r)
	var histograms []*Histogram
	for {
		h, err := log.NextIntervalHistogram()
		if err != nil {
			return nil, fmt.Errorf("read histogram log: histogram %d: %w", len(histograms)+1, err)
		}
		if h == nil {
			return histograms, nil
		}
		if len(histograms) == maxLogHistograms {
			return nil, fmt.Errorf("read histogram log: more than %d histograms", maxLogHistograms)
		}
		histograms = append(histograms, &Histogram{h: h, tag: h.Tag()})
	}
}
