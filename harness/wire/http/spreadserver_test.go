//go:build linux

package wirehttp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

// spreadServerEnv makes this test binary the server of the spread benchmark.
const spreadServerEnv = "OVERBOOK_SPREAD_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(spreadServerEnv) != "" {
		if err := serveSpread(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// arrivals is what the server saw: the instant at which the body of each
// request to /go was read, and of each connection's first request to /first.
type arrivals struct {
	mu     sync.Mutex
	at     []time.Duration
	inside int
	all    chan struct{} // closed when enough are inside /meet
}

type firstKey struct{}

// serveSpread serves until its standard input ends, that is until its parent
// closes it or dies.
func serveSpread() error {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	admin, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c, seen := clock.New(), &arrivals{all: make(chan struct{})}
	seen.at = make([]time.Duration, 0, 1<<12)
	mux := http.NewServeMux()
	mux.HandleFunc("/go", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen.note(c.Now())
		_, _ = io.WriteString(w, "ok")
	})
	mux.HandleFunc("/first", func(w http.ResponseWriter, r *http.Request) {
		at := c.Now()
		first, _ := r.Context().Value(firstKey{}).(*sync.Once)
		first.Do(func() { seen.note(at) })
		_, _ = io.WriteString(w, "ok")
	})
	mux.HandleFunc("/meet", seen.meet)
	srv := &http.Server{Handler: mux, Protocols: new(http.Protocols), ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, firstKey{}, new(sync.Once))
	}}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	take := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		_ = json.NewEncoder(w).Encode(append([]time.Duration{}, seen.at...))
		seen.at, seen.inside, seen.all = seen.at[:0], 0, make(chan struct{})
	})}
	var both sync.WaitGroup
	both.Go(func() { _ = srv.Serve(ln) })
	both.Go(func() { _ = take.Serve(admin) })
	fmt.Fprintln(os.Stdout, ln.Addr(), admin.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_, _ = srv.Close(), take.Close()
	both.Wait()
	return nil
}

func (a *arrivals) note(at time.Duration) {
	a.mu.Lock()
	a.at = append(a.at, at)
	a.mu.Unlock()
}

// meet answers when spreadN requests are inside, so that a client has as many connections.
func (a *arrivals) meet(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if a.inside++; a.inside == spreadN {
		close(a.all)
	}
	all := a.all
	a.mu.Unlock()
	select {
	case <-all:
	case <-r.Context().Done():
	}
	_, _ = io.WriteString(w, "ok")
}

// spreadChild is the server of the benchmark, in a process of its own.
type spreadChild struct {
	cmd   *exec.Cmd
	addr  string
	url   string
	admin string
}

func startSpreadChild(t *testing.T) *spreadChild {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), spreadServerEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the end of its input ends it
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	addr, admin, ok := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || !ok {
		t.Fatalf("the server said %q: %v", line, err)
	}
	return &spreadChild{cmd: cmd, addr: addr, url: "http://" + addr, admin: "http://" + admin}
}

// take gives the arrivals since the last call.
func (s *spreadChild) take(t *testing.T) []time.Duration {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.admin, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var at []time.Duration
	if err := json.NewDecoder(res.Body).Decode(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

// stop stops the process and waits until it stands still.
func (s *spreadChild) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	err := clock.Await(t.Context(), "the server to stand still", 5*time.Second, time.Millisecond, func(context.Context) (bool, string, error) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		state := string(stat[strings.LastIndex(string(stat), ")")+1:])
		return strings.HasPrefix(state, " T"), state[:2], err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *spreadChild) resume(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
