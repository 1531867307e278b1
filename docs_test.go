package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness/mutant"
	"github.com/overbook/overbook/scenarios"
)

// The track record names every mutant with what catches it, and the suite's
// table every scenario.
func TestScenariosReadmeIsTrue(t *testing.T) {
	text, err := os.ReadFile("scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	all, err := mutant.All(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		caught := make([]string, 0, len(m.Killers))
		for _, k := range m.Killers {
			caught = append(caught, fmt.Sprintf("`%s` %s", k.Scenario, k.Check))
		}
		if line := fmt.Sprintf("| %s | %s | %s |", m.ID, m.Title, strings.Join(caught, ", ")); !strings.Contains(doc, line) {
			t.Errorf("the track record lacks the line\n%s", line)
		}
	}
	if n := strings.Count(doc, "\n| L-M") + strings.Count(doc, "\n| T-M") + strings.Count(doc, "\n| S-M") + strings.Count(doc, "\n| C-M"); n != len(all) {
		t.Errorf("the track record has %d mutants, the tree %d", n, len(all))
	}
	for _, s := range scenarios.All() {
		name, variant, _ := strings.Cut(s.Name, "@")
		if !strings.Contains(doc, "`"+name+"`") || !strings.Contains(doc, variant) {
			t.Errorf("the suite's table lacks %s", s.Name)
		}
	}
}

// The table in README is the published one, which says how it was made.
func TestReadmeTableIsThePublishedOne(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	published, err := os.ReadFile("reports/published/amplify.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "<!-- amplify:begin")
	block, _, ok2 := strings.Cut(block, "<!-- amplify:end")
	if !ok || !ok2 {
		t.Fatal("README has no marks for the table")
	}
	rows := 0
	for line := range strings.Lines(string(published)) {
		if !strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "- ") {
			continue
		}
		rows++
		if !strings.Contains(block, line) {
			t.Errorf("README lacks the published line (run scripts/readme-table.sh)\n%s", line)
		}
	}
	if rows < 8 {
		t.Errorf("the published table has %d lines, expected more", rows)
	}
}

// A planted bug that no longer fits the tree would be found out only by the
// next long run of all of them.
func TestEveryMutantFitsTheTree(t *testing.T) {
	all, err := mutant.All(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if _, err := m.Apply("."); err != nil {
			t.Error(err)
		}
	}
}
