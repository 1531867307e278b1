package provision_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness/provision"
)

// ownJar gives a cache of its own with the real jar in it.
func ownJar(t *testing.T) (cache string) {
	t.Helper()
	dir, err := provision.DefaultCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = t.TempDir()
	if err := os.Link(provision.JarPath(dir), provision.JarPath(cache)); err == nil {
		return cache
	}
	jar, err := os.ReadFile(provision.JarPath(dir))
	if err != nil {
		t.Fatalf("%v; overbook doctor --fix", err)
	}
	if err := os.WriteFile(provision.JarPath(cache), jar, 0o644); err != nil {
		t.Fatal(err)
	}
	return cache
}

// The JVM dies of an archive that was cut short; it must not be used.
func TestArchiveIsBuiltUsedAndNeverUsedWhenDamaged(t *testing.T) {
	if testing.Short() {
		t.Skip("building an archive takes some seconds")
	}
	cache := ownJar(t)
	if _, err := provision.FindArchive(cache); err == nil {
		t.Fatal("an archive before it was built")
	}
	for range 2 {
		if err := provision.BuildArchive(t.Context(), cache, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	path, err := provision.FindArchive(cache)
	if err != nil {
		t.Fatal(err)
	}
	o := provision.Options{Prefer: "local", Need: provision.Need{WireMock: true}, CacheDir: cache, WorkDir: t.TempDir(), MarkEnv: "OVERBOOK_RUN=archive"}
	up(t, o)
	if log := read(t, filepath.Join(o.WorkDir, "wiremock.log")); strings.Contains(log, "shared archive") {
		t.Errorf("the archive does not fit:\n%s", log)
	}
	if got := commands(t, o.MarkEnv); !strings.Contains(got, path) {
		t.Errorf("the archive is not used: %s", got)
	}
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	o.MarkEnv = "OVERBOOK_RUN=archive-cut"
	up(t, o)
	if got := commands(t, o.MarkEnv); strings.Contains(got, path) {
		t.Errorf("an archive cut short is used: %s", got)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "overbook-part-*")); len(left) != 0 {
		t.Errorf("left in the cache: %v", left)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
