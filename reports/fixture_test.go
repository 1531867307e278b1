package reports_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

// The fixture: a suite of four scenarios on one seat with 100 users, as a run
// would leave it. One fails (the direct path gives the seat twice), one is
// unknown, two pass. Everything is drawn from a fixed seed.

const users = 100

var begin = time.Date(2026, 12, 1, 9, 30, 0, 0, time.UTC)

func lognormal(rng *rand.Rand, median time.Duration, sigma float64) time.Duration {
	return time.Duration(float64(median) * math.Exp(sigma*rng.NormFloat64()))
}

func host() harness.Host {
	return harness.Host{
		OS: "linux", Arch: "amd64", Cores: 2, Go: "go1.26.8",
		Postgres: "15.14, local binaries, fsync on", WireMock: "3.13.2, local jar", Redis: "7.0.15",
	}
}

// burstRecord is a burst of confirms on one seat, after preparing.
func burstRecord(path string, winners []int) harness.Record {
	rng := harness.Seed(0x7f3a91c2).Rand("fixture " + path)
	released := 1800 * time.Millisecond
	rec := harness.Record{
		Rows: map[string]harness.Rows{},
		History: harness.History{
			Bursts: []harness.BurstReport{{
				Name: "race", Technique: "h1-last-header-byte/io_uring", Requests: users, Ready: users, Sent: users, Answered: users,
				Released: released, Spread: 84 * time.Microsecond, MaxInFlight: users,
			}},
			Events: []harness.Event{
				{At: 900 * time.Millisecond, Kind: harness.EventPhase, Subject: "setup", Text: "one seat, 100 students"},
				{At: 910 * time.Millisecond, Kind: harness.EventProcess, Subject: "sut-1", Text: "ready"},
				{At: released, Kind: harness.EventBurst, Subject: "race", Text: "released"},
			},
		},
	}
	for i := range users {
		rec.History.Operations = append(rec.History.Operations, prepareOp(rng, i))
	}
	for i := range users {
		op, call := confirmOp(rng, i, released, slices.Contains(winners, i))
		rec.History.Operations = append(rec.History.Operations, op)
		if path == "direct" || i == winners[0] {
			call.Seq = len(rec.Upstream) + 1
			rec.Upstream = append(rec.Upstream, call)
		}
	}
	return rec
}

func prepareOp(rng *rand.Rand, i int) harness.Operation {
	sent := 1000*time.Millisecond + time.Duration(i)*6*time.Millisecond
	return harness.Operation{
		ID: fmt.Sprintf("prepare-%03d", i), Process: i, Kind: "prepare", Server: "sut-1", Method: "POST", Path: "/library/actions",
		Input: json.RawMessage(`{"seat":"A-001"}`), Status: 201, Output: `{"action_id":"5f0c"}`, Intended: sent, Sent: sent,
		Answered: sent + lognormal(rng, 3*time.Millisecond, 0.3), Outcome: harness.OK,
	}
}

func confirmOp(rng *rand.Rand, i int, released time.Duration, won bool) (harness.Operation, harness.UpstreamCall) {
	sent := released + time.Duration(rng.IntN(84))*time.Microsecond
	received := sent + 2*time.Millisecond + time.Duration(rng.IntN(60000))*time.Microsecond
	accepted := received + lognormal(rng, 150*time.Millisecond, 0.5)
	op := harness.Operation{
		ID: fmt.Sprintf("confirm-%03d", i), Process: i, Kind: "confirm", Burst: "race", Server: "sut-1", Method: "POST",
		Path: fmt.Sprintf("/library/actions/5f0c-%03d/confirm", i), Status: 409, Intended: released, Sent: sent,
		Output: fmt.Sprintf(`{"type":"/problems/seat-taken","state":"FAILED_RACE","seat":"A-001","intent_id":"i-%03d"}`, i), Outcome: harness.Fail,
	}
	call := harness.UpstreamCall{
		Upstream: "pyxis", Caller: "sut-1", Method: "POST", Path: "/reserve", Op: op.ID,
		Request: fmt.Sprintf(`{"student":"student-%d","seat":"A-001"}`, i), Status: 409, Received: received, Forwarded: received + 60*time.Microsecond,
		Accepted: accepted, Answered: accepted + 90*time.Microsecond,
	}
	if won {
		op.Status, op.Outcome, call.Status = 201, harness.OK, 201
		op.Output = fmt.Sprintf(`{"state":"SUCCEEDED","seat":"A-001","intent_id":"i-%03d","student":"student-%d"}`, i, i)
	}
	op.Answered = accepted + 4*time.Millisecond + time.Duration(rng.IntN(9000))*time.Microsecond
	return op, call
}

func latencyOf(rec harness.Record) *harness.Latency {
	var ms []float64
	for _, op := range rec.History.OfKind("confirm") {
		if op.Answered != 0 {
			ms = append(ms, op.ResponseTime().Seconds()*1e3)
		}
	}
	slices.Sort(ms)
	n := len(ms)
	at := func(p float64) float64 { return ms[int(math.Ceil(p*float64(n)))-1] }
	return &harness.Latency{N: n, P50: at(0.5), P95: at(0.95), P99: new(at(0.99)), Max: ms[n-1]}
}

func result(name, title string) harness.Result {
	return harness.Result{
		Name: name, Title: title, Verdict: harness.Pass, Seed: 0x7f3a91c2, Rounds: 1,
		Params:  harness.Params{"users": "100", "replicas": "1", "upstream_median": "150ms"},
		Started: begin, DurationMS: 4211.4,
		PhasesMS:     map[string]float64{"up": 1803.2, "drive": 1550.1, "settle": 210.9, "collect": 44.2, "check": 12.3, "down": 380.4},
		Measurements: map[string]float64{"pool_size": 30, "settle_polls": 4},
		RunDir:       "runs/" + name + "/20261201T093000-7f3a91c2",
		Replay:       "overbook replay runs/" + name + "/20261201T093000-7f3a91c2",
		Report:       "runs/" + name + "/20261201T093000-7f3a91c2/report.html",
	}
}

func passing() (harness.Result, harness.Record) {
	rec := burstRecord("intent", []int{42})
	r := result("library/one-seat@intent", "A hundred people confirm one seat, intent path")
	r.Summary = "1 of 100 got the seat, 1 reserve POST"
	r.Responses = map[string]int{"201": 1, "409": 99}
	r.Outcomes = map[string]int{"SUCCEEDED": 1, "FAILED_RACE": 99}
	r.Upstream = map[string]map[string]harness.CountPair{"pyxis": {"POST /reserve": {Ledger: 1, WireMock: 1}}}
	r.Latency, r.Bursts = latencyOf(rec), rec.History.Bursts
	r.Witness = []harness.Witness{{Kind: "max_in_flight", Want: 50, Got: 100, Text: "requests sent and not yet answered"}}
	r.Checks = []harness.Verdict{
		{ID: "L-I1", Status: harness.Pass, Summary: "100 actions, 100 intents, each consumed once", Rule: "scenarios/library/invariants/one_intent.sql"},
		{ID: "L-I3", Status: harness.Pass, Summary: "1 SUCCEEDED for seat A-001, and pyxis agrees", Rule: "scenarios/library/invariants/one_winner.sql"},
		{ID: "L-I5", Status: harness.Pass, Summary: "1 reserve POST, counted by both observers"},
	}
	rec.Witness = r.Witness
	return r, rec
}

func failing() (harness.Result, harness.Record) {
	rec := burstRecord("direct", []int{17, 61})
	rec.Rows["L-I3"] = harness.Rows{
		Query: "L-I3", SQL: "SELECT seat, count(*) AS winners, array_agg(student) AS students\nFROM library_reservation_intents\nWHERE state = 'SUCCEEDED'\nGROUP BY seat HAVING count(*) > 1",
		Rows: []harness.Row{{"seat": "A-001", "winners": 2, "students": "{student-17,student-61}"}},
	}
	r := result("library/one-seat@direct", "A hundred people confirm one seat, direct path")
	r.Verdict = harness.Failed
	r.Summary = "the seat was given to two students"
	r.DurationMS = 4912.6
	r.Responses = map[string]int{"201": 2, "409": 98}
	r.Outcomes = map[string]int{"SUCCEEDED": 2, "FAILED_RACE": 98}
	r.Upstream = map[string]map[string]harness.CountPair{"pyxis": {"POST /reserve": {Ledger: 100, WireMock: 100}}}
	r.Latency, r.Bursts = latencyOf(rec), rec.History.Bursts
	r.Params["path"] = "direct"
	r.Witness = []harness.Witness{{Kind: "max_in_flight", Want: 50, Got: 100, Text: "requests sent and not yet answered"}}
	r.Checks = []harness.Verdict{
		{ID: "L-I1", Status: harness.Pass, Summary: "100 actions, 100 intents, each consumed once", Rule: "scenarios/library/invariants/one_intent.sql"},
		{
			ID: "L-I3", Status: harness.Failed, Summary: "2 students SUCCEEDED for seat A-001, at most 1 may",
			Rule: "scenarios/library/invariants/one_winner.sql",
			Evidence: []harness.Evidence{{
				Text: "seat   students                 winners\nA-001  {student-17,student-61}  2",
				Ops:  []string{"confirm-017", "confirm-061"},
			}},
		},
		{
			ID: "L-I5", Status: harness.Failed, Summary: "100 reserve POSTs for seat A-001, at most 1 allowed", Rule: "scenarios/library/one_seat.go:88",
			Evidence: []harness.Evidence{{Text: "POST /reserve for A-001: 100, at most 1 allowed\n  call 1 by sut-1 at +1803.122 ms, answered 409 after 160.1 ms\n  and 99 more"}},
		},
	}
	return r, rec
}

func vacuous() (harness.Result, harness.Record) {
	rec := burstRecord("direct", []int{5})
	rec.History.Bursts[0].MaxInFlight, rec.History.Bursts[0].Spread = 1, 2*time.Second
	rec.History.Bursts[0].Answered = 97
	for i := range rec.History.Operations {
		if op := &rec.History.Operations[i]; slices.Contains([]string{"confirm-007", "confirm-050", "confirm-093"}, op.ID) {
			op.Status, op.Output, op.Answered, op.Outcome, op.Err = 0, "", 0, harness.Info, "read answer: connection reset by peer"
		}
	}
	fault := rec.History.Bursts[0].Released + 130*time.Millisecond
	rec.History.Events = append(rec.History.Events,
		harness.Event{At: fault, Kind: harness.EventFault, Subject: "sut-1", Text: "kill sut-1 after pyxis accepted"},
		harness.Event{At: fault + 80*time.Millisecond, Kind: harness.EventProcess, Subject: "sut-1", Text: "exit: signal: killed"},
		harness.Event{At: fault + 290*time.Millisecond, Kind: harness.EventHeal, Subject: "sut-1", Text: "sut-1 is ready again"})
	rec.Upstream[3].Fault, rec.Upstream[3].Answered = "kill-caller", 0
	rec.Trouble = []harness.Trouble{{Reason: harness.ReasonVacuous, Text: "at most 1 request was in flight at once, 2 are needed for a race"}}
	r := result("library/crash-after-accept", "The server dies after the upstream accepted")
	r.Verdict, r.Reason = harness.Unknown, harness.ReasonVacuous
	r.Summary = "no two confirms overlapped"
	r.DurationMS = 3050
	r.Responses = map[string]int{"201": 1, "409": 96, "none": 3}
	r.Upstream = map[string]map[string]harness.CountPair{"pyxis": {"POST /reserve": {Ledger: 100, WireMock: -1}}}
	r.Latency, r.Bursts = latencyOf(rec), rec.History.Bursts
	r.Latency.P99 = nil
	r.Mutant = "L-M5"
	r.Witness = []harness.Witness{{Kind: "max_in_flight", Want: 2, Got: 1}}
	r.Checks = []harness.Verdict{
		{ID: "overlap", Status: harness.Unknown, Reason: harness.ReasonVacuous, Summary: "no two confirms overlapped, so the race did not take place"},
		{ID: "L-I2", Status: harness.Pass, Summary: "every intent is terminal"},
	}
	return r, rec
}

// bare is a scenario whose run broke before anything was recorded.
func bare() (harness.Result, harness.Record) {
	r := harness.Result{
		Name: "library/redis-down", Title: "The seat lock is gone", Verdict: harness.Unknown, Reason: harness.ReasonEnvironment,
		Summary: "server sut-1 was not ready within 10 s", Seed: 1, Started: begin, DurationMS: 10012,
	}
	return r, harness.Record{}
}

func page() reports.Page {
	s := harness.Suite{
		SchemaVersion: 1, Tool: "overbook", Version: "0.1.0", Seed: 0x7f3a91c2, Started: begin, DurationMS: 22185.3, Host: host(), Verdict: harness.Failed,
	}
	records := map[string]harness.Record{}
	for _, build := range []func() (harness.Result, harness.Record){passing, failing, vacuous, bare} {
		r, rec := build()
		s.Scenarios = append(s.Scenarios, r)
		if r.RunDir != "" {
			records[r.RunDir] = rec
		} else {
			records[r.Name] = rec
		}
	}
	return reports.Page{Suite: s, Records: records}
}
