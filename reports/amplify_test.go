package reports_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/reports"
)

func amplification() reports.Amplification {
	round := func(n, posts, won int, p95 float64) reports.AmplifyRound {
		return reports.AmplifyRound{
			Round: n, ReservePosts: harness.CountPair{Ledger: posts, WireMock: posts},
			Outcomes:  map[string]int{"SUCCEEDED": won, "FAILED_RACE": 100 - won},
			ConfirmMS: harness.Latency{N: 100, P50: p95 / 2, P95: p95, P99: new(p95 * 1.1), Max: p95 * 1.2},
		}
	}
	return reports.Amplification{
		SchemaVersion: 1, Users: 100, Rounds: 3, Upstream: reports.AmplifyUpstream{LatencyModel: "lognormal, median 150 ms, sigma 0.5"},
		Paths: reports.AmplifyPaths{
			Direct: reports.AmplifyPath{
				ReservePosts: harness.CountPair{Ledger: 100, WireMock: 100}, Outcomes: map[string]int{"SUCCEEDED": 5, "FAILED_RACE": 295},
				ConfirmMS: harness.Latency{N: 300, P50: 400, P95: 812.4, P99: new(1101.0), Max: 1320},
				PerRound:  []reports.AmplifyRound{round(1, 100, 2, 810), round(2, 100, 2, 799), round(3, 100, 1, 830)},
			},
			Intent: reports.AmplifyPath{
				ReservePosts: harness.CountPair{Ledger: 1, WireMock: 1}, Outcomes: map[string]int{"SUCCEEDED": 3, "FAILED_RACE": 297},
				ConfirmMS: harness.Latency{N: 300, P50: 160, P95: 402.2, P99: new(410.0), Max: 415},
				PerRound:  []reports.AmplifyRound{round(1, 1, 1, 400), round(2, 1, 1, 180), round(3, 1, 1, 402)},
			},
		},
		Ratio:   reports.AmplifyRatio{ReservePosts: 100, ConfirmP95: 0.495, ConfirmP95Interval: [2]float64{0.22, 0.51}},
		Verdict: harness.Pass, Seed: 0x7f3a91c2, Command: "overbook amplify --users 100 --rounds 3", Host: host(), Started: begin,
		RunDirs: []string{"runs/library/one-seat@direct/20261201T093000-7f3a91c2"},
	}
}

func TestAmplificationHasExactlyThePromisedMembers(t *testing.T) {
	var b bytes.Buffer
	if err := reports.AmplifyJSON(&b, amplification()); err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	members := func(path ...string) []string {
		m := doc
		for _, p := range path {
			m = m[p].(map[string]any)
		}
		return slices.Sorted(maps.Keys(m))
	}
	for _, c := range []struct{ path, want string }{
		{"", "command host paths ratio rounds run_dirs schema_version seed started upstream users verdict"},
		{"upstream", "latency_model"},
		{"paths", "direct intent"},
		{"paths direct", "confirm_ms outcomes per_round reserve_posts"},
		{"paths intent reserve_posts", "ledger wiremock"},
		{"paths intent confirm_ms", "max n p50 p95 p99"},
		{"ratio", "confirm_p95 confirm_p95_interval reserve_posts"},
	} {
		if diff := cmp.Diff(strings.Fields(c.want), members(strings.Fields(c.path)...)); diff != "" {
			t.Errorf("members of %q (-want +got):\n%s", c.path, diff)
		}
	}
}

func TestAmplifyTextSaysWhatWasNotObserved(t *testing.T) {
	a := reports.Amplification{Users: 100, Rounds: 0}
	a.Paths.Direct.ReservePosts.WireMock = -1
	var b bytes.Buffer
	if err := reports.AmplifyText(&b, a, reports.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"? UNKNOWN", "not observed", "wiremock could not be read", "confirm p95: not comparable", "latency model not recorded", "not measured here"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing from:\n%s", want, b.String())
		}
	}
}

func TestSeatsGivenTwiceAreCountedByRound(t *testing.T) {
	var b bytes.Buffer
	if err := reports.AmplifyText(&b, amplification(), reports.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	var line string
	for l := range strings.Lines(b.String()) {
		if strings.Contains(l, "seat given twice") {
			line = strings.Join(strings.Fields(l), " ")
		}
	}
	if want := "seat given twice 2 of 3 rounds 0 of 3 rounds — —"; line != want {
		t.Errorf("got %q, want %q", line, want)
	}
}
