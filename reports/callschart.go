package reports

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// A callsView is the upstream calls over time: for each call of the interface
// the count so far, as a staircase.
type callsView struct {
	Rows  []callsRow
	Ticks []tick
	Note  string
}

type callsRow struct {
	Name  string // "pyxis POST /reserve"
	Count int
	Curve string // path in a square of 1000 by 1000
	Rug   string
}

// Bounds of the picture.
const (
	callsRows  = 6    // calls of the interface
	callsDrawn = 4000 // steps of one staircase
)

// callsChart draws the ledger, or gives nil when no call reached it.
func callsChart(rec harness.Record) *callsView {
	if len(rec.Upstream) == 0 {
		return nil
	}
	zero := firstRelease(rec)
	at := map[string][]time.Duration{}
	var names []string
	from, to := time.Duration(0), time.Duration(0)
	for _, c := range rec.Upstream {
		name := c.Upstream + " " + c.Method + " " + c.Path
		if _, ok := at[name]; !ok {
			names = append(names, name)
		}
		t := c.Received - zero
		at[name] = append(at[name], t)
		from, to = min(from, t), max(to, t, c.Accepted-zero, c.Answered-zero)
	}
	slices.SortStableFunc(names, func(a, b string) int { return len(at[b]) - len(at[a]) })
	v := &callsView{Ticks: timeTicks(from, to)}
	v.Ticks = slices.DeleteFunc(v.Ticks, func(t tick) bool { return t.Level > 1 })
	for i, name := range names {
		if i == callsRows {
			v.Note = fmt.Sprintf("%d more calls of the interface are in the run directory.", len(names)-i)
			break
		}
		v.Rows = append(v.Rows, callsRowOf(name, at[name], from, to))
	}
	return v
}

func callsRowOf(name string, times []time.Duration, from, to time.Duration) callsRow {
	slices.Sort(times)
	n, whole := len(times), float64(max(to-from, time.Microsecond))
	steps := min(n, callsDrawn)
	var path, rug strings.Builder
	path.WriteString("M0 1000")
	for i := 1; i <= steps; i++ {
		k := i * n / steps
		x := 1000 * float64(times[k-1]-from) / whole
		fmt.Fprintf(&path, "H%.1fV%.1f", x, 1000-1000*float64(k)/float64(n))
		fmt.Fprintf(&rug, "M%.1f 0V1", x)
	}
	path.WriteString("H1000")
	return callsRow{Name: name, Count: n, Curve: path.String(), Rug: rug.String()}
}
