package scenarios_test

import (
	"bytes"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios"
)

func each(t *testing.T, test func(*testing.T, harness.Scenario)) {
	t.Helper()
	for _, s := range scenarios.All() {
		t.Run(s.Name, func(t *testing.T) { test(t, s) })
	}
}

var nameForm = regexp.MustCompile(`^[a-z]+/[a-z0-9-]+(@[a-z0-9-]+)?$`)

// reserved are the ids of the verdicts on the run itself.
var reserved = []string{"conduct", "delivered", "witnessed", "observers", "checks"}

func TestEveryScenarioIsWhole(t *testing.T) {
	names := map[string]bool{}
	each(t, func(t *testing.T, s harness.Scenario) {
		if names[s.Name] || !nameForm.MatchString(s.Name) {
			t.Errorf("the name is used twice or has another form than design/what-it-tries@variant")
		}
		names[s.Name] = true
		for what, text := range map[string]string{"title": s.Title, "doc": s.Doc, "latency": s.Latency, "sources": strings.Join(s.Sources, ""), "tags": strings.Join(s.Tags, ""), "settle": s.Settle.Doc} {
			if text == "" {
				t.Errorf("no %s", what)
			}
		}
		if strings.HasSuffix(s.Title, ".") {
			t.Error("the title has a full stop")
		}
		if s.Drive == nil || s.Outcomes == nil || s.Settle.SQL == "" || s.Settle.Deadline <= 0 || len(s.Tables) == 0 {
			t.Error("drive, outcomes, tables, and a settle condition with its deadline must be given")
		}
		for _, p := range s.Params {
			if err := p.Check(p.Default); err != nil || p.Doc == "" {
				t.Errorf("parameter %s: %v, doc %q", p.Name, err, p.Doc)
			}
		}
		if len(s.Defaults()) != len(s.Params) {
			t.Error("a parameter is declared twice")
		}
		topology := s.Topology(s.Defaults())
		if topology.Replicas < 1 || topology.Design == "" || len(topology.Doubles) == 0 {
			t.Errorf("topology %+v", topology)
		}
		for _, d := range topology.Doubles {
			if d.Name == "" || d.New == nil || d.Mappings == nil || len(d.Count) == 0 {
				t.Errorf("double %q is not whole", d.Name)
			}
		}
	})
}

// everywhere are the checks that no scenario of a design may be without.
var everywhere = map[string][]string{
	"library":   {"L-I1", "L-I2", "L-I3", "L-I3.charges", "L-I4", "L-I5", "L-I7"},
	"telescope": {"T-I1", "T-I2", "T-I3", "T-I4", "T-I5", "T-I6", "T-I7", "T-I10"},
	"tickets":   {"S-I1", "S-I2", "S-I3", "S-I4", "S-I5", "S-I6", "S-I7", "S-I8", "S-I9", "S-I10", "S-I11"},
	"calendar":  {"C-I1", "C-I2", "C-I3", "C-I4", "C-I5", "C-I6", "C-I7", "C-I8"},
}

func TestEveryDesignSaysWhatItAlwaysChecks(t *testing.T) {
	each(t, func(t *testing.T, s harness.Scenario) {
		if len(everywhere[path.Dir(s.Name)]) == 0 {
			t.Errorf("nothing is said of the design of %s", s.Name)
		}
	})
}

// instants are the invariants on rows that every committed state keeps: they
// are judged whether or not a run came to rest. All others are not.
var instants = []string{"S-I1", "S-I3", "S-I4", "S-I4.seat", "S-I7", "S-I10", "C-I1", "C-I1.history", "C-I2", "C-I5.once", "C-I8", "C-history", "C-history.steps", "C-history.events"}

func TestEveryCheckHasItsOwnIDAndSentence(t *testing.T) {
	each(t, func(t *testing.T, s harness.Scenario) {
		checks := s.Checks(s.Defaults())
		seen := map[string]bool{}
		for _, c := range checks {
			if c.ID == "" || c.Doc == "" || c.Judge == nil {
				t.Errorf("check %q has no id, sentence or judge", c.ID)
			}
			if seen[c.ID] || slices.Contains(reserved, c.ID) {
				t.Errorf("the id %q is used twice or reserved", c.ID)
			}
			if c.SQL != "" && c.NeedsSettled == slices.Contains(instants, c.ID) {
				t.Errorf("%s: needs a settled run: %v; only %q hold at every instant", c.ID, c.NeedsSettled, instants)
			}
			seen[c.ID] = true
		}
		for _, id := range everywhere[path.Dir(s.Name)] {
			counted := s.Name == "telescope/failover@async" && id == "T-I4" // what an asynchronous standby lacks is counted, by another check
			if !seen[id] && !counted {
				t.Errorf("nobody checks %s", id)
			}
		}
	})
}

// No check may pass on a record in which nothing was seen.
func TestNoCheckPassesOnNothing(t *testing.T) {
	each(t, func(t *testing.T, s harness.Scenario) {
		plan, err := s.MakePlan(1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range s.Checks(plan.Params) {
			if v := c.Judge(harness.Record{Plan: plan}); v.Status == harness.Pass {
				t.Errorf("%s passes: %s", c.ID, v.Summary)
			} else if v.Status == harness.Failed {
				t.Errorf("%s is violated by nothing: %s", c.ID, v.Summary)
			}
		}
	})
}

func planText(t *testing.T, s harness.Scenario, seed harness.Seed, set harness.Params) []byte {
	t.Helper()
	plan, err := s.MakePlan(seed, set)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSameSeedSamePlan(t *testing.T) {
	each(t, func(t *testing.T, s harness.Scenario) {
		for _, seed := range []harness.Seed{0, 1, 0xffffffff} {
			first := planText(t, s, seed, nil)
			for range 3 {
				if again := planText(t, s, seed, nil); !bytes.Equal(first, again) {
					t.Errorf("seed %s:\n%s\n%s", seed, first, again)
				}
			}
			if spelled := planText(t, s, seed, s.Defaults()); !bytes.Equal(first, spelled) {
				t.Error("setting every parameter to its default changes the plan")
			}
		}
	})
}

func TestAnotherSeedAnotherPlan(t *testing.T) {
	each(t, func(t *testing.T, s harness.Scenario) {
		choices := map[string]bool{}
		for seed := range harness.Seed(20) {
			plan, err := s.MakePlan(seed, nil)
			if err != nil {
				t.Fatal(err)
			}
			choices[string(plan.Choices)] = true
		}
		if len(choices) < 2 {
			t.Errorf("twenty seeds choose the same: %v", choices)
		}
	})
}

// Whatever values a scenario's parameters may have, it plans, has a topology
// and has checks, or refuses with an error that names a parameter.
func TestEveryAllowedParameterIsPlannable(t *testing.T) {
	each(t, func(t *testing.T, s harness.Scenario) {
		rapid.Check(t, func(t *rapid.T) {
			set := harness.Params{}
			for _, p := range s.Params {
				switch p.Kind {
				case harness.IntParam:
					set[p.Name] = strconv.Itoa(rapid.IntRange(p.Min, min(p.Max, p.Min+40)).Draw(t, p.Name))
				case harness.ChoiceParam:
					set[p.Name] = rapid.SampledFrom(p.Values).Draw(t, p.Name)
				case harness.DurationParam:
					set[p.Name] = rapid.SampledFrom([]string{"0s", "1ms", "1h"}).Draw(t, p.Name)
				}
			}
			plan, err := s.MakePlan(harness.Seed(rapid.Uint32().Draw(t, "seed")), set)
			if err != nil {
				if !strings.Contains(err.Error(), "want at least as many") {
					t.Fatal(err)
				}
				return
			}
			if s.Topology(plan.Params).Replicas < 1 || len(s.Checks(plan.Params)) == 0 {
				t.Fatal("no replica or no check")
			}
			for _, c := range s.Checks(plan.Params) {
				if v := c.Judge(harness.Record{Plan: plan}); v.Status != harness.Unknown {
					t.Fatalf("%s on nothing: %v %s", c.ID, v.Status, v.Summary)
				}
			}
		})
	})
}

func TestPlansThatWouldRaceAgainstNobodyAreRefused(t *testing.T) {
	for name, set := range map[string]harness.Params{
		"library/many-seats":    {"users": "3", "seats": "4"},
		"library/tick-boundary": {"users": "3", "waves": "4"},
	} {
		chosen, err := scenarios.Select(scenarios.All(), []string{name}, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chosen[0].MakePlan(1, set); err == nil || !strings.Contains(err.Error(), "users=3: want at least as many as") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func namesOf(list []harness.Scenario) string {
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// few are enough to choose from.
var few = []harness.Scenario{
	{Name: "hotel/one-room", Tags: []string{"race", "demo"}},
	{Name: "hotel/one-room@slow", Tags: []string{"slow"}},
	{Name: "hotel/crash", Tags: []string{"race", "fault"}},
	{Name: "boat/one-seat", Tags: []string{"race"}},
}

func TestSelect(t *testing.T) {
	for _, tc := range []struct {
		patterns  []string
		tag, want string
	}{
		{nil, "race", "hotel/one-room hotel/crash boat/one-seat"},
		{nil, "demo", "hotel/one-room"},
		{[]string{"hotel/one-room"}, "race", "hotel/one-room"},
		{[]string{"hotel/*"}, "", "hotel/one-room hotel/one-room@slow hotel/crash"},
		{[]string{"*/one-*"}, "race", "hotel/one-room hotel/one-room@slow boat/one-seat"}, // the default tag hides nothing that was named
		{[]string{"hotel/*"}, "fault", "hotel/crash"},
		{[]string{"boat/*", "hotel/crash", "*/*"}, "", "boat/one-seat hotel/crash hotel/one-room hotel/one-room@slow"},
		{[]string{"hotel/crash", "hotel/crash"}, "", "hotel/crash"},
	} {
		got, err := scenarios.Select(few, tc.patterns, tc.tag)
		if err != nil || namesOf(got) != tc.want {
			t.Errorf("%v tag %q: %q, %v; want %q", tc.patterns, tc.tag, namesOf(got), err, tc.want)
		}
	}
}

func TestSelectRefuses(t *testing.T) {
	for _, tc := range []struct {
		patterns  []string
		tag, want string
	}{
		{nil, "quick", `no scenario has the tag "quick"; tags are demo, fault, race, slow`},
		{nil, "", `no scenario has the tag ""; tags are demo, fault, race, slow`},
		{[]string{"hotel/one-rom"}, "", `no scenario "hotel/one-rom"; did you mean "hotel/one-room"?`},
		{[]string{"crsh"}, "", `no scenario "crsh"; did you mean "hotel/crash"?`},
		{[]string{"hotel/crash", "boat"}, "", `no scenario "boat"`},
		{[]string{"*"}, "", `no scenario "*"`}, // a star does not cross the slash
		{[]string{"hotel/["}, "", `pattern "hotel/["`},
		{[]string{"boat/*"}, "fault", `no scenario that matches "boat/*" has the tag "fault"`},
	} {
		got, err := scenarios.Select(few, tc.patterns, tc.tag)
		if err == nil || !strings.Contains(err.Error(), tc.want) || got != nil {
			t.Errorf("%v tag %q: %v, %v; want %s", tc.patterns, tc.tag, namesOf(got), err, tc.want)
		}
	}
}

func TestNearest(t *testing.T) {
	for text, want := range map[string]string{
		"library/one-seet": "library/one-seat", "one-saet": "library/one-seat", "library/one-seat@dirct": "library/one-seat@direct",
		"drian": "library/drain", "libary/redis-down": "library/redis-down", //nolint:misspell // what somebody may type
	} {
		if got := scenarios.Nearest(scenarios.All(), text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := scenarios.Nearest(nil, "x"); got != "" {
		t.Errorf("nearest of nothing: %q", got)
	}
}

func TestTags(t *testing.T) {
	if d := cmp.Diff([]string{"demo", "fault", "race", "slow"}, scenarios.Tags(few)); d != "" {
		t.Error(d)
	}
	for _, tag := range []string{scenarios.DefaultTag, "demo"} {
		if chosen, err := scenarios.Select(scenarios.All(), nil, tag); err != nil || len(chosen) == 0 {
			t.Errorf("tag %s: %v", tag, err)
		}
	}
}
