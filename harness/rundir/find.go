package rundir

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/overbook/overbook/harness"
)

// Resolve turns what a person types into a run directory: a path to one, or
// the name of a scenario below root, whose latest run is meant.
func Resolve(root, arg string) (string, error) {
	for _, dir := range []string{arg, filepath.Join(root, arg, "latest"), filepath.Join(arg, "latest"), filepath.Join(root, arg)} {
		if _, err := os.Stat(filepath.Join(dir, "plan.json")); err == nil {
			return filepath.EvalSymlinks(dir)
		}
	}
	return "", fmt.Errorf("no stored run at %q: neither a run directory (with plan.json) nor a scenario with runs below %s; `overbook run` makes one", arg, root)
}

func sortedRows(rows map[string]harness.Rows) []harness.Rows {
	sorted := make([]harness.Rows, 0, len(rows))
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		sorted = append(sorted, rows[k])
	}
	return sorted
}

func anySlice[T any](list []T) []any {
	out := make([]any, 0, len(list))
	for _, v := range list {
		out = append(out, v)
	}
	return out
}
