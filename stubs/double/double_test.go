package double_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/stubs/double"
)

const endpoint = "POST /things"

// config is the configuration of a provider that is made for the tests.
type config struct {
	Limit *int `json:"limit,omitempty"`
}

func (c config) Validate() error {
	if c.Limit != nil && *c.Limit < 0 {
		return fmt.Errorf("limit: %d is less than 0", *c.Limit)
	}
	return nil
}

// provider takes things up to a limit.
type provider struct {
	mu      sync.Mutex
	limit   int
	things  []string
	stats   double.Stats
	latency func(n int) time.Duration
}

func newProvider(latency func(n int) time.Duration) http.Handler {
	p := &provider{limit: 2, things: []string{}, stats: double.NewStats(), latency: latency}
	mux := http.NewServeMux()
	double.Serve(mux, &p.mu, &p.stats, double.Endpoint{Name: endpoint, Latency: p.latency, Decide: p.take})
	double.Control(mux, double.Controls[config]{
		Name: "shop", Lock: &p.mu, Stats: &p.stats,
		Change: func(c config) error {
			if c.Limit != nil && *c.Limit < len(p.things) {
				return errors.New("limit: there are more already")
			}
			if c.Limit != nil {
				p.limit = *c.Limit
			}
			return nil
		},
		Config: func() config { limit := p.limit; return config{&limit} },
		Ledger: func() any { return append([]string{}, p.things...) },
	})
	return mux
}

func (p *provider) take(_ *http.Request, body []byte) double.Reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.things) >= p.limit {
		return double.Refuse(http.StatusConflict, "full")
	}
	p.things = append(p.things, string(body))
	return double.Reply{Status: http.StatusCreated, Word: "taken", Body: map[string]int{"n": len(p.things)}}
}

func at(tb testing.TB, h http.Handler, method, path, body string) (int, string) {
	tb.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(tb.Context(), method, path, strings.NewReader(body)))
	if got := w.Header().Get("Content-Type"); w.Code != http.StatusNotFound && got != "application/json" {
		tb.Errorf("%s %s: the answer's type is %q", method, path, got)
	}
	return w.Code, w.Body.String()
}

func none(int) time.Duration { return 0 }

func TestCallsAndControlPaths(t *testing.T) {
	h := newProvider(none)
	for _, step := range []struct {
		call, body string
		status     int
		answer     string
	}{
		{"GET /__double/ledger", "", 200, `[]`},
		{"GET /__double/stats", "", 200, `{"calls":{},"max_in_flight":{},"decisions":{}}`},
		{"GET /__double/config", "", 200, `{"limit":2}`},
		{"POST /things", "a", 201, `{"n":1}`},
		{"POST /things", "b", 201, `{"n":2}`},
		{"POST /things", "c", 409, `{"error":"full"}`},
		{"POST /__double/config", `{"limit": 1}`, 400, `{"error":"configure shop: limit: there are more already"}`},
		{"POST /__double/config", `{"limit": 3}`, 200, `{"limit":3}`},
		{"POST /__double/config", `{}`, 200, `{"limit":3}`},
		{"POST /things", "c", 201, `{"n":3}`},
		{"GET /__double/ledger", "", 200, `["a","b","c"]`},
		{"GET /__double/stats", "", 200, `{"calls":{"POST /things":4},"max_in_flight":{"POST /things":1},"decisions":{"POST /things 201 taken":3,"POST /things 409 full":1}}`},
	} {
		method, path, _ := strings.Cut(step.call, " ")
		if status, answer := at(t, h, method, path, step.body); status != step.status || answer != step.answer {
			t.Errorf("%s %s: %d %s\nwant %d %s", step.call, step.body, status, answer, step.status, step.answer)
		}
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	h := newProvider(none)
	for text, want := range map[string]string{
		`{"limits": 3}`:   `unknown field`,
		`{"limit": -1}`:   `limit: -1 is less than 0`,
		`{"limit": "3"}`:  `cannot unmarshal`,
		`{"limit": 3} {}`: `something after the JSON object`,
		`{"limit": 3} ]`:  `something after the JSON object`,
		`[]`:              `cannot unmarshal`,
		``:                `EOF`,
		`{"limit": 3}` + strings.Repeat(" ", 4<<20): `more than 4194304 bytes`,
	} {
		status, answer := at(t, h, "POST", "/__double/config", text)
		if status != 400 || !strings.HasPrefix(answer, `{"error":"configure shop: `) || !strings.Contains(answer, want) {
			t.Errorf("%.40s: %d %s, want 400 with %q", text, status, answer, want)
		}
	}
	if _, now := at(t, h, "GET", "/__double/config", ""); now != `{"limit":2}` {
		t.Errorf("a refused change changed the configuration to %s", now)
	}
}

// The n-th call is told to be the n-th, and all that are there at once are counted.
func TestCallsAreNumberedAndInFlight(t *testing.T) {
	const n = 20
	seen := make([]int, 0, n) // the lock guards it
	h := newProvider(func(nth int) time.Duration {
		seen = append(seen, nth)
		return 200 * time.Millisecond
	})
	watch := clock.New()
	var all sync.WaitGroup
	for range n {
		all.Go(func() { at(t, h, "POST", "/things", "x") })
	}
	all.Wait()
	if took := watch.Now(); took < 200*time.Millisecond {
		t.Errorf("the calls took %s", took)
	}
	for i, nth := range seen {
		if nth != i+1 {
			t.Fatalf("the calls were numbered %v", seen)
		}
	}
	_, answer := at(t, h, "GET", "/__double/stats", "")
	var stats double.Stats
	if err := json.Unmarshal([]byte(answer), &stats); err != nil {
		t.Fatal(err)
	}
	if stats.Calls[endpoint] != n || stats.MaxInFlight[endpoint] != n {
		t.Errorf("stats: %+v, want %d calls at once", stats, n)
	}
}

func TestAnEndpointIsInFlightByItself(t *testing.T) {
	s := double.NewStats()
	s.Arrive("GET /a")
	s.Arrive("GET /b")
	before := s.Clone()
	s.Leave("GET /a")
	s.Arrive("GET /a")
	s.Decided("GET /a", 200, "ok")
	if diff := cmp.Diff(map[string]int{"GET /a": 1, "GET /b": 1}, s.MaxInFlight); diff != "" {
		t.Error(diff)
	}
	if before.Calls["GET /a"] != 1 || len(before.Decisions) != 0 {
		t.Errorf("a clone went on counting: %+v", before)
	}
}

func TestMillisIsBounded(t *testing.T) {
	for ms, want := range map[float64]time.Duration{0: 0, 0.5: 500 * time.Microsecond, 30_000: 30 * time.Second, 1e300: 30 * time.Second} {
		if got := double.Millis(ms); got != want {
			t.Errorf("%g ms: %s, want %s", ms, got, want)
		}
	}
}
