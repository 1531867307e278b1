package proc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness/proc"
)

// shell is a child that runs a script.
func shell(script string) proc.Spec {
	return proc.Spec{Name: "child", Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}

func start(t *testing.T, s proc.Spec) *proc.Process {
	t.Helper()
	p, err := proc.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func sleeper() proc.Spec {
	s := shell(`echo "port: 4711"; exec sleep 600`)
	s.Ready = regexp.MustCompile(`^port: (\d+)$`)
	return s
}

func ended(t *testing.T, p *proc.Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(20 * time.Second):
		t.Fatalf("process %d did not end", p.PID())
	}
}

func TestReadyLineGivesItsSubmatches(t *testing.T) {
	p := start(t, sleeper())
	if diff := cmp.Diff([]string{"port: 4711", "4711"}, p.Match()); diff != "" {
		t.Error(diff)
	}
	if got := p.ExitText(); got != "running" {
		t.Errorf("ExitText = %q", got)
	}
	if p.Rusage() != nil {
		t.Error("a running process has no rusage yet")
	}
}

func TestChildInheritsNothing(t *testing.T) {
	t.Setenv("OVERBOOK_SECRET", "leaks")
	s := shell(`/usr/bin/env; echo end`)
	s.Env = []string{"PATH=/usr/bin:/bin", "ONLY=this"}
	s.Ready = regexp.MustCompile(`^end$`)
	p := start(t, s)
	ended(t, p)
	output := strings.Join(p.Tail(100), "\n")
	if strings.Contains(output, "OVERBOOK_SECRET") || !strings.Contains(output, "ONLY=this") {
		t.Errorf("environment of the child:\n%s", output)
	}
	s.Env = nil
	p = start(t, proc.Spec{Name: "env", Path: "/usr/bin/env"})
	ended(t, p)
	if got := p.Tail(100); len(got) != 0 {
		t.Errorf("without Env the child has %q", got)
	}
}

func TestFailedStartTellsNameStateAndLastLines(t *testing.T) {
	s := shell(`i=1; while [ $i -le 40 ]; do echo "line $i"; i=$((i+1)); done; exit 3`)
	s.Name, s.Ready = "sut-1", regexp.MustCompile(`never`)
	_, err := proc.Start(t.Context(), s)
	if err == nil {
		t.Fatal("a process that ended before it was ready was taken as started")
	}
	for _, want := range []string{"start sut-1", "exit status 3", "line 40", "line 11"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "line 10\n") {
		t.Errorf("error has more than the last 30 lines:\n%v", err)
	}
}

func TestStartGivesUpWhenNotReadyInTime(t *testing.T) {
	s := sleeper()
	s.Ready, s.ReadyTimeout = regexp.MustCompile(`never`), 100*time.Millisecond
	s.Env = append(s.Env, "OVERBOOK_RUN=late")
	_, err := proc.Start(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "not ready within 100ms (running)") {
		t.Fatalf("err = %v", err)
	}
	nobodyLeft(t, "OVERBOOK_RUN=late")
}

func TestStartObeysItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := sleeper()
	s.Ready = regexp.MustCompile(`never`)
	s.OnEvent = func(kind, _ string) {
		if kind == "start" {
			cancel(errors.New("the user has seen enough"))
		}
	}
	if _, err := proc.Start(ctx, s); err == nil || !strings.Contains(err.Error(), "the user has seen enough") {
		t.Errorf("err = %v", err)
	}
	if _, err := proc.Start(ctx, s); err == nil {
		t.Error("started although the context had ended")
	}
}

func TestProbeIsAskedUntilItSaysYes(t *testing.T) {
	s, asked := sleeper(), 0
	s.Probe = func(context.Context) error {
		if asked++; asked < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	start(t, s)
	if asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
}

func TestProbeFailsWithItsLastWord(t *testing.T) {
	s := sleeper()
	s.ReadyTimeout = 100 * time.Millisecond
	s.Probe = func(context.Context) error { return errors.New("connection refused") }
	_, err := proc.Start(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("err = %v", err)
	}
}

func TestProbeEndsWithTheProcess(t *testing.T) {
	s := shell(`echo boom; exit 7`)
	s.Probe = func(context.Context) error { return errors.New("connection refused") }
	_, err := proc.Start(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "boom") {
		t.Errorf("err = %v", err)
	}
}

func TestMissingBinary(t *testing.T) {
	_, err := proc.Start(t.Context(), proc.Spec{Name: "sut-1", Path: "/nowhere/server"})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "start sut-1") {
		t.Errorf("err = %v", err)
	}
}

func TestStopLetsTheProcessEndInGoodOrder(t *testing.T) {
	s := shell(`trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done`)
	s.Ready = regexp.MustCompile(`^ready$`)
	p := start(t, s)
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.ExitText(); got != "exit status 0" {
		t.Errorf("ExitText = %q", got)
	}
	if diff := cmp.Diff([]string{"bye"}, p.Tail(1)); diff != "" {
		t.Error(diff)
	}
	if p.Rusage() == nil {
		t.Error("no rusage after the exit")
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, proc.ErrExited) {
		t.Errorf("Signal after the exit: %v", err)
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	s := shell(`trap '' TERM; echo ready; while :; do sleep 0.05; done`)
	s.Ready, s.StopGrace = regexp.MustCompile(`^ready$`), 50*time.Millisecond
	p := start(t, s)
	if err := p.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Stop said nothing of the kill: %v", err)
	}
	if got := p.ExitText(); got != "signal: killed" {
		t.Errorf("ExitText = %q", got)
	}
}

func TestStoppedProcessCanBeKilledAndStopped(t *testing.T) {
	for name, end := range map[string]func(*proc.Process) error{
		"Kill": (*proc.Process).Kill,
		"Stop": func(p *proc.Process) error { return p.Stop(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, sleeper())
			if err := p.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if err := end(p); err != nil {
				t.Fatal(err)
			}
			ended(t, p)
		})
	}
}

func TestKillTakesGrandchildrenAlong(t *testing.T) {
	s := shell(`sleep 600 & sleep 600 & echo ready; wait`)
	s.Ready = regexp.MustCompile(`^ready$`)
	s.Env = append(s.Env, "OVERBOOK_RUN=family")
	p := start(t, s)
	if found, err := proc.Living("OVERBOOK_RUN=family"); err != nil || len(found) != 3 {
		t.Fatalf("living: %v, %v; want the shell and two children", found, err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	nobodyLeft(t, "OVERBOOK_RUN=family")
}

func TestGrandchildrenDoNotOutliveTheLeader(t *testing.T) {
	s := shell(`sleep 600 & echo ready`)
	s.Env = append(s.Env, "OVERBOOK_RUN=orphan")
	p := start(t, s)
	ended(t, p) // the pipe is still open in the sleeper, unless that is killed too
	nobodyLeft(t, "OVERBOOK_RUN=orphan")
}

func TestEventsInOrder(t *testing.T) {
	var mu sync.Mutex
	var kinds []string
	s := sleeper()
	s.OnEvent = func(kind, text string) {
		mu.Lock()
		defer mu.Unlock()
		kinds = append(kinds, kind)
		if !strings.Contains(text, "child") {
			t.Errorf("event %s does not name the process: %q", kind, text)
		}
	}
	p := start(t, s)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"start", "ready", "signal", "exit"}, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestLogIsAppendedAndComplete(t *testing.T) {
	s := shell(`i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i+1)); done; printf 'no newline'`)
	s.Log = filepath.Join(t.TempDir(), "child.log")
	var want strings.Builder
	for range 2 {
		ended(t, start(t, s))
		for i := range 2000 {
			fmt.Fprintf(&want, "line %d\n", i)
		}
		want.WriteString("no newline")
	}
	got, err := os.ReadFile(s.Log)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("log has %d bytes, want %d", len(got), want.Len())
	}
}

func TestUnwritableLogIsAnError(t *testing.T) {
	s := sleeper()
	s.Log = "/nowhere/child.log"
	if _, err := proc.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "/nowhere/child.log") {
		t.Errorf("err = %v", err)
	}
}

func TestFullDiskDoesNotBlockTheProcess(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	s := shell(`i=0; while [ $i -lt 5000 ]; do echo "a line of some length $i"; i=$((i+1)); done`)
	s.Log = "/dev/full"
	p := start(t, s)
	ended(t, p)
	if tail := p.Tail(1); len(tail) != 1 || tail[0] != "a line of some length 4999" {
		t.Errorf("tail = %q", tail)
	}
}

func TestTailIsBounded(t *testing.T) {
	s := shell(`i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done; head -c 100000 /dev/zero | tr '\0' x`)
	p := start(t, s)
	ended(t, p)
	tail := p.Tail(1 << 20)
	if len(tail) > proc.TailLimit {
		t.Errorf("%d lines kept", len(tail))
	}
	if last := tail[len(tail)-1]; len(last) > 16<<10 || !strings.HasPrefix(last, "x") {
		t.Errorf("last line has %d bytes", len(last))
	}
}

func nobodyLeft(t *testing.T, mark string) {
	t.Helper()
	found, err := proc.Living(mark)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Errorf("still alive: %v", found)
	}
}
