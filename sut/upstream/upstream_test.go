package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/sut/httpapi"
	"github.com/overbook/overbook/sut/upstream"
)

func newClient(t *testing.T, url string, change ...func(*upstream.Config)) *upstream.Client {
	t.Helper()
	cfg := upstream.Config{URL: url, Timeout: 10 * time.Second, BreakerFailures: 3, BreakerOpen: time.Hour, BreakerProbes: 1}
	for _, c := range change {
		c(&cfg)
	}
	c, err := upstream.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var who = upstream.Caller{Student: "student-1", Cause: httpapi.Cause{Op: "op-1"}}

func answering(t *testing.T, status int, body string) (url string, calls *atomic.Int32) {
	t.Helper()
	calls = new(atomic.Int32)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, calls
}

func TestReserveJudgesAnswers(t *testing.T) {
	good := `{"charge_id":"c-1","seat":"A-1","student":"student-1"}`
	tests := []struct {
		status int
		body   string
		want   upstream.Finding
	}{
		{201, good, upstream.Accepted},
		{201, `{"charge_id":"c-1","seat":"A-2","student":"student-1"}`, upstream.Faulted},
		{201, `{"charge_id":"c-1","seat":"A-1","student":"student-2"}`, upstream.Faulted},
		{201, `not JSON`, upstream.Faulted},
		{204, ``, upstream.Faulted},
		{307, ``, upstream.Faulted},
		{400, ``, upstream.Refused},
		{401, ``, upstream.Rejected},
		{403, ``, upstream.Rejected},
		{409, ``, upstream.Taken},
		{409, `{"error":"seat_taken"}`, upstream.Taken},
		{409, `{"error":"has_charge"}`, upstream.Refused},
		{429, ``, upstream.Refused},
		{500, ``, upstream.Faulted},
		{502, ``, upstream.InFlight},
		{503, ``, upstream.Faulted},
		{504, ``, upstream.InFlight},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %s", tt.status, tt.body), func(t *testing.T) {
			url, calls := answering(t, tt.status, tt.body)
			a := newClient(t, url).Reserve(t.Context(), who, "A-1", "ref", nil)
			if a.Finding != tt.want {
				t.Errorf("%+v, want %s", a, tt.want)
			}
			if calls.Load() != 1 {
				t.Errorf("%d calls, want 1", calls.Load())
			}
		})
	}
}

func TestReserveNotMade(t *testing.T) {
	url, calls := answering(t, 201, `{}`)
	c := newClient(t, url)
	objection := errors.New("no time left")
	for range 5 { // more than would open the breaker
		a := c.Reserve(t.Context(), who, "A-1", "ref", func() error { return objection })
		if a.Finding != upstream.Unsent || !errors.Is(a.Err, objection) {
			t.Errorf("guarded: %+v, want unsent because of the guard", a)
		}
	}
	gone, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	if a := newClient(t, "http://"+gone.Addr().String()).Reserve(t.Context(), who, "A-1", "ref", nil); a.Finding != upstream.Unsent {
		t.Errorf("nobody listens: %+v, want unsent", a)
	}
	if calls.Load() != 0 {
		t.Errorf("%d calls, want none", calls.Load())
	}
}

// TestReserveIsNotSentAgain: a kept connection that dies with the call on it
// leaves the call in doubt; one that was dead before costs nothing.
func TestReserveIsNotSentAgain(t *testing.T) {
	var posts atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts.Add(1)
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer srv.Close()
	c := newClient(t, srv.URL)
	if _, err := c.CurrentCharge(t.Context(), who); err != nil { // opens a connection to keep
		t.Fatal(err)
	}
	if a := c.Reserve(t.Context(), who, "A-1", "ref", nil); a.Finding != upstream.InFlight {
		t.Errorf("%+v, want in-flight: the server read the call", a)
	}
	if posts.Load() != 1 {
		t.Errorf("the server saw %d reserve calls, want 1", posts.Load())
	}
	if _, err := c.CurrentCharge(t.Context(), who); err != nil {
		t.Fatal(err)
	}
	srv.CloseClientConnections()
	a := c.Reserve(t.Context(), who, "A-1", "ref", nil)
	if a.Finding != upstream.InFlight || posts.Load() > 2 {
		t.Errorf("%+v after %d reserve calls, want at most one more", a, posts.Load())
	}
}

func TestReserveTimesOutInDoubt(t *testing.T) {
	hold := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer srv.Close()
	defer close(hold)
	c := newClient(t, srv.URL, func(c *upstream.Config) { c.Timeout = 50 * time.Millisecond })
	if a := c.Reserve(t.Context(), who, "A-1", "ref", nil); a.Finding != upstream.InFlight {
		t.Errorf("%+v, want in-flight", a)
	}
}

func TestCurrentCharge(t *testing.T) {
	tests := []struct {
		status int
		body   string
		want   *upstream.Charge
		err    error
	}{
		{200, `{"charge_id":"c","seat":"A-1","student":"student-1"}`, &upstream.Charge{ID: "c", Seat: "A-1", Student: "student-1"}, nil},
		{404, ``, nil, nil},
		{401, ``, nil, upstream.ErrRejected},
		{500, ``, nil, upstream.ErrUnavailable},
		{200, `{}`, nil, upstream.ErrUnavailable},
		{200, `nonsense`, nil, upstream.ErrUnavailable},
	}
	for _, tt := range tests {
		url, _ := answering(t, tt.status, tt.body)
		got, err := newClient(t, url).CurrentCharge(t.Context(), who)
		if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, tt.err) {
			t.Errorf("%d %s: %v, %v; want %v, %v", tt.status, tt.body, got, err, tt.want, tt.err)
		}
	}
}

func TestBreaker(t *testing.T) {
	t.Run("4xx is health", func(t *testing.T) {
		url, calls := answering(t, 409, ``)
		c := newClient(t, url)
		for range 20 {
			c.Reserve(t.Context(), who, "A-1", "ref", nil)
		}
		if calls.Load() != 20 || c.BreakerState() != "closed" {
			t.Errorf("%d of 20 calls made, breaker %s", calls.Load(), c.BreakerState())
		}
	})
	t.Run("open means no call", func(t *testing.T) {
		url, calls := answering(t, 500, ``)
		c := newClient(t, url)
		for range 20 {
			c.Reserve(t.Context(), who, "A-1", "ref", nil)
		}
		if calls.Load() != 3 {
			t.Errorf("%d calls made, want the 3 that opened it", calls.Load())
		}
		if a := c.Reserve(t.Context(), who, "A-1", "ref", nil); a.Finding != upstream.Unsent {
			t.Errorf("%+v, want unsent", a)
		}
		if _, err := c.Seats(t.Context(), who); !errors.Is(err, upstream.ErrUnavailable) {
			t.Errorf("Seats = %v, want unavailable", err)
		}
	})
	t.Run("a caller who gives up says nothing about pyxis", func(t *testing.T) {
		url, _ := answering(t, 200, `{"seats":[]}`)
		c := newClient(t, url)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			_, _ = c.Seats(gone, who)
		}
		if c.BreakerState() != "closed" {
			t.Errorf("breaker %s", c.BreakerState())
		}
	})
}

// TestBreakerHalfOpen: when it is time to try again, only the probes get
// through, and one success closes it.
func TestBreakerHalfOpen(t *testing.T) {
	var sick atomic.Bool
	var calls atomic.Int32
	hold := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		if sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		<-hold
		_, _ = fmt.Fprint(w, `{"seats":[]}`)
	}))
	defer srv.Close()
	sick.Store(true)
	c := newClient(t, srv.URL, func(c *upstream.Config) { c.BreakerOpen = 20 * time.Millisecond })
	for range 3 {
		_, _ = c.Seats(t.Context(), who)
	}
	sick.Store(false)
	for c.BreakerState() != "half-open" {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	probe := make(chan error, 1)
	go func() {
		_, err := c.Seats(t.Context(), who)
		probe <- err
	}()
	for calls.Load() < 4 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond) // between two looks
	}
	for range 20 {
		if _, err := c.Seats(t.Context(), who); !errors.Is(err, upstream.ErrUnavailable) {
			t.Errorf("Seats while the probe is out = %v, want unavailable", err)
		}
	}
	close(hold)
	if err := <-probe; err != nil {
		t.Errorf("probe: %v", err)
	}
	if calls.Load() != 4 {
		t.Errorf("%d calls, want 3 failures and 1 probe", calls.Load())
	}
	if _, err := c.Seats(t.Context(), who); err != nil || c.BreakerState() != "closed" {
		t.Errorf("after the probe: %v, breaker %s", err, c.BreakerState())
	}
}

func TestNewRefusesNonsense(t *testing.T) {
	if _, err := upstream.New(upstream.Config{URL: "pyxis"}); err == nil {
		t.Error("an address without a scheme was taken")
	}
}
