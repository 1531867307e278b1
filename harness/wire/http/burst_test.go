//go:build linux

package wirehttp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// witness is a self-test server that remembers every request it read whole.
type witness struct {
	*httptest.Server
	clock clock.Clock
	mu    sync.Mutex
	seen  map[string][]time.Duration // arrivals by operation id
	body  map[string]string
	trace map[string]string
}

func newWitness(t *testing.T, answer http.HandlerFunc) *witness {
	t.Helper()
	w := &witness{clock: clock.New(), seen: map[string][]time.Duration{}, body: map[string]string{}, trace: map[string]string{}}
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		at := w.clock.Now()
		if err != nil {
			return
		}
		id := r.Header.Get(headerOp)
		w.mu.Lock()
		w.seen[id] = append(w.seen[id], at)
		w.body[id] = string(body)
		w.trace[id] = r.Header.Get(headerTrace)
		w.mu.Unlock()
		if answer != nil {
			answer(rw, r)
			return
		}
		fmt.Fprintf(rw, `{"len":%d}`, len(body))
	}))
	t.Cleanup(w.Close)
	return w
}

// arrivals gives the sorted arrival times of all requests.
func (w *witness) arrivals() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []time.Duration
	for _, at := range w.seen {
		all = append(all, at...)
	}
	slices.Sort(all)
	return all
}

// client shares the server's clock, so that stamps can be compared.
func (w *witness) client() *Client { return testClient(w.clock) }

func testClient(c clock.Clock) *Client {
	var n atomic.Int64
	return New(Config{Clock: c, Timeout: 20 * time.Second, RunID: "test", OpID: func() string {
		return "op-" + strconv.FormatInt(n.Add(1), 10)
	}})
}

func requests(n int, body func(i int) string) []harness.Request {
	rs := make([]harness.Request, n)
	for i := range rs {
		rs[i] = harness.Request{Kind: "confirm", Process: i, Method: "POST", Path: "/go?i=" + strconv.Itoa(i)}
		if body != nil {
			rs[i].Body = json.RawMessage(body(i))
		}
	}
	return rs
}

func same(url string, n int) []string { return slices.Repeat([]string{url}, n) }

func TestBurstDeliversEachRequestOnce(t *testing.T) {
	for _, n := range []int{1, 2, 100, 500} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			w := newWitness(t, nil)
			w.Start()
			rep, ops, err := w.client().Burst(t.Context(), same(w.URL, n), harness.Burst{Name: "b", Requests: requests(n, func(i int) string { return fmt.Sprintf(`{"i":%d}`, i) })})
			if err != nil {
				t.Fatal(err)
			}
			checkWhole(t, w, n, rep, ops)
			t.Logf("%+v server spread %v", rep, w.arrivals()[n-1]-w.arrivals()[0])
		})
	}
}

// checkWhole checks a burst in which everything went well.
func checkWhole(t *testing.T, w *witness, n int, rep harness.BurstReport, ops []harness.Operation) {
	t.Helper()
	if rep.Requests != n || rep.Ready != n || rep.Sent != n || rep.Answered != n || rep.Early != 0 {
		t.Errorf("report: %+v, want %d of everything", rep, n)
	}
	if len(ops) != n || len(w.arrivals()) != n {
		t.Fatalf("%d operations, %d arrivals, want %d", len(ops), len(w.arrivals()), n)
	}
	for i, op := range ops {
		if op.Outcome != harness.OK || op.Status != 200 || op.Err != "" || op.Process != i || op.Burst != rep.Name {
			t.Fatalf("operation %d: %+v", i, op)
		}
		if op.Intended != rep.Released || op.Sent < op.Intended || op.Answered < op.Sent {
			t.Fatalf("operation %d: stamps %v %v %v, release %v", i, op.Intended, op.Sent, op.Answered, rep.Released)
		}
		if got := len(w.seen[op.ID]); got != 1 {
			t.Fatalf("operation %s arrived %d times", op.ID, got)
		}
		if w.body[op.ID] != string(op.Input) {
			t.Fatalf("operation %s: body %q arrived, %q was sent", op.ID, w.body[op.ID], op.Input)
		}
		if w.trace[op.ID] != Traceparent("test", op.ID) {
			t.Fatalf("operation %s: traceparent %q", op.ID, w.trace[op.ID])
		}
	}
}
