package stubs_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/stubs/pyxis"
)

// The compose file mounts mappings that are filled in already; they must be
// the suite's own.
func TestComposeMappingsAreTheSuites(t *testing.T) {
	var file struct{ Mappings []map[string]any }
	text, err := os.ReadFile(filepath.Join("compose", "pyxis.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var want []map[string]any
	mappings := pyxis.Double().Mappings
	names, err := fs.Glob(mappings, "*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("mappings of pyxis: %v, %v", names, err)
	}
	for _, n := range names {
		text, err := fs.ReadFile(mappings, n)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		filled := strings.NewReplacer("${double.url}", "http://pyxis:8080", "${prefix}", "/pyxis").Replace(string(text))
		if err := json.Unmarshal([]byte(filled), &m); err != nil {
			t.Fatal(err)
		}
		want = append(want, m)
	}
	byName := func(a, b map[string]any) int { return strings.Compare(a["name"].(string), b["name"].(string)) }
	slices.SortFunc(want, byName)
	slices.SortFunc(file.Mappings, byName)
	if diff := cmp.Diff(want, file.Mappings); diff != "" {
		t.Errorf("stubs/compose/pyxis.json is not what the suite loads (-suite +compose):\n%s", diff)
	}
}
