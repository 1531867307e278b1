package calendar_test

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

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/provision"
	"github.com/overbook/overbook/harness/wire/upstream"
	"github.com/overbook/overbook/stubs/calendar"
)

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
	*desk // the double, directly
	wire  *upstream.Wire
	mock  *upstream.WireMock
}

const run, prefix = "run-1", "/run-1/calendar"

func newChain(t *testing.T) *chain {
	t.Helper()
	d := calendar.Double()
	c := &chain{mock: wiremock(t), desk: newDesk(t)}
	server := httptest.NewServer(c.desk)
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

// through calls the way a server under test does; redirects are not followed.
// Status 0 is no answer.
func (c *chain) through(t *testing.T, call, key, body string, patience time.Duration) (int, http.Header, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	method, path, _ := strings.Cut(call, " ")
	req, err := http.NewRequestWithContext(ctx, method, c.wire.URL("sut-1")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.access["cal-1"])
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return res.StatusCode, res.Header, string(answer)
}

// counts checks that wire, WireMock and double counted n calls of an endpoint.
func (c *chain) counts(t *testing.T, endpoint string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if err := c.wire.Quiesce(ctx); err != nil {
		t.Fatal(err)
	}
	method, path, _ := strings.Cut(endpoint, " ")
	journal, err := c.mock.Count(ctx, method, prefix+path, run)
	own := c.stats(t).Calls[endpoint]
	if ledger := c.wire.Count(method, path); err != nil || ledger != n || journal != n || own != n {
		t.Errorf("%s: wire %d, WireMock %d, double %d, want %d: %v", endpoint, ledger, journal, own, n, err)
	}
}

// Wire, WireMock and double count alike, whatever the query, and by event and
// calendar too; queries, tokens and keys reach the double through all of them,
// and all kinds of answers the caller; control paths are not reachable.
func TestThroughTheWireAndWireMock(t *testing.T) {
	c := newChain(t)
	const events, times = 20, 5
	var token tokens
	for range times { // under one key: the same answer, through the wire as well
		_, _, answer := c.through(t, "POST /token", "key-0", `{"calendar":"cal-1","refresh_token":"r-0"}`, bound)
		before := token
		if err := json.Unmarshal([]byte(answer), &token); err != nil || before != (tokens{}) && token != before {
			t.Fatalf("token: %s, %v", answer, err)
		}
	}
	c.access["cal-1"] = token.Access
	var mu sync.Mutex
	var all sync.WaitGroup
	got := map[int]int{}
	for i := range events * times {
		all.Go(func() {
			status, _, _ := c.through(t, "POST /events", "", create(fmt.Sprintf("event-%d", i%events), 9, 10, true), bound)
			mu.Lock()
			defer mu.Unlock()
			got[status]++
		})
	}
	all.Wait()
	if got[201] != events || got[409] != events*(times-1) {
		t.Errorf("creates: %v", got)
	}
	c.counts(t, "POST /events", events*times)
	c.counts(t, "POST /token", times)
	for field, want := range map[string]map[string]int{"event_id": tallyOf(events, times), "calendar": {"cal-1": times}} {
		path := map[string]string{"event_id": "/events", "calendar": "/token"}[field]
		tally, err := c.mock.Tally(t.Context(), "POST", prefix+path, run, field)
		if diff := cmp.Diff(want, tally); err != nil || diff != "" {
			t.Errorf("WireMock counts by %s: %v\n%s", field, err, diff)
		}
	}
	t.Run("queries", func(t *testing.T) { queriesThroughWireMock(t, c) })
	t.Run("answers", func(t *testing.T) { answersThroughWireMock(t, c) })
	t.Run("control paths", func(t *testing.T) { controlPaths(t, c) })
	t.Run("lost answers", func(t *testing.T) { lostThroughWireMock(t, c) })
}

func tallyOf(events, times int) map[string]int {
	tally := map[string]int{}
	for i := range events {
		tally[fmt.Sprintf("event-%d", i)] = times
	}
	return tally
}

// Each query is another URL, and all are one endpoint to all three observers.
func queriesThroughWireMock(t *testing.T, c *chain) {
	c.configure(t, calendar.Config{External: []calendar.External{external("other-1", 12, 13)}})
	for hour, want := range map[int]string{11: `{"busy":[]}`, 12: `{"busy":[{` + span(12, 13) + `}]}`, 13: `{"busy":[]}`} {
		if status, _, answer := c.through(t, in("/freebusy", hour, hour+1), "", "", bound); status != 200 || asOf.ReplaceAllString(answer, "") != want {
			t.Errorf("free/busy of %d: %d %s, want %s", hour, status, answer, want)
		}
	}
	offset := "GET /events?calendar=cal-1&from=2027-03-01T14:00:00%2B02:00&to=2027-03-01T15%3A00%3A00%2B02%3A00" // 12 to 13 in UTC
	for _, call := range []string{in("/events", 12, 13), offset} {
		if status, _, answer := c.through(t, call, "", "", bound); status != 200 || answer != `{"events":[`+theirs("other-1", 12, 13)+`]}` {
			t.Errorf("%s: %d %s", call, status, answer)
		}
	}
	if status, _, answer := c.through(t, "GET /events", "", "", bound); status != 400 {
		t.Errorf("no query: %d %s", status, answer)
	}
	c.counts(t, "GET /freebusy", 3)
	c.counts(t, "GET /events", 3)
}

func answersThroughWireMock(t *testing.T, c *chain) {
	c.behave(t, calendar.Behaviour{RateLimit: &calendar.RateLimit{After: 5, RetryAfterS: 7, For: 1}})
	for _, s := range []step{
		{"GET /events/event-1?calendar=cal-1", "", 200, event("event-1", 9, 10, 1)},
		{"PUT /events/event-1", update(14, 15, 2, true), 200, event("event-1", 14, 15, 2)},
		{"DELETE /events/event-1?calendar=cal-1", "", 204, ""},
		{"DELETE /events/event-1?calendar=cal-1", "", 404, refused("not_found")},
		{"GET /events/event-1?calendar=cal-2", "", 401, refused("unauthorized")},
		{"DELETE /events/other-1?calendar=cal-1", "", 403, refused("not_yours")},
	} {
		if status, _, answer := c.through(t, s.call, "", s.body, bound); status != s.status || answer != s.answer {
			t.Errorf("%s: %d %s, want %d %s", s.call, status, answer, s.status, s.answer)
		}
	}
	status, header, answer := c.through(t, "POST /events", "", create("event-77", 9, 10, true), bound)
	if status != 429 || header.Get("Retry-After") != "7" || answer != refused("rate_limited") {
		t.Errorf("limited: %d %s %v", status, answer, header)
	}
}

func controlPaths(t *testing.T, c *chain) {
	before := c.stats(t)
	for _, path := range []string{
		"/__double/ledger", "/events/%2e%2e/__double/ledger", "/events/..%2F__double%2Fledger", "/events/%2e%2e", "/events/../__double/ledger",
		"/events/event-1/../../__double/ledger", "/events/", "/events/event-1/x", "/nowhere", "//__double/ledger", "/freebusy/../__double/ledger",
	} {
		if status, _, body := c.through(t, "GET "+path, "", "", bound); status != 404 || strings.Contains(body, "event_id") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if diff := cmp.Diff(before.Calls, c.stats(t).Calls); diff != "" {
		t.Errorf("such a call reached the double: %s", diff)
	}
}

// WireMock can't pass a reset on: who asks through it is told something that
// is no decision and does not look like a broken WireMock.
func lostThroughWireMock(t *testing.T, c *chain) {
	made := c.stats(t).Calls["POST /events"]
	c.configure(t, calendar.Config{SilenceMS: new(300.0), Calendars: map[string]calendar.Behaviour{
		"cal-1": {CreateAnswer: calendar.Reset, CreateFirst: 1, DeleteAnswer: calendar.Silent, UpdateAnswer: calendar.Slow, SlowMS: 300},
	}})
	if status, _, answer := c.through(t, "POST /events", "", create("event-90", 9, 10, true), bound); status != 502 || answer != refused("answer_lost") {
		t.Errorf("reset: %d %s", status, answer)
	}
	if status, _, answer := c.through(t, "POST /events", "", create("event-90", 9, 10, true), bound); status != 409 || answer != refusedWith("exists", event("event-90", 9, 10, 1)) {
		t.Errorf("and then: %d %s", status, answer)
	}
	if status, _, answer := c.through(t, "PUT /events/event-90", "", update(10, 11, 2, true), bound); status != 200 || answer != event("event-90", 10, 11, 2) {
		t.Errorf("slow: %d %s", status, answer)
	}
	if status, _, answer := c.through(t, "DELETE /events/event-90?calendar=cal-1", "", "", 100*time.Millisecond); status != 0 {
		t.Errorf("silent: %d %s", status, answer)
	}
	c.counts(t, "POST /events", made+2)
	if status, _, answer := c.through(t, "GET /events/event-90?calendar=cal-1", "", "", bound); status != 404 {
		t.Errorf("after a silent deletion: %d %s", status, answer)
	}
	for _, call := range c.wire.Calls() {
		if strings.HasPrefix(call.Response, "Network failure") {
			t.Errorf("WireMock answered by itself: %+v", call)
		}
	}
}

func TestDoubleIsWhatTheContractNames(t *testing.T) {
	d := calendar.Double()
	if d.Name != "calendar" || d.New == nil || d.Mappings == nil {
		t.Errorf("the double: %+v", d)
	}
	if diff := cmp.Diff([]string{"POST /events", "POST /token", "GET /freebusy", "GET /events"}, d.Count); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"POST /events": "event_id", "POST /token": "calendar"}, d.CountBy); diff != "" {
		t.Error(diff)
	}
}
