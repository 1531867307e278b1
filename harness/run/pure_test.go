package run

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/stats"
)

func hotel() harness.Scenario {
	return harness.Scenario{
		Name: "hotel/one-room@direct", Title: "t", Latency: "confirm",
		Params: []harness.Param{
			{Name: "users", Kind: harness.IntParam, Default: "100"}, {Name: "path", Kind: harness.ChoiceParam, Default: "intent", Values: []string{"intent", "direct"}},
		},
		Rounds:   func(p harness.Params) int { return p.Int("users") / 10 },
		Outcomes: func(harness.Record) map[string]int { return map[string]int{"SUCCEEDED": 1} },
	}
}

var loose = cmp.Options{cmpopts.IgnoreUnexported(harness.Result{}, harness.Verdict{}, harness.Evidence{}, harness.BurstReport{}, harness.Witness{},
	harness.CountPair{}, harness.Latency{})}

func TestSummarise(t *testing.T) {
	rec := harness.Record{
		Plan: harness.Plan{Scenario: "hotel/one-room@direct", Seed: 7, Mutant: "H-M1", Params: harness.Params{"users": "30"}},
		History: harness.History{
			Operations: []harness.Operation{
				{Kind: "prepare", Status: 201, Intended: 1e6, Sent: 1e6, Answered: 900e6},
				{Kind: "confirm", Status: 201, Intended: 10e6, Sent: 12e6, Answered: 20e6},
				{Kind: "confirm", Status: 409, Intended: 10e6, Sent: 12e6, Answered: 40e6},
				{Kind: "confirm", Intended: 10e6, Sent: 12e6},
			},
			Bursts: []harness.BurstReport{{Name: "round-1"}},
		},
		Counts: []harness.UpstreamCount{
			{Upstream: "desk", Method: "POST", Path: "/book", Ledger: 2, WireMock: -1},
			{Upstream: "desk", Method: "GET", Path: "/rooms", Ledger: 3, WireMock: 3},
			{Upstream: "desk", Method: "POST", Path: "/book", Key: "101", Ledger: 1, WireMock: 1}, // a part of the total
		},
		Witness:  []harness.Witness{{Kind: "max_in_flight", Want: 1, Got: 2}},
		Measured: map[string]float64{"rate": 3},
	}
	verdicts := []harness.Verdict{
		{ID: "conduct", Status: harness.Pass, Summary: "fine"},
		{ID: "open", Status: harness.Unknown, Reason: harness.ReasonVacuous, Summary: "not seen"},
		{ID: "tally", Status: harness.Failed, Summary: "two winners"},
		{ID: "calls", Status: harness.Failed, Summary: "two calls"},
	}
	want := harness.Result{
		Name: "hotel/one-room@direct", Title: "t", Verdict: harness.Failed, Summary: "tally: two winners", Seed: 7, Mutant: "H-M1", Rounds: 3,
		Params: harness.Params{"users": "30"}, PhasesMS: map[string]float64{}, Responses: map[string]int{"201": 1, "409": 1, "none": 1}, Outcomes: map[string]int{"SUCCEEDED": 1},
		Upstream: map[string]map[string]harness.CountPair{"desk": {"POST /book": {Ledger: 2, WireMock: -1}, "GET /rooms": {Ledger: 3, WireMock: 3}}},
		Latency:  &harness.Latency{N: 2, P50: 10, P95: 30, Max: 30}, Bursts: rec.History.Bursts, Witness: rec.Witness, Checks: verdicts, Measurements: map[string]float64{"rate": 3},
	}
	if d := cmp.Diff(want, Summarise(hotel(), rec, verdicts), loose); d != "" {
		t.Error(d)
	}
}

// Each further kind has its own figures and its own histogram; one without an
// answer has none.
func TestLatenciesOfSeveralKinds(t *testing.T) {
	s := hotel()
	s.Latencies = []string{"hold", "pay", "never", "confirm"}
	rec := harness.Record{Plan: harness.Plan{Params: harness.Params{"users": "10"}}, History: harness.History{Loads: []harness.OpenLoopReport{{Name: "sale", Planned: 120}}}}
	add := func(kind string, answered time.Duration) {
		rec.History.Operations = append(rec.History.Operations, harness.Operation{Kind: kind, Status: 201, Intended: 1, Sent: 1, Answered: 1 + answered})
	}
	for i := range 120 {
		add("hold", time.Duration(i+1)*time.Millisecond)
	}
	add("pay", 7*time.Millisecond)
	add("confirm", 3*time.Millisecond)
	add("never", -1)
	r := Summarise(s, rec, nil)
	p99 := 119.0
	want := map[string]*harness.Latency{
		"hold": {N: 120, P50: 60, P95: 114, P99: &p99, Max: 120}, "pay": {N: 1, P50: 7, P95: 7, Max: 7}, "confirm": {N: 1, P50: 3, P95: 3, Max: 3},
	}
	if d := cmp.Diff(want, r.Latencies, loose); d != "" {
		t.Error(d)
	}
	if r.Latency == nil || r.Latency.N != 1 || len(r.Loads) != 1 {
		t.Errorf("latency %+v, loads %+v", r.Latency, r.Loads)
	}
	r.Started = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	files, err := extraFiles(s, rec, r)
	if err != nil {
		t.Fatal(err)
	}
	histograms, err := stats.ReadLog(bytes.NewReader(files["latency.hdr"]))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, h := range histograms {
		got[h.Tag()] = h.Count()
	}
	if d := cmp.Diff(map[string]int64{"confirm": 1, "hold": 120, "pay": 1, "never": 0}, got); d != "" || len(histograms) != 4 {
		t.Errorf("%d histograms: %s", len(histograms), d)
	}
}

func TestSummariseSaysTheVerdictInOneSentence(t *testing.T) {
	pass := harness.Verdict{ID: "a", Status: harness.Pass, Summary: "fine"}
	unknown := harness.Verdict{ID: "b", Status: harness.Unknown, Reason: harness.ReasonTimeout, Summary: "late"}
	const undecided = "a check came to no decision, or there was none"
	for _, tc := range []struct {
		name     string
		verdicts []harness.Verdict
		status   harness.Status
		reason   harness.Reason
		summary  string
	}{
		{"all pass", []harness.Verdict{pass, pass}, harness.Pass, "", "2 checks held"},
		{"unknown", []harness.Verdict{pass, unknown}, harness.Unknown, harness.ReasonTimeout, "b: late"},
		{"nothing was judged", nil, harness.Unknown, harness.ReasonChecker, undecided},
		{"a check forgot to decide", []harness.Verdict{pass, {ID: "c"}}, harness.Unknown, harness.ReasonChecker, undecided},
		{"one forgot, one is unknown", []harness.Verdict{{ID: "c"}, unknown}, harness.Unknown, harness.ReasonTimeout, "b: late"},
	} {
		r := Summarise(harness.Scenario{Name: "bare"}, harness.Record{}, tc.verdicts)
		if r.Verdict != tc.status || r.Reason != tc.reason || r.Summary != tc.summary {
			t.Errorf("%s: %v %q %q", tc.name, r.Verdict, r.Reason, r.Summary)
		}
		if r.Rounds != 1 || r.Responses == nil || r.Bursts == nil || r.Witness == nil || r.Outcomes == nil || r.Latency != nil {
			t.Errorf("%s: %+v: lists and maps are never null, and no latency comes of no answer", tc.name, r)
		}
	}
}

func TestReplayLine(t *testing.T) {
	for _, tc := range []struct {
		plan harness.Plan
		want string
	}{
		{harness.Plan{Seed: 0x2a, Params: harness.Params{"users": "100", "path": "intent"}}, "overbook run hotel/one-room@direct --seed 0000002a"},
		{
			harness.Plan{Seed: 1, Mutant: "L-M1", Params: harness.Params{"users": "5", "path": "direct"}},
			"overbook run hotel/one-room@direct --seed 00000001 --set path=direct --set users=5 --mutant L-M1",
		},
		{harness.Plan{Params: harness.Params{"note": "it's $HOME"}}, `overbook run hotel/one-room@direct --seed 00000000 --set 'note=it'\''s $HOME'`},
	} {
		if got := replayLine("overbook", hotel(), tc.plan); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

// A shell gives back what was quoted.
func TestQuote(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell to ask")
	}
	words := []string{"", "plain/word-1_2.3=4@5:6", "it's", "$HOME `id` \"x\" \\", "*", "~", "-n", "two\nlines", "a;b&c|d", "ünï"}
	words = append(words, rapid.SliceOfN(rapid.StringMatching(`[ -~]{0,12}`), 10, 10).Example(1)...)
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	out, err := exec.CommandContext(t.Context(), shell, "-c", `printf '%s\0' `+strings.Join(quoted, " ")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(words, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")); d != "" {
		t.Error(d)
	}
	if quote("plain/word-1_2.3=4@5:6") != "plain/word-1_2.3=4@5:6" {
		t.Error("a plain word is quoted")
	}
}

func TestLastLines(t *testing.T) {
	for _, tc := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""}, {"a", 3, "a"}, {"a\nb\nc\n", 2, "b\nc"}, {"a\nb\nc\n\n\n", 2, "b\nc"}, {"a\n\nb", 2, "\nb"}, {"a\nb", 0, ""},
	} {
		if got := lastLines(tc.text, tc.n); got != tc.want {
			t.Errorf("last %d of %q: %q, want %q", tc.n, tc.text, got, tc.want)
		}
	}
}
