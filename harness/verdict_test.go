package harness_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
)

func TestWorst(t *testing.T) {
	const (
		pass, unknown, failed = harness.Pass, harness.Unknown, harness.Failed
	)
	for _, tc := range []struct {
		in   []harness.Status
		want harness.Status
	}{
		{nil, unknown},
		{[]harness.Status{0}, unknown},
		{[]harness.Status{pass}, pass},
		{[]harness.Status{pass, pass}, pass},
		{[]harness.Status{pass, 0}, unknown},
		{[]harness.Status{pass, 200}, unknown},
		{[]harness.Status{pass, unknown}, unknown},
		{[]harness.Status{unknown, failed, pass}, failed},
		{[]harness.Status{200, failed}, failed},
	} {
		if got := harness.Worst(tc.in...); got != tc.want {
			t.Errorf("Worst(%v) = %v, want %v", tc.in, got, tc.want)
		}
	}
}

func valid(s harness.Status) bool { return s >= harness.Pass && s <= harness.Failed }

func TestWorstLaws(t *testing.T) {
	status := rapid.Custom(func(t *rapid.T) harness.Status { return harness.Status(rapid.IntRange(0, 5).Draw(t, "status")) })
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(status, 1, 8).Draw(t, "statuses")
		got := harness.Worst(list...)
		if !valid(got) {
			t.Fatalf("%v is no status", got)
		}
		if got != harness.Worst(rapid.Permutation(list).Draw(t, "order")...) {
			t.Error("the order matters")
		}
		cut := rapid.IntRange(1, len(list)).Draw(t, "cut")
		if cut < len(list) && got != harness.Worst(harness.Worst(list[:cut]...), harness.Worst(list[cut:]...)) {
			t.Error("the grouping matters")
		}
		if got == harness.Pass && slices.ContainsFunc(list, func(s harness.Status) bool { return s != harness.Pass }) {
			t.Error("passes with something that did not")
		}
		if (got == harness.Failed) != slices.Contains(list, harness.Failed) {
			t.Error("a violation does not win, or came from nowhere")
		}
		verdicts := make([]harness.Verdict, len(list))
		for i, s := range list {
			verdicts[i].Status = s
		}
		if harness.WorstOf(verdicts) != got {
			t.Error("WorstOf differs from Worst")
		}
	})
}

func TestStatusAndOutcomeText(t *testing.T) {
	type doc struct {
		S harness.Status
		O harness.Outcome
	}
	for _, d := range []doc{{harness.Pass, harness.OK}, {harness.Unknown, harness.Info}, {harness.Failed, harness.Fail}} {
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back doc
		if err := json.Unmarshal(text, &back); err != nil || back != d {
			t.Errorf("%s came back as %v, %v", text, back, err)
		}
	}
	for name, v := range map[string]any{
		"zero status": harness.Verdict{}, "a status out of range": harness.Status(4),
		"zero outcome": harness.Operation{}, "an outcome out of range": harness.Outcome(9),
	} {
		if text, err := json.Marshal(v); err == nil {
			t.Errorf("%s was stored as %s", name, text)
		}
	}
	var s harness.Status
	err := s.UnmarshalText([]byte("pass"))
	if want := `unmarshal status: "pass" is none of [FAIL PASS UNKNOWN]`; err == nil || err.Error() != want || s != 0 {
		t.Errorf("got %v and %v, want %s", s, err, want)
	}
	if got := harness.Status(0).String() + " " + harness.Outcome(7).String(); got != "Status(0) Outcome(7)" {
		t.Error(got)
	}
}

func TestVerdictMakers(t *testing.T) {
	evidence := []harness.Evidence{{Text: "row"}}
	violated := harness.Violated(evidence, "%d rows", 1)
	evidence[0].Text = "changed later"
	want := []harness.Verdict{
		{Status: harness.Pass, Summary: "2 of 2", Evidence: []harness.Evidence{}},
		{Status: harness.Unknown, Reason: harness.ReasonTimeout, Summary: "100% late", Evidence: []harness.Evidence{}},
		{Status: harness.Failed, Summary: "1 rows", Evidence: []harness.Evidence{{Text: "row"}}},
	}
	got := []harness.Verdict{harness.Passed("%d of %d", 2, 2), harness.Undecided(harness.ReasonTimeout, "%s", "100% late"), violated}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(harness.Verdict{}, harness.Evidence{})); d != "" {
		t.Error(d)
	}
}

func TestWitnessHolds(t *testing.T) {
	for _, tc := range []struct {
		w    harness.Witness
		want bool
	}{
		{harness.Witness{Kind: "k", Want: 2, Got: 2}, true},
		{harness.Witness{Kind: "k", Want: 2, Got: 3}, true},
		{harness.Witness{Kind: "k", Want: 2, Got: 1.9}, false},
		{harness.Witness{}, false},
		{harness.Witness{Kind: "k"}, false},
		{harness.Witness{Kind: "k", Want: -1, Got: 1}, false},
		{harness.Witness{Want: 1, Got: 1}, false},
		{harness.Witness{Kind: "k", Want: 1, Got: math.NaN()}, false},
		{harness.Witness{Kind: "k", Want: math.NaN(), Got: 1}, false},
	} {
		if tc.w.Holds() != tc.want {
			t.Errorf("%+v holds: %v", tc.w, !tc.want)
		}
	}
}

func TestRecordFind(t *testing.T) {
	rec := harness.Record{Rows: map[string]harness.Rows{
		"none": {Rows: []harness.Row{}}, "one": {Rows: []harness.Row{{"n": 1}}}, "nil": {}, "error": {Rows: []harness.Row{}, Error: "no table"},
	}}
	for name, want := range map[string]bool{"none": true, "one": true, "nil": false, "error": false, "not asked": false} {
		if _, ok := rec.Find(name); ok != want {
			t.Errorf("%s was read: %v", name, ok)
		}
	}
}

func TestRecordCallsAndKinds(t *testing.T) {
	rec := harness.Record{
		Upstream: []harness.UpstreamCall{
			{Seq: 1, Upstream: "a", Method: "POST", Path: "/x"},
			{Seq: 2, Upstream: "a", Method: "GET", Path: "/x"},
			{Seq: 3, Upstream: "b", Method: "POST", Path: "/x"},
			{Seq: 4, Upstream: "a", Method: "POST", Path: "/x/y"},
			{Seq: 5, Upstream: "a", Method: "POST", Path: "/x"},
		},
		History: harness.History{Operations: []harness.Operation{{ID: "1", Kind: "confirm"}, {ID: "2", Kind: "prepare"}, {ID: "3", Kind: "confirm"}}},
	}
	var got []string
	for _, c := range rec.Calls("a", "POST", "/x") {
		got = append(got, string(rune('0'+c.Seq)))
	}
	for _, op := range rec.History.OfKind("confirm") {
		got = append(got, "op"+op.ID)
	}
	if s := strings.Join(got, " "); s != "1 5 op1 op3" {
		t.Error(s)
	}
}
