package reports

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// loadLine is the witness line of one open loop: what was offered, how well the
// generator kept to it, and what is odd about it.
func loadLine(l harness.OpenLoopReport) string {
	parts := []string{
		fmt.Sprintf("open loop %s: %d clients over %s, %d there at once", l.Name, l.Planned, span(l.Schedule), l.MaxPresent),
		fmt.Sprintf("99 in 100 started at most %s late", span(l.LateP99)),
		fmt.Sprintf("%d calls on %d connections, %d in flight at once", l.Calls, l.ConnectionsOpened, l.InFlight),
	}
	if l.LateP99 > l.Slack {
		parts[1] += fmt.Sprintf(", MORE than the %s allowed", span(l.Slack))
	}
	for _, odd := range []struct {
		n    int
		text string
	}{
		{l.Planned - l.Arrived, "clients never came"},
		{l.CutOff, "clients cut off"},
		{l.Unsent, "calls not sent by this machine"},
		{l.Refused, "calls refused a connection"},
		{l.TimedOut, "calls timed out"},
		{l.Broken, "calls broken off"},
		{l.Stale, "on a kept connection that died"},
	} {
		if odd.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", odd.n, odd.text))
		}
	}
	if l.Waited > 0 {
		parts = append(parts, fmt.Sprintf("%d waited for a connection, up to %s", l.Waited, span(l.WaitMax)))
	}
	return strings.Join(parts, ", ")
}

// deliveryLines says how the load of a run was sent, bursts first.
func deliveryLines(r harness.Result) []string {
	var lines []string
	if len(r.Bursts) > 0 {
		lines = burstLines(r.Bursts)
	}
	const many = 8
	for i, l := range r.Loads {
		if i == many {
			return append(lines, fmt.Sprintf("and %d more open loops", len(r.Loads)-i))
		}
		lines = append(lines, loadLine(l))
	}
	return lines
}

// latencyFacts is the response times of the further kinds, a line a kind.
func latencyFacts(r harness.Result) []fact {
	var facts []fact
	for _, kind := range slices.Sorted(maps.Keys(r.Latencies)) {
		facts = append(facts, fact{kind, latencyLine(r.Latencies[kind])})
	}
	return facts
}

// loadTable is the open loops of a run.
func loadTable(loads []harness.OpenLoopReport) *tableView {
	if len(loads) == 0 {
		return nil
	}
	t := &tableView{
		Head: []string{"open loop", "clients", "came", "cut off", "at once", "late p50", "late p99", "late max", "calls", "sent", "answered", "refused", "not sent", "connections", "waited", "longest wait"},
	}
	t.Numeric = make([]bool, len(t.Head))
	for i := range t.Numeric {
		t.Numeric[i] = i > 0
	}
	for i, l := range loads {
		if i == tableRows {
			t.Note = fmt.Sprintf("%d more open loops are in the run directory", len(loads)-i)
			break
		}
		row := []string{l.Name}
		for _, v := range []any{
			l.Planned, l.Arrived, l.CutOff, l.MaxPresent, l.LateP50, l.LateP99, l.LateMax, l.Calls, l.Sent, l.Answered, l.Refused, l.Unsent, l.ConnectionsOpened, l.Waited, l.WaitMax,
		} {
			if d, ok := v.(time.Duration); ok {
				v = screen(span(d))
			}
			row = append(row, fmt.Sprint(v))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
