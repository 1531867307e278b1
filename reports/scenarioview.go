package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
)

// A scenarioView is one scenario's section of the page.
type scenarioView struct {
	Open      bool // what passed is folded where there are others
	ID        string
	Verdict   markView
	Name      string
	Title     string
	Sentence  string
	Reason    string
	Advice    string // for Unknown
	Took      string
	Seed      string
	Mutant    string
	Answers   string
	P50, P95  string
	N         int
	Upstream  []upstreamFigure
	Trouble   []harness.Trouble
	Checks    []checkView
	Points    []pointsView
	Replay    string
	RunDir    string
	Facts     []fact // answers, outcomes, counts, latency
	Witness   []string
	Bursts    *tableView
	Loads     *tableView
	Plan      []fact
	Phases    []fact
	Measured  []fact
	Sides     *tableView // measurements that stand side by side
	NoRecord  bool
	Latencies []ecdfView
	NoLatency bool
	Calls     *callsView
	Timeline  *timelineView
	Events    *tableView
}

// A fact is a name and its value.
type fact struct{ Name, Value string }

// A tableView is a table ready to print.
type tableView struct {
	Caption string
	Head    []string
	Numeric []bool // by column: set to the right
	Rows    [][]string
	Note    string // what was left out
}

func scenarioOf(id string, r harness.Result, rec harness.Record, have bool) scenarioView {
	v := scenarioView{
		ID: id, Verdict: markOf(r.Verdict), Name: r.Name, Title: r.Title, Sentence: sentence(r), Took: millis(r.DurationMS),
		Seed: r.Seed.String(), Mutant: r.Mutant, Answers: tallyLine(r.Responses), Upstream: upstreamFigures(r),
		Trouble: rec.Trouble, Replay: r.Replay, RunDir: cmp.Or(r.RunDir, r.Report), NoRecord: !have,
	}
	if _, alone := unexplained(r); alone && r.Verdict == harness.Unknown { // else its checks say it
		v.Reason = cmp.Or(string(unknownReason(r)), "no reason given")
		v.Advice = adviceFor(unknownReason(r))
	}
	if r.Latency != nil && r.Latency.N > 0 {
		v.P50, v.P95, v.N = millis(r.Latency.P50), millis(r.Latency.P95), r.Latency.N
	}
	for i, c := range worstFirst(r.Checks) {
		v.Checks = append(v.Checks, checkOf(fmt.Sprintf("%s-c%d", id, i+1), c, rec, have))
	}
	v.Facts = factsOf(r)
	for _, w := range r.Witness {
		v.Witness = append(v.Witness, screen(witnessLine(w)))
	}
	v.Bursts, v.Loads = burstTable(r.Bursts), loadTable(r.Loads)
	v.Plan, v.Phases, v.Measured, v.Sides = planFacts(r), phaseFacts(r), measuredFacts(r), sideBySide(r)
	if !have {
		return v
	}
	v.Points = pointViews(r, rec)
	v.Latencies = latencyCharts(rec)
	v.NoLatency = len(v.Latencies) == 0
	v.Calls = callsChart(rec)
	v.Timeline = timelineOf(r, rec)
	v.Events = eventTable(rec)
	return v
}

func factsOf(r harness.Result) []fact {
	facts := []fact{{"answers", tallyLine(r.Responses)}, {"outcomes", tallyLine(r.Outcomes)}}
	for _, f := range upstreamFigures(r) {
		facts = append(facts, fact{"upstream " + f.What, countText(f.Count)})
	}
	if l := r.Latency; l != nil && l.N > 0 {
		p99 := "not stated under 100 samples"
		if l.P99 != nil {
			p99 = millis(*l.P99)
		}
		facts = append(facts, fact{"response p50", millis(l.P50)}, fact{"response p95", millis(l.P95)},
			fact{"response p99", p99}, fact{"response max", millis(l.Max)}, fact{"n", fmt.Sprint(l.N)})
	}
	for _, l := range latencyFacts(r) {
		facts = append(facts, fact{"response of " + l.Name, screen(l.Value)})
	}
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Value == "" })
}

func planFacts(r harness.Result) []fact {
	facts := []fact{{"seed", r.Seed.String()}, {"rounds", fmt.Sprint(r.Rounds)}}
	if r.Mutant != "" {
		facts = append(facts, fact{"mutant", r.Mutant})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Params)) {
		facts = append(facts, fact{name, r.Params[name]})
	}
	return facts
}

func phaseFacts(r harness.Result) []fact {
	order := []string{"up", "setup", "drive", "settle", "collect", "check", "down"}
	names := slices.Sorted(maps.Keys(r.PhasesMS))
	slices.SortStableFunc(names, func(a, b string) int { return place(order, a) - place(order, b) })
	var facts []fact
	for _, name := range names {
		facts = append(facts, fact{name, millis(r.PhasesMS[name])})
	}
	return facts
}

// place is the position of a name in the order, the end for others.
func place(order []string, name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

func measuredFacts(r harness.Result) []fact {
	var facts []fact
	for _, name := range slices.Sorted(maps.Keys(r.Measurements)) {
		if _, _, is := sided(name); !is {
			facts = append(facts, fact{name, number(r.Measurements[name])})
		}
	}
	return facts
}

// tableRows bounds the rows of a table in the page.
const tableRows = 50

func burstTable(bursts []harness.BurstReport) *tableView {
	if len(bursts) == 0 {
		return nil
	}
	t := &tableView{
		Head:    []string{"burst", "technique", "requests", "ready", "sent", "answered", "early", "spread", "in flight at once"},
		Numeric: []bool{false, false, true, true, true, true, true, true, true},
	}
	for i, b := range bursts {
		if i == tableRows {
			t.Note = fmt.Sprintf("%d more bursts are in the run directory", len(bursts)-i)
			break
		}
		t.Rows = append(t.Rows, []string{
			b.Name, b.Technique, fmt.Sprint(b.Requests), fmt.Sprint(b.Ready), fmt.Sprint(b.Sent),
			fmt.Sprint(b.Answered), fmt.Sprint(b.Early), screen(span(b.Spread)), fmt.Sprint(b.MaxInFlight),
		})
	}
	return t
}

// eventTable lists everything that was not a client's operation.
func eventTable(rec harness.Record) *tableView {
	events := rec.History.Events
	if len(events) == 0 {
		return nil
	}
	t := &tableView{
		Head:    []string{"µs", "kind", "subject", "what"},
		Numeric: []bool{true, false, false, false},
	}
	zero := firstRelease(rec)
	for i, e := range events {
		if i == 4*tableRows {
			t.Note = fmt.Sprintf("%d more events are in the run directory", len(events)-i)
			break
		}
		text := strings.TrimSpace(e.Text + " " + attrText(e.Attrs))
		if e.Kind == harness.EventPoint || e.Kind == harness.EventFault || e.Kind == harness.EventHeal {
			text = shortened(faultText(oneLine(e.Text)), 200) // what points are about is in their own table
		}
		t.Rows = append(t.Rows, []string{micros(e.At - zero), string(e.Kind), e.Subject, text})
	}
	return t
}

func attrText(attrs map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		parts = append(parts, name+"="+attrs[name])
	}
	return strings.Join(parts, " ")
}
