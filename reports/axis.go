package reports

import (
	"fmt"
	"math"
	"time"

	"github.com/overbook/overbook/harness"
)

// A tick is a mark on an axis. Level 1 is always shown, finer ones when the
// picture is zoomed.
type tick struct {
	At    string // per cent of the width, or of the height
	Label string
	Level int
}

// percent writes a share of a range for an SVG attribute.
func percent(part, whole float64) string {
	if whole <= 0 {
		return "0%"
	}
	return fmt.Sprintf("%.3f%%", 100*part/whole)
}

// step is the least of 1, 2, 5 times a power of ten that gives at most n steps.
func step(whole float64, n int) float64 {
	if whole <= 0 || n <= 0 {
		return 1
	}
	rough := whole / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= rough {
			return f * power
		}
	}
	return 10 * power
}

// timeTicks marks a range of time in microseconds, in three levels.
func timeTicks(from, to time.Duration) []tick {
	const most = 400 // marks in all
	whole := float64((to - from).Microseconds())
	var ticks []tick
	seen := map[int64]bool{}
	for level, n := range []int{6, 30, 150} {
		by := int64(math.Max(1, step(whole, n)))
		first := (from.Microseconds() + by - 1) / by * by
		if from < 0 {
			first = from.Microseconds() / by * by
		}
		for at := first; at <= to.Microseconds() && len(ticks) < most; at += by {
			if seen[at] {
				continue
			}
			seen[at] = true
			d := time.Duration(at) * time.Microsecond
			ticks = append(ticks, tick{At: percent(float64(at-from.Microseconds()), whole), Label: micros(d), Level: level + 1})
		}
	}
	return ticks
}

// firstRelease is the zero of a record's pictures: the first burst's release,
// or else the first send.
func firstRelease(rec harness.Record) time.Duration {
	if len(rec.History.Bursts) > 0 {
		return rec.History.Bursts[0].Released
	}
	var first time.Duration
	for _, op := range rec.History.Operations {
		if op.Sent != 0 && (first == 0 || op.Sent < first) {
			first = op.Sent
		}
	}
	return first
}
