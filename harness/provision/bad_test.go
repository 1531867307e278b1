package provision_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness/provision"
)

// wantProblem checks that the error says all of it, as a person would need it.
func wantProblem(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if _, ok := errors.AsType[*provision.Problem](err); !ok {
		t.Errorf("not a Problem: %v", err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error lacks %q:\n%v", word, err)
		}
	}
}

func TestURLsThatRefuse(t *testing.T) {
	port := closedPort(t)
	for name, c := range map[string]struct {
		o     provision.Options
		words []string
	}{
		"postgres": {provision.Options{Need: provision.Need{Postgres: true}, PostgresURL: "postgres://u:secret@127.0.0.1:" + port + "/postgres"}, []string{"127.0.0.1:" + port, "refused", "next: check that it runs"}},
		"wiremock": {provision.Options{Need: provision.Need{WireMock: true}, WireMockURL: "http://127.0.0.1:" + port}, []string{"127.0.0.1:" + port, "refused", "next: "}},
		"redis":    {provision.Options{Need: provision.Need{Redis: true}, RedisURL: "redis://127.0.0.1:" + port}, []string{"127.0.0.1:" + port, "refused", "next: "}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := provision.Up(t.Context(), c.o)
			wantProblem(t, err, c.words...)
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in the error: %v", err)
			}
		})
	}
}

func TestURLsThatAreNone(t *testing.T) {
	_, err := provision.Up(t.Context(), provision.Options{Need: allParts, PostgresURL: "postgres://u:secret@127.0.0.1:port/db", WireMockURL: "127.0.0.1:8080", RedisURL: "http://127.0.0.1"})
	wantProblem(t, err, "postgres://user:password@host:5432/postgres", "http://host:8080", "redis://host:6379/0")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in the error: %v", err)
	}
}

func TestJarThatIsDamaged(t *testing.T) {
	cache := t.TempDir()
	path := provision.JarPath(cache)
	if err := os.WriteFile(path, []byte("PK not a jar"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := provision.Up(t.Context(), provision.Options{Prefer: "local", Need: provision.Need{WireMock: true}, CacheDir: cache})
	wantProblem(t, err, path, "SHA-256", "next: overbook doctor --fix")
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a run must leave the jar alone: %v", err)
	}
}

func TestJarThatIsNotThere(t *testing.T) {
	_, err := provision.Up(t.Context(), provision.Options{Prefer: "local", Need: provision.Need{WireMock: true}, CacheDir: t.TempDir()})
	wantProblem(t, err, "start WireMock", "no WireMock jar at", "next: overbook doctor --fix", "--wiremock URL")
}

func TestNamedJarThatIsNone(t *testing.T) {
	jar := filepath.Join(t.TempDir(), "mine.jar")
	if err := os.WriteFile(jar, []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OVERBOOK_WIREMOCK_JAR", jar)
	_, err := provision.Up(t.Context(), provision.Options{Prefer: "local", Need: provision.Need{WireMock: true}})
	wantProblem(t, err, jar, "corrupt jarfile", "next: ")
}

// emptyPath is a PATH with nothing in it.
func emptyPath(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
	t.Setenv("JAVA_HOME", "")
}

func TestJavaThatIsNotThere(t *testing.T) {
	emptyPath(t)
	_, err := provision.Up(t.Context(), provision.Options{Prefer: "local", Need: provision.Need{WireMock: true}})
	wantProblem(t, err, "start WireMock", "no java in JAVA_HOME or PATH", "next: ")
}

func TestRedisThatIsNotThere(t *testing.T) {
	emptyPath(t)
	_, err := provision.Up(t.Context(), provision.Options{Prefer: "local", Need: provision.Need{Redis: true}})
	wantProblem(t, err, "start Redis", "no redis-server in PATH", "next: ", "--redis URL")
}

func TestNamedBinariesThatAreNone(t *testing.T) {
	for variable, need := range map[string]provision.Need{
		"OVERBOOK_PG_BIN": {Postgres: true}, "OVERBOOK_REDIS_BIN": {Redis: true}, "OVERBOOK_JAVA": {WireMock: true}, "OVERBOOK_WIREMOCK_JAR": {WireMock: true},
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "/nowhere/at/all")
			_, err := provision.Up(t.Context(), provision.Options{Need: need})
			wantProblem(t, err, variable+"=/nowhere/at/all", "next: name ")
		})
	}
}

func TestPreferThatIsNone(t *testing.T) {
	_, err := provision.Up(t.Context(), provision.Options{Prefer: "podman"})
	wantProblem(t, err, "podman", `"local" and "docker"`)
}

func TestWorkDirThatCannotBeMade(t *testing.T) {
	_, err := provision.Up(t.Context(), provision.Options{WorkDir: "/dev/null/work", Need: provision.Need{Redis: true}})
	wantProblem(t, err, "/dev/null/work", "next: ")
}

func TestUpObeysItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted by the user"))
	_, err := provision.Up(ctx, provision.Options{Prefer: "local", Need: allParts})
	if err == nil || !strings.Contains(err.Error(), "interrupted by the user") {
		t.Errorf("err = %v", err)
	}
}

func TestFetchIntoUnwritableCache(t *testing.T) {
	err := provision.FetchWireMock(t.Context(), "/dev/null/cache", func(string) {})
	wantProblem(t, err, "/dev/null/cache", "OVERBOOK_CACHE")
}

func TestInstallWithoutRightsGivesTheCommand(t *testing.T) {
	emptyPath(t) // no apt-get: as on another system
	err := provision.Install(t.Context(), "redis", func(string) {})
	wantProblem(t, err, "install redis", "next: ")
}
