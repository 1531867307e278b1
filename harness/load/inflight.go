package load

import (
	"cmp"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
)

// An Interval is the time in which one request was certainly in flight, as
// offsets from the run's epoch. End 0 means that it never ended. An interval
// whose End is not after its Start is empty: nothing certain is known.
type Interval struct {
	Start, End time.Duration
}

// MaxInFlight gives the most intervals that are open at one instant. Where
// one ends at the instant at which another starts, they do not overlap.
func MaxInFlight(intervals []Interval) int {
	type edge struct {
		at   time.Duration
		step int
	}
	edges := make([]edge, 0, 2*len(intervals))
	for _, in := range intervals {
		switch {
		case in.End == 0:
			edges = append(edges, edge{in.Start, +1})
		case in.End > in.Start:
			edges = append(edges, edge{in.Start, +1}, edge{in.End, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.step, b.step)) // ends first
	})
	most, now := 0, 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}

// Intervals gives the intervals from sent to answered. Operations that were
// not sent have none; those without a whole answer stay open for ever, as
// nobody knows when the server was done with them.
func Intervals(ops []harness.Operation) []Interval {
	intervals := make([]Interval, 0, len(ops))
	for _, op := range ops {
		if op.Sent != 0 {
			intervals = append(intervals, Interval{Start: op.Sent, End: op.Answered})
		}
	}
	return intervals
}
