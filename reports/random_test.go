package reports_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

// hostile is text as a server under attack, or attacking, might send it.
var hostile = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
	"", "<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "]]></testcase>", "\x1b[2Jgone\x07", "a\x00b\xff\xfe", "\r\n::error ::forged",
	"```\n# forged", "| a | b |", "\u202eevil", "</title></svg><script>", "{{.Suite}}", "x  y\n1  2", "%0A::set-output", strings40,
}))

const strings40 = "a long line of plain words that goes on for a while, and then a little longer than that"

var status = rapid.SampledFrom([]harness.Status{0, harness.Pass, harness.Unknown, harness.Failed})

var reason = rapid.SampledFrom([]harness.Reason{"", harness.ReasonVacuous, harness.ReasonTimeout, harness.ReasonEnvironment})

func moment(t *rapid.T, label string) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, label))
}

func anyVerdict(t *rapid.T) harness.Verdict {
	v := harness.Verdict{ID: hostile.Draw(t, "id"), Status: status.Draw(t, "status"), Summary: hostile.Draw(t, "summary"), Reason: reason.Draw(t, "reason"), Rule: hostile.Draw(t, "rule")}
	for range rapid.IntRange(0, 3).Draw(t, "evidence") {
		v.Evidence = append(v.Evidence, harness.Evidence{Text: hostile.Draw(t, "text"), Ops: rapid.SliceOfN(rapid.SampledFrom([]string{"op-0", "op-1", "op-2"}), 0, 3).Draw(t, "ops")})
	}
	return v
}

func anyResult(t *rapid.T) harness.Result {
	r := harness.Result{
		Name: hostile.Draw(t, "name"), Title: hostile.Draw(t, "title"), Verdict: status.Draw(t, "verdict"), Reason: reason.Draw(t, "reason"), Summary: hostile.Draw(t, "summary"),
		Seed: harness.Seed(rapid.Uint32().Draw(t, "seed")), Mutant: hostile.Draw(t, "mutant"), Replay: hostile.Draw(t, "replay"), RunDir: hostile.Draw(t, "dir"),
		DurationMS: rapid.Float64Range(0, 1e6).Draw(t, "duration"), Started: begin,
	}
	if rapid.Bool().Draw(t, "figures") {
		r.Responses = map[string]int{hostile.Draw(t, "answer"): 3}
		r.Params = harness.Params{hostile.Draw(t, "param"): hostile.Draw(t, "value")}
		r.Upstream = map[string]map[string]harness.CountPair{hostile.Draw(t, "upstream"): {hostile.Draw(t, "call"): {Ledger: 1, WireMock: -1}}, "nil": nil}
		r.Latency = &harness.Latency{N: rapid.IntRange(0, 100).Draw(t, "n")}
		r.Witness = []harness.Witness{{Kind: hostile.Draw(t, "kind"), Want: 2, Got: 1}}
		r.Bursts = []harness.BurstReport{{Name: hostile.Draw(t, "burst"), Requests: 3, Released: moment(t, "released")}}
	}
	if rapid.Bool().Draw(t, "open loops") {
		r.Latencies = map[string]*harness.Latency{hostile.Draw(t, "kind"): {N: rapid.IntRange(0, 100).Draw(t, "n")}, "nil": nil}
		r.Loads = []harness.OpenLoopReport{{
			Name: hostile.Draw(t, "load"), Planned: rapid.IntRange(0, 3).Draw(t, "planned"), CutOff: rapid.IntRange(0, 3).Draw(t, "cut off"),
			LateP99: moment(t, "late"), Waited: rapid.IntRange(0, 1).Draw(t, "waited"), Refused: rapid.IntRange(0, 2).Draw(t, "refused"),
		}}
	}
	for range rapid.IntRange(0, 3).Draw(t, "checks") {
		r.Checks = append(r.Checks, anyVerdict(t))
	}
	return r
}

func anySuite(t *rapid.T) harness.Suite {
	s := harness.Suite{SchemaVersion: 1, Tool: "overbook", Version: hostile.Draw(t, "version"), Started: begin, Host: harness.Host{OS: hostile.Draw(t, "os")}, Verdict: status.Draw(t, "suite verdict")}
	for range rapid.IntRange(0, 4).Draw(t, "scenarios") {
		s.Scenarios = append(s.Scenarios, anyResult(t))
	}
	return s
}

// anyRecord has operations, calls and events with stamps in any order, many of them missing.
func anyRecord(t *rapid.T) harness.Record {
	rec := harness.Record{Rows: map[string]harness.Rows{"L-I3": {Rows: []harness.Row{{"a": hostile.Draw(t, "cell"), "b": nil}, {"c": 1}}}}}
	for range rapid.IntRange(0, 3).Draw(t, "bursts") {
		rec.History.Bursts = append(rec.History.Bursts, harness.BurstReport{Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "burst"), Requests: 2, Released: moment(t, "released")})
	}
	for range rapid.IntRange(0, 5).Draw(t, "ops") {
		rec.History.Operations = append(rec.History.Operations, harness.Operation{
			ID: rapid.SampledFrom([]string{"op-0", "op-1", "op-2"}).Draw(t, "id"), Process: rapid.IntRange(0, 2).Draw(t, "process"), Kind: hostile.Draw(t, "kind"),
			Burst: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "of burst"), Load: rapid.SampledFrom([]string{"", "sale"}).Draw(t, "of load"), Method: "POST", Path: hostile.Draw(t, "path"), Output: hostile.Draw(t, "output"), Err: hostile.Draw(t, "err"),
			Intended: moment(t, "intended"), Sent: moment(t, "sent"), Answered: moment(t, "answered"), Outcome: harness.Outcome(rapid.IntRange(0, 3).Draw(t, "outcome")),
		})
	}
	for range rapid.IntRange(0, 4).Draw(t, "calls") {
		rec.Upstream = append(rec.Upstream, harness.UpstreamCall{
			Upstream: hostile.Draw(t, "upstream"), Caller: hostile.Draw(t, "caller"), Path: hostile.Draw(t, "path"), Op: "op-1", Received: moment(t, "received"),
			Accepted: moment(t, "accepted"), Answered: moment(t, "answered"), Fault: hostile.Draw(t, "fault"),
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "events") {
		rec.History.Events = append(rec.History.Events, harness.Event{
			At: moment(t, "at"), Until: moment(t, "until"), Text: hostile.Draw(t, "text"), Subject: hostile.Draw(t, "subject"),
			Kind: rapid.SampledFrom([]harness.EventKind{harness.EventFault, harness.EventHeal, harness.EventNote, harness.EventPhase, harness.EventBurst}).Draw(t, "kind"),
		})
	}
	anyPoints(t, &rec)
	for range rapid.IntRange(0, 4).Draw(t, "units") {
		rec.Postgres = append(rec.Postgres, anyUnit(t))
	}
	return rec
}

// anyPoints adds crash points with attributes that may be missing or no numbers.
func anyPoints(t *rapid.T, rec *harness.Record) {
	for range rapid.IntRange(0, 3).Draw(t, "points") {
		attrs := map[string]string{"op": rapid.SampledFrom([]string{"", "op-0", "op-1"}).Draw(t, "op"), "again": "op-2", "done": "true"}
		for _, name := range []string{"label", "action", "first", "retry", "number", "of"} {
			if rapid.Bool().Draw(t, "has "+name) {
				attrs[name] = rapid.OneOf(hostile, rapid.SampledFrom([]string{"1", "2", "201"})).Draw(t, name)
			}
		}
		rec.History.Events = append(rec.History.Events, harness.Event{At: moment(t, "at"), Kind: harness.EventPoint, Subject: hostile.Draw(t, "request"), Text: hostile.Draw(t, "text"), Attrs: attrs})
	}
}

func anyUnit(t *rapid.T) harness.Unit {
	u := harness.Unit{
		Session: rapid.IntRange(0, 2).Draw(t, "session"), Server: hostile.Draw(t, "server"), Op: rapid.SampledFrom([]string{"", "op-0", "op-1"}).Draw(t, "op"),
		Tx: rapid.IntRange(0, 2).Draw(t, "tx"), Before: "I", After: rapid.SampledFrom([]string{"", "I", "T"}).Draw(t, "after"), Fault: hostile.Draw(t, "fault"), Err: hostile.Draw(t, "err"),
		Arrived: moment(t, "arrived"), Forwarded: moment(t, "forwarded"), Answered: moment(t, "answered"), Delivered: moment(t, "delivered"),
	}
	for range rapid.IntRange(0, 4).Draw(t, "statements") {
		u.Statements = append(u.Statements, harness.Statement{
			SQL: hostile.Draw(t, "sql"), Params: []string{hostile.Draw(t, "parameter")}, Tag: hostile.Draw(t, "tag"), Code: hostile.Draw(t, "code"), Text: hostile.Draw(t, "message"),
		})
	}
	return u
}

// anyPage is a suite and the records of some of its scenarios.
func anyPage(t *rapid.T) reports.Page {
	p := reports.Page{Suite: anySuite(t), Records: map[string]harness.Record{}}
	for _, r := range p.Suite.Scenarios {
		if rapid.Bool().Draw(t, "has record") {
			p.Records[r.Name] = anyRecord(t)
		}
	}
	return p
}
