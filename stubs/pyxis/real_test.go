package pyxis_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/provision"
	"github.com/overbook/overbook/harness/wire/upstream"
	"github.com/overbook/overbook/stubs/double"
	"github.com/overbook/overbook/stubs/pyxis"
)

const bound = 30 * time.Second

// shared is the one WireMock of this package's tests.
var shared struct {
	once sync.Once
	env  *provision.Environment
	mock *upstream.WireMock
	err  error
}

// callerEnv makes this test binary a process that reserves a seat at the URL
// and waits for the answer.
const callerEnv = "PYXIS_TEST_CALLER"

func TestMain(m *testing.M) {
	if url := os.Getenv(callerEnv); url != "" {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(reserveBody("student-1", "A-001", "intent-1")))
		if err != nil {
			panic(err)
		}
		req.Header.Set("Authorization", "Bearer student-1")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		os.Exit(0)
	}
	code := m.Run()
	if shared.env != nil {
		if err := shared.env.Close(context.Background()); err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

func wiremock(tb testing.TB) *upstream.WireMock {
	tb.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		shared.env, shared.err = provision.Up(ctx, provision.Options{Need: provision.Need{WireMock: true}, Prefer: "local"})
		if shared.err == nil {
			shared.mock = upstream.NewWireMock(shared.env.WireMock.URL())
			shared.err = shared.mock.Warm(ctx)
		}
	})
	if problem, ok := errors.AsType[*provision.Problem](shared.err); ok {
		_, noJava := provision.Java()
		cache, _ := provision.DefaultCacheDir()
		_, noJar := provision.FindJar(cache)
		if noJava != nil || noJar != nil {
			tb.Skip(problem)
		}
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.mock
}

// chains numbers the runs of this process.
var chains atomic.Int64

// A chain is wire -> WireMock -> double.
type chain struct {
	wire   *upstream.Wire
	mock   *upstream.WireMock
	prefix string
	run    string
	double string // URL
}

func newChain(tb testing.TB) *chain {
	tb.Helper()
	c := &chain{mock: wiremock(tb), run: fmt.Sprintf("run-%d", chains.Add(1))}
	c.prefix = "/" + c.run + "/pyxis"
	d := pyxis.Double()
	server := httptest.NewServer(d.New(7))
	tb.Cleanup(server.Close)
	c.double = server.URL
	remove, err := c.mock.Load(tb.Context(), d.Mappings, map[string]string{upstream.VarPrefix: c.prefix, upstream.VarDoubleURL: c.double})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := remove(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	c.wire, err = upstream.Start(tb.Context(), upstream.Config{
		Clock: clock.New(), Name: d.Name, Target: c.mock.URL() + c.prefix, Callers: []string{"sut-1"}, RunID: c.run,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.wire.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// ask makes one call and gives status (0 when there was no answer) and body.
func ask(tb testing.TB, method, url, student, body string) (int, string) {
	tb.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: bound}
	req, err := http.NewRequestWithContext(tb.Context(), method, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+student)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(answer)
}

func reserveBody(student, seat, reference string) string {
	return fmt.Sprintf(`{"student":%q,"seat":%q,"reference":%q}`, student, seat, reference)
}

// reserveAll lets n students reserve one seat at once, through the wire.
func (c *chain) reserveAll(tb testing.TB, n int, seat string) (statuses map[int]int) {
	tb.Helper()
	var mu sync.Mutex
	statuses = map[int]int{}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			student := fmt.Sprintf("student-%s-%d", seat, i)
			status, _ := ask(tb, "POST", c.wire.URL("sut-1")+"/reserve", student, reserveBody(student, seat, "ref"))
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	wg.Wait()
	return statuses
}

func read[T any](tb testing.TB, url string) T {
	tb.Helper()
	status, body := ask(tb, "GET", url, "", "")
	var v T
	if err := json.Unmarshal([]byte(body), &v); err != nil || status != 200 {
		tb.Fatalf("GET %s: %d %s: %v", url, status, body, err)
	}
	return v
}

func (c *chain) configure(tb testing.TB, change string) {
	tb.Helper()
	if status, body := ask(tb, "POST", c.double+"/__double/config", "", change); status != 200 {
		tb.Fatalf("configure %s: %d %s", change, status, body)
	}
}

// observers gives what each of the three counted after quiescence.
func (c *chain) observers(tb testing.TB, method, path string) (ledger, journal, own int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), bound)
	defer cancel()
	if err := c.wire.Quiesce(ctx); err != nil {
		tb.Fatal(err)
	}
	journal, err := c.mock.Count(ctx, method, c.prefix+path, c.run)
	if err != nil {
		tb.Fatal(err)
	}
	stats := read[double.Stats](tb, c.double+"/__double/stats")
	return c.wire.Count(method, path), journal, stats.Calls[method+" "+path]
}

func TestHundredAtOnceAreCountedAlikeByAllObservers(t *testing.T) {
	c := newChain(t)
	const n, rounds = 100, 20
	for round := range rounds {
		seat := fmt.Sprintf("A-%03d", round+1)
		statuses := c.reserveAll(t, n, seat)
		if statuses[201] != 1 || statuses[409] != n-1 {
			t.Errorf("round %d: answers %v, want one 201 and %d x 409", round+1, statuses, n-1)
		}
		ledger, journal, double := c.observers(t, "POST", "/reserve")
		if want := (round + 1) * n; ledger != want || journal != want || double != want {
			t.Errorf("round %d: ledger %d, WireMock %d, double %d, want %d", round+1, ledger, journal, double, want)
		}
	}
	tally, err := c.mock.Tally(t.Context(), "POST", c.prefix+"/reserve", c.run, "seat")
	if err != nil || len(tally) != rounds {
		t.Errorf("WireMock knows %d seats, want %d: %v", len(tally), rounds, err)
	}
	for seat, got := range tally {
		if got != n {
			t.Errorf("WireMock counts %d for seat %s, want %d", got, seat, n)
		}
	}
	charges := read[[]pyxis.Charge](t, c.double+"/__double/ledger")
	if len(charges) != rounds {
		t.Errorf("%d charges in %d rounds", len(charges), rounds)
	}
}

// Neither the wire nor WireMock may let a burst wait in line, or the double's
// latency would be a lie.
func TestHundredAreInFlightAtOnce(t *testing.T) {
	c := newChain(t)
	c.configure(t, `{"latency": {"model": "fixed", "median_ms": 1500}}`)
	c.reserveAll(t, 100, "A-001")
	if most := read[double.Stats](t, c.double+"/__double/stats").MaxInFlight["POST /reserve"]; most != 100 {
		t.Errorf("at most %d of 100 calls of 1.5 s were at the double at once", most)
	}
}

func TestWindowLetsSeveralThrough(t *testing.T) {
	c := newChain(t)
	c.configure(t, `{"window_ms": 1000}`) // however busy the machine, some come within it
	statuses := c.reserveAll(t, 100, "A-001")
	charges := read[[]pyxis.Charge](t, c.double+"/__double/ledger")
	if statuses[201] < 2 || len(charges) != statuses[201] || statuses[201]+statuses[409] != 100 {
		t.Errorf("answers %v and %d charges, want several 201 and as many charges", statuses, len(charges))
	}
	if ledger, journal, double := c.observers(t, "POST", "/reserve"); ledger != 100 || journal != 100 || double != 100 {
		t.Errorf("ledger %d, WireMock %d, double %d", ledger, journal, double)
	}
}

func TestCallerKilledAfterAcceptanceLeavesItsCharge(t *testing.T) {
	c := newChain(t)
	caller := exec.CommandContext(t.Context(), os.Args[0])
	caller.Env = append(os.Environ(), callerEnv+"="+c.wire.URL("sut-1")+"/reserve")
	c.wire.Inject(harness.UpstreamFault{Name: "kill", Nth: 1, At: harness.MomentAccepted, Do: func(context.Context, harness.UpstreamCall) {
		if err := caller.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := caller.Wait(); err == nil {
			t.Error("the caller ended by itself")
		}
	}})
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	err := clock.Await(t.Context(), "the call to end", bound, time.Millisecond, func(context.Context) (bool, string, error) {
		calls := c.wire.Calls()
		return len(calls) == 1 && calls[0].Err != "", fmt.Sprint(calls), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if call := c.wire.Calls()[0]; call.Status != 201 || call.Accepted == 0 || call.Answered != 0 {
		t.Errorf("ledger: %+v", call)
	}
	status, answer := ask(t, "GET", c.wire.URL("sut-1")+"/charges/current?student=student-1", "student-1", "")
	if status != 200 || !strings.Contains(answer, `"seat":"A-001"`) {
		t.Errorf("the charge: %d %s", status, answer)
	}
	if ledger, journal, double := c.observers(t, "POST", "/reserve"); ledger != 1 || journal != 1 || double != 1 {
		t.Errorf("ledger %d, WireMock %d, double %d", ledger, journal, double)
	}
}

// Calls whose callers give up while the upstream works are counted alike, too.
func TestCallersThatGiveUpAreCountedAlike(t *testing.T) {
	c := newChain(t)
	c.configure(t, `{"latency": {"model": "fixed", "median_ms": 300}}`)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			student := fmt.Sprintf("student-%d", i)
			body := reserveBody(student, "A-001", "ref")
			req, err := http.NewRequestWithContext(ctx, "POST", c.wire.URL("sut-1")+"/reserve", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+student)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 100 * time.Millisecond}
			if resp, err := client.Do(req); err == nil {
				t.Error("answered in time")
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	ledger, journal, double := c.observers(t, "POST", "/reserve")
	if ledger == 0 || ledger != len(c.wire.Calls()) || ledger != journal || ledger != double {
		t.Errorf("ledger %d of %d, WireMock %d, double %d", ledger, len(c.wire.Calls()), journal, double)
	}
	if charges := read[[]pyxis.Charge](t, c.double+"/__double/ledger"); len(charges) != 1 {
		t.Errorf("%d charges", len(charges))
	}
	for _, call := range c.wire.Calls() {
		if call.Answered != 0 || call.Accepted == 0 {
			t.Errorf("ledger: %+v", call)
		}
	}
}

func TestFailingDoubleIsAskedOncePerCall(t *testing.T) {
	c := newChain(t)
	c.configure(t, `{"fail_reserve": {"status": 503, "times": 3}, "fail_reads": {"status": 500, "times": 1}}`)
	for i := range 3 {
		if status, _ := ask(t, "POST", c.wire.URL("sut-1")+"/reserve", "student-1", reserveBody("student-1", "A-001", "")); status != 503 {
			t.Errorf("call %d: %d", i+1, status)
		}
	}
	if status, _ := ask(t, "GET", c.wire.URL("sut-1")+"/seats", "student-1", ""); status != 500 {
		t.Errorf("read: %d", status)
	}
	for _, what := range []string{"POST /reserve 3", "GET /seats 1"} {
		f := strings.Fields(what)
		if ledger, journal, double := c.observers(t, f[0], f[1]); fmt.Sprint(ledger) != f[2] || journal != ledger || double != ledger {
			t.Errorf("%s: ledger %d, WireMock %d, double %d", what, ledger, journal, double)
		}
	}
}

func TestControlPathsAreNotReachableThroughWireMock(t *testing.T) {
	c := newChain(t)
	for _, path := range []string{
		"/__double/ledger", "/__double/config", "/%5f%5fdouble/ledger", "/reserve/../__double/ledger",
		"/reserve/%2e%2e/__double/ledger", "//__double/ledger", "/seats;/../__double/ledger", "/nowhere",
	} {
		if status, body := ask(t, "GET", c.wire.URL("sut-1")+path, "student-1", ""); status != 404 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
