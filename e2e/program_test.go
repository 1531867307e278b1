package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

// patience bounds every run of the program here; no run is near it.
const patience = 2 * time.Minute

// A place is where the program is run: a working directory of its own, and a
// temporary directory that must be empty again afterwards.
type place struct {
	dir, temp string
	env       []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	temp, err := os.MkdirTemp("", "overbook-e2e-tmp-") //nolint:usetesting // whoever runs Postgres has to get in
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	if err := os.Chmod(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &place{dir: t.TempDir(), temp: temp}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "TMPDIR" && name != "NO_COLOR" {
			p.env = append(p.env, v)
		}
	}
	p.env = append(p.env, "TMPDIR="+temp)
	return p
}

// with sets a variable; the last of a name counts.
func (p *place) with(entries ...string) *place {
	return &place{p.dir, p.temp, append(append([]string{}, p.env...), entries...)}
}

func (p *place) path(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

// An ending is how the program ended.
type ending struct {
	code           int
	stdout, stderr string
}

func (e ending) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", e.code, tail(e.stdout), tail(e.stderr))
}

func tail(s string) string {
	if len(s) > 6000 {
		return "[...]" + s[len(s)-6000:]
	}
	return s
}

// lastLine is the last line of standard output.
func (e ending) lastLine() string {
	lines := strings.Split(strings.TrimRight(e.stdout, "\n"), "\n")
	return lines[len(lines)-1]
}

// A running is the program while it runs.
type running struct {
	*watch
	place          *place
	cmd            *exec.Cmd
	stdout, stderr *sink
	left           bool // leftovers are expected: it was killed
	ended          ending
	wait           func()
}

// A sink collects output and can be read meanwhile.
type sink struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start starts the program in a process group of its own. Whatever the test
// does, at its end nothing of it runs any more.
func (p *place) start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := exec.CommandContext(ctx, program, args...)
	r := &running{place: p, cmd: cmd, stdout: &sink{}, stderr: &sink{}}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, r.stdout, r.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.watch = watchKin(cmd.Process.Pid)
	r.wait = sync.OnceFunc(func() {
		defer cancel()
		err := cmd.Wait()
		r.stop()
		r.ended = ending{cmd.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String()}
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			r.ended.stderr += "\n" + err.Error()
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // after its end this does nothing
		r.wait()
	})
	return r
}

// end waits for the end and looks for what was left behind: processes, files
// in the temporary directory, a database cluster.
func (r *running) end(t *testing.T) ending {
	t.Helper()
	r.wait()
	r.gone(t, 5*time.Second)
	if r.left {
		return r.ended
	}
	if left, err := os.ReadDir(r.place.temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v (%v)", left, err)
	}
	for _, dir := range r.clusters() {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the database cluster %s is still there (%v)", dir, err)
		}
	}
	return r.ended
}

// run runs the program to its end and wants that exit code.
func (p *place) run(t *testing.T, code int, args ...string) ending {
	t.Helper()
	e := p.start(t, args...).end(t)
	want(t, e, code)
	return e
}

func want(t *testing.T, e ending, code int) {
	t.Helper()
	if e.code != code {
		t.Fatalf("want exit code %d\n%s", code, e)
	}
	for name, text := range map[string]string{"stdout": e.stdout, "stderr": e.stderr} {
		if strings.Contains(text, "\x1b") {
			t.Errorf("escape sequences on %s, which is no terminal", name)
		}
	}
}

// says wants each of the expressions in the text.
func says(t *testing.T, what, text string, expressions ...string) {
	t.Helper()
	for _, x := range expressions {
		if !regexp.MustCompile(`(?m)` + x).MatchString(text) {
			t.Errorf("%s does not say %q:\n%s", what, x, tail(text))
		}
	}
}

// logged waits until a file that matches the pattern has the text.
func (r *running) logged(t *testing.T, text string, pattern ...string) {
	t.Helper()
	err := clock.Await(t.Context(), fmt.Sprintf("%q in %v", text, pattern), 60*time.Second, 5*time.Millisecond, func(context.Context) (bool, string, error) {
		files, err := filepath.Glob(r.place.path(pattern...))
		for _, name := range files {
			if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), text) {
				return true, "", nil
			}
		}
		return false, r.stderr.String(), err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// serving waits until the first server of the run under way listens.
func (r *running) serving(t *testing.T, scenario string) {
	t.Helper()
	r.logged(t, "listening on", "runs", scenario, ".writing-*", "logs", "sut-1.log")
}

// signal sends the program alone a signal.
func (r *running) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func kill(t *testing.T, k kin, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(k.pid, sig); err != nil {
		t.Fatalf("signal %s: %v", k, err)
	}
}

// said waits until standard error has the text.
func (r *running) said(t *testing.T, text string) {
	t.Helper()
	err := clock.Await(t.Context(), fmt.Sprintf("%q on standard error", text), 30*time.Second, 5*time.Millisecond, func(context.Context) (bool, string, error) {
		return strings.Contains(r.stderr.String(), text), r.stderr.String(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
