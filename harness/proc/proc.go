package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

// Defaults of a [Spec], and bounds that it cannot change.
const (
	DefaultReadyTimeout = 30 * time.Second
	DefaultStopGrace    = 10 * time.Second

	killTimeout = 10 * time.Second // SIGKILL to gone; only a process stuck in the kernel needs longer
	drainBound  = 2 * time.Second  // exit to end of output; longer only when a stray grandchild holds the pipe
	probePause  = 5 * time.Millisecond
	errorLines  = 30 // of output in the error of a failed start
)

// A Spec says how to start one child process.
type Spec struct {
	Name string   // for errors and events: "postgres", "sut-1"
	Path string   // the binary; without a slash it is looked up in our PATH
	Args []string // without the program's name
	Env  []string // the complete environment, "K=V"; nothing is inherited
	Dir  string   // working directory; "" is ours

	// Log is the file that standard output and standard error are appended
	// to, up to [LogLimit] bytes; "" keeps only the last lines in memory.
	Log string

	// Ready matches the line of output that says ready; nil: ready when started.
	Ready        *regexp.Regexp
	ReadyTimeout time.Duration // for Ready and Probe together; 0 is DefaultReadyTimeout

	// Probe, when set, is asked after Ready again and again until it gives nil.
	Probe func(ctx context.Context) error

	StopSignal  syscall.Signal // of Stop; 0 is SIGTERM
	DeathSignal syscall.Signal // sent by the kernel when the harness dies (Linux); 0 is SIGKILL
	StopGrace   time.Duration  // from StopSignal to SIGKILL; 0 is DefaultStopGrace
	Credential  *syscall.Credential

	// OnEvent hears of "start", "ready", "signal" and "exit" as they happen,
	// from more than one goroutine. It must be quick and must not call back.
	OnEvent func(kind, text string)
}

// ErrExited says that the process is gone already.
var ErrExited = errors.New("process has exited")

// A Process is a child that was started.
type Process struct {
	spec   Spec
	cmd    *exec.Cmd
	output *output
	exited chan struct{} // closed when the exit is seen
	done   chan struct{} // closed when the output is read, too

	mu     sync.Mutex // guards reaped: no signal is sent to a process id that may be somebody else's by now
	reaped bool
	exit   string
}

// Start starts the process and waits until it is ready. When it is not ready
// in time, or exits before, or ctx ends, nothing is left running and the
// error carries the exit state and the last 30 lines of output.
//
// ctx governs the start alone: the process lives on when it ends later.
func Start(ctx context.Context, s Spec) (*Process, error) {
	s.StopSignal = cmp.Or(s.StopSignal, syscall.SIGTERM)
	s.DeathSignal = cmp.Or(s.DeathSignal, syscall.SIGKILL)
	s.StopGrace = cmp.Or(s.StopGrace, DefaultStopGrace)
	s.ReadyTimeout = cmp.Or(s.ReadyTimeout, DefaultReadyTimeout)
	if s.OnEvent == nil {
		s.OnEvent = func(string, string) {}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	p, err := launch(s)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	s.OnEvent("start", fmt.Sprintf("%s started as process %d", s.Name, p.PID()))
	if err := p.awaitReady(ctx); err != nil {
		return nil, p.failedStart(err)
	}
	s.OnEvent("ready", s.Name+" is ready")
	return p, nil
}

// launch makes the child and the goroutines that read and reap it.
func launch(s Spec) (*Process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close() // ours; the child keeps its own
	out, err := newOutput(s.Log, s.Ready)
	if err != nil {
		r.Close()
		return nil, err
	}
	cmd := exec.Command(s.Path, s.Args...) //nolint:noctx // the process outlives the start; Stop and Kill end it
	cmd.Env = append([]string{}, s.Env...) // never nil: that would inherit ours
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, w, w
	cmd.SysProcAttr = attributes(s)
	if err := spawn(cmd); err != nil {
		r.Close()
		out.close()
		return nil, err
	}
	p := &Process{spec: s, cmd: cmd, output: out, exited: make(chan struct{}), done: make(chan struct{})}
	go p.reap(r)
	return p, nil
}

// reap owns the child: it reads the output to its end, waits for the exit and
// takes what is left of the group along. It ends with the process.
func (p *Process) reap(r *os.File) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.output.read(r)
	}()
	p.wait()
	close(p.exited)

	// Whoever left the group may hold the pipe open for ever.
	bound := time.AfterFunc(drainBound, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	<-read
	bound.Stop()
	r.Close()
	p.output.close()
	p.spec.OnEvent("exit", fmt.Sprintf("%s ended: %s", p.spec.Name, p.ExitText()))
	close(p.done)
}

// bury takes the rest of the group along and notes how the child ended. It
// needs the lock.
func (p *Process) bury(wait func() error) {
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	err := wait()
	p.reaped, p.exit = true, exitText(p.cmd.ProcessState, err)
}

func exitText(state *os.ProcessState, err error) string {
	if state == nil {
		return fmt.Sprintf("lost: %v", err)
	}
	return state.String()
}

// awaitReady waits for the ready line and then for the probe.
func (p *Process) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.spec.ReadyTimeout, fmt.Errorf("not ready within %s", p.spec.ReadyTimeout))
	defer cancel()
	if p.spec.Ready != nil {
		select {
		case <-p.output.ready:
		case <-p.done:
			if p.Match() == nil {
				return errExitedEarly
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if p.spec.Probe == nil {
		return nil
	}
	return p.probe(ctx)
}

var errExitedEarly = errors.New("it ended before it was ready")

func (p *Process) probe(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-p.done:
			cancel(errExitedEarly)
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-stopped }()
	last := ""
	err := clock.Await(ctx, "probe of "+p.spec.Name, p.spec.ReadyTimeout, probePause, func(ctx context.Context) (bool, string, error) {
		err := p.spec.Probe(ctx)
		if err != nil {
			last = err.Error()
			return false, last, nil //nolint:nilerr // not ready yet
		}
		return true, "", nil
	})
	if err != nil && ctx.Err() != nil && last != "" {
		return fmt.Errorf("%w (last probe: %s)", context.Cause(ctx), last)
	}
	return err
}

// failedStart ends the process and says why it was no use.
func (p *Process) failedStart(why error) error {
	state := p.ExitText()
	if err := p.Kill(); err != nil {
		why = errors.Join(why, err)
	}
	if errors.Is(why, errExitedEarly) {
		state = p.ExitText()
	}
	text := fmt.Sprintf(" (%s)", state)
	if tail := p.Tail(errorLines); len(tail) > 0 {
		text += "; its last output:\n    " + strings.Join(tail, "\n    ")
	} else {
		text += "; it printed nothing"
	}
	return fmt.Errorf("start %s: %w%s", p.spec.Name, why, text)
}

// PID is the process id, which is also the id of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Match gives the ready line's match and submatches; nil before it came.
func (p *Process) Match() []string { return p.output.matched() }

// Exited is closed as soon as the exit of the process is seen; output of
// others that hold its pipe may still come.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Done is closed when the process is gone, its output read and its log closed.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitText is "running", or how it ended: "exit status 1", "signal: killed".
func (p *Process) ExitText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		return "running"
	}
	return p.exit
}

// Tail gives the last n lines of output, oldest first, at most [TailLimit].
func (p *Process) Tail(n int) []string { return p.output.last(n) }

// Rusage is what the process used; nil before its exit is seen.
func (p *Process) Rusage() *syscall.Rusage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped || p.cmd.ProcessState == nil {
		return nil
	}
	usage, _ := p.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return usage
}
