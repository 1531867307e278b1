package payments_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/provision"
	"github.com/overbook/overbook/harness/wire/upstream"
	"github.com/overbook/overbook/stubs/double"
	"github.com/overbook/overbook/stubs/payments"
)

const bound = 30 * time.Second

// wiremock starts the WireMock of this package's one test that needs it.
func wiremock(t *testing.T) *upstream.WireMock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	env, err := provision.Up(ctx, provision.Options{Need: provision.Need{WireMock: true}, Prefer: "local"})
	if problem, ok := errors.AsType[*provision.Problem](err); ok {
		_, noJava := provision.Java()
		cache, _ := provision.DefaultCacheDir()
		_, noJar := provision.FindJar(cache)
		if noJava != nil || noJar != nil {
			t.Skip(problem)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	mock := upstream.NewWireMock(env.WireMock.URL())
	if err := mock.Warm(ctx); err != nil {
		t.Fatal(err)
	}
	return mock
}

// A chain is wire -> WireMock -> double.
type chain struct {
	handler http.Handler // the double, directly
	wire    *upstream.Wire
	mock    *upstream.WireMock
}

const run, prefix = "run-1", "/run-1/payments"

func newChain(t *testing.T) *chain {
	t.Helper()
	d := payments.Double()
	c := &chain{mock: wiremock(t), handler: d.New(1)}
	server := httptest.NewServer(c.handler)
	t.Cleanup(server.Close)
	remove, err := c.mock.Load(t.Context(), d.Mappings, map[string]string{upstream.VarPrefix: prefix, upstream.VarDoubleURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c.wire, err = upstream.Start(t.Context(), upstream.Config{
		Clock: clock.New(), Name: d.Name, Target: c.mock.URL() + prefix, Callers: []string{"sut-1"}, RunID: run,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.wire.Close(), remove(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *chain) post(t *testing.T, path, key, body string) (int, string) {
	t.Helper()
	return post(t, c.wire.URL("sut-1")+path, key, body, bound)
}

// get asks; redirects are not followed.
func (c *chain) get(t *testing.T, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", c.wire.URL("sut-1")+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(answer)
}

// counts checks that wire, WireMock and double counted n calls of an endpoint.
func (c *chain) counts(t *testing.T, path string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if err := c.wire.Quiesce(ctx); err != nil {
		t.Fatal(err)
	}
	journal, err := c.mock.Count(ctx, "POST", prefix+path, run)
	own := statsOf(t, c.handler).Calls["POST "+path]
	if ledger := c.wire.Count("POST", path); err != nil || ledger != n || journal != n || own != n {
		t.Errorf("POST %s: wire %d, WireMock %d, double %d, want %d: %v", path, ledger, journal, own, n, err)
	}
}

// countsBy checks WireMock's count by a field.
func (c *chain) countsBy(t *testing.T, path, field, value string, want int) {
	t.Helper()
	tally, err := c.mock.Tally(t.Context(), "POST", prefix+path, run, field)
	if n := tally[value]; err != nil || n != want {
		t.Errorf("WireMock counts %d of POST %s with %s %s, want %d: %v", n, path, field, value, want, err)
	}
}

// Wire, WireMock and double count alike, by reference and payment too; keys
// reach the double through all of them; control paths are not reachable.
func TestThroughTheWireAndWireMock(t *testing.T) {
	c := newChain(t)
	const orders, times = 20, 5
	got := atOnce(orders*times, func(i int) int {
		reference := fmt.Sprintf("c-%d", i%orders)
		status, _ := c.post(t, "/charges", reference, chargeBody(reference, "card-1"))
		return status
	})
	if got[201] != orders || got[200]+got[409] != orders*(times-1) {
		t.Errorf("charges: %v", got)
	}
	got = atOnce(orders*times, func(i int) int {
		id := fmt.Sprintf("pay_%d", i%orders+1)
		status, _ := c.post(t, "/refunds", "r-"+id, refundBody(id, 4500))
		return status
	})
	if got[201] != orders || got[200]+got[409] != orders*(times-1) {
		t.Errorf("refunds: %v", got)
	}
	c.counts(t, "/charges", orders*times)
	c.counts(t, "/refunds", orders*times)
	for i := range orders {
		c.countsBy(t, "/charges", "reference", fmt.Sprintf("c-%d", i), times)
		c.countsBy(t, "/refunds", "payment_id", fmt.Sprintf("pay_%d", i+1), times)
	}
	l := ledger(t, c.handler)
	if len(l.Payments) != orders || len(l.Refunds) != orders || len(l.Callbacks) != 2*orders {
		t.Errorf("%d payments, %d refunds, %d callbacks, want %d, %d, %d", len(l.Payments), len(l.Refunds), len(l.Callbacks), orders, orders, 2*orders)
	}
	for _, p := range l.Payments {
		if p.Posts != times {
			t.Errorf("payment: %+v, want %d posts", p, times)
		}
		status, answer := c.get(t, "/charges/"+p.Reference)
		if want := fmt.Sprintf(`{"payments":[%s],"reference":%q}`, payment(number(p), p.Reference, "captured"), p.Reference); status != 200 || answer != want {
			t.Errorf("ask: %d %s, want %s", status, answer, want)
		}
	}
	if status, answer := c.get(t, "/charges/c-999"); status != 404 || answer != refused("unknown") {
		t.Errorf("ask for what there is not: %d %s", status, answer)
	}
	if n := statsOf(t, c.handler).Calls["GET /charges/{reference}"]; n != orders+1 {
		t.Errorf("the double counts %d questions, want %d", n, orders+1)
	}
	t.Run("control paths", func(t *testing.T) { controlPaths(t, c) })
	t.Run("lost answers", func(t *testing.T) { lostThroughWireMock(t, c) })
}

func number(p payments.Payment) (n int) {
	_, _ = fmt.Sscanf(p.PaymentID, "pay_%d", &n)
	return n
}

func controlPaths(t *testing.T, c *chain) {
	before := statsOf(t, c.handler)
	for _, path := range []string{
		"/__double/ledger", "/charges/%2e%2e/__double/ledger", "/charges/..%2F__double%2Fledger", "/charges/%2e%2e", "/charges/../__double/ledger",
		"/charges/c-1/../../__double/ledger", "/charges/", "/charges/c-1/x", "/nowhere", "//__double/ledger",
	} {
		if status, body := c.get(t, path); status != 404 || strings.Contains(body, "payment_id") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if after, err := json.Marshal(statsOf(t, c.handler).Calls); err != nil || string(after) != text(t, before) {
		t.Errorf("such a call reached the double: %s, before %s", after, text(t, before))
	}
}

func text(t *testing.T, s double.Stats) string {
	t.Helper()
	b, err := json.Marshal(s.Calls)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// WireMock can't pass a reset on: who asks through it is told something that
// is no decision and does not look like a broken WireMock.
func lostThroughWireMock(t *testing.T, c *chain) {
	made := statsOf(t, c.handler).Calls["POST /charges"]
	card(t, c.handler, "reset", payments.Behaviour{Answer: payments.Reset})
	card(t, c.handler, "silent", payments.Behaviour{Answer: payments.Silent})
	soon := 300.0
	configure(t, c.handler, payments.Config{SilenceMS: &soon})
	if status, answer := c.post(t, "/charges", "reset-1", chargeBody("reset-1", "reset")); status != 502 || answer != refused("answer_lost") {
		t.Errorf("reset: %d %s", status, answer)
	}
	if status, why := post(t, c.wire.URL("sut-1")+"/charges", "silent-1", chargeBody("silent-1", "silent"), 100*time.Millisecond); status != 0 {
		t.Errorf("silent: %d %s", status, why)
	}
	c.counts(t, "/charges", made+2)
	for _, reference := range []string{"reset-1", "silent-1"} {
		if status, answer := c.get(t, "/charges/"+reference); status != 200 || !strings.Contains(answer, `"status":"captured"`) {
			t.Errorf("%s: %d %s", reference, status, answer)
		}
	}
	for _, call := range c.wire.Calls() {
		if strings.HasPrefix(call.Response, "Network failure") {
			t.Errorf("WireMock answered by itself: %+v", call)
		}
	}
}

func TestDoubleIsWhatTheContractNames(t *testing.T) {
	d := payments.Double()
	if d.Name != "payments" || d.New == nil || d.Mappings == nil {
		t.Errorf("the double: %+v", d)
	}
	if diff := cmp.Diff([]string{"POST /charges", "POST /refunds"}, d.Count); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"POST /charges": "reference", "POST /refunds": "payment_id"}, d.CountBy); diff != "" {
		t.Error(diff)
	}
}
