package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/harness/stats"
)

// collect reads what the checks will judge: the scenario's queries and
// tables, the doubles' own ledgers, and what both observers counted. When ctx
// ends (the second Ctrl-C), what is missing says so.
func (s *session) collect(ctx context.Context) (map[string]harness.Rows, []harness.UpstreamCount) {
	ctx, cancel := context.WithTimeout(ctx, collectDeadline)
	defer cancel()
	var counts []harness.UpstreamCount
	for _, name := range slices.Sorted(maps.Keys(s.upstreams)) {
		counts = append(counts, s.counts(ctx, s.upstreams[name])...)
	}
	rows := map[string]harness.Rows{}
	for _, c := range s.scenario.Checks(s.plan.Params) {
		if c.SQL != "" {
			rows[c.ID] = s.ask(ctx, c.ID, c.SQL)
		}
	}
	for _, t := range s.scenario.Tables {
		name := "table:" + t
		rows[name] = s.ask(ctx, name, fmt.Sprintf("select * from %s order by 1 limit %d", t, rowLimit+1))
		if len(rows[name].Rows) > rowLimit {
			rows[name] = harness.Rows{Query: name, Error: fmt.Sprintf("more than %d rows", rowLimit)}
		}
	}
	for name, u := range s.upstreams {
		rows["ledger:"+name] = doubleRows(ctx, "ledger:"+name, u)
	}
	return rows, counts
}

func (s *session) ask(ctx context.Context, name, sql string) harness.Rows {
	rows, err := s.db.Query(ctx, sql)
	if err != nil {
		return harness.Rows{Query: name, SQL: sql, Error: err.Error()}
	}
	return harness.Rows{Query: name, SQL: sql, Rows: rows}
}

func doubleRows(ctx context.Context, name string, d *double) harness.Rows {
	raw, err := d.Ledger(ctx)
	rows := harness.Rows{Query: name, Rows: []harness.Row{}}
	if err == nil {
		err = json.Unmarshal(raw, &rows.Rows)
	}
	if err != nil {
		return harness.Rows{Query: name, Error: err.Error()}
	}
	return rows
}

// ledger gives the calls of all upstreams in order of arrival.
func (s *session) ledger() []harness.UpstreamCall {
	var calls []harness.UpstreamCall
	for _, name := range slices.Sorted(maps.Keys(s.upstreams)) {
		calls = append(calls, s.upstreams[name].wire.Calls()...)
	}
	slices.SortStableFunc(calls, func(a, b harness.UpstreamCall) int { return int(a.Received - b.Received) })
	return calls
}

// lostAnswers says which calls got no answer although no fault was at work on
// them: the parts behind the wire broke, and what the server made of that is
// no finding about the server. "" when there was none.
func lostAnswers(calls []harness.UpstreamCall) string {
	first, n := "", 0
	for _, c := range calls {
		why := c.Err
		switch {
		case c.Status >= 500 && strings.HasPrefix(c.Response, proxyFailure):
			why = lastLines(c.Response, 1)
		case c.Fault != "" || c.Status != 0 || c.Err == "":
			continue
		}
		if n++; n == 1 {
			first = fmt.Sprintf("%s %s of %s got no answer from %s, call %d: %s", c.Method, c.Path, c.Caller, c.Upstream, c.Seq, why)
		}
	}
	if n > 1 {
		first += fmt.Sprintf(" (and %d more)", n-1)
	}
	return first
}

// proxyFailure begins what WireMock answers when it can't reach the double.
const proxyFailure = "Network failure trying to make a proxied request"

// Summarise makes the result of a record and its verdicts. It is a pure
// function, so that stored runs can be judged again; what only the run itself
// knows (times, directory) is left empty.
func Summarise(s harness.Scenario, rec harness.Record, verdicts []harness.Verdict) harness.Result {
	r := harness.Result{
		Name: s.Name, Title: s.Title, Verdict: harness.WorstOf(verdicts), Seed: rec.Plan.Seed, Mutant: rec.Plan.Mutant,
		Rounds: 1, Params: rec.Plan.Params, PhasesMS: map[string]float64{}, Responses: map[string]int{}, Outcomes: map[string]int{},
		Upstream: map[string]map[string]harness.CountPair{}, Bursts: append([]harness.BurstReport{}, rec.History.Bursts...),
		Loads: rec.History.Loads, Witness: append([]harness.Witness{}, rec.Witness...), Checks: verdicts, Measurements: map[string]float64{},
	}
	maps.Copy(r.Measurements, rec.Measured)
	if s.Rounds != nil {
		r.Rounds = s.Rounds(rec.Plan.Params)
	}
	ops := rec.History.OfKind(s.Latency)
	r.Responses = check.Count(ops)
	r.Latency = stats.Summarise(responseTimes(ops))
	for _, kind := range s.Latencies {
		if l := stats.Summarise(responseTimes(rec.History.OfKind(kind))); l != nil {
			if r.Latencies == nil {
				r.Latencies = map[string]*harness.Latency{}
			}
			r.Latencies[kind] = l
		}
	}
	if s.Outcomes != nil {
		r.Outcomes = s.Outcomes(rec)
	}
	for _, c := range rec.Counts {
		if c.Key != "" {
			continue
		}
		if r.Upstream[c.Upstream] == nil {
			r.Upstream[c.Upstream] = map[string]harness.CountPair{}
		}
		r.Upstream[c.Upstream][c.Method+" "+c.Path] = harness.CountPair{Ledger: c.Ledger, WireMock: c.WireMock}
	}
	for _, v := range verdicts {
		if v.Status == r.Verdict && v.Status != harness.Pass {
			r.Reason, r.Summary = v.Reason, v.ID+": "+v.Summary
			break
		}
	}
	switch {
	case r.Summary != "":
	case r.Verdict != harness.Pass:
		r.Reason, r.Summary = harness.ReasonChecker, "a check came to no decision, or there was none"
	default:
		r.Summary = fmt.Sprintf("%d checks held", len(verdicts))
	}
	return r
}

func responseTimes(ops []harness.Operation) []time.Duration {
	times := make([]time.Duration, 0, len(ops))
	for _, op := range ops {
		if d := op.ResponseTime(); d > 0 {
			times = append(times, d)
		}
	}
	return times
}

// extraFiles are the files of a run directory beside the record: the response
// times of the kind that is reported and of the further ones, each a histogram
// of its own.
func extraFiles(s harness.Scenario, rec harness.Record, res harness.Result) (map[string][]byte, error) {
	var histograms []*stats.Histogram
	for _, kind := range append([]string{s.Latency}, s.Latencies...) {
		if slices.ContainsFunc(histograms, func(h *stats.Histogram) bool { return h.Tag() == kind }) {
			continue
		}
		h := stats.NewHistogram(kind)
		for _, d := range responseTimes(rec.History.OfKind(kind)) {
			h.Record(d)
		}
		histograms = append(histograms, h)
	}
	var log bytes.Buffer
	if err := stats.WriteLog(&log, res.Started, res.Started.Add(time.Duration(res.DurationMS*float64(time.Millisecond))), histograms...); err != nil {
		return nil, fmt.Errorf("encode latencies: %w", err)
	}
	return map[string][]byte{"latency.hdr": log.Bytes(), "REPLAY": []byte(res.Replay + "\n")}, nil
}

// replayLine is the command that makes the same plan again.
func replayLine(tool string, s harness.Scenario, plan harness.Plan) string {
	words := []string{tool, "run", quote(s.Name), "--seed", plan.Seed.String()}
	defaults := s.Defaults()
	for _, name := range slices.Sorted(maps.Keys(plan.Params)) {
		if plan.Params[name] != defaults[name] {
			words = append(words, "--set", quote(name+"="+plan.Params[name]))
		}
	}
	if plan.Mutant != "" {
		words = append(words, "--mutant", quote(plan.Mutant))
	}
	return strings.Join(words, " ")
}

// quote makes a word safe for a shell.
func quote(word string) string {
	safe := func(r rune) bool {
		return r == '/' || r == '-' || r == '_' || r == '.' || r == '=' || r == '@' || r == ':' ||
			(r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9')
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !safe(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
