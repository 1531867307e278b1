package harness_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
)

func TestSeedText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := harness.Seed(rapid.Uint32().Draw(t, "seed"))
		text, err := json.Marshal(s)
		if err != nil || len(text) != len(`"7f3a91c2"`) {
			t.Fatalf("%s, %v", text, err)
		}
		var back harness.Seed
		if err := json.Unmarshal(text, &back); err != nil || back != s {
			t.Errorf("%s came back as %s, %v", text, back, err)
		}
	})
	for text, want := range map[string]harness.Seed{"0": 0, "7f3a91c2": 0x7f3a91c2, "0xFF": 255, "0Xff": 255, "00000001": 1} {
		if got, err := harness.ParseSeed(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0x", "g", "-1", "+1", "123456789", "000000001", " 1", "1 ", "1_0", "0x0x1"} {
		want := "want one to eight hex digits, like 7f3a91c2"
		if got, err := harness.ParseSeed(text); err == nil || !strings.Contains(err.Error(), want) || got != 0 {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestSeedStreams(t *testing.T) {
	const s = harness.Seed(42)
	first := s.Rand("choices").Uint64()
	if again := s.Rand("choices").Uint64(); again != first {
		t.Error("the same seed and purpose give another stream")
	}
	long := strings.Repeat("x", 30)
	for name, other := range map[string]*rand.Rand{
		"another seed": harness.Seed(43).Rand("choices"), "another purpose": s.Rand("double"), "no purpose": s.Rand(""), "a long one": s.Rand(long),
	} {
		if other.Uint64() == first {
			t.Errorf("%s gives the same stream", name)
		}
	}
	if s.Rand(long).Uint64() == s.Rand(long+"x").Uint64() {
		t.Error("purposes of more than 24 bytes fold onto each other")
	}
}

func TestParamCheck(t *testing.T) {
	number := harness.Param{Name: "users", Kind: harness.IntParam, Default: "100", Min: 2, Max: 1000}
	open := harness.Param{Name: "n", Kind: harness.IntParam, Default: "5", Min: 2}
	wait := harness.Param{Name: "wait", Kind: harness.DurationParam, Default: "150ms"}
	path := harness.Param{Name: "path", Kind: harness.ChoiceParam, Default: "intent", Values: []string{"intent", "direct"}}
	for _, tc := range []struct {
		p           harness.Param
		value, want string
	}{
		{number, "2", ""},
		{number, "1000", ""},
		{number, "1", "users=1: want 2 to 1000"},
		{number, "1001", "users=1001: want 2 to 1000"},
		{number, "many", "users=many: want a whole number, like 100"},
		{number, "1e3", "users=1e3: want a whole number, like 100"},
		{number, "", "users=: want a whole number, like 100"},
		{open, "1000000", ""},
		{open, "1", "n=1: want at least 2"},
		{wait, "0s", ""},
		{wait, "1h", ""},
		{wait, "150", "wait=150: want a duration, like 150ms"},
		{wait, "-1s", "wait=-1s: want a duration, like 150ms"},
		{path, "direct", ""},
		{path, "Direct", "path=Direct: want one of intent, direct"},
		{harness.Param{Name: "x", Kind: "bool"}, "true", `parameter x has the unknown kind "bool"`},
	} {
		got := ""
		if err := tc.p.Check(tc.value); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func experiment() harness.Scenario {
	return harness.Scenario{
		Name: "hotel/one-room",
		Params: []harness.Param{
			{Name: "users", Kind: harness.IntParam, Default: "4", Min: 2, Max: 9},
			{Name: "path", Kind: harness.ChoiceParam, Default: "a", Values: []string{"a", "b"}},
		},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			return map[string][]int{"order": rng.Perm(p.Int("users"))}, nil
		},
	}
}

func TestMakePlan(t *testing.T) {
	plan, err := experiment().MakePlan(7, harness.Params{"users": "9"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := experiment().MakePlan(7, harness.Params{"users": "9"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := json.Marshal(again); err != nil || !bytes.Equal(text, other) {
		t.Errorf("%s and %s, %v", text, other, err)
	}
	var c map[string][]int
	if err := plan.Decode(&c); err != nil || len(c["order"]) != 9 || plan.Params.Text("path") != "a" || plan.SchemaVersion != 1 {
		t.Errorf("%s, %v", text, err)
	}
	if defaults := experiment().Defaults(); len(defaults) != 2 || defaults.Int("users") != 4 {
		t.Error(defaults)
	}
}

func TestMakePlanRefuses(t *testing.T) {
	_, err := experiment().MakePlan(7, harness.Params{"usrs": "3", "path": "c", "users": "1", "more": ""})
	want := strings.Join([]string{
		`hotel/one-room has no parameter "more"; it has users, path`,
		"path=c: want one of a, b",
		"users=1: want 2 to 9",
		`hotel/one-room has no parameter "usrs"; it has users, path`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if _, err := (harness.Scenario{Name: "bare"}).MakePlan(1, harness.Params{"x": "1"}); err == nil || !strings.HasSuffix(err.Error(), "it has none") {
		t.Error(err)
	}
	s := experiment()
	s.Choose = func(*rand.Rand, harness.Params) (any, error) { return nil, errors.New("no seat left") }
	if _, err := s.MakePlan(1, nil); err == nil || err.Error() != "plan hotel/one-room: no seat left" {
		t.Error(err)
	}
	s.Choose = func(*rand.Rand, harness.Params) (any, error) { return func() {}, nil }
	if _, err := s.MakePlan(1, nil); err == nil || !strings.HasPrefix(err.Error(), "plan hotel/one-room: encode choices") {
		t.Error(err)
	}
	if plan, err := (harness.Scenario{Name: "bare"}).MakePlan(1, nil); err != nil || string(plan.Choices) != "{}" {
		t.Errorf("%s, %v", plan.Choices, err)
	}
	if err := (harness.Plan{Scenario: "x", Choices: json.RawMessage("[")}).Decode(&struct{}{}); err == nil || !strings.HasPrefix(err.Error(), "plan of x: decode choices") {
		t.Error(err)
	}
}
