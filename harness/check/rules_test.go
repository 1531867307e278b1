package check_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

func TestSQL(t *testing.T) {
	violated := func(r *harness.Record) {
		r.Rows["sql"] = harness.Rows{Query: "sql", SQL: query, Rows: []harness.Row{{"seat": "A", "n": 2.0}, {"seat": "B", "n": 3.0, "more": nil}}}
	}
	runAnomalies(t, []anomaly{
		{"two rows", violated, "sql", harness.Failed, "", "violated by 2 rows: at most one row wins"},
		{
			"not asked", func(r *harness.Record) { delete(r.Rows, "sql") },
			"sql", harness.Unknown, harness.ReasonEnvironment, "the query could not be answered: it was not asked",
		},
		{
			"no rows at all", func(r *harness.Record) { r.Rows = nil },
			"sql", harness.Unknown, harness.ReasonEnvironment, "the query could not be answered: it was not asked",
		},
		{
			"nil rows", func(r *harness.Record) { r.Rows["sql"] = harness.Rows{Query: "sql", SQL: query} },
			"sql", harness.Unknown, harness.ReasonEnvironment, "the query could not be answered: it was not asked",
		},
		{"error", func(r *harness.Record) {
			r.Rows["sql"] = harness.Rows{Query: "sql", SQL: query, Rows: []harness.Row{}, Error: "no such table"}
		}, "sql", harness.Unknown, harness.ReasonEnvironment, "the query could not be answered: no such table"},
		{"rows of another version of the query", func(r *harness.Record) {
			r.Rows["sql"] = harness.Rows{Query: "sql", SQL: "-- at most one row wins\nselect 1 where false\n", Rows: []harness.Row{}}
		}, "sql", harness.Unknown, harness.ReasonAssumption, "the stored rows answer another version of the query; run the scenario again"},
	})
	rec := whole()
	violated(&rec)
	v := judged(t, fixture(), rec, "sql")
	if d := cmp.Diff([]string{"more  n  seat\nnull  2  A\nnull  3  B"}, texts(v)); d != "" {
		t.Error(d)
	}
	if v.Rule != "here/invariants/one.sql" {
		t.Errorf("rule %q", v.Rule)
	}
}

func texts(v harness.Verdict) []string {
	var list []string
	for _, e := range v.Evidence {
		list = append(list, e.Text)
	}
	return list
}

func TestTableIsBounded(t *testing.T) {
	rows := []harness.Row{{"a": strings.Repeat("x", 200)}, {"a": "two\n  lines"}, {"a": 3.0}}
	want := "a\n" + strings.Repeat("x", 79) + "…\ntwo lines\nand 1 row more"
	if d := cmp.Diff(want, check.Table(rows, 2)); d != "" {
		t.Error(d)
	}
}

func TestCalls(t *testing.T) {
	second := func(change func(*harness.UpstreamCall)) func(*harness.Record) {
		return func(r *harness.Record) {
			c := r.Upstream[0]
			c.Seq, c.Op = 2, "op-2"
			change(&c)
			r.Upstream = append(r.Upstream, c)
			r.Counts[0].Ledger, r.Counts[0].WireMock = 2, 2
		}
	}
	tooFew := func(r *harness.Record) {
		r.Upstream = nil
		r.Counts[0].Ledger, r.Counts[0].WireMock = 0, 0
	}
	with := func(change, too func(*harness.Record)) func(*harness.Record) {
		return func(r *harness.Record) { change(r); too(r) }
	}
	trouble := func(r *harness.Record) { r.Trouble = troubled(harness.ReasonInterrupted, "interrupted") }
	runAnomalies(t, []anomaly{
		{"too many", second(func(*harness.UpstreamCall) {}), "calls", harness.Failed, "", "one call per room: POST /book for 101: 2, at most 1 allowed"},
		{
			"too many in a troubled run", with(second(func(*harness.UpstreamCall) {}), trouble),
			"calls", harness.Failed, "", "one call per room: POST /book for 101: 2, at most 1 allowed",
		},
		{
			"too many and the observers disagree", with(second(func(*harness.UpstreamCall) {}), func(r *harness.Record) { r.Counts[0].WireMock = 7 }),
			"calls", harness.Failed, "", "one call per room: POST /book for 101: 2, at most 1 allowed",
		},
		{"too few", tooFew, "calls", harness.Failed, "", "one call per room: POST /book for 101: 0, at least 1 expected"},
		{
			"too few in a troubled run", with(tooFew, trouble),
			"calls", harness.Unknown, harness.ReasonInterrupted, "POST /book: fewer calls than expected in a run that was not whole",
		},
		{
			"enough in a troubled run", trouble,
			"calls", harness.Unknown, harness.ReasonInterrupted, "POST /book: not too many so far, in a run that was not whole",
		},
		{
			"unexpected key", second(func(c *harness.UpstreamCall) { c.Request = "room 102" }),
			"calls", harness.Failed, "", `one call per room: POST /book for "102": 1, none expected`,
		},
		{
			"empty key", second(func(c *harness.UpstreamCall) { c.Request = "room " }),
			"calls", harness.Failed, "", `one call per room: POST /book for "": 1, none expected`,
		},
		{
			"empty key where every key is allowed", second(func(c *harness.UpstreamCall) { c.Request = "" }),
			"each", harness.Failed, "", `no room twice: POST /book for "": 1, none expected`,
		},
		{"no call where every key is allowed", tooFew, "each", harness.Unknown, harness.ReasonVacuous, "POST /book: there was no call to judge"},
		{
			"too few and the observers disagree", func(r *harness.Record) { r.Upstream, r.Counts[0].WireMock = nil, 2 },
			"calls", harness.Unknown, harness.ReasonDisagree, "POST /book: the two observers do not agree",
		},
		{
			"a line of the ledger is lost", func(r *harness.Record) { r.Upstream = nil },
			"calls", harness.Unknown, harness.ReasonDisagree, "POST /book: the two observers do not agree",
		},
		{
			"observers disagree", func(r *harness.Record) { r.Counts[0].WireMock = 2 },
			"calls", harness.Unknown, harness.ReasonDisagree, "POST /book: the two observers do not agree",
		},
		{
			"observers agree on another path", func(r *harness.Record) { r.Counts[0].Path = "/rooms" },
			"calls", harness.Unknown, harness.ReasonDisagree, "POST /book: the two observers do not agree",
		},
		{
			"observers agree on a key alone", func(r *harness.Record) { r.Counts[0].Key = "101" },
			"calls", harness.Unknown, harness.ReasonDisagree, "POST /book: the two observers do not agree",
		},
		{"a call that nobody counted", func(r *harness.Record) {
			r.Upstream[0].Forwarded = 0 // swallowed on the wire: the observers saw none, not one
		}, "calls", harness.Unknown, harness.ReasonDisagree, "POST /book: the two observers do not agree"},
	})
}

// A call that we swallowed is a call of the server's, and none of the upstream's.
func TestCallsCountWhatTheServerSent(t *testing.T) {
	rec := whole()
	rec.Upstream[0].Forwarded, rec.Upstream[0].Fault = 0, "swallowed"
	rec.Counts[0].Ledger, rec.Counts[0].WireMock = 0, 0
	expect(t, judged(t, fixture(), rec, "calls"), harness.Pass, "", "one call per room: POST /book (101 1)")
}

func TestCallEvidenceShowsTheRace(t *testing.T) {
	rec := whole()
	for range 6 {
		rec.Upstream = append(rec.Upstream, rec.Upstream[0])
	}
	v := judged(t, fixture(), rec, "calls")
	lines := strings.Split(texts(v)[0], "\n")
	if len(lines) != 7 || lines[1] != "  call 1 by sut-1 at +110.000 ms, answered 201 after 99.0 ms  room 101" || lines[6] != "  and 2 more" {
		t.Errorf("%d lines:\n%s", len(lines), texts(v)[0])
	}
	if d := cmp.Diff([]string{"op-1", "op-1", "op-1", "op-1", "op-1"}, v.Evidence[0].Ops); d != "" {
		t.Error(d)
	}
}

func TestTally(t *testing.T) {
	status := func(changes map[int]int) func(*harness.Record) {
		return func(r *harness.Record) {
			for i, s := range changes {
				r.History.Operations[i].Status = s
				if s == 0 {
					r.History.Operations[i].Answered, r.History.Operations[i].Outcome = 0, harness.Info
				}
			}
		}
	}
	with := func(reason harness.Reason, change func(*harness.Record)) func(*harness.Record) {
		return func(r *harness.Record) { change(r); r.Trouble = troubled(reason, "broke") }
	}
	const undelivered = harness.ReasonUndelivered
	runAnomalies(t, []anomaly{
		{"two winners", status(map[int]int{1: 201}), "answers", harness.Failed, "", "one winner: burst: got 2 x 201, 2 x 409, want 1 x 201, 3 x 409"},
		{"no winner", status(map[int]int{0: 409}), "answers", harness.Failed, "", "one winner: burst: got 4 x 409, want 1 x 201, 3 x 409"},
		{"a failure that was not planned", status(map[int]int{3: 500}), "answers", harness.Failed, "", "one winner: burst: got 1 x 201, 2 x 409, 1 x 500, want 1 x 201, 3 x 409"},
		{"one without an answer", status(map[int]int{3: 0}), "answers", harness.Unknown, undelivered, "burst: got 1 x 201, 2 x 409, 1 x none, want 1 x 201, 3 x 409"},
		{"two winners and one without an answer", status(map[int]int{1: 201, 3: 0}), "answers", harness.Failed, "", "one winner: burst: got 2 x 201, 1 x 409, 1 x none, want 1 x 201, 3 x 409"},
		{"none was answered", status(map[int]int{0: 0, 1: 0, 2: 0, 3: 0}), "answers", harness.Unknown, undelivered, "burst: got 4 x none, want 1 x 201, 3 x 409"},
		{
			"an operation is missing", func(r *harness.Record) { r.History.Operations = r.History.Operations[1:] },
			"answers", harness.Unknown, undelivered, "burst: got 3 x 409, want 1 x 201, 3 x 409",
		},
		{
			"the burst did not happen", func(r *harness.Record) { r.History.Operations, r.History.Bursts = nil, nil },
			"answers", harness.Unknown, undelivered, "burst: got no operation, want 1 x 201, 3 x 409",
		},
		{
			"a 500 when the database died", with(harness.ReasonEnvironment, status(map[int]int{3: 500})),
			"answers", harness.Unknown, undelivered, "burst: got 1 x 201, 2 x 409, 1 x 500, want 1 x 201, 3 x 409",
		},
		{
			"a 202 when the database died", with(harness.ReasonEnvironment, status(map[int]int{3: 202})),
			"answers", harness.Unknown, undelivered, "burst: got 1 x 201, 1 x 202, 2 x 409, want 1 x 201, 3 x 409",
		},
		{
			"a 202 in a run that did not settle", with(harness.ReasonTimeout, status(map[int]int{3: 202})),
			"answers", harness.Failed, "", "one winner: burst: got 1 x 201, 1 x 202, 2 x 409, want 1 x 201, 3 x 409",
		},
		{
			"two winners when the database died", with(harness.ReasonEnvironment, status(map[int]int{1: 201, 3: 500})),
			"answers", harness.Failed, "", "one winner: burst: got 2 x 201, 1 x 409, 1 x 500, want 1 x 201, 3 x 409",
		},
		{
			"a 500 in a run that did not settle", with(harness.ReasonTimeout, status(map[int]int{3: 500})),
			"answers", harness.Failed, "", "one winner: burst: got 1 x 201, 2 x 409, 1 x 500, want 1 x 201, 3 x 409",
		},
	})
	rec := whole()
	status(map[int]int{1: 201})(&rec)
	v := judged(t, fixture(), rec, "answers")
	if d := cmp.Diff([]string{"op-1", "op-2"}, v.Evidence[0].Ops); d != "" {
		t.Errorf("the operations of the status in excess: %s", d)
	}
}

func TestTallyOfNothing(t *testing.T) {
	for name, want := range map[string]map[string]map[string]int{
		"no group": nil, "a group of nobody": {"other": {}}, "a group of zeros": {"other": {"201": 0}},
	} {
		s := checks(check.Tally(check.TallyRule{
			ID: "answers", Doc: "one winner", Group: func(op harness.Operation) string { return op.Burst },
			Want: func(harness.Record) map[string]map[string]int { return want },
		}))
		if v := judged(t, s, whole(), "answers"); v.Status != harness.Unknown {
			t.Errorf("%s: %v %s", name, v.Status, v.Summary)
		}
	}
}

func TestSQLFileMustStateItsRule(t *testing.T) {
	for _, name := range []string{"no such file", "bare.sql", "only.sql", "empty.sql"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was taken", name)
				}
			}()
			check.SQL("x", badFiles, name, "here")
		}()
	}
}
