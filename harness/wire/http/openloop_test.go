//go:build linux

package wirehttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/load"
)

// counted is a real server that knows its connections and how often it saw
// each operation.
type counted struct {
	*httptest.Server
	opened, closed atomic.Int64

	mu   sync.Mutex
	seen map[string]int
}

func newCounted(t *testing.T, answer http.HandlerFunc) *counted {
	t.Helper()
	s := &counted{seen: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen[r.Header.Get("X-Overbook-Op")]++
		s.mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
		if answer != nil {
			answer(w, r)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.opened.Add(1)
		case http.StateClosed:
			s.closed.Add(1)
		case http.StateActive, http.StateIdle, http.StateHijacked:
		}
	}
	t.Cleanup(s.Close)
	return s
}

// once checks that the server saw each operation that was sent exactly once.
func (s *counted) once(t *testing.T, ops []harness.Operation) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range ops {
		if want := min(1, int(op.Sent)); s.seen[op.ID] != want {
			t.Fatalf("the server saw %s %d times, want %d", op.ID, s.seen[op.ID], want)
		}
	}
	if len(s.seen) > len(ops) {
		t.Fatalf("the server saw %d operations, %d are recorded", len(s.seen), len(ops))
	}
}

func to(url string) Route {
	return func(*harness.Request) (string, func(context.Context, harness.Operation)) { return url, nil }
}

func every(n int, gap time.Duration) []time.Duration {
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = time.Duration(i) * gap
	}
	return at
}

func post(c harness.Visitor, kind string) harness.Request {
	return harness.Request{Kind: kind, Process: c.N(), Method: "POST", Path: "/" + kind, Body: []byte(`{"x":1}`)}
}

// calls makes a client that makes so many calls, one after the other.
func calls(n int) func(context.Context, harness.Visitor) {
	return func(ctx context.Context, c harness.Visitor) {
		for range n {
			c.Do(ctx, post(c, "call"))
		}
	}
}

func await(t *testing.T, what string, holds func() (bool, string)) {
	t.Helper()
	err := clock.Await(t.Context(), what, 15*time.Second, time.Millisecond, func(context.Context) (bool, string, error) {
		ok, state := holds()
		return ok, state, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// adds checks what every report must add up to.
func adds(t *testing.T, r harness.OpenLoopReport, ops []harness.Operation) {
	t.Helper()
	switch {
	case r.Calls != len(ops), r.Calls != r.Sent+r.Refused+r.Unsent, r.Sent != r.Answered+r.TimedOut+r.Broken,
		r.Arrived != r.Left+r.CutOff, r.Arrived > r.Planned, r.ConnectionsMost > r.Connections, r.LateP50 > r.LateP99, r.LateP99 > r.LateMax:
		t.Errorf("does not add up: %+v, %d operations", r, len(ops))
	}
	last := map[int]time.Duration{}
	for _, op := range ops {
		if op.Load != r.Name || op.Intended < max(last[op.Process], r.Started) || (op.Sent != 0 && op.Sent < op.Intended) {
			t.Fatalf("operation %+v: of another load, or before its time (%s)", op, last[op.Process])
		}
		last[op.Process] = max(op.Intended, op.Answered)
	}
}

func TestAnOpenLoopKeepsConnections(t *testing.T) {
	s := newCounted(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	s.Start()
	l := harness.OpenLoop{Name: "sale", Arrivals: every(200, time.Millisecond), Client: calls(2), Connections: 8, Deadline: time.Minute}
	r, ops, err := testClient(clock.New()).OpenLoop(t.Context(), l, to(s.URL))
	if err != nil {
		t.Fatal(err)
	}
	adds(t, r, ops)
	s.once(t, ops)
	if r.Left != 200 || r.Answered != 400 || r.ConnectionsOpened > 8 || r.ConnectionsOpened < 1 || int64(r.ConnectionsOpened) != s.opened.Load() || r.Stale != 0 || r.MaxPresent < 1 || r.InFlight > 8 {
		t.Errorf("%+v; the server saw %d connections", r, s.opened.Load())
	}
	for i, op := range ops {
		if first := i%2 == 0; op.Outcome != harness.OK || op.Process != i/2 || (first && op.Intended != r.Started+l.Arrivals[i/2]) {
			t.Fatalf("operation %d: %+v", i, op)
		}
	}
	await(t, "connections are closed", func() (bool, string) { return s.closed.Load() == s.opened.Load(), "" })
}

// A connection that the server closed while it was idle is noticed, not used.
func TestAnIdleConnectionThatWasClosed(t *testing.T) {
	s := newCounted(t, nil)
	s.Config.IdleTimeout = 5 * time.Millisecond
	s.Start()
	client := func(ctx context.Context, c harness.Visitor) {
		for i := range 4 {
			c.Do(ctx, post(c, "call"))
			await(t, "the server closes", func() (bool, string) { return s.closed.Load() == int64(i)+1, "" })
		}
	}
	r, ops, err := testClient(clock.New()).OpenLoop(t.Context(), harness.OpenLoop{Name: "x", Arrivals: every(1, 0), Client: client, Connections: 3, Deadline: time.Minute}, to(s.URL))
	if err != nil {
		t.Fatal(err)
	}
	adds(t, r, ops)
	s.once(t, ops)
	if r.Answered != 4 || r.ConnectionsOpened != 4 || r.ConnectionsMost != 1 || r.Stale != 0 {
		t.Errorf("%+v, want four answers on four connections, one at a time", r)
	}
}

// After an answer that ends the connection, or with more behind it, there is a new one.
func TestConnectionsThatCannotBeKept(t *testing.T) {
	for name, answer := range map[string]string{
		"close":   "HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok",
		"list":    "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nConnection: x, close\r\nContent-Length: 2\r\n\r\nok",
		"1.0":     "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"surplus": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newRawServer(t, func(s *rawServer, c net.Conn) {
				for s.readRequest(c) {
					_, _ = io.WriteString(c, answer)
				}
			})
			r, ops, err := testClient(clock.New()).OpenLoop(t.Context(), harness.OpenLoop{Name: "x", Arrivals: every(1, 0), Client: calls(3), Connections: 2, Deadline: time.Minute}, to(s.url))
			if err != nil {
				t.Fatal(err)
			}
			adds(t, r, ops)
			if r.Answered != 3 || r.ConnectionsOpened != 3 || r.Stale != 0 || ops[0].Output != "ok" {
				t.Errorf("%+v, want three answers on three connections", r)
			}
		})
	}
}

// A server that dies in the middle of an answer leaves it open, and nothing is
// sent a second time.
func TestAKeptConnectionThatDies(t *testing.T) {
	for name, piece := range map[string]string{"without a byte": "", "in the middle": "HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nhalf"} {
		t.Run(name, func(t *testing.T) {
			s := newRawServer(t, func(s *rawServer, c net.Conn) {
				if s.readRequest(c) {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
				if s.readRequest(c) {
					_, _ = io.WriteString(c, piece)
				}
			})
			client := func(ctx context.Context, c harness.Visitor) {
				for range 2 {
					r := post(c, "pay")
					r.Header = map[string]string{"Idempotency-Key": "k"} // with which net/http would send it again
					c.Do(ctx, r)
				}
			}
			r, ops, err := testClient(clock.New()).OpenLoop(t.Context(), harness.OpenLoop{Name: "x", Arrivals: every(1, 0), Client: client, Connections: 2, Deadline: time.Minute}, to(s.url))
			if err != nil {
				t.Fatal(err)
			}
			adds(t, r, ops)
			class := load.ClassOf(ops[1].Err)
			if ops[0].Outcome != harness.OK || ops[1].Outcome != harness.Info || ops[1].Sent == 0 || ops[1].Answered != 0 || (class != load.ClassClosed && class != load.ClassReset) {
				t.Errorf("operations %+v", ops)
			}
			if r.Stale != 1 || r.Broken != 1 || s.whole.Load() != 2 || !strings.Contains(ops[1].Err, "had carried 1 calls") {
				t.Errorf("%+v, %d requests at the server; error %q", r, s.whole.Load(), ops[1].Err)
			}
		})
	}
}

// A connection whose deadline was moved to the past, to wake whoever is blocked
// on it, must not be used again, even if the answer came at the same instant.
func TestAConnectionThatWasBrokenOffIsTold(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	cn := &conn{inner: ours}
	ctx, cancel := context.WithCancel(t.Context())
	if unwatch := cn.closeWhenDone(ctx); unwatch() {
		t.Error("broken before anything ended")
	}
	unwatch := cn.closeWhenDone(ctx)
	cancel()
	if !unwatch() {
		t.Error("ctx had ended, and the connection counts as whole")
	}
	if _, err := ours.Read(make([]byte, 1)); load.Classify(err) != load.ClassTimeout {
		t.Errorf("reading gives %v", err)
	}
}

// A server that stalls must be seen in the response times of everybody who came
// meanwhile, not just of those whose calls it held.
func TestAStallIsNotHidden(t *testing.T) {
	const stall, gap, connections = 600 * time.Millisecond, 5 * time.Millisecond, 4
	var nth atomic.Int64
	run := clock.New()
	over := make(chan struct{})
	var from, until atomic.Int64
	s := newCounted(t, func(http.ResponseWriter, *http.Request) {
		if nth.Add(1) == 20 {
			from.Store(int64(run.Now()))
			time.AfterFunc(stall, func() { until.Store(int64(run.Now())); close(over) })
		}
		if nth.Load() >= 20 {
			<-over
		}
	})
	s.Start()
	l := harness.OpenLoop{Name: "x", Arrivals: every(300, gap), Client: calls(1), Connections: connections, Deadline: time.Minute}
	r, ops, err := testClient(run).OpenLoop(t.Context(), l, to(s.URL))
	if err != nil {
		t.Fatal(err)
	}
	adds(t, r, ops)
	s.once(t, ops)
	slow, held, during := 0, 0, 0
	for i, op := range ops {
		if op.Intended != r.Started+l.Arrivals[i] {
			t.Fatalf("client %d was meant to come at %s, its call at %s", i, r.Started+l.Arrivals[i], op.Intended)
		}
		if op.ResponseTime() > stall/2 {
			slow++
		}
		if op.ServiceTime() > stall/2 {
			held++
		}
		if int64(op.Intended) > from.Load() && int64(op.Intended) < until.Load() {
			if during++; int64(op.Answered) < until.Load() {
				t.Errorf("a call was answered during the stall: %+v", op)
			}
		}
	}
	if slow < 50 || during < 100 || r.MaxPresent < 50 || r.Waited < 50 || r.WaitMax < stall/2 || r.InFlight > connections {
		t.Errorf("%d of 300 calls took more than %s (held by the server: %d), %d came in the stall; %+v", slow, stall/2, held, during, r)
	}
	t.Logf("%d slow by response time, %d by service time; %+v", slow, held, r)
}

func TestTheDeadlineCutsClientsOff(t *testing.T) {
	block := make(chan struct{})
	s := newCounted(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-block:
		case <-r.Context().Done():
		}
	})
	defer close(block)
	s.Start()
	client := func(ctx context.Context, c harness.Visitor) {
		if op := c.Do(ctx, post(c, "call")); op.Answered == 0 && c.N() == 0 {
			c.Do(ctx, post(c, "again")) // told once that it is over
			c.Do(ctx, post(c, "again"))
		}
	}
	l := harness.OpenLoop{Name: "x", Arrivals: every(6, time.Millisecond), Client: client, Connections: 2, Deadline: 200 * time.Millisecond}
	r, ops, err := testClient(clock.New()).OpenLoop(t.Context(), l, to(s.URL))
	if err != nil {
		t.Fatal(err)
	}
	adds(t, r, ops)
	if r.Left != 0 || r.CutOff != r.Arrived || r.Sent+r.Unsent != r.Calls || r.TimedOut != r.Sent || r.Answered != 0 {
		t.Errorf("%+v", r)
	}
	if r.Arrived == 6 && (r.Sent != 2 || r.Unsent != 5) { // always, but on a machine that stood still
		t.Errorf("%+v, want two calls sent and five not, one of which came after the end", r)
	}
	for _, op := range ops {
		want, class := harness.Fail, load.ClassWaiting
		if op.Sent != 0 {
			want, class = harness.Info, load.ClassTimeout
		} else if op.Kind == "again" {
			class = load.ClassCancelled
		}
		if op.Outcome != want || load.ClassOf(op.Err) != class {
			t.Errorf("operation %+v, want %s, %s", op, want, class)
		}
	}
}

// Who interrupts a load gets what was seen so far, and nothing is left running.
func TestInterruptingALoad(t *testing.T) {
	s := newCounted(t, nil)
	s.Start()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancelCause(t.Context())
	var once sync.Once
	client := func(ctx context.Context, c harness.Visitor) {
		c.Do(ctx, post(c, "call"))
		if c.N() >= 20 {
			once.Do(func() { cancel(errors.New("stopped by the user")) })
		}
		if err := c.Pause(ctx, time.Hour); err == nil || !strings.Contains(err.Error(), "stopped by the user") {
			t.Errorf("the pause ended with %v", err)
		}
	}
	l := harness.OpenLoop{Name: "x", Arrivals: every(100_000, time.Millisecond), Client: client, Connections: 4, Deadline: time.Hour}
	r, ops, err := testClient(clock.New()).OpenLoop(ctx, l, to(s.URL))
	if err == nil || !strings.Contains(err.Error(), "stopped by the user") {
		t.Errorf("error %v", err)
	}
	adds(t, r, ops)
	if r.Arrived < 20 || r.Arrived >= r.Planned || r.CutOff != r.Arrived || len(ops) < 20 {
		t.Errorf("%+v, %d operations", r, len(ops))
	}
	await(t, "goroutines end", func() (bool, string) {
		n := runtime.NumGoroutine()
		return n <= before, fmt.Sprintf("%d, %d before", n, before)
	})
}

func TestClientsWhoMisbehave(t *testing.T) {
	s := newCounted(t, nil)
	s.Start()
	for name, tc := range map[string]struct {
		client func(context.Context, harness.Visitor)
		want   string
	}{
		"panic": {func(context.Context, harness.Visitor) { panic("seat 7") }, "client 0 of the open loop x: seat 7"},
		"never leaves": {func(ctx context.Context, c harness.Visitor) {
			for {
				c.Do(ctx, post(c, "call"))
			}
		}, "it goes on after it was cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, tc.want) {
					t.Errorf("panicked with %q, want %q", p, tc.want)
				}
			}()
			_, _, _ = testClient(clock.New()).OpenLoop(t.Context(), harness.OpenLoop{Name: "x", Arrivals: every(1, 0), Client: tc.client, Connections: 1, Deadline: 50 * time.Millisecond}, to(s.URL))
		})
	}
	_, ops, err := testClient(clock.New()).OpenLoop(t.Context(), harness.OpenLoop{Name: "x", Arrivals: every(1, 0), Client: calls(1), Connections: 0, Deadline: time.Second}, to(s.URL))
	if err == nil || ops != nil {
		t.Errorf("no connections at all: %v, %d operations", err, len(ops))
	}
}

// One connection for two servers goes back and forth; a server that is not
// running or refuses is told from what this machine did not send.
func TestSeveralServers(t *testing.T) {
	one, two := newCounted(t, nil), newCounted(t, nil)
	one.Start()
	two.Start()
	dead := listen(t)
	_ = dead.Close()
	urls := []string{one.URL, two.URL, "http://" + dead.Addr().String(), ""}
	route := func(r *harness.Request) (string, func(context.Context, harness.Operation)) {
		r.Server = fmt.Sprint("sut-", r.Process%4)
		return urls[r.Process%4], nil
	}
	client := func(ctx context.Context, c harness.Visitor) {
		for i := range 8 {
			r := post(c, "call")
			r.Process = i
			if i == 5 {
				r.Lose = harness.LoseAnswer
			}
			c.Do(ctx, r)
		}
	}
	rep, ops, err := testClient(clock.New()).OpenLoop(t.Context(), harness.OpenLoop{Name: "x", Arrivals: every(1, 0), Client: client, Connections: 1, Deadline: time.Minute}, route)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Calls != 8 || rep.Answered != 3 || rep.Refused != 4 || rep.Broken != 1 || rep.Unsent != 0 || rep.ConnectionsMost != 1 || rep.ConnectionsOpened != 4 || rep.Stale != 0 {
		t.Errorf("%+v", rep)
	}
	for i, op := range ops {
		if op.Server != fmt.Sprint("sut-", i%4) || (i%4 >= 2 && (op.Outcome != harness.Fail || load.ClassOf(op.Err) != load.ClassRefused)) {
			t.Errorf("call %d: %+v", i, op)
		}
	}
}

// TestTenThousandClients is a probe: its figures are for reading.
func TestTenThousandClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	const clients, rate = 10_000, 4_000
	s := newCounted(t, nil)
	s.Start()
	l := harness.OpenLoop{Name: "x", Arrivals: load.Uniform(clients, rate), Client: calls(2), Connections: 100, Deadline: time.Minute}
	before := cpu(t)
	r, ops, err := testClient(clock.New()).OpenLoop(t.Context(), l, to(s.URL))
	if err != nil {
		t.Fatal(err)
	}
	used := cpu(t) - before
	adds(t, r, ops)
	s.once(t, ops)
	if r.Left != clients || r.Answered != 2*clients || r.ConnectionsOpened > 100 {
		t.Errorf("%+v", r)
	}
	t.Logf("%d calls in %s (schedule %s), CPU of client and server %s, %s a call; %+v", r.Calls, (r.Ended - r.Started).Round(time.Millisecond),
		r.Schedule, used.Round(time.Millisecond), (used / time.Duration(r.Calls)).Round(time.Microsecond), r)
}

// cpu is what this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
