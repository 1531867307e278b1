package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/reports"
)

func TestOneInterrupt(t *testing.T) {
	p := newPlace(t)
	r := p.start(t, append(long, "--json", "--repeat", "2")...)
	r.serving(t, "library/one-seat")
	r.signal(t, syscall.SIGINT)
	e := r.end(t)
	want(t, e, 130)
	var s suite
	document(t, e.stdout, reports.Schema, &s)
	if s.Verdict != "UNKNOWN" || len(s.Scenarios) != 1 || s.Scenarios[0].Reason != "interrupted" {
		t.Fatalf("unexpected result: %+v", s)
	}
	says(t, "standard error", e.stderr, `interrupted`)
	for _, name := range []string{"plan.json", "result.json", "rows.jsonl", "REPLAY", "report.html"} {
		if _, err := os.Stat(filepath.Join(s.Scenarios[0].RunDir, name)); err != nil {
			t.Error(err)
		}
	}
	// The stored run is as undecided as it was, and readable.
	e = p.run(t, 2, "check", "library/one-seat")
	says(t, "check", e.stdout, `UNKNOWN`, `interrupted`, `^0 passed, 1 failed, 0 skipped$`)
}

func TestOneInterruptInText(t *testing.T) {
	r := newPlace(t).start(t, append(long, "--repeat", "2")...)
	r.serving(t, "library/one-seat")
	r.signal(t, syscall.SIGTERM) // the same as Ctrl-C
	e := r.end(t)
	want(t, e, 130)
	if got := e.lastLine(); got != "0 passed, 1 failed, 1 skipped" {
		t.Errorf("the last line is %q", got)
	}
}

func TestInterruptWhileStarting(t *testing.T) {
	r := newPlace(t).start(t, long...)
	r.await(t, java) // Postgres is on its way, too
	r.signal(t, syscall.SIGINT)
	e := r.end(t)
	want(t, e, 130)
	says(t, "standard error", e.stderr, `interrupted`)
}

// A server that is stopped can't end by itself, and the system never settles.
func TestInterruptsWithAStoppedServer(t *testing.T) {
	for name, times := range map[string]int{"once": 1, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			r := newPlace(t).start(t, long...)
			r.serving(t, "library/one-seat")
			kill(t, r.await(t, server), syscall.SIGSTOP)
			watch := clock.New()
			for range times {
				r.signal(t, syscall.SIGINT)
				r.said(t, "interrupted")
			}
			e := r.end(t)
			want(t, e, 130)
			if took := watch.Now(); times == 2 && took > 20*time.Second {
				t.Errorf("the second interrupt took %s", took)
			}
			says(t, "standard output", e.stdout, `^0 passed, 1 failed, 0 skipped$`)
		})
	}
}

func TestKilledHarnessLeavesNothingRunning(t *testing.T) {
	p := newPlace(t)
	args := append([]string{"run", "library/redis-down", "--repeat", "100"}, "--users", "20")
	r := p.start(t, args...)
	r.serving(t, "library/redis-down")
	for _, part := range []any{r.await(t, postmaster), r.await(t, java), r.await(t, redis), r.await(t, server)} {
		t.Log("running: ", part)
	}
	r.left = true // files stay: nobody is there to remove them
	r.signal(t, syscall.SIGKILL)
	if e := r.end(t); e.code != -1 {
		t.Errorf("not killed: %s", e)
	}
	left := r.clusters()
	next := p.start(t, "run", "library/one-seat", "--users", "20")
	next.left = true
	want(t, next.end(t), 0)
	for _, dir := range left {
		makeOld(t, filepath.Dir(dir))
	}
	temps, _ := filepath.Glob(filepath.Join(p.temp, "overbook-part-*"))
	for _, dir := range temps {
		makeOld(t, dir)
	}
	last := p.start(t, "run", "library/one-seat", "--users", "20")
	want(t, last.end(t), 0) // and the temporary directory is empty again
	for _, dir := range left {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("the cluster of the killed harness was not swept: %s", dir)
		}
	}
}

// makeOld makes a directory older than the time that an owner has to claim it.
func makeOld(t *testing.T, dir string) {
	t.Helper()
	then := clock.Wall().Add(-time.Hour)
	if err := os.Chtimes(dir, then, then); err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
}

// A comparison that was cut short is still one document, and no pass.
func TestInterruptedAmplify(t *testing.T) {
	p := newPlace(t)
	r := p.start(t, "amplify", "--rounds", "400", "--users", "20", "--json")
	r.serving(t, "library/one-seat")
	r.signal(t, syscall.SIGINT)
	e := r.end(t)
	want(t, e, 130)
	var a struct{ Verdict string }
	document(t, e.stdout, reports.AmplifySchema, &a)
	if a.Verdict == "PASS" {
		t.Errorf("it passed: %s", e)
	}
}

func TestUpWhoseDatabaseDies(t *testing.T) {
	r := newPlace(t).start(t, "up")
	r.logged(t, "listening on", "runs", "library/one-seat", ".writing-*", "logs", "sut-1.log")
	kill(t, r.await(t, postmaster), syscall.SIGKILL)
	e := r.end(t)
	want(t, e, 5)
	says(t, "standard error", e.stderr, `^error: `, `PostgreSQL died|postmaster exit|refused`)
}
