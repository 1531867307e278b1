package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
)

// loadsSent finds an open loop that was not offered as planned: clients who
// never came, were cut off or came late, or calls that our own side did not
// send. What the server made of the others is another question: that it took no
// connection is an answer, too.
func loadsSent(loads []harness.OpenLoopReport) harness.Verdict {
	undelivered := func(l harness.OpenLoopReport, format string, args ...any) harness.Verdict {
		return harness.Undecided(harness.ReasonUndelivered, "open loop %s: %s", l.Name, fmt.Sprintf(format, args...))
	}
	for _, l := range loads {
		switch {
		case l.Planned == 0 || l.Calls == 0:
			return undelivered(l, "%s, %s: nothing was offered", plural(l.Planned, "client"), plural(l.Calls, "call"))
		case l.Arrived != l.Planned:
			return undelivered(l, "%d of %s came", l.Arrived, plural(l.Planned, "client"))
		case l.Left != l.Planned || l.CutOff != 0:
			return undelivered(l, "%d of %s were cut off before they were done", max(l.CutOff, l.Planned-l.Left), plural(l.Planned, "client"))
		case l.Unsent != 0 || l.Sent+l.Refused != l.Calls:
			return undelivered(l, "%s, of which this machine did not send %d", plural(l.Calls, "call"), max(l.Unsent, l.Calls-l.Sent-l.Refused))
		case l.Slack <= 0 || l.LateP99 > l.Slack:
			return undelivered(l, "the generator fell behind its schedule: 1 in 100 clients started %s late or more, at most %s is allowed",
				l.LateP99.Round(time.Millisecond), l.Slack.Round(time.Millisecond))
		}
	}
	return harness.Verdict{}
}

// offered is what the operations or the reports say of one open loop.
type offered struct{ calls, sent int }

// loadsAccounted compares the operations with the open loops that they say
// they were part of.
func loadsAccounted(h harness.History) harness.Verdict {
	planned, recorded := map[string]offered{}, map[string]offered{}
	for _, l := range h.Loads {
		p := planned[l.Name]
		planned[l.Name] = offered{p.calls + l.Calls, p.sent + l.Sent}
		recorded[l.Name] = offered{} // a load without any operation is compared too
	}
	for _, op := range h.Operations {
		if op.Load == "" {
			continue
		}
		r := recorded[op.Load]
		r.calls++
		if op.Sent != 0 {
			r.sent++
		}
		recorded[op.Load] = r
	}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		if r, p := recorded[name], planned[name]; r != p {
			return harness.Undecided(harness.ReasonUndelivered, "open loop %s: %d calls and %d of them sent by its report, %d and %d recorded",
				name, p.calls, p.sent, r.calls, r.sent)
		}
	}
	return harness.Verdict{}
}

// deliveryText sums up what was sent as planned.
func deliveryText(h harness.History) string {
	sent, spread := 0, int64(0)
	for _, b := range h.Bursts {
		sent += b.Sent
		spread = max(spread, b.Spread.Microseconds())
	}
	text := fmt.Sprintf("%s of %s, widest spread %d us", plural(len(h.Bursts), "burst"), plural(sent, "request"), spread)
	if len(h.Loads) == 0 {
		return text
	}
	clients, calls, late := 0, 0, time.Duration(0)
	for _, l := range h.Loads {
		clients, calls, late = clients+l.Arrived, calls+l.Calls, max(late, l.LateP99)
	}
	loads := fmt.Sprintf("%s of %s and %s, 99 in 100 started at most %s late", plural(len(h.Loads), "open loop"), plural(clients, "client"),
		plural(calls, "call"), late.Round(time.Microsecond))
	if len(h.Bursts) == 0 {
		return loads
	}
	return text + "; " + loads
}
