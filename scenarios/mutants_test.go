//go:build mutants

package scenarios_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/mutant"
)

// TestMutants plants each bug and runs the scenario that must see it. Run by
// `make mutants`; too long for every test run.
func TestMutants(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, err := mutant.Root(wd)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "overbook")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	all, err := mutant.All(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 6 {
		t.Fatalf("%d mutants below %s, expected at least six", len(all), mutant.Folder)
	}
	green := verdicts(t, root, program, scenariosOf(all...), "")
	for _, m := range all {
		t.Run(m.ID, func(t *testing.T) {
			red := verdicts(t, root, program, scenariosOf(m), m.ID)
			for _, k := range m.Killers {
				if got := green[k]; got != harness.Pass {
					t.Errorf("without the bug %s of %s is %s, want PASS", k.Check, k.Scenario, got)
				}
				if got := red[k]; got != harness.Failed {
					t.Errorf("%s survives: %s of %s is %s, want FAIL (%s)", m.ID, k.Check, k.Scenario, got, m.Title)
				}
			}
		})
	}
}

// scenariosOf are those that must see the mutants, each once.
func scenariosOf(mutants ...mutant.Mutant) (list []string) {
	for _, m := range mutants {
		for _, k := range m.Killers {
			if !slices.Contains(list, k.Scenario) {
				list = append(list, k.Scenario)
			}
		}
	}
	return list
}

// verdicts runs scenarios and gives their verdicts by scenario and check.
func verdicts(t *testing.T, root, program string, scenarios []string, mutantID string) map[mutant.Killer]harness.Status {
	t.Helper()
	args := append([]string{"run", "--json", "--out", t.TempDir()}, scenarios...)
	if mutantID != "" {
		args = append(args, "--mutant", mutantID)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var suite harness.Suite
	if err := json.Unmarshal(out, &suite); err != nil || len(suite.Scenarios) != len(scenarios) {
		t.Fatalf("overbook %v: %v (%v)\n%s", args, err, exit, out)
	}
	found := map[mutant.Killer]harness.Status{}
	for _, s := range suite.Scenarios {
		for _, v := range s.Checks {
			found[mutant.Killer{Scenario: s.Name, Check: v.ID}] = v.Status
			if v.Status != harness.Pass {
				t.Logf("%s: %s %s: %s", s.Name, v.Status, v.ID, v.Summary)
			}
		}
	}
	return found
}
