package e2e

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/overbook/overbook/reports"
)

// nothingRun wants an error that names the cause, and nothing that looks like a result.
func nothingRun(t *testing.T, e ending, expressions ...string) {
	t.Helper()
	if e.stdout != "" {
		t.Errorf("there is something on standard output:\n%s", e.stdout)
	}
	says(t, "standard error", e.stderr, append(expressions, `^error: `)...)
	if strings.Contains(e.stderr, "PASS") {
		t.Errorf("standard error speaks of a pass:\n%s", e.stderr)
	}
}

// garbage makes a file that is no jar.
func garbage(t *testing.T, name string) string {
	t.Helper()
	if err := os.WriteFile(name, bytes.Repeat([]byte("PK\x03\x04 cut off "), 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPartThatDoesNotComeUp(t *testing.T) {
	empty := t.TempDir()
	cache := t.TempDir()
	garbage(t, filepath.Join(cache, "wiremock-standalone-3.13.2.jar"))
	for name, c := range map[string]struct {
		env, args []string
		says      []string
	}{
		"database URL refused": {args: []string{"--postgres", "postgres://nobody@127.0.0.1:1/none"}, says: []string{`127\.0\.0\.1:1\b`, `refused`, `next: `}},
		"database URL no URL":  {args: []string{"--postgres", "http://127.0.0.1:1"}, says: []string{`--postgres|Postgres|database URL`, `next: `}},
		"WireMock URL refused": {args: []string{"--wiremock", "http://127.0.0.1:1"}, says: []string{`http://127\.0\.0\.1:1\b`, `refused`, `next: `}},
		"WireMock URL no URL":  {args: []string{"--wiremock", "127.0.0.1"}, says: []string{`not an http URL`, `next: `}},
		"jar named is cut":     {env: []string{"OVERBOOK_WIREMOCK_JAR=" + garbage(t, filepath.Join(empty, "cut.jar"))}, says: []string{`cut\.jar`, `corrupt jarfile`}},
		"jar named is missing": {env: []string{"OVERBOOK_WIREMOCK_JAR=/nowhere/w.jar"}, says: []string{`OVERBOOK_WIREMOCK_JAR=/nowhere/w\.jar`, `next: `}},
		"jar in cache is cut":  {args: []string{"--cache", cache}, says: []string{`wiremock-standalone-3\.13\.2\.jar`, `damaged`, `next: `}},
		"no jar":               {args: []string{"--cache", empty, "--parts", "local"}, says: []string{`no WireMock jar`, `doctor --fix`}},
		"no Java":              {env: []string{"PATH=" + empty, "JAVA_HOME="}, args: []string{"--parts", "local"}, says: []string{`no java`, `next: `}},
		"Java is no program":   {env: []string{"OVERBOOK_JAVA=" + empty}, says: []string{`OVERBOOK_JAVA=`, `not a program`, `next: `}},
		"Java breaks":          {env: []string{"OVERBOOK_JAVA=/bin/false"}, says: []string{`WireMock`, `/bin/false`, `exit status 1`}},
		"no Postgres":          {env: []string{"OVERBOOK_PG_BIN=" + empty}, says: []string{`OVERBOOK_PG_BIN=`, `no postgres`, `next: `}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newPlace(t).with(c.env...).run(t, 5, append([]string{"run", "library/one-seat", "--json", "--junit", "race.xml"}, c.args...)...)
			nothingRun(t, e, c.says...)
		})
	}
}

func TestRedisThatDoesNotComeUp(t *testing.T) {
	e := newPlace(t).run(t, 5, "run", "library/redis-down", "--redis", "redis://127.0.0.1:1/0")
	nothingRun(t, e, `127\.0\.0\.1:1\b`, `refused`, `next: `)
	e = newPlace(t).with("OVERBOOK_REDIS_BIN=/bin/false").run(t, 5, "run", "library/redis-down")
	nothingRun(t, e, `Redis`, `/bin/false`)
}

// long is a run that lasts for minutes, unless something ends it.
var long = []string{"run", "library/one-seat", "--users", "20", "--set", "rounds=200", "--set", "latency=300ms"}

func TestPartThatDiesInTheMiddleOfARun(t *testing.T) {
	for name, c := range map[string]struct {
		victim   *regexp.Regexp
		scenario string
		args     []string
		says     []string
	}{
		"Postgres": {postmaster, "library/one-seat", long, []string{`(?i)postgres.* died`, `signal: killed`}},
		"WireMock": {java, "library/one-seat", long, []string{`WireMock died`, `signal: killed`}},
		"Redis":    {redis, "library/redis-down", []string{"run", "library/redis-down", "--repeat", "100"}, []string{`(?i)redis.* died`}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			r := p.start(t, append(c.args, "--json")...)
			r.serving(t, c.scenario)
			kill(t, r.await(t, c.victim), syscall.SIGKILL)
			e := r.end(t)
			want(t, e, 5)
			var s suite
			document(t, e.stdout, reports.Schema, &s)
			if s.Verdict != "UNKNOWN" || len(s.Scenarios) == 0 {
				t.Fatalf("verdict %s of %d scenarios\n%s", s.Verdict, len(s.Scenarios), e)
			}
			last := s.Scenarios[len(s.Scenarios)-1]
			if last.Verdict == "UNKNOWN" && last.Reason != "environment" {
				t.Errorf("reason %s: %s", last.Reason, last.Summary)
			}
			if last.Verdict == "FAIL" {
				t.Errorf("a dead part is taken for a violation: %s", last.Summary)
			}
			says(t, "the program", e.stdout+e.stderr, c.says...)
		})
	}
}

// A violation that was seen before a part died is still one, and the
// scenarios after it are counted as skipped.
func TestSkippedRunsAreCounted(t *testing.T) {
	p := newPlace(t)
	r := p.start(t, append(long, "--repeat", "3")...)
	r.serving(t, "library/one-seat")
	kill(t, r.await(t, postmaster), syscall.SIGKILL)
	e := r.end(t)
	want(t, e, 5)
	if got := e.lastLine(); got != "0 passed, 1 failed, 2 skipped" {
		t.Errorf("the last line is %q", got)
	}
	says(t, "standard output", e.stdout, `^\? UNKNOWN +library/one-seat`, `(?i)postgres.* died`, `signal: killed`)
	says(t, "standard error", e.stderr, `^error: postgres died, so that 2 runs could not be done`)
	// The stored run says the same, without any part.
	says(t, "check", p.run(t, 5, "check", "library/one-seat").stdout, `UNKNOWN`, `died`)
	p.run(t, 5, "check", "library/one-seat", "--strict") // not 1: a dead database is no violation
}

func TestDiskFullInTheRunDirectory(t *testing.T) {
	for name, size := range map[string]string{"from the start": "size=4k,nr_inodes=2", "in the middle": "size=160k"} {
		t.Run(name, func(t *testing.T) {
			small := t.TempDir()
			if err := syscall.Mount("tmpfs", small, "tmpfs", 0, size); errors.Is(err, syscall.EPERM) {
				t.Skip("a small file system can't be mounted here: ", err)
			} else if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := syscall.Unmount(small, 0); err != nil {
					t.Error(err)
				}
			})
			e := newPlace(t).start(t, "run", "library/one-seat", "--out", small).end(t)
			want(t, e, 5)
			says(t, "standard error", e.stderr, `^error: `, `no space left on device`, regexp.QuoteMeta(small), `make room`)
			if strings.Contains(e.stdout, "PASS") || strings.Contains(e.stdout, "1 passed") {
				t.Errorf("a run that was not stored passed:\n%s", e.stdout)
			}
			if left, _ := filepath.Glob(filepath.Join(small, "library/one-seat/*")); len(left) > 0 {
				t.Errorf("half a run directory was left: %v", left)
			}
		})
	}
}
