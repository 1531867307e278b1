package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/wire/upstream"
)

// bound is for waits that end at once unless something is broken.
const bound = 20 * time.Second

func start(t *testing.T, c upstream.Config) *upstream.Wire {
	t.Helper()
	if c.Callers == nil {
		c.Callers = []string{"sut-1", "sut-2"}
	}
	c.Clock, c.Name = clock.New(), "pyxis"
	w, err := upstream.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// serve is a target that counts what reaches it.
func serve(t *testing.T, h http.HandlerFunc) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, calls
}

func ok(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Answer", "yes")
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "got %d bytes", len(body))
}

// An answer is a response without its body.
type answer struct {
	StatusCode int
	Header     http.Header
}

// call makes one call on a connection of its own.
func call(t *testing.T, method, url, body string, header ...string) (*answer, string, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: bound}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return &answer{resp.StatusCode, resp.Header}, string(text), err
}

func quiesce(t *testing.T, w *upstream.Wire) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if err := w.Quiesce(ctx); err != nil {
		t.Fatal(err)
	}
}

// until waits for a state of the ledger's lines.
func until(t *testing.T, w *upstream.Wire, what string, holds func([]harness.UpstreamCall) bool) []harness.UpstreamCall {
	t.Helper()
	var calls []harness.UpstreamCall
	err := clock.Await(t.Context(), what, bound, time.Millisecond, func(context.Context) (bool, string, error) {
		calls = w.Calls()
		return holds(calls), fmt.Sprintf("%+v", calls), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

func TestCallIsCarriedAndWrittenDown(t *testing.T) {
	var seen *http.Request
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r
		ok(w, r)
	})
	w := start(t, upstream.Config{Target: url + "/r7/pyxis/", RunID: "run-7"})
	resp, body, err := call(t, "POST", w.URL("sut-2")+"/reserve?x=1&y=%2F", `{"seat":"A-001"}`,
		"Authorization", "Bearer student-1", "X-Overbook-Op", "op-9", "X-Overbook-Run", "forged",
		"Traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
		"Connection", "X-Private", "X-Private", "1")
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 201 || body != "got 16 bytes" || resp.Header.Get("X-Answer") != "yes" {
		t.Errorf("the caller got %d %q %v", resp.StatusCode, body, resp.Header)
	}
	if got, want := seen.RequestURI, "/r7/pyxis/reserve?x=1&y=%2F"; got != want {
		t.Errorf("the target was asked for %s, not %s", got, want)
	}
	if got := seen.Header.Values("X-Overbook-Run"); !cmp.Equal(got, []string{"run-7"}) {
		t.Errorf("the target saw run %q", got)
	}
	if seen.Header.Get("Authorization") != "Bearer student-1" || seen.Header.Get("X-Private") != "" {
		t.Errorf("the target saw header %v", seen.Header)
	}
	c := until(t, w, "answered", func(c []harness.UpstreamCall) bool { return len(c) == 1 && c[0].Answered != 0 })[0]
	if stamps := []time.Duration{1, c.Received, c.Forwarded, c.Accepted, c.Answered}; !slices.IsSorted(stamps) {
		t.Errorf("the stamps are not in order: %+v", c)
	}
	c.Received, c.Forwarded, c.Accepted, c.Answered = 0, 0, 0, 0
	want := harness.UpstreamCall{
		Seq: 1, Upstream: "pyxis", Caller: "sut-2", Method: "POST", Path: "/reserve", Query: "x=1&y=%2F", Op: "op-9",
		TraceID: "0123456789abcdef0123456789abcdef", Request: `{"seat":"A-001"}`, Status: 201, Response: "got 16 bytes",
	}
	if c != want {
		t.Errorf("ledger: %+v, want %+v", c, want)
	}
	if w.Count("POST", "/reserve") != 1 || w.Count("GET", "/reserve") != 0 || w.Err() != nil {
		t.Errorf("count: %d, %d; %v", w.Count("POST", "/reserve"), w.Count("GET", "/reserve"), w.Err())
	}
}

func TestBodiesAreForwardedWholeAndCappedInTheLedger(t *testing.T) {
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	w := start(t, upstream.Config{Target: url})
	big := strings.Repeat("0123456789abcdef", 4096) // 64 KiB
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if _, body, err := call(t, method, w.URL("sut-1")+"/x", big); err != nil || body != big {
			t.Errorf("%s: %d bytes came back of %d: %v", method, len(body), len(big), err)
		}
	}
	for _, c := range w.Calls() {
		if c.Request != big[:16<<10] || c.Response != big[:16<<10] {
			t.Errorf("call %d: the ledger has %d and %d bytes", c.Seq, len(c.Request), len(c.Response))
		}
	}
	if resp, body, err := call(t, "HEAD", w.URL("sut-1")+"/x", ""); err != nil || resp.StatusCode != 200 || body != "" {
		t.Errorf("HEAD: %v %q %v", resp, body, err)
	}
}

func TestTwoHundredCallsAtOnce(t *testing.T) {
	url, reached := serve(t, ok)
	w := start(t, upstream.Config{Target: url})
	const n = 200
	for range 3 {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				resp, _, err := call(t, "POST", w.URL([]string{"sut-1", "sut-2"}[i%2])+"/reserve", "same bytes every time")
				if err != nil || resp.StatusCode != 201 {
					t.Errorf("call %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	}
	quiesce(t, w)
	calls := w.Calls()
	if len(calls) != 3*n || w.Count("POST", "/reserve") != 3*n || reached.Load() != 3*n || w.InFlight() != 0 {
		t.Fatalf("ledger %d, count %d, target %d, in flight %d", len(calls), w.Count("POST", "/reserve"), reached.Load(), w.InFlight())
	}
	from := map[string]int{}
	for i, c := range calls {
		from[c.Caller]++
		if c.Seq != i+1 || i > 0 && c.Received < calls[i-1].Received {
			t.Fatalf("line %d is call %d received at %s", i, c.Seq, c.Received)
		}
	}
	if from["sut-1"] != from["sut-2"] {
		t.Errorf("callers: %v", from)
	}
}

// rude is a target that answers the first request of a connection and, of
// every further one, reads all and closes without a word.
func rude(t *testing.T) (url string, requests *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	var wg sync.WaitGroup
	serveConn := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for n := 1; ; n++ {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			requests.Add(1)
			if n > 1 {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serveConn(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String(), requests
}

// What net/http's Transport would silently send again: a reused connection
// that dies before the answer, under a GET or a request with a key.
func TestNothingIsEverSentTwice(t *testing.T) {
	for _, tc := range []struct {
		name, method, body string
		header             []string
	}{
		{"POST with a key", "POST", "{}", []string{"Idempotency-Key", "k", "X-Idempotency-Key", "k"}},
		{"POST without a body, with a key", "POST", "", []string{"Idempotency-Key", "k"}},
		{"GET", "GET", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url, reached := rude(t)
			w := start(t, upstream.Config{Target: url})
			sent, lost := 0, 0
			for range 10 { // answered on a fresh connection, lost on the reused one, and so on
				sent++
				if _, _, err := call(t, tc.method, w.URL("sut-1")+"/x", tc.body, tc.header...); err != nil {
					lost++
				}
			}
			quiesce(t, w)
			if reached.Load() != int64(sent) || w.Count(tc.method, "/x") != sent {
				t.Errorf("sent %d, the target read %d, the wire counts %d", sent, reached.Load(), w.Count(tc.method, "/x"))
			}
			if lost != sent/2 {
				t.Errorf("%d of %d calls were lost, want every second: were connections reused?", lost, sent)
			}
			for _, c := range w.Calls() {
				if (c.Err == "") != (c.Answered != 0) || c.Forwarded == 0 {
					t.Errorf("ledger: %+v", c)
				}
			}
		})
	}
}

func TestUpstreamThatIsNotThereIsA502AndNoCount(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	w := start(t, upstream.Config{Target: "http://" + l.Addr().String()})
	resp, body, err := call(t, "POST", w.URL("sut-1")+"/reserve", "{}")
	if err != nil || resp.StatusCode != 502 || !strings.Contains(body, "refused") {
		t.Errorf("%v %q %v", resp, body, err)
	}
	c := w.Calls()[0]
	if w.Count("POST", "/reserve") != 0 || c.Forwarded != 0 || !strings.Contains(c.Err, "connect") {
		t.Errorf("count %d, ledger %+v", w.Count("POST", "/reserve"), c)
	}
}

func TestAnswerThatTakesTooLong(t *testing.T) {
	over := make(chan struct{})
	url, _ := serve(t, func(http.ResponseWriter, *http.Request) { <-over })
	defer close(over)
	w := start(t, upstream.Config{Target: url, Deadline: 50 * time.Millisecond})
	_, _, err := call(t, "POST", w.URL("sut-1")+"/reserve", "{}")
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("the caller got %v, want a reset: nobody knows whether the work was done", err)
	}
	quiesce(t, w)
	if c := w.Calls()[0]; c.Forwarded == 0 || c.Accepted != 0 || !strings.Contains(c.Err, "timeout") {
		t.Errorf("ledger: %+v", c)
	}
}

func TestFullLedgerRefuses(t *testing.T) {
	url, reached := serve(t, ok)
	w := start(t, upstream.Config{Target: url, MaxCalls: 2})
	for i := range 3 {
		resp, _, err := call(t, "POST", w.URL("sut-1")+"/x", "")
		if err != nil {
			t.Fatal(err)
		}
		if full := i == 2; (resp.StatusCode == 503) != full || w.Overflow() != full || (w.Err() != nil) != full {
			t.Errorf("call %d: %d, overflow %v, %v", i+1, resp.StatusCode, w.Overflow(), w.Err())
		}
	}
	if len(w.Calls()) != 2 || reached.Load() != 2 {
		t.Errorf("ledger %d, target %d", len(w.Calls()), reached.Load())
	}
}

func TestHalfARequestIsNoCall(t *testing.T) {
	url, reached := serve(t, ok)
	w := start(t, upstream.Config{Target: url})
	c := dial(t, w.URL("sut-1"))
	_, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
	_ = c.Close()
	if _, _, err := call(t, "POST", w.URL("sut-1")+"/whole", ""); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if calls := w.Calls(); len(calls) != 1 || calls[0].Path != "/whole" || reached.Load() != 1 {
		t.Errorf("ledger %+v, target %d", calls, reached.Load())
	}
}

func dial(t *testing.T, url string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func TestStartRefusesNonsense(t *testing.T) {
	for _, c := range []upstream.Config{
		{Target: "https://127.0.0.1:1"},
		{Target: "127.0.0.1:1"},
		{Target: "http://127.0.0.1:1", Callers: []string{"a", "a"}},
	} {
		c.Clock = clock.New()
		if w, err := upstream.Start(t.Context(), c); err == nil {
			t.Errorf("%+v started", c)
			_ = w.Close()
		}
	}
}
