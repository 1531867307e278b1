package check_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

func TestWholeRecordPasses(t *testing.T) {
	want := map[string]string{
		"conduct":   "started, driven and settled",
		"delivered": "1 burst of 4 requests, widest spread 42 us",
		"witnessed": "max_in_flight 4",
		"observers": "desk POST /book: 1 by both",
		"sql":       "at most one row wins",
		"calls":     "one call per room: POST /book (101 1)",
		"each":      "no room twice: POST /book (101 1)",
		"answers":   "one winner: 1 x 201, 3 x 409 in 1 group",
		"open":      "no transaction is open in a server session while that server waits for an upstream call: 1 upstream call sampled",
	}
	got := map[string]string{}
	for _, v := range check.Judge(fixture(), whole()) {
		if v.Status != harness.Pass || v.Evidence == nil {
			t.Errorf("%s: %v %s, evidence %v", v.ID, v.Status, v.Summary, v.Evidence)
		}
		got[v.ID] = v.Summary
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// anomaly is a record that is not whole or not right, and what must be said.
type anomaly struct {
	name     string
	change   func(*harness.Record)
	id       string
	status   harness.Status
	reason   harness.Reason
	sentence string
}

func runAnomalies(t *testing.T, list []anomaly) {
	t.Helper()
	for _, a := range list {
		t.Run(a.name, func(t *testing.T) {
			rec := whole()
			a.change(&rec)
			expect(t, judged(t, fixture(), rec, a.id), a.status, a.reason, a.sentence)
			if s := harness.WorstOf(check.Judge(fixture(), rec)); s == harness.Pass {
				t.Error("the whole record passes")
			}
		})
	}
}

func TestConduct(t *testing.T) {
	runAnomalies(t, []anomaly{
		{"trouble", func(r *harness.Record) {
			r.Trouble = append(troubled(harness.ReasonTimeout, "settle: late"), troubled(harness.ReasonLeak, "down: left")...)
		}, "conduct", harness.Unknown, harness.ReasonTimeout, "settle: late; down: left"},
		{
			"trouble without a reason", func(r *harness.Record) { r.Trouble = []harness.Trouble{{}} },
			"conduct", harness.Unknown, harness.ReasonChecker, "",
		},
		{
			"a phase is missing", func(r *harness.Record) { r.History.Events = r.History.Events[:3] },
			"conduct", harness.Unknown, harness.ReasonEnvironment, "the history has no trace of collect, down: not a whole run",
		},
		{
			"another scenario's record", func(r *harness.Record) { r.Plan.Scenario = "hotel/two-rooms" },
			"conduct", harness.Unknown, harness.ReasonAssumption, `the record is of scenario "hotel/two-rooms", plan schema 1; judged as "hotel/one-room", schema 1`,
		},
		{
			"a plan of another schema", func(r *harness.Record) { r.Plan.SchemaVersion = 0 },
			"conduct", harness.Unknown, harness.ReasonAssumption, `the record is of scenario "hotel/one-room", plan schema 0; judged as "hotel/one-room", schema 1`,
		},
	})
}

func TestDelivered(t *testing.T) {
	const undelivered = harness.ReasonUndelivered
	runAnomalies(t, []anomaly{
		{
			"early answer", func(r *harness.Record) { r.History.Bursts[0].Early = 1 },
			"delivered", harness.Unknown, undelivered, "burst burst: 1 answers were readable before the release",
		},
		{
			"not all ready", func(r *harness.Record) { r.History.Bursts[0].Ready = 3 },
			"delivered", harness.Unknown, undelivered, "burst burst: 4 planned, 3 ready at the barrier, 4 sent",
		},
		{
			"not all sent", func(r *harness.Record) { r.History.Bursts[0].Sent = 3 },
			"delivered", harness.Unknown, undelivered, "burst burst: 4 planned, 4 ready at the barrier, 3 sent",
		},
		{"empty burst", func(r *harness.Record) {
			r.History.Bursts = append(r.History.Bursts, harness.BurstReport{Name: "second"})
		}, "delivered", harness.Unknown, undelivered, "burst second: 0 planned, 0 ready at the barrier, 0 sent"},
		{
			"no operations and no bursts", func(r *harness.Record) { r.History.Operations, r.History.Bursts = nil, nil },
			"delivered", harness.Unknown, undelivered, "no request was sent at all",
		},
		{"operations that were never sent", func(r *harness.Record) {
			r.History.Bursts = nil
			r.History.Operations = []harness.Operation{{ID: "op-1", Outcome: harness.Fail, Err: "refused"}}
		}, "delivered", harness.Unknown, undelivered, "no request was sent at all"},
		{
			"an operation is lost", func(r *harness.Record) { r.History.Operations = r.History.Operations[:3] },
			"delivered", harness.Unknown, undelivered, "burst burst: 4 planned, 3 recorded",
		},
		{
			"the burst's report is lost", func(r *harness.Record) { r.History.Bursts = nil },
			"delivered", harness.Unknown, undelivered, "burst burst: 0 planned, 4 recorded",
		},
		{
			"an operation nobody judged", func(r *harness.Record) { r.History.Operations[2].Outcome = 0 },
			"delivered", harness.Unknown, undelivered, "operation op-3 has no outcome",
		},
	})
}

func TestWitnessed(t *testing.T) {
	const vacuous = harness.ReasonVacuous
	runAnomalies(t, []anomaly{
		{
			"none", func(r *harness.Record) { r.Witness = nil },
			"witnessed", harness.Unknown, vacuous, "the scenario recorded no witness of its race",
		},
		{"below", func(r *harness.Record) {
			r.Witness = append(r.Witness, harness.Witness{Kind: "killed", Want: 1, Got: 0})
		}, "witnessed", harness.Unknown, vacuous, "the race did not take place: killed is 0, needed at least 1"},
		{
			"zero value", func(r *harness.Record) { r.Witness = []harness.Witness{{}} },
			"witnessed", harness.Unknown, vacuous, `a witness without a kind, or that needs nothing ("", at least 0), is no evidence`,
		},
		{
			"needs nothing", func(r *harness.Record) { r.Witness[0].Want = 0 },
			"witnessed", harness.Unknown, vacuous, `a witness without a kind, or that needs nothing ("max_in_flight", at least 0), is no evidence`,
		},
		{
			"not a number", func(r *harness.Record) { r.Witness[0].Got = math.NaN() },
			"witnessed", harness.Unknown, vacuous, "the race did not take place: max_in_flight is NaN, needed at least 2",
		},
	})
}

func TestObserversAgree(t *testing.T) {
	const disagree = harness.ReasonDisagree
	runAnomalies(t, []anomaly{
		{
			"1 and 2", func(r *harness.Record) { r.Counts[0].WireMock = 2 },
			"observers", harness.Unknown, disagree, "desk POST /book: the ledger counted 1, WireMock 2",
		},
		{
			"unreadable", func(r *harness.Record) { r.Counts[0].WireMock = -1 },
			"observers", harness.Unknown, disagree, "desk POST /book: the ledger counted 1, WireMock -1",
		},
		{
			"both unreadable", func(r *harness.Record) { r.Counts[0].WireMock, r.Counts[0].Ledger = -1, -1 },
			"observers", harness.Unknown, disagree, "desk POST /book: the ledger counted -1, WireMock -1",
		},
		{
			"error", func(r *harness.Record) { r.Counts[0].Error = "journal is full" },
			"observers", harness.Unknown, disagree, "desk POST /book: an observer could not be read: journal is full",
		},
		{"by key", func(r *harness.Record) {
			r.Counts = append(r.Counts, harness.UpstreamCount{Upstream: "desk", Method: "POST", Path: "/book", Key: "101", Ledger: 1, WireMock: 0})
		}, "observers", harness.Unknown, disagree, "desk POST /book of 101: the ledger counted 1, WireMock 0"},
		{
			"nobody counted", func(r *harness.Record) { r.Counts = nil },
			"observers", harness.Unknown, disagree, "no upstream call was counted by anybody",
		},
		{
			"zero value", func(r *harness.Record) { r.Counts = []harness.UpstreamCount{{}} },
			"observers", harness.Unknown, disagree, `a count does not say of what: "  "`,
		},
		{
			"a line of the ledger is lost", func(r *harness.Record) { r.Upstream = nil },
			"observers", harness.Unknown, disagree, "desk POST /book: 1 were counted, the stored ledger has only 0 of them",
		},
	})
}

// checks gives a scenario with these checks alone.
func checks(list ...harness.Check) harness.Scenario {
	return harness.Scenario{Name: "hotel/one-room", Checks: func(harness.Params) []harness.Check { return list }}
}

func TestChecksThatDoNotDecide(t *testing.T) {
	verdict := func(v harness.Verdict) func(harness.Record) harness.Verdict {
		return func(harness.Record) harness.Verdict { return v }
	}
	for _, tc := range []struct {
		name, sentence string
		judge          func(harness.Record) harness.Verdict
	}{
		{"panics", "the check itself broke: no seat", func(harness.Record) harness.Verdict { panic("no seat") }},
		{"no judge", "the check itself broke: runtime error: invalid memory address or nil pointer dereference", nil},
		{"zero verdict", "the check came to no decision", verdict(harness.Verdict{Summary: "fine"})},
		{"a status out of range", "the check came to no decision", verdict(harness.Verdict{Status: 9, Summary: "fine"})},
		{"unknown without a reason", "hm", verdict(harness.Verdict{Status: harness.Unknown, Summary: "hm"})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := judged(t, checks(harness.Check{ID: "x", Rule: "there", Judge: tc.judge}), whole(), "x")
			expect(t, v, harness.Unknown, harness.ReasonChecker, tc.sentence)
			if v.Rule != "there" || v.Evidence == nil {
				t.Errorf("rule %q, evidence %v", v.Rule, v.Evidence)
			}
		})
	}
}

func TestScenarioWithoutChecksIsNotAPass(t *testing.T) {
	for name, s := range map[string]harness.Scenario{"none": checks(), "nil": {Name: "hotel/one-room"}} {
		v := judged(t, s, whole(), "checks")
		if expect(t, v, harness.Unknown, harness.ReasonChecker, "nothing was judged: the scenario has no check of its own"); t.Failed() {
			t.Log(name)
		}
	}
}

// A stored plan may lack a parameter that today's checks ask for.
func TestChecksThatCannotBeMade(t *testing.T) {
	rec := whole()
	rec.Plan.Params = nil
	v := judged(t, fixture(), rec, "checks")
	if v.Status != harness.Unknown || v.Reason != harness.ReasonChecker || !strings.Contains(v.Summary, "users") {
		t.Errorf("got %v %q %q", v.Status, v.Reason, v.Summary)
	}
}

func TestTroubleSilencesSettledChecksAlone(t *testing.T) {
	rec := whole()
	rec.Trouble = troubled(harness.ReasonTimeout, "settle: late")
	rec.Rows["sql"] = harness.Rows{Query: "sql", SQL: query, Rows: []harness.Row{{"id": 1.0}}}
	rec.Upstream = append(rec.Upstream, rec.Upstream[0])
	expect(t, judged(t, fixture(), rec, "sql"), harness.Unknown, harness.ReasonTimeout, "not judged, for the run itself had trouble (see conduct)")
	expect(t, judged(t, fixture(), rec, "calls"), harness.Failed, "", "one call per room: POST /book for 101: 2, at most 1 allowed")
	if s := harness.WorstOf(check.Judge(fixture(), rec)); s != harness.Failed {
		t.Errorf("the whole is %v: a violation must win over trouble", s)
	}
}

// An invariant of every instant is judged in a run that never came to rest,
// and is still open when its query could not be asked.
func TestInstantIsJudgedUnsettled(t *testing.T) {
	s := fixture()
	checks := s.Checks
	s.Checks = func(p harness.Params) []harness.Check {
		list := checks(p)
		list[0] = check.Instant(list[0])
		return list
	}
	rec := whole()
	rec.Trouble = troubled(harness.ReasonTimeout, "settle: late")
	rec.Rows["sql"] = harness.Rows{Query: "sql", SQL: query, Rows: []harness.Row{{"id": 1.0}}}
	expect(t, judged(t, s, rec, "sql"), harness.Failed, "", "violated by 1 row: at most one row wins")
	rec.Rows["sql"] = harness.Rows{Query: "sql", SQL: query, Error: "the database is gone"}
	expect(t, judged(t, s, rec, "sql"), harness.Unknown, harness.ReasonEnvironment, "the query could not be answered: the database is gone")
}
