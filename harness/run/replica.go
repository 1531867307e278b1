package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/proc"
)

var readyLine = regexp.MustCompile(`listening on (http://\S+)`)

// replica is one server process under test. It implements [harness.Server].
type replica struct {
	name    string
	command []string
	env     func() []string // asked at each start: the clock may have moved
	log     string
	rec     *recorder

	mu      sync.Mutex
	process *proc.Process // nil when not running
	url     string
	stopped bool          // by SIGSTOP
	asked   bool          // to end, by a signal
	told    *proc.Process // whose death was told
}

func (r *replica) Name() string { return r.name }

// URL gives the base URL, "" when the server is not running.
func (r *replica) URL() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.url
}

// Start starts the server and waits for its ready line. The error carries the
// last lines of its log.
func (r *replica) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		return fmt.Errorf("start %s: it is running (pid %d)", r.name, r.process.PID())
	}
	p, err := proc.Start(ctx, proc.Spec{
		Name: r.name, Path: r.command[0], Args: r.command[1:],
		Env: r.env(), Log: r.log, Ready: readyLine, ReadyTimeout: startDeadline,
		OnEvent: func(kind, text string) {
			r.rec.event(harness.Event{Kind: harness.EventProcess, Subject: r.name, Text: kind + ": " + text})
		},
	})
	if err != nil {
		return err // it names the server and says what it printed
	}
	r.process, r.url, r.stopped, r.asked = p, p.Match()[1], false, false
	return nil
}

// Kill sends SIGKILL and waits until the process is gone. One that had ended
// by itself before is trouble: it was not we who killed it.
func (r *replica) Kill(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return nil
	}
	if text, dead := r.ended(); dead {
		r.rec.troubled(harness.ReasonEnvironment, "%s", text)
	}
	err := r.process.Kill()
	r.process, r.url, r.stopped = nil, "", false
	return err
}

// Terminate sends SIGTERM, unless the server has got it already, as a second
// one would end it at once, and waits for the exit. A server that does not exit
// by itself within its grace is killed; that, and any exit status but 0, is an
// error.
func (r *replica) Terminate(ctx context.Context) error {
	r.mu.Lock()
	p, asked := r.process, r.asked
	r.asked = true
	r.mu.Unlock()
	if p == nil {
		return nil
	}
	var err error
	if asked {
		err = r.awaitExit(ctx, p)
	} else {
		err = p.Stop(ctx)
	}
	if err == nil && p.ExitText() != "exit status 0" {
		err = fmt.Errorf("terminate %s: it ended with %s, expected exit status 0; its last output:\n%s", r.name, p.ExitText(), joinLines(p.Tail(30)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == p {
		r.process, r.url, r.stopped = nil, "", false
	}
	return err
}

// awaitExit waits for a server that was told to end.
func (r *replica) awaitExit(ctx context.Context, p *proc.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopDeadline, fmt.Errorf("still running %s later", stopDeadline))
	defer cancel()
	select {
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("terminate %s: it was told to end, %w", r.name, context.Cause(ctx)), p.Kill())
	}
}

var signals = map[string]syscall.Signal{"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}

// haltDeadline bounds the wait for a stopped process to be seen as such.
const haltDeadline = 5 * time.Second

// Signal sends a signal by its short name. It does not wait for what the
// process makes of it, except that after STOP the process is really stopped:
// what a scenario does next is done to a server that does nothing.
func (r *replica) Signal(ctx context.Context, name string) error {
	sig, ok := signals[name]
	if !ok {
		return fmt.Errorf("signal %s: unknown name %q", r.name, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return fmt.Errorf("signal %s: it is not running", r.name)
	}
	if sig == syscall.SIGSTOP {
		err := r.process.Halt(ctx, r.awaitStopped)
		r.stopped = !errors.Is(err, proc.ErrExited)
		if err != nil {
			return fmt.Errorf("signal %s: %w", r.name, err)
		}
		return nil
	}
	if err := r.process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", r.name, err)
	}
	switch sig {
	case syscall.SIGCONT:
		r.stopped = false
	default: // TERM and KILL
		r.asked = true
	}
	return nil
}

// awaitStopped asks the kernel, where it can be asked, until the process is in
// the state T.
func (r *replica) awaitStopped(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return nil // the signal was accepted, no more can be asked
	}
	stat := fmt.Sprintf("/proc/%d/stat", r.process.PID())
	return clock.Await(ctx, r.name+" is stopped", haltDeadline, time.Millisecond, func(context.Context) (bool, string, error) {
		text, err := os.ReadFile(stat)
		if err != nil {
			return false, "", err
		}
		state := ""
		if _, rest, ok := strings.Cut(string(text), ") "); ok && rest != "" { // after the command in brackets
			state = rest[:1]
		}
		return state == "T", "state " + state, nil
	})
}

// resume continues a server that is still stopped.
func (r *replica) resume(ctx context.Context) error {
	r.mu.Lock()
	stopped := r.process != nil && r.stopped
	r.mu.Unlock()
	if !stopped {
		return nil
	}
	return r.Signal(ctx, "CONT")
}

// listening says whether the server can answer now.
func (r *replica) listening() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process != nil && !r.stopped
}

// died gives, once, the exit of a server that ended although nobody ended it.
func (r *replica) died() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended()
}

// ended is died with the lock held.
func (r *replica) ended() (string, bool) {
	if r.process == nil || r.process == r.told || r.asked {
		return "", false
	}
	select {
	case <-r.process.Exited():
		r.told = r.process
		return fmt.Sprintf("%s ended by itself: %s\n%s", r.name, r.process.ExitText(), lastLines(joinLines(r.process.Tail(30)), 30)), true
	default:
		return "", false
	}
}

// replicas makes the server processes of the topology, not started yet.
func (s *session) replicas() []*replica {
	list := make([]*replica, 0, s.topology.Replicas)
	for i := range s.topology.Replicas {
		name := fmt.Sprintf("sut-%d", i+1)
		list = append(list, &replica{
			name: name, command: append(append([]string{}, s.command...), "--design", s.topology.Design), env: func() []string { return s.serverEnv(name) },
			log: filepath.Join(s.dir.Logs(), name+".log"), rec: s.rec,
		})
	}
	return list
}

// startServers starts all replicas that Drive does not start itself, at once.
func (s *session) startServers(ctx context.Context) error {
	delayed := map[int]bool{}
	for _, i := range s.topology.Delayed {
		delayed[i] = true
	}
	errs := make([]error, len(s.servers))
	var wg sync.WaitGroup
	for i, r := range s.servers {
		if !delayed[i] {
			wg.Go(func() { errs[i] = r.Start(ctx) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// serverEnv is the complete environment of a server process.
func (s *session) serverEnv(replica string) []string {
	env := append(baseEnv(s.c.config.Mark), s.serverMark(),
		"DATABASE_URL="+s.databaseURL(replica), "REPLICA="+replica, "LISTEN=127.0.0.1:0", "TEST_MODE=true",
		"CLOCK_OFFSET="+s.offset().String(), "REDIS_PREFIX="+s.id+":")
	if s.redis != nil {
		env = append(env, "REDIS_URL="+s.redis.URL())
	}
	for name, u := range s.upstreams {
		env = append(env, envName(name)+"_URL="+u.wire.URL(replica))
	}
	for name, value := range s.topology.Server {
		env = append(env, name+"="+value)
	}
	return env
}

// serverMark is in the environment of this run's servers alone, so that the
// leak check can tell them from the parts that all runs share.
func (s *session) serverMark() string { return "OVERBOOK_SERVER_OF=" + s.id }
