package email_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/provision"
	"github.com/overbook/overbook/harness/wire/upstream"
	"github.com/overbook/overbook/stubs/email"
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

// ask makes one call and gives status (0 when there was no answer) and body.
func ask(t *testing.T, method, url, key, body string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: bound}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := client.Do(req)
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

// Wire, WireMock and double count alike, by event too; the key reaches the
// double through all of them; control paths are not reachable that way.
func TestThroughTheWireAndWireMock(t *testing.T) {
	mock := wiremock(t)
	d := email.Double()
	server := httptest.NewServer(d.New(1))
	t.Cleanup(server.Close)
	const run, prefix = "run-1", "/run-1/email"
	remove, err := mock.Load(t.Context(), d.Mappings, map[string]string{upstream.VarPrefix: prefix, upstream.VarDoubleURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	wire, err := upstream.Start(t.Context(), upstream.Config{
		Clock: clock.New(), Name: d.Name, Target: mock.URL() + prefix, Callers: []string{"sut-1"}, RunID: run,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(wire.Close(), remove(context.Background())); err != nil {
			t.Error(err)
		}
	})

	const events, times = 20, 3
	var all sync.WaitGroup
	for i := range events * times {
		all.Go(func() {
			event := fmt.Sprintf("e-%d", i%events)
			if status, answer := ask(t, "POST", wire.URL("sut-1")+"/messages", event, message(event, "BOOKED", 7)); status != 202 {
				t.Errorf("%s: %d %s", event, status, answer)
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if err := wire.Quiesce(ctx); err != nil {
		t.Fatal(err)
	}
	journal, err := mock.Count(ctx, "POST", prefix+"/messages", run)
	if ledger := wire.Count("POST", "/messages"); err != nil || ledger != events*times || journal != events*times {
		t.Errorf("wire %d, WireMock %d, want %d: %v", ledger, journal, events*times, err)
	}
	tally, err := mock.Tally(ctx, "POST", prefix+"/messages", run, "event_id")
	if err != nil || len(tally) != events {
		t.Errorf("WireMock knows %d events, want %d: %v", len(tally), events, err)
	}
	for i := range events {
		if n := tally[fmt.Sprintf("e-%d", i)]; n != times {
			t.Errorf("WireMock counts %d of e-%d, want %d", n, i, times)
		}
	}
	_, answer := ask(t, "GET", server.URL+"/__double/ledger", "", "")
	var entries []email.Entry
	if err := json.Unmarshal([]byte(answer), &entries); err != nil || len(entries) != events {
		t.Fatalf("%d rows, want %d: %v", len(entries), events, err)
	}
	for _, e := range entries {
		if e.Deliveries != times {
			t.Errorf("%s was delivered %d times, want %d", e.EventID, e.Deliveries, times)
		}
	}
	for _, path := range []string{"/__double/ledger", "/messages/%2e%2e/__double/ledger", "/nowhere"} {
		if status, body := ask(t, "GET", wire.URL("sut-1")+path, "", ""); status != 404 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
