//go:build linux

package wirehttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/load"
)

// rawServer accepts connections and gives each to serve. Whole requests are
// counted by whoever calls readRequest.
type rawServer struct {
	url   string
	whole atomic.Int64
	conns atomic.Int64
}

func newRawServer(t *testing.T, serve func(s *rawServer, c net.Conn)) *rawServer {
	t.Helper()
	ln := listen(t)
	s := &rawServer{url: "http://" + ln.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			all.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(clock.Wall().Add(20 * time.Second))
				serve(s, c)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	return s
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// readRequest reads one whole request and counts it.
func (s *rawServer) readRequest(c net.Conn) bool {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return false
	}
	s.whole.Add(1)
	return true
}

func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// TestNoAnswerIsInfoAndSentOnce: whatever a server does after reading a whole
// request, the request is not sent again and its effect is unknown.
func TestNoAnswerIsInfoAndSentOnce(t *testing.T) {
	const n = 20
	for _, tc := range []struct {
		name  string
		after func(c net.Conn)
		class load.Class
	}{
		{"closes after reading", func(net.Conn) {}, load.ClassClosed},
		{"resets after reading", reset, load.ClassReset},
		{"answers garbage", func(c net.Conn) { _, _ = io.WriteString(c, "220 smtp ready\r\n") }, load.ClassAnswer},
		{"closes in the header", func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-") }, load.ClassClosed},
		{"closes in the body", func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf") }, load.ClassClosed},
		{"never answers", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, load.ClassTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newRawServer(t, func(s *rawServer, c net.Conn) {
				if s.readRequest(c) {
					tc.after(c)
				}
			})
			client := testClient(clock.New())
			reqs := requests(n, func(int) string { return `{"a":1}` })
			for i := range reqs {
				reqs[i].Header = map[string]string{"Idempotency-Key": strconv.Itoa(i)}
			}
			rep, ops, err := client.Burst(t.Context(), same(s.url, n), harness.Burst{Requests: reqs, Timeout: 300 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			one := reqs[0]
			one.Timeout = 300 * time.Millisecond
			ops = append(ops, client.Do(t.Context(), s.url, one))
			if rep.Sent != n || rep.Answered != 0 || s.whole.Load() != n+1 || s.conns.Load() != n+1 {
				t.Errorf("%+v; the server saw %d requests on %d connections, want %d", rep, s.whole.Load(), s.conns.Load(), n+1)
			}
			for _, op := range ops {
				if op.Outcome != harness.Info || op.Answered != 0 || op.Sent == 0 || load.ClassOf(op.Err) != tc.class {
					t.Fatalf("%+v, want info of class %s", op, tc.class)
				}
			}
		})
	}
}

func TestEarlyAnswerFailsTheBurst(t *testing.T) {
	const n = 5
	// The server answers as soon as it has anything; its own count says when
	// all answers are out, and the last connection comes only then.
	var answered sync.WaitGroup
	answered.Add(n)
	s := newRawServer(t, func(s *rawServer, c net.Conn) {
		if s.conns.Load() > n {
			_, _ = io.Copy(io.Discard, c)
			return
		}
		_, _ = c.Read(make([]byte, 1))
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		answered.Done()
		_, _ = io.Copy(io.Discard, c)
	})
	client := testClient(clock.New())
	b := harness.Burst{Requests: requests(n, nil)}
	bu := newBurst(client, b)
	if err := bu.plan(same(s.url, n), b); err != nil {
		t.Fatal(err)
	}
	defer bu.close()
	if err := bu.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	answered.Wait()
	err := bu.release()
	if err == nil || bu.report.Early != n || bu.report.Released != 0 {
		t.Fatalf("error %v, report %+v", err, bu.report)
	}
	rep, ops, err := bu.abort(err)
	if err == nil || rep.Sent != 0 {
		t.Fatalf("error %v, report %+v", err, rep)
	}
	for _, op := range ops {
		if op.Outcome != harness.Info || op.Sent != 0 || op.Err == "" {
			t.Fatalf("%+v", op)
		}
	}
}

func TestAServerThatHangsUpBeforeTheRelease(t *testing.T) {
	s := newRawServer(t, func(_ *rawServer, c net.Conn) {
		_, _ = c.Read(make([]byte, 1<<16))
	})
	for range 50 { // the close may come just after the last look
		rep, ops, err := testClient(clock.New()).Burst(t.Context(), same(s.url, 10), harness.Burst{Requests: requests(10, nil)})
		if err != nil {
			if rep.Sent != 0 || ops[0].Outcome != harness.Fail {
				t.Fatalf("%+v %+v", rep, ops[0])
			}
			return
		}
		for _, op := range ops {
			if op.Outcome == harness.OK {
				t.Fatalf("%+v", op)
			}
		}
	}
	t.Fatal("never noticed")
}

func TestNobodyListens(t *testing.T) {
	ln := listen(t)
	url := "http://" + ln.Addr().String()
	_ = ln.Close()
	w := newWitness(t, nil)
	w.Start()
	client := w.client()
	rep, ops, err := client.Burst(t.Context(), []string{w.URL, url, w.URL}, harness.Burst{Requests: requests(3, nil)})
	if err == nil || !strings.Contains(err.Error(), "2 of 3 requests are ready") {
		t.Fatalf("error %v", err)
	}
	if rep.Ready != 2 || rep.Sent != 0 || len(w.arrivals()) != 0 {
		t.Errorf("%+v, %d arrivals", rep, len(w.arrivals()))
	}
	want := []load.Class{load.ClassHeld, load.ClassRefused, load.ClassHeld}
	for i, op := range ops {
		if op.Outcome != harness.Fail || load.ClassOf(op.Err) != want[i] || op.Intended == 0 {
			t.Errorf("operation %d: %+v, want fail of class %s", i, op, want[i])
		}
	}
	if op := client.Do(t.Context(), url, requests(1, nil)[0]); op.Outcome != harness.Fail || load.ClassOf(op.Err) != load.ClassRefused || op.Sent != 0 {
		t.Errorf("%+v", op)
	}
}

// TestGivingUpAfterTheRelease: the context's end gives back the answers that
// are there and leaves the others unknown.
func TestGivingUpAfterTheRelease(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var n atomic.Int64
	hold := make(chan struct{})
	w := newWitness(t, func(http.ResponseWriter, *http.Request) {
		if n.Add(1) == 10 {
			cancel(errors.New("stopped by the user"))
		}
		<-hold
	})
	w.Start()
	defer close(hold)
	rep, ops, err := w.client().Burst(ctx, same(w.URL, 10), harness.Burst{Requests: requests(10, nil)})
	if err != nil || rep.Sent != 10 || rep.Answered != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	for _, op := range ops {
		if op.Outcome != harness.Info || load.ClassOf(op.Err) != load.ClassCancelled || !strings.Contains(op.Err, "stopped by the user") {
			t.Fatalf("%+v", op)
		}
	}
}

func TestGivingUpBeforeTheRelease(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := newWitness(t, nil)
	w.Start()
	rep, ops, err := w.client().Burst(ctx, same(w.URL, 3), harness.Burst{Requests: requests(3, nil)})
	if err == nil || rep.Sent != 0 || ops[2].Outcome != harness.Fail || load.ClassOf(ops[0].Err) != load.ClassCancelled {
		t.Fatalf("%+v %v %+v", rep, err, ops)
	}
	if op := w.client().Do(ctx, w.URL, requests(1, nil)[0]); op.Outcome != harness.Fail || load.ClassOf(op.Err) != load.ClassCancelled {
		t.Fatalf("%+v", op)
	}
}

// TestH2EndingsAreInfo: a killed connection, GOAWAY or reset streams.
func TestH2EndingsAreInfo(t *testing.T) {
	const n = 10
	var in atomic.Int64
	w := newWitness(t, func(http.ResponseWriter, *http.Request) {
		in.Add(1)
		panic(http.ErrAbortHandler) // resets the stream
	})
	speakH2C(w.Server, 100)
	w.Start()
	rep, ops, err := w.client().Burst(t.Context(), same(w.URL, n), harness.Burst{Technique: harness.H2SinglePacket, Requests: requests(n, nil)})
	if err != nil || rep.Sent != n || rep.Answered != 0 || in.Load() != n {
		t.Fatalf("%+v, %v, %d handled", rep, err, in.Load())
	}
	for _, op := range ops {
		if op.Outcome != harness.Info || load.ClassOf(op.Err) != load.ClassReset {
			t.Fatalf("%+v", op)
		}
	}
}

// TestNoMoreFiles: when our own process has no descriptor left, that is told
// apart from anything the server did.
func TestNoMoreFiles(t *testing.T) {
	ln := listen(t) // its kernel accepts; nobody has to answer
	defer func() { _ = ln.Close() }()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = uint64(len(open) + 20)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	rep, ops, err := testClient(clock.New()).Burst(t.Context(), same("http://"+ln.Addr().String(), 60), harness.Burst{Requests: requests(60, nil)})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err == nil || load.Classify(err) != load.ClassFiles || rep.Sent != 0 || rep.Ready == 60 {
		t.Fatalf("%+v, %v", rep, err)
	}
	d := load.Account(60, rep.Ready, ops)
	if d.AsPlanned() || d.NotSent != 60 || d.ClientSide != 60 {
		t.Errorf("%v", d)
	}
}

// TestServerThatAcceptsLate: being ready is a matter of the server's kernel; a
// server that is slow to accept still gets every request once.
func TestServerThatAcceptsLate(t *testing.T) {
	const n = 30
	w := newWitness(t, nil)
	b := harness.Burst{Requests: requests(n, nil)}
	bu := newBurst(w.client(), b)
	if err := bu.plan(same("http://"+w.Listener.Addr().String(), n), b); err != nil {
		t.Fatal(err)
	}
	defer bu.close()
	if err := bu.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := newPoller(bu.lines)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	bu.poll = p
	if err := bu.release(); err != nil {
		t.Fatal(err)
	}
	w.Start() // only now
	bu.collect(t.Context())
	rep := bu.finish()
	checkWhole(t, w, n, rep, bu.operations())
	if rep.MaxInFlight != n {
		t.Errorf("max in flight %d, want %d, as none was accepted before all were sent", rep.MaxInFlight, n)
	}
}
