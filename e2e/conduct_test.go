package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/harness/proc"
	"github.com/overbook/overbook/harness/provision"
	"github.com/overbook/overbook/harness/run"
	"github.com/overbook/overbook/harness/rundir"
	"github.com/overbook/overbook/scenarios"
)

// The tests of this file conduct runs through package run, with a Drive of
// their own: they strike at a moment that can't be named from outside.

// conductMark is this test process's own: the same tests may be running elsewhere.
var conductMark = fmt.Sprintf("e2e%d", os.Getpid())

// conductor brings up the parts; interrupt is its first Ctrl-C.
func conductor(t *testing.T) (c *run.Conductor, interrupt func()) {
	t.Helper()
	interrupted, interrupt := context.WithCancel(context.Background())
	c, err := run.New(t.Context(), run.Config{
		Parts: provision.Options{}, Out: t.TempDir(), Command: []string{program, "sut"}, Tool: "overbook", Version: "test",
		Mark: conductMark, Interrupted: interrupted,
	}, []harness.Topology{oneSeat(t).Topology(oneSeat(t).Defaults())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		interrupt()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if left, err := proc.Living("OVERBOOK_RUN=" + conductMark); err != nil || len(left) > 0 {
			t.Errorf("left running: %v (%v)", left, err)
		}
	})
	return c, interrupt
}

func oneSeat(t *testing.T) harness.Scenario {
	t.Helper()
	chosen, err := scenarios.Select(scenarios.All(), []string{"library/one-seat"}, "")
	if err != nil {
		t.Fatal(err)
	}
	return chosen[0]
}

// conduct runs the scenario on few users and reads the stored run back.
func conduct(t *testing.T, c *run.Conductor, s harness.Scenario, server run.Server) (harness.Result, harness.Record) {
	t.Helper()
	plan, err := s.MakePlan(5, harness.Params{"users": "10"})
	if err != nil {
		t.Fatal(err)
	}
	result, record, err := c.Run(t.Context(), s, plan, server)
	if err != nil {
		t.Fatal(err)
	}
	stored, _, err := rundir.Read(result.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	again := run.Summarise(s, stored, check.Judge(s, stored))
	if again.Verdict != result.Verdict || again.Reason != result.Reason || again.Summary != result.Summary {
		t.Errorf("stored: %s %s %q\nrun:    %s %s %q", again.Verdict, again.Reason, again.Summary, result.Verdict, result.Reason, result.Summary)
	}
	if left, err := proc.Living("OVERBOOK_SERVER_OF=" + conductMark + "_1"); err != nil || len(left) > 0 {
		t.Errorf("a server lives on: %v (%v)", left, err)
	}
	return result, record
}

func undecided(t *testing.T, r harness.Result, reason harness.Reason, words ...string) {
	t.Helper()
	if r.Verdict != harness.Unknown || r.Reason != reason {
		t.Errorf("%s %s: %s; want UNKNOWN %s", r.Verdict, r.Reason, r.Summary, reason)
	}
	text := r.Summary
	for _, v := range r.Checks {
		if v.ID == "conduct" {
			for _, e := range v.Evidence {
				text += "\n" + e.Text
			}
		}
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("the result does not say %q:\n%s", w, text)
		}
	}
}

func script(t *testing.T, text string) []string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{name, "sut"}
}

func TestServersThatDoNotStart(t *testing.T) {
	migrates := `case "$*" in *migrate*) exec ` + program + ` "$@";; esac
`
	for name, c := range map[string]struct {
		command []string
		words   []string
	}{
		"exits at once":     {script(t, migrates+`n=0; while [ $n -lt 40 ]; do n=$((n+1)); echo "log line $n"; done; echo "no licence" >&2; exit 3`), []string{"up: start sut-1", "exit status 3", "log line 12", "log line 40", "no licence"}},
		"can't migrate":     {script(t, `echo "relation exists"; exit 1`), []string{"migrate", "exit status 1", "relation exists"}},
		"is no program":     {[]string{"/nowhere/server"}, []string{"/nowhere/server", "no such file"}},
		"speaks and dies":   {script(t, migrates+`echo "listening on http://127.0.0.1:1"; exit 0`), []string{"sut-1 ended by itself", "exit status 0"}},
		"listens elsewhere": {script(t, migrates+`echo "listening on http://127.0.0.1:1"; exec sleep 600`), []string{"refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			conducted, _ := conductor(t)
			r, _ := conduct(t, conducted, oneSeat(t), run.Server{Command: c.command})
			if r.Verdict != harness.Unknown {
				t.Fatalf("%s: %s", r.Verdict, r.Summary)
			}
			undecided(t, r, r.Reason, c.words...)
			if name != "listens elsewhere" {
				undecided(t, r, harness.ReasonEnvironment)
			}
		})
	}
}

// driven is the scenario with something done after its drive.
func driven(t *testing.T, then func(ctx context.Context, env harness.Env) error) harness.Scenario {
	t.Helper()
	s := oneSeat(t)
	drive := s.Drive
	s.Drive = func(ctx context.Context, env harness.Env) error {
		if err := drive(ctx, env); err != nil {
			return err
		}
		return then(ctx, env)
	}
	return s
}

func TestInterruptInTheMiddleOfADrive(t *testing.T) {
	c, interrupt := conductor(t)
	s := driven(t, func(ctx context.Context, env harness.Env) error {
		never := make(chan struct{})
		env.Upstream("pyxis").Inject(harness.UpstreamFault{Name: "hold for ever", At: harness.MomentReceived, Hold: never})
		if err := env.Servers()[0].Signal(ctx, "STOP"); err != nil {
			return err
		}
		interrupt()
		<-ctx.Done() // as any scenario's waiting does
		return errors.Join(errors.New("the drive was cut short"), ctx.Err())
	})
	r, rec := conduct(t, c, s, run.Server{})
	undecided(t, r, harness.ReasonInterrupted, "interrupted")
	if len(rec.History.Operations) < 10 || rec.Rows["table:library_reservation_intents"].Rows == nil {
		t.Errorf("what was there was not collected: %d operations, rows %+v", len(rec.History.Operations), rec.Rows["table:library_reservation_intents"])
	}
	if r.Outcomes["SUCCEEDED"] != 1 {
		t.Errorf("outcomes: %v", r.Outcomes)
	}
}

// WireMock is gone when nothing but the counts needs it any more.
func TestPartThatDiesBeforeItIsAsked(t *testing.T) {
	c, _ := conductor(t)
	s := driven(t, func(context.Context, harness.Env) error { return killBehindItsBack(java) })
	r, _ := conduct(t, c, s, run.Server{})
	undecided(t, r, harness.ReasonEnvironment, "WireMock died", "signal: killed")
	if c.Dead() != "wiremock" {
		t.Errorf("Dead() is %q", c.Dead())
	}
}

// killBehindItsBack kills the one process of the run that fits, without the
// conductor's knowledge.
func killBehindItsBack(command *regexp.Regexp) error {
	all, err := proc.Living("OVERBOOK_RUN=" + conductMark)
	for _, p := range all {
		if command.MatchString(p.Command) {
			return syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	return errors.Join(err, fmt.Errorf("no process fits %s", command))
}

// A server that dies at the end has nothing open, but nobody told it to.
func TestServerThatDiesIsNoPass(t *testing.T) {
	c, _ := conductor(t)
	s := driven(t, func(context.Context, harness.Env) error { return killBehindItsBack(server) })
	r, _ := conduct(t, c, s, run.Server{})
	undecided(t, r, harness.ReasonEnvironment, "sut-1 ended by itself", "signal: killed")
}
