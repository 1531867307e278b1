package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// scripted starts a shell script in place of a server.
func scripted(t *testing.T, script string) *replica {
	t.Helper()
	r := &replica{
		name: "sut-1", command: []string{"/bin/sh", "-c", script + "\necho listening on http://127.0.0.1:1\n while :; do sleep 0.02; done"},
		env: func() []string { return []string{"PATH=/usr/bin:/bin"} },
		log: filepath.Join(t.TempDir(), "sut-1.log"), rec: newRecorder(clock.New()),
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// signalled counts the signals that a replica's process got.
func signalled(r *replica, name string) int {
	n := 0
	for _, e := range r.rec.record(harness.Plan{}).History.Events {
		if strings.Contains(e.Text, "gets "+name) {
			n++
		}
	}
	return n
}

func TestTerminateDoesNotHurryWhoWasTold(t *testing.T) {
	r := scripted(t, `trap 'sleep 0.2; exit 0' TERM`)
	if err := r.Signal(t.Context(), "TERM"); err != nil {
		t.Fatal(err)
	}
	if err := r.Terminate(t.Context()); err != nil {
		t.Error(err)
	}
	if n := signalled(r, "SIGTERM"); n != 1 {
		t.Errorf("it got SIGTERM %d times, want once", n)
	}
}

func TestTerminateSaysHowItEnded(t *testing.T) {
	r := scripted(t, `trap 'echo out of order; exit 3' TERM`)
	err := r.Terminate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("got %v, want the exit status and the last output", err)
	}
}

func TestKillingTheDeadIsTrouble(t *testing.T) {
	r := scripted(t, `trap 'exit 7' USR1; (sleep 0.05; kill -USR1 $$) &`)
	<-r.process.Exited()
	if err := r.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	trouble := r.rec.record(harness.Plan{}).Trouble
	if len(trouble) != 1 || trouble[0].Reason != harness.ReasonEnvironment || !strings.Contains(trouble[0].Text, "exit status 7") {
		t.Errorf("trouble %v, want that it ended by itself", trouble)
	}
}

func TestLostAnswers(t *testing.T) {
	call := func(status int, fault, why, body string) harness.UpstreamCall {
		return harness.UpstreamCall{Seq: 4, Upstream: "pyxis", Caller: "sut-1", Method: "POST", Path: "/reserve", Status: status, Fault: fault, Err: why, Response: body}
	}
	for _, tc := range []struct {
		call harness.UpstreamCall
		lost bool
	}{
		{call(201, "", "", `{"charge_id":"c"}`), false},
		{call(0, "", "", ""), false}, // on its way
		{call(0, "SIGKILL the caller", "dropped before it was forwarded", ""), false},
		{call(201, "", "the caller was gone before the answer", ""), false},
		{call(503, "", "", `{"error":"failing"}`), false},
		{call(0, "", "read the upstream's answer: EOF", ""), true},
		{call(500, "", "", "Network failure trying to make a proxied request from WireMock to http://127.0.0.1:1"), true},
	} {
		if got := lostAnswers([]harness.UpstreamCall{tc.call}); (got != "") != tc.lost {
			t.Errorf("%+v: %q, lost is %v", tc.call, got, tc.lost)
		}
	}
	two := []harness.UpstreamCall{call(0, "", "EOF", ""), call(0, "", "EOF", "")}
	if got := lostAnswers(two); !strings.HasSuffix(got, "call 4: EOF (and 1 more)") {
		t.Error(got)
	}
}

// After STOP the process is stopped, not about to be; one that can't be
// stopped any more is an error.
func TestStopIsWaitedFor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the state of a process is asked of /proc")
	}
	r := scripted(t, "")
	if err := r.Signal(t.Context(), "STOP"); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.process.PID()))
	if err != nil || !strings.Contains(string(stat), ") T ") {
		t.Errorf("after STOP the kernel says %q (%v), want state T", stat, err)
	}
	if r.listening() {
		t.Error("a stopped server counts as listening")
	}
	if err := r.Signal(t.Context(), "CONT"); err != nil || !r.listening() {
		t.Errorf("after CONT: %v, listening %v", err, r.listening())
	}
	// Now and then it is just starting another process, and waits for its exec.
	for range 500 {
		if err := errors.Join(r.Signal(t.Context(), "STOP"), r.Signal(t.Context(), "CONT")); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Signal(t.Context(), "STOP"); err == nil {
		t.Error("a server that is not running was stopped")
	}
}
