package proc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/proc"
)

const deathMark = "OVERBOOK_RUN=killed-parent"

// TestMain lets this binary play the harness that is killed.
func TestMain(m *testing.M) {
	if os.Getenv("OVERBOOK_TEST_PARENT") != "" {
		parent()
		return
	}
	os.Exit(m.Run())
}

// parent starts two children, says so, and waits to be killed.
func parent() {
	for _, script := range []string{`echo ready; exec sleep 600`, `trap '' TERM INT HUP; echo ready; while :; do sleep 0.1; done`} {
		s := shell(script)
		s.Ready, s.Env = regexp.MustCompile(`^ready$`), append(s.Env, deathMark)
		if _, err := proc.Start(context.Background(), s); err != nil {
			fmt.Fprintln(os.Stdout, err)
			return
		}
	}
	fmt.Fprintln(os.Stdout, "children run")
	<-make(chan struct{}) // until killed
}

func TestChildrenDieWithAKilledHarness(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "OVERBOOK_TEST_PARENT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "children run" {
		t.Fatalf("the parent says %q, %v", line, err)
	}
	if found, err := proc.Living(deathMark); err != nil || len(found) < 2 {
		t.Fatalf("before the kill: %v, %v; want two children", found, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	err = clock.Await(t.Context(), "children to die with their parent", 10*time.Second, time.Millisecond, func(context.Context) (bool, string, error) {
		found, err := proc.Living(deathMark) // the grandchild, a short sleep, ends by itself
		return len(found) == 0, fmt.Sprint(found), err
	})
	if err != nil {
		t.Error(err)
	}
}

// A child is not tied to the goroutine that asked for it: that one's thread
// may end without the child being killed.
func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	var p *proc.Process
	var err error
	thread := 0
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		runtime.LockOSThread() // the thread ends with the goroutine
		thread = unix.Gettid()
		p, err = proc.Start(context.Background(), sleeper())
	}()
	<-asked
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if thread == os.Getpid() {
		t.Skip("the goroutine had the main thread, which never ends")
	}
	err = clock.Await(t.Context(), "the thread to end", 10*time.Second, time.Millisecond, func(context.Context) (bool, string, error) {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		return os.IsNotExist(err), "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, sleeper()) // a signal from the kernel would have come before this one is ready
	if got := p.ExitText(); got != "running" {
		t.Errorf("the child died with a thread: %s", got)
	}
}

func TestLivingMatchesWholeWords(t *testing.T) {
	s := sleeper()
	s.Env = append(s.Env, "OVERBOOK_RUN=abcd")
	start(t, s)
	s = shell(`echo "port: 1"; sleep 600; : cluster_name=OVERBOOK_RUN=argument`)
	s.Ready = regexp.MustCompile(`port`)
	p := start(t, s)
	if found, err := proc.Living("OVERBOOK_RUN=abc"); err != nil || len(found) != 0 {
		t.Errorf("abc matches abcd: %v, %v", found, err)
	}
	found, err := proc.Living("OVERBOOK_RUN=argument")
	i := slices.IndexFunc(found, func(l proc.Leftover) bool { return l.PID == p.PID() })
	if err != nil || i < 0 || !strings.Contains(found[i].String(), "sleep 600") {
		t.Errorf("in the command line: %v, %v; want process %d", found, err, p.PID())
	}
	if _, err := proc.Living(""); err == nil {
		t.Error("an empty mark would match everything")
	}
}
