//go:build mutants

package scenarios_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
	for _, m := range all {
		for _, k := range m.Killers {
			t.Run(m.ID+"/"+filepath.Base(k.Scenario), func(t *testing.T) {
				green := verdicts(t, root, program, k.Scenario, "")
				if green[k.Check] != harness.Pass {
					t.Fatalf("without the bug %s of %s is %s, want PASS", k.Check, k.Scenario, green[k.Check])
				}
				red := verdicts(t, root, program, k.Scenario, m.ID)
				if red[k.Check] != harness.Failed {
					t.Errorf("%s survives: %s of %s is %s, want FAIL (%s)", m.ID, k.Check, k.Scenario, red[k.Check], m.Title)
				}
			})
		}
	}
}

// verdicts runs a scenario and gives its verdicts by check.
func verdicts(t *testing.T, root, program, scenario, mutantID string) map[string]harness.Status {
	t.Helper()
	args := []string{"run", scenario, "--json", "--out", t.TempDir()}
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
	if err := json.Unmarshal(out, &suite); err != nil || len(suite.Scenarios) != 1 {
		t.Fatalf("overbook %v: %v (%v)\n%s", args, err, exit, out)
	}
	found := map[string]harness.Status{}
	for _, v := range suite.Scenarios[0].Checks {
		found[v.ID] = v.Status
		if v.Status != harness.Pass {
			t.Logf("%s %s: %s", v.Status, v.ID, v.Summary)
		}
	}
	return found
}
