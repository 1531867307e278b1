package tickets

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/stubs/payments"
)

// A post office is as much of an Env as a courier needs: the real double, and a
// server that answers as the test says and keeps what it was sent.
type postOffice struct {
	harness.Env // nothing else is asked of it
	double      http.Handler
	clock       clock.Clock

	mu     sync.Mutex
	down   bool
	answer func(n int) int // status of the n-th delivery
	sent   []harness.Request
	bursts []int // sizes
}

var serverTime = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)

func newPostOffice(t *testing.T, answer func(n int) int) *postOffice {
	t.Helper()
	return &postOffice{double: payments.Double().New(1), clock: clock.New(), answer: answer}
}

func (p *postOffice) Now() time.Duration               { return p.clock.Now() }
func (p *postOffice) Servers() []harness.Server        { return []harness.Server{oneServer{office: p}} }
func (p *postOffice) Upstream(string) harness.Upstream { return provider{double: p.double} }

type oneServer struct {
	harness.Server
	office *postOffice
}

func (oneServer) Name() string { return "sut-1" }

func (s oneServer) URL() string {
	s.office.mu.Lock()
	defer s.office.mu.Unlock()
	if s.office.down {
		return ""
	}
	return "http://sut"
}

func (p *postOffice) Do(_ context.Context, r harness.Request) harness.Operation {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Kind == kindClock {
		return harness.Operation{Status: 200, Output: fmt.Sprintf(`{"now":%q}`, serverTime.Format(time.RFC3339Nano))}
	}
	p.sent = append(p.sent, r)
	return harness.Operation{Sent: 1, Status: p.answer(len(p.sent))}
}

func (p *postOffice) Burst(ctx context.Context, b harness.Burst) (harness.BurstReport, []harness.Operation, error) {
	p.bursts = append(p.bursts, len(b.Requests))
	var ops []harness.Operation
	for _, r := range b.Requests {
		ops = append(ops, p.Do(ctx, r))
	}
	return harness.BurstReport{}, ops, nil
}

// delivered gives the event ids in the order in which they were delivered.
func (p *postOffice) delivered(t *testing.T) (ids []string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.sent {
		var e struct {
			EventID string `json:"event_id"`
		}
		if err := json.Unmarshal(r.Body, &e); err != nil {
			t.Fatal(err)
		}
		if want := payments.Sign(secret, serverTime, r.Body); r.Header["Payments-Signature"] != want || r.Kind != kindCallback || r.Path != callbackPath || r.Process < courierProcess {
			t.Errorf("%+v: want the signature %s", r, want)
		}
		ids = append(ids, e.EventID)
	}
	return ids
}

type provider struct {
	harness.Upstream
	double http.Handler
}

func (p provider) call(method, path, key string, body any) (int, []byte) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(text))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	p.double.ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

func (p provider) Ledger(context.Context) (json.RawMessage, error) {
	_, body := p.call(http.MethodGet, "/__double/ledger", "", nil)
	return body, nil
}

// charged has the provider take money with cards that behave as given.
func charged(t *testing.T, p *postOffice, cards map[string]payments.Behaviour, order ...string) {
	t.Helper()
	v := provider{double: p.double}
	if status, body := v.call(http.MethodPost, "/__double/config", "", payments.Config{Cards: cards}); status/100 != 2 {
		t.Fatalf("%d %s", status, body)
	}
	for i, card := range order {
		id := uid("c", i)
		if status, body := v.call(http.MethodPost, "/charges", id, map[string]any{"reference": id, "intent": uid("h", i), "amount": 4500, "currency": "EUR", "card": card}); status != 201 {
			t.Fatalf("%d %s", status, body)
		}
	}
}

func always200(int) int { return 200 }

func TestCourierDeliversOnceInOrder(t *testing.T) {
	p := newPostOffice(t, always200)
	charged(t, p, map[string]payments.Behaviour{"lost": {Callbacks: payments.Lost}, "held": {Callbacks: payments.Held}, "back": {Reversed: true}}, "back", "plain", "lost", "held", "back")
	c := newCourier(p)
	for _, want := range []int{3, 0} {
		if n, err := c.deliver(t.Context()); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	if got, want := p.delivered(t), []string{"evt_5", "evt_2", "evt_1"}; !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	if c.left() != 0 {
		t.Errorf("%d are left", c.left())
	}
}

func TestCourierDeliversCopiesAtABarrier(t *testing.T) {
	p := newPostOffice(t, func(n int) int { return map[bool]int{true: 200, false: 503}[n != 2] }) // the second copy fails
	charged(t, p, map[string]payments.Behaviour{"many": {Copies: 4}}, "many")
	c := newCourier(p)
	await(t, "it is taken", func() bool {
		_, err := c.deliver(t.Context())
		return err == nil && len(p.delivered(t)) == 5 && c.left() == 0
	})
	if got := p.delivered(t); len(p.bursts) != 1 || p.bursts[0] != 4 || slices.ContainsFunc(got, func(id string) bool { return id != "evt_1" }) {
		t.Errorf("bursts %v, delivered %v", p.bursts, got)
	}
}

func TestCourierGivesUp(t *testing.T) {
	p := newPostOffice(t, func(int) int { return 404 })
	charged(t, p, nil, "plain")
	c := newCourier(p)
	await(t, "the provider gives up", func() bool {
		_, err := c.deliver(t.Context())
		return err == nil && len(p.delivered(t)) > 0 && c.left() == 0
	})
	if n := len(p.delivered(t)); n != courierTries {
		t.Errorf("%d tries, want %d", n, courierTries)
	}
}

func TestCourierKeepsWhatNobodyCanTake(t *testing.T) {
	p := newPostOffice(t, always200)
	charged(t, p, nil, "plain")
	p.down = true
	c := newCourier(p)
	if n, err := c.deliver(t.Context()); n != 0 || err != nil || c.left() != 1 || len(p.delivered(t)) != 0 {
		t.Errorf("%d, %v, %d left, %v delivered; want one left", n, err, c.left(), p.delivered(t))
	}
	p.down = false
	if n, err := c.deliver(t.Context()); n != 1 || err != nil || c.left() != 0 {
		t.Errorf("%d, %v, %d left; want it delivered", n, err, c.left())
	}
}

func TestCourierInTheBackground(t *testing.T) {
	p := newPostOffice(t, always200)
	c := newCourier(p)
	stop := c.run(t.Context())
	charged(t, p, nil, "plain", "other")
	c.wake()
	await(t, "both are delivered", func() bool { return len(p.delivered(t)) == 2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := clock.Await(t.Context(), what, 10*time.Second, 5*time.Millisecond, func(context.Context) (bool, string, error) { return holds(), "not yet", nil })
	if err != nil {
		t.Fatal(err)
	}
}
