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

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/calendar"
	"github.com/overbook/overbook/stubs/payments"
	"github.com/overbook/overbook/stubs/pyxis"
)

// The compose file mounts mappings that are filled in already; they must be
// the suite's own.
func TestComposeMappingsAreTheSuites(t *testing.T) {
	for _, d := range []harness.Double{pyxis.Double(), payments.Double(), calendar.Double()} {
		var file struct{ Mappings []map[string]any }
		text, err := os.ReadFile(filepath.Join("compose", d.Name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		want := suiteMappings(t, d)
		byName := func(a, b map[string]any) int { return strings.Compare(a["name"].(string), b["name"].(string)) }
		slices.SortFunc(want, byName)
		slices.SortFunc(file.Mappings, byName)
		if diff := cmp.Diff(want, file.Mappings); diff != "" {
			t.Errorf("stubs/compose/%s.json is not what the suite loads (-suite +compose):\n%s", d.Name, diff)
		}
	}
}

// suiteMappings fills a double's mappings in as the compose file has them.
func suiteMappings(t *testing.T, d harness.Double) (list []map[string]any) {
	t.Helper()
	names, err := fs.Glob(d.Mappings, "*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("mappings of %s: %v, %v", d.Name, names, err)
	}
	for _, n := range names {
		text, err := fs.ReadFile(d.Mappings, n)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		filled := strings.NewReplacer("${double.url}", "http://"+d.Name+":8080", "${prefix}", "/"+d.Name).Replace(string(text))
		if err := json.Unmarshal([]byte(filled), &m); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}
