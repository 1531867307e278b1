package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
	"github.com/overbook/overbook/scenarios"
)

// compared is a suite of one run of each path with so many rounds, after the
// warm-ups, and its records.
func compared(direct, intent int) (harness.Suite, map[string]harness.Record) {
	s, records := harness.Suite{Verdict: harness.Unknown}, map[string]harness.Record{}
	for _, path := range []string{"direct", "intent"} {
		s.Scenarios = append(s.Scenarios, harness.Result{
			Name: "library/one-seat", RunDir: "warm-up", Params: harness.Params{"path": path},
			Bursts: []harness.BurstReport{{Name: "round-1", Requests: 2}},
		})
	}
	records["warm-up"] = harness.Record{
		Plan:    harness.Plan{Choices: json.RawMessage(`{"seats":["Z-026"]}`)},
		History: harness.History{Operations: []harness.Operation{{Kind: "confirm", Burst: "round-1", Intended: 1, Answered: time.Hour}}},
	}
	for path, rounds := range map[string]int{"direct": direct, "intent": intent} {
		r := harness.Result{
			Name: "library/one-seat", RunDir: path, Verdict: harness.Unknown,
			Params: harness.Params{"path": path, "users": "2", "latency": "150ms", "sigma_percent": "40", "window": "3ms"},
		}
		rec := harness.Record{Plan: harness.Plan{Choices: json.RawMessage(`{"seats":["A-001","B-002","C-003"]}`)}}
		for i := range rounds {
			name := fmt.Sprintf("round-%d", i+1)
			r.Bursts = append(r.Bursts, harness.BurstReport{Name: name, Requests: 2})
			for n := range 2 {
				rec.History.Operations = append(rec.History.Operations, harness.Operation{
					Kind: "confirm", Burst: name, Intended: 1, Answered: time.Duration(n+i+2) * time.Millisecond,
				})
			}
			rec.Counts = append(rec.Counts, harness.UpstreamCount{
				Upstream: "pyxis", Method: "POST", Path: "/reserve", Key: fmt.Sprintf("%c-%03d", 'A'+i, i+1), Ledger: 2, WireMock: 2,
			})
		}
		s.Scenarios, records[path] = append(s.Scenarios, r), rec
	}
	return s, records
}

// A comparison that was cut short says how far it came, in a document that can
// be written.
func TestAmplificationOfWhatTookPlace(t *testing.T) {
	for _, tc := range []struct {
		direct, intent, rounds int
		compared               bool
	}{{3, 3, 3, true}, {3, 2, 2, true}, {2, 1, 1, false}, {1, 1, 1, false}, {2, 0, 0, false}, {0, 0, 0, false}} {
		s, records := compared(tc.direct, tc.intent)
		table := (&app{}).amplification(s, records)
		if table.Rounds != tc.rounds {
			t.Errorf("%d and %d rounds: the table says %d, want %d", tc.direct, tc.intent, table.Rounds, tc.rounds)
		}
		if got := table.Ratio.ConfirmP95 > 0; got != tc.compared {
			t.Errorf("%d and %d rounds: ratio %v, want one: %v", tc.direct, tc.intent, table.Ratio, tc.compared)
		}
		if err := reports.AmplifyJSON(new(bytes.Buffer), table); err != nil {
			t.Errorf("%d and %d rounds: %v", tc.direct, tc.intent, err)
		}
	}
}

// A ratio of equal rounds does not move when one path has a round more.
func TestAmplificationComparesEqualRounds(t *testing.T) {
	even, records := compared(2, 2)
	want := (&app{}).amplification(even, records).Ratio
	more, records := compared(3, 2)
	if got := (&app{}).amplification(more, records).Ratio; got != want {
		t.Errorf("%+v with a round more, %+v without", got, want)
	}
}

func TestAmplificationOfUnreadCounts(t *testing.T) {
	s, records := compared(2, 2)
	records["intent"].Counts[1].WireMock, records["intent"].Counts[1].Error = -1, "gone"
	table := (&app{}).amplification(s, records)
	if got := table.Paths.Intent.ReservePosts; got.Ledger != 2 || got.WireMock != -1 {
		t.Errorf("got %+v, want that WireMock's greatest number is not known", got)
	}
	if got := table.Paths.Direct.ReservePosts; got.Ledger != 2 || got.WireMock != 2 {
		t.Errorf("got %+v, want 2 by both", got)
	}
	s, records = compared(2, 0)
	if got := (&app{}).amplification(s, records).Paths.Intent.ReservePosts.WireMock; got != -1 {
		t.Errorf("%d POSTs in no round", got)
	}
}

// Neither path is always the one that follows the other, and each goes on in
// the sequence of latencies where its last batch stopped.
func TestAmplifyPlansTakeTurns(t *testing.T) {
	base, err := (&app{App: App{Scenarios: scenarios.All()}}).scenario("library/one-seat")
	if err != nil {
		t.Fatal(err)
	}
	var f runFlags
	f.add(&cobra.Command{})
	todo, err := f.amplifyPlans(base, 7, harness.Params{"users": "10"}, 6)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range todo {
		got = append(got, fmt.Sprintf("%s %s after %s", p.plan.Params["path"], p.plan.Params["rounds"], p.plan.Params["latency_skip"]))
	}
	want := []string{
		"direct 1 after 0", "intent 1 after 0", // to warm up
		"direct 2 after 0", "intent 2 after 0", "intent 2 after 2", "direct 2 after 20",
		"direct 1 after 40", "intent 1 after 4", "intent 1 after 5", "direct 1 after 50",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
