package doctor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness/doctor"
	"github.com/overbook/overbook/harness/provision"
)

// A patient is a check whose state the test sets.
type patient struct {
	ill      error
	ran      int
	fixes    int
	fixFails error
}

func (p *patient) check(name string, optional bool) doctor.Check {
	return doctor.Check{
		Name: name, Optional: optional,
		Run: func(context.Context) (string, error) { p.ran++; return "well", p.ill },
		Fix: func(context.Context, func(string)) error {
			p.fixes++
			if p.fixFails == nil {
				p.ill = nil
			}
			return p.fixFails
		},
	}
}

func states(findings []doctor.Finding) map[string]doctor.State {
	m := map[string]doctor.State{}
	for _, f := range findings {
		m[f.Check.Name] = f.State
	}
	return m
}

func TestDiagnoseFindsAndChangesNothing(t *testing.T) {
	well, ill, wish := &patient{}, &patient{ill: errors.New("no jar")}, &patient{ill: errors.New("no archive")}
	findings := doctor.Diagnose(t.Context(), []doctor.Check{well.check("well", false), ill.check("ill", false), wish.check("wish", true)})
	want := map[string]doctor.State{"well": doctor.Fine, "ill": doctor.Missing, "wish": doctor.Warning}
	if diff := cmp.Diff(want, states(findings)); diff != "" {
		t.Error(diff)
	}
	if doctor.Healthy(findings) {
		t.Error("healthy although a needed part is missing")
	}
	if findings[1].Detail != "no jar" || findings[0].Detail != "well" {
		t.Errorf("details: %q, %q", findings[0].Detail, findings[1].Detail)
	}
	if ill.fixes+wish.fixes != 0 {
		t.Error("a diagnosis changed something")
	}
	if !doctor.Healthy([]doctor.Finding{findings[0], findings[2]}) {
		t.Error("a missing wish is no illness")
	}
}

func TestRepairFixesWhatIsWrongAndLooksAgain(t *testing.T) {
	well, ill, wish := &patient{}, &patient{ill: errors.New("no jar")}, &patient{ill: errors.New("no archive")}
	hopeless := &patient{ill: errors.New("no java"), fixFails: errors.New("apt-get said no")}
	before := doctor.Diagnose(t.Context(), []doctor.Check{well.check("well", false), ill.check("ill", false), wish.check("wish", true), hopeless.check("hopeless", false)})
	after, err := doctor.Repair(t.Context(), before, func(string) {})
	want := map[string]doctor.State{"well": doctor.Fine, "ill": doctor.Fine, "wish": doctor.Fine, "hopeless": doctor.Missing}
	if diff := cmp.Diff(want, states(after)); diff != "" {
		t.Error(diff)
	}
	if err == nil || err.Error() != "hopeless: apt-get said no" {
		t.Errorf("err = %v", err)
	}
	if well.fixes != 0 || !after[1].Fixed || after[0].Fixed || after[3].Fixed {
		t.Errorf("fixed: %v %v %v; the well one was fixed %d times", after[0].Fixed, after[1].Fixed, after[3].Fixed, well.fixes)
	}
}

// A fix that says it worked, and did not, is found out.
func TestRepairBelievesTheCheckAndNotTheFix(t *testing.T) {
	c := doctor.Check{
		Name: "liar",
		Run:  func(context.Context) (string, error) { return "", errors.New("still missing") },
		Fix:  func(context.Context, func(string)) error { return nil },
	}
	after, err := doctor.Repair(t.Context(), doctor.Diagnose(t.Context(), []doctor.Check{c}), func(string) {})
	if err == nil || after[0].State != doctor.Missing || after[0].Fixed {
		t.Errorf("err = %v, finding = %+v", err, after[0])
	}
}

func TestInterruptedChecksAreNotHealthy(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &patient{}
	findings := doctor.Diagnose(ctx, []doctor.Check{p.check("late", false)})
	if findings[0].State != doctor.Skipped || doctor.Healthy(findings) || p.ran != 0 {
		t.Errorf("finding = %+v, ran %d times", findings[0], p.ran)
	}
}

func TestEveryCheckHasAFixForAPerson(t *testing.T) {
	names := map[string]bool{}
	for _, c := range doctor.Checks(provision.Options{Prefer: "local", CacheDir: t.TempDir()}) {
		if c.Name == "" || c.Run == nil || c.FixText == "" || names[c.Name] {
			t.Errorf("check %q: no name, no question, no fix or twice", c.Name)
		}
		names[c.Name] = true
	}
	for _, name := range []string{"Java", "WireMock jar", "PostgreSQL", "standby (failover)", "Redis", "Docker", "cache directory", "io_uring", "Go toolchain"} {
		if !names[name] {
			t.Errorf("no check of %s", name)
		}
	}
}

func find(t *testing.T, o provision.Options, name string) doctor.Finding {
	t.Helper()
	for _, c := range doctor.Checks(o) {
		if c.Name == name {
			return doctor.Diagnose(t.Context(), []doctor.Check{c})[0]
		}
	}
	t.Fatalf("no check %s", name)
	return doctor.Finding{}
}

func TestDamagedJarIsFound(t *testing.T) {
	cache := t.TempDir()
	o := provision.Options{Prefer: "local", CacheDir: cache}
	if f := find(t, o, "WireMock jar"); f.State != doctor.Missing || !strings.Contains(f.Detail, "no WireMock jar") {
		t.Errorf("without a jar: %+v", f)
	}
	if err := os.WriteFile(provision.JarPath(cache), []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	if f := find(t, o, "WireMock jar"); f.State != doctor.Missing || !strings.Contains(f.Detail, "SHA-256") {
		t.Errorf("with a damaged jar: %+v", f)
	}
}

func TestCacheDirectoryIsNotMadeByLooking(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	if f := find(t, provision.Options{Prefer: "local", CacheDir: dir}, "cache directory"); f.State != doctor.Fine {
		t.Errorf("a cache that can be made: %+v", f)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("looking made it: %v", err)
	}
	if f := find(t, provision.Options{Prefer: "local", CacheDir: "/dev/null/cache"}, "cache directory"); f.State != doctor.Missing {
		t.Errorf("a cache that cannot be made: %+v", f)
	}
}

func TestOldJavaIsFound(t *testing.T) {
	for line, state := range map[string]doctor.State{
		`openjdk version "17.0.15" 2025-04-15`: doctor.Fine,
		`openjdk version "25" 2025-09-16`:      doctor.Fine,
		`java version "1.8.0_392"`:             doctor.Missing,
		`something else`:                       doctor.Missing,
	} {
		java := filepath.Join(t.TempDir(), "java")
		if err := os.WriteFile(java, []byte("#!/bin/sh\necho '"+line+"' >&2\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("OVERBOOK_JAVA", java)
		if f := find(t, provision.Options{Prefer: "local", CacheDir: t.TempDir()}, "Java"); f.State != state {
			t.Errorf("%s: %+v", line, f)
		}
	}
}

func TestNothingInPathIsFoundMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("JAVA_HOME", "")
	for name, state := range map[string]doctor.State{"Java": doctor.Missing, "Redis": doctor.Missing, "Go toolchain": doctor.Warning} {
		if f := find(t, provision.Options{Prefer: "local", CacheDir: t.TempDir()}, name); f.State != state || f.Detail == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestPartsGivenByURLAreAskedThere(t *testing.T) {
	o := provision.Options{CacheDir: t.TempDir(), PostgresURL: "postgres://127.0.0.1:1/postgres", WireMockURL: "http://127.0.0.1:1", RedisURL: "redis://127.0.0.1:1"}
	for _, name := range []string{"PostgreSQL", "WireMock", "Redis"} {
		if f := find(t, o, name); f.State != doctor.Missing || !strings.Contains(f.Detail, "127.0.0.1:1") {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for _, c := range doctor.Checks(o) {
		if c.Name == "Java" || c.Name == "WireMock jar" {
			t.Errorf("%s is not needed for a WireMock that is given", c.Name)
		}
	}
}
