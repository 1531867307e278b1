package check_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// Records that are empty, partial or read back from documents with holes.
func TestHollowRecordsDoNotPass(t *testing.T) {
	for name, rec := range map[string]harness.Record{
		"zero":        {},
		"only a plan": {Plan: whole().Plan},
		"zero values in every list": {
			Plan: whole().Plan, History: harness.History{Operations: make([]harness.Operation, 2), Events: make([]harness.Event, 2), Bursts: make([]harness.BurstReport, 2)},
			Upstream: make([]harness.UpstreamCall, 2), Counts: make([]harness.UpstreamCount, 2), Rows: map[string]harness.Rows{"sql": {}},
			Activity: make([]harness.ActivitySample, 4), Witness: make([]harness.Witness, 2),
		},
		"documents with holes": fromJSON(t, `{"Plan":{"schema_version":1,"scenario":"hotel/one-room","params":{"users":"4"}},
			"History":{"Operations":[{"id":"op-1"}],"Events":[{"kind":"phase"}],"Bursts":[{"name":"burst"}]},
			"Upstream":[{"upstream":"desk"}],"Counts":[{"upstream":"desk","method":"POST","path":"/book"}],
			"Rows":{"sql":{"query":"sql","rows":null}},"Witness":[{"kind":"max_in_flight"}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range check.Judge(fixture(), rec) {
				// Trouble that was not noted can't be missed, and two observers
				// that both saw nothing agree; all else needs evidence.
				if v.Status == harness.Pass && v.ID != "observers" {
					t.Errorf("%s passes: %s", v.ID, v.Summary)
				}
			}
			if s := harness.WorstOf(check.Judge(fixture(), rec)); s == harness.Pass {
				t.Error("the whole passes")
			}
		})
	}
}

func fromJSON(t *testing.T, text string) harness.Record {
	t.Helper()
	var rec harness.Record
	if err := json.Unmarshal([]byte(text), &rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestRecordReadBackIsJudgedTheSame(t *testing.T) {
	text, err := json.Marshal(whole())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := check.Judge(fixture(), fromJSON(t, string(text))), check.Judge(fixture(), whole()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A removal takes one piece of evidence away and names the checks that can't
// pass without it.
type removal struct {
	name  string
	take  func(rec *harness.Record, pick int)
	needs []string
}

var removals = []removal{
	{"an operation", func(r *harness.Record, i int) { r.History.Operations = without(r.History.Operations, i) }, []string{"delivered", "answers"}},
	{"an answer", func(r *harness.Record, i int) {
		op := &r.History.Operations[i%len(r.History.Operations)]
		op.Status, op.Answered = 0, 0
		op.Outcome = min(op.Outcome, harness.Info)
	}, []string{"answers"}},
	{"an outcome", func(r *harness.Record, i int) { r.History.Operations[i%len(r.History.Operations)].Outcome = 0 }, []string{"delivered"}},
	{"the burst", func(r *harness.Record, i int) { r.History.Bursts = without(r.History.Bursts, i) }, []string{"delivered"}},
	{"a phase", func(r *harness.Record, i int) { r.History.Events = without(r.History.Events, i) }, []string{"conduct"}},
	{"an upstream call", func(r *harness.Record, i int) { r.Upstream = without(r.Upstream, i) }, []string{"observers", "calls", "each", "open"}},
	{"a count", func(r *harness.Record, i int) { r.Counts = without(r.Counts, i) }, []string{"observers", "calls", "each"}},
	{"WireMock's count", func(r *harness.Record, i int) { r.Counts[i%len(r.Counts)].WireMock = -1 }, []string{"observers", "calls", "each"}},
	{"the rows", func(r *harness.Record, _ int) { delete(r.Rows, "sql") }, []string{"sql"}},
	{"the query", func(r *harness.Record, _ int) { r.Rows["sql"] = harness.Rows{Query: "sql", Rows: []harness.Row{}} }, []string{"sql"}},
	{"the samples", func(r *harness.Record, i int) { r.Activity = r.Activity[:i%3] }, []string{"open"}},
	{"the witness", func(r *harness.Record, i int) { r.Witness = without(r.Witness, i) }, []string{"witnessed"}},
	{"the plan", func(r *harness.Record, _ int) { r.Plan = harness.Plan{Params: r.Plan.Params} }, []string{"conduct"}},
}

func without[T any](list []T, i int) []T {
	if len(list) == 0 {
		return list
	}
	return slices.Delete(slices.Clone(list), i%len(list), i%len(list)+1)
}

// Whatever evidence is taken out of a record that passes, the checks that need
// it pass no longer; and missing evidence proves no violation.
func TestTakingEvidenceAwayNeverPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rec := whole()
		must := map[string]string{}
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(removals)-1), 1, 4, rapid.ID).Draw(t, "removals") {
			r := removals[i]
			if skip := len(rec.History.Operations) == 0 || len(rec.Counts) == 0; skip {
				continue
			}
			r.take(&rec, rapid.IntRange(0, 99).Draw(t, r.name))
			for _, id := range r.needs {
				must[id] = r.name
			}
		}
		for _, v := range check.Judge(fixture(), rec) {
			if why, taken := must[v.ID]; taken && v.Status == harness.Pass {
				t.Errorf("%s passes without %s: %s", v.ID, why, v.Summary)
			}
			if v.Status == harness.Failed {
				t.Errorf("%s is violated by missing evidence: %s", v.ID, v.Summary)
			}
		}
	})
}

// A violation stays one, whatever else went wrong with the run.
func TestTroubleNeverHidesAViolationSeenAtOnce(t *testing.T) {
	reasons := []harness.Reason{
		harness.ReasonVacuous, harness.ReasonDisagree, harness.ReasonUndelivered, harness.ReasonTimeout, harness.ReasonAssumption,
		harness.ReasonEnvironment, harness.ReasonInterrupted, harness.ReasonLeak, harness.ReasonChecker, "",
	}
	rapid.Check(t, func(t *rapid.T) {
		rec := whole()
		for _, r := range rapid.SliceOf(rapid.SampledFrom(reasons)).Draw(t, "trouble") {
			rec.Trouble = append(rec.Trouble, harness.Trouble{Reason: r, Text: "trouble"})
		}
		rec.Upstream = append(rec.Upstream, rec.Upstream[0])
		rec.History.Operations[1].Status = 201
		for _, v := range check.Judge(fixture(), rec) {
			if (v.ID == "calls" || v.ID == "answers") && v.Status != harness.Failed {
				t.Errorf("%s is %v: %s", v.ID, v.Status, v.Summary)
			}
			if v.Status == harness.Unknown && v.Reason == "" {
				t.Errorf("%s is unknown without a reason: %s", v.ID, v.Summary)
			}
		}
	})
}
