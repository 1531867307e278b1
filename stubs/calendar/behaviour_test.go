package calendar_test

import (
	"context"
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
	"github.com/overbook/overbook/stubs/calendar"
)

const bound = 30 * time.Second

// busy gives a free/busy answer with its as_of.
func (d *desk) busy(t *testing.T, name string) string {
	t.Helper()
	_, answer := d.call(t, strings.Replace(in("/freebusy", 0, 23), "cal-1", name, 1), "")
	return answer
}

func TestFrozenFreebusy(t *testing.T) {
	d := newDesk(t, "cal-1", "cal-2")
	d.call(t, "POST /events", create("event-1", 9, 10, true))
	frozen := calendar.Behaviour{Freebusy: calendar.Frozen}
	d.behave(t, frozen)
	then := d.busy(t, "cal-1")
	if !strings.Contains(then, `"busy":[{`+span(9, 10)+`}]`) || !strings.Contains(then, `"as_of":"20`) {
		t.Errorf("frozen: %s", then)
	}
	d.configure(t, calendar.Config{External: []calendar.External{external("other-1", 12, 13)}})
	d.call(t, fmt.Sprintf(del, "event-1"), "")
	d.behave(t, calendar.Behaviour{Freebusy: calendar.Frozen, Atomic: new(false)}) // frozen already: as it was
	if again := d.busy(t, "cal-1"); again != then {
		t.Errorf("frozen, and later: %s, want %s", again, then)
	}
	d.walk(t, []step{{in("/events", 9, 18), "", 200, `{"events":[` + theirs("other-1", 12, 13) + `]}`}}) // which is never behind
	if row := d.ledger(t).Calls[len(d.ledger(t).Calls)-1]; row.Outcome != "busy" || !cmp.Equal(row.Externals, []string{"other-1"}) {
		t.Errorf("the row tells what was shown, and what was there: %+v", row)
	}
	d.behave(t, calendar.Behaviour{})
	var fresh string
	err := clock.Await(t.Context(), "an as_of that is later", 10*time.Second, time.Millisecond, func(context.Context) (bool, string, error) {
		fresh = d.busy(t, "cal-1")
		return asOf.FindString(fresh) > asOf.FindString(then), fresh, nil
	})
	if err != nil || !strings.Contains(fresh, `"busy":[{`+span(12, 13)+`}]`) {
		t.Errorf("fresh: %s, before %s: %v", fresh, then, err)
	}
	d.behave(t, frozen)
	if now := d.busy(t, "cal-1"); asOf.ReplaceAllString(now, "") != asOf.ReplaceAllString(fresh, "") {
		t.Errorf("frozen again: %s, want the events of %s", now, fresh)
	}
	d.configure(t, calendar.Config{Default: &frozen, External: []calendar.External{{Calendar: "cal-2", EventID: "other-1", Start: hour(9), End: hour(10)}}})
	watch := clock.New()
	if err := clock.Await(t.Context(), "another time of day", 10*time.Second, time.Millisecond, func(context.Context) (bool, string, error) {
		return watch.Now() > 5*time.Millisecond, "", nil
	}); err != nil {
		t.Fatal(err)
	}
	d.refresh(t, "cal-3", "r-0", "key-0") // appears only now
	two, three := d.busy(t, "cal-2"), d.busy(t, "cal-3")
	if !strings.Contains(two, `"busy":[]`) || two != three {
		t.Errorf("frozen by default: %s and, of a calendar that appeared later, %s", two, three)
	}
}

// post calls over a real connection; status 0 is no answer.
func (d *desk) post(t *testing.T, method, url, key, body string, patience time.Duration) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.access["cal-1"])
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
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

// An answer that is lost was decided all the same; the n-th call of an event
// is answered when the first n-1 were to be lost.
func TestLostAnswers(t *testing.T) {
	d := newDesk(t)
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	d.behave(t, calendar.Behaviour{
		CreateAnswer: calendar.Reset, CreateFirst: 1, UpdateAnswer: calendar.Reset, UpdateFirst: 2, DeleteAnswer: calendar.Reset, TokenAnswer: calendar.Reset, TokenFirst: 1,
	})
	lost := func(method, path, key, body string) {
		t.Helper()
		if status, why := d.post(t, method, server.URL+path, key, body, bound); status != 0 || !strings.Contains(why, "reset") {
			t.Errorf("%s %s: %d %s", method, path, status, why)
		}
	}
	lost("POST", "/token", "key-1", `{"calendar":"cal-1","refresh_token":"r-0"}`)
	d.refresh(t, "cal-1", "r-0", "key-1")
	lost("POST", "/events", "", create("event-1", 9, 10, true))
	lost("POST", "/events", "", create("event-2", 9, 10, true)) // each event id for itself
	lost("PUT", "/events/event-1", "", update(10, 11, 2, true))
	lost("PUT", "/events/event-1", "", update(10, 11, 2, true)) // stale, and that is lost, too
	lost("DELETE", "/events/event-2?calendar=cal-1", "", "")
	lost("DELETE", "/events/event-2?calendar=cal-1", "", "") // all of them
	d.walk(t, []step{
		{"POST /events", create("event-1", 9, 10, true), 409, refusedWith("exists", event("event-1", 10, 11, 2))},
		{"POST /events", create("event-2", 9, 10, true), 409, refused("spent")},
		{"PUT /events/event-1", update(10, 11, 2, true), 409, refusedWith("stale", event("event-1", 10, 11, 2))},
	})
	d.behave(t, calendar.Behaviour{CreateAnswer: calendar.Reset, CreateFirst: 1})
	lost("POST", "/events", "", create("event-1", 9, 10, true)) // counted from when the behaviour was set
	if n := d.stats(t).Decisions["POST /events 409 exists"]; n != 2 {
		t.Errorf("decisions: %v", d.stats(t).Decisions)
	}
}

func TestSilentAndSlowAnswers(t *testing.T) {
	d := newDesk(t, "cal-1")
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	d.behave(t, calendar.Behaviour{CreateAnswer: calendar.Silent, UpdateAnswer: calendar.Slow, SlowMS: 300})
	if status, why := d.post(t, "POST", server.URL+"/events", "", create("event-1", 9, 10, true), 100*time.Millisecond); status != 0 || !strings.Contains(why, "Timeout") {
		t.Errorf("silent: %d %s", status, why)
	}
	watch := clock.New()
	d.walk(t, []step{
		{"GET /events/event-1?calendar=cal-1", "", 200, event("event-1", 9, 10, 1)},
		{"PUT /events/event-1", update(10, 11, 2, true), 200, event("event-1", 10, 11, 2)},
	})
	if took := watch.Now(); took < 300*time.Millisecond {
		t.Errorf("a slow answer took %s", took)
	}
	if status, why := d.post(t, "PUT", server.URL+"/events/event-1", "", update(12, 13, 3, true), 50*time.Millisecond); status != 0 {
		t.Errorf("slow: %d %s", status, why)
	}
	d.walk(t, []step{{"GET /events/event-1?calendar=cal-1", "", 200, event("event-1", 12, 13, 3)}})

	var quiet sync.WaitGroup
	defer quiet.Wait()
	quiet.Go(func() {
		if status, answer := d.post(t, "POST", server.URL+"/events", "", create("event-2", 9, 10, true), bound); status != 504 || answer != refused("no_answer") {
			t.Errorf("a silence that was ended: %d %s", status, answer)
		}
	})
	d.await(t, "the second event", func(l calendar.Ledger) bool { return len(l.Events) == 2 })
	d.configure(t, calendar.Config{SilenceMS: new(50.0)}) // ends those that there are
	quiet.Wait()
	if status, _ := d.post(t, "POST", server.URL+"/events", "", create("event-3", 9, 10, true), bound); status != 504 {
		t.Errorf("a silence that is over: %d", status)
	}
}

func (d *desk) await(t *testing.T, what string, holds func(calendar.Ledger) bool) {
	t.Helper()
	err := clock.Await(t.Context(), what, 10*time.Second, time.Millisecond, func(context.Context) (bool, string, error) {
		l := d.ledger(t)
		return holds(l), fmt.Sprintf("%+v", l), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Creates that are held wait where the decision is: what happens meanwhile counts.
func TestHeldCreates(t *testing.T) {
	for name, release := range map[string]calendar.Config{
		"by name":           {Release: []string{"cal-1"}},
		"all":               {Release: []string{calendar.All}},
		"another behaviour": {Calendars: map[string]calendar.Behaviour{"cal-1": {}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, "cal-1", "cal-2")
			d.behave(t, calendar.Behaviour{HoldCreates: true})
			var calls sync.WaitGroup
			for i, want := range []int{201, 409} {
				calls.Go(func() {
					if status, answer := d.call(t, "POST /events", create(fmt.Sprintf("event-%d", i), 9+i, 10+i, true)); status != want {
						t.Errorf("event-%d: %d %s, want %d", i, status, answer, want)
					}
				})
			}
			d.await(t, "both creates", func(l calendar.Ledger) bool { return l.Calendars[0].Waiting == 2 })
			d.call(t, "POST /events", strings.Replace(create("event-1", 9, 10, true), "cal-1", "cal-2", 1)) // another calendar does not wait
			d.configure(t, calendar.Config{Release: []string{"cal-2"}, External: []calendar.External{external("other-1", 10, 11)}})
			l := d.ledger(t)
			if diff := cmp.Diff([]string{"token  issued", "token  issued", "create event-1 created", "external other-1 appeared"}, rows(l)); diff != "" || l.Calendars[0].Waiting != 2 {
				t.Errorf("%d wait: %s", l.Calendars[0].Waiting, diff)
			}
			watch := clock.New()
			d.configure(t, release)
			calls.Wait()
			if took := watch.Now(); took > 20*time.Second {
				t.Errorf("they were decided after %s: by the bound, not by the release", took)
			}
			if l := d.ledger(t); l.Calendars[0].Waiting != 0 || len(l.Of("cal-1").Events) != 2 {
				t.Errorf("after: %+v", l)
			}
		})
	}
}

func TestCallsThatAreNotLookedAt(t *testing.T) {
	d := newDesk(t, "cal-1", "cal-2")
	ask, fail, list := "GET /events/event-1?calendar=cal-1", refused("failing"), in("/events", 9, 10)
	d.behave(t, calendar.Behaviour{FailFirst: map[string]int{calendar.Create: 2, calendar.Get: 1, calendar.Delete: -1}})
	d.walk(t, []step{
		{"POST /events", create("event-1", 9, 10, true), 503, fail},
		{"POST /events", strings.Replace(create("event-1", 9, 10, true), "cal-1", "cal-2", 1), 201, event("event-1", 9, 10, 1)},
		{"POST /events", create("event-2", 9, 10, true), 503, fail},
		{ask, "", 503, fail},
		{ask, "", 404, refused("not_found")},
		{"POST /events", create("event-1", 9, 10, true), 201, event("event-1", 9, 10, 1)},
		{fmt.Sprintf(del, "event-1"), "", 503, fail},
		{fmt.Sprintf(del, "event-1"), "", 503, fail},
	})
	d.behave(t, calendar.Behaviour{RateLimit: &calendar.RateLimit{After: 1, RetryAfterS: 7, For: 2}})
	one := event("event-1", 9, 10, 1)
	d.walk(t, []step{{ask, "", 200, one}})
	w := d.send(t, "GET", "/events/event-1?calendar=cal-1", d.access["cal-1"], "", "")
	if w.Code != 429 || w.Header().Get("Retry-After") != "7" || w.Body.String() != refused("rate_limited") {
		t.Errorf("limited: %d %s %v", w.Code, w.Body, w.Header())
	}
	if status, _ := d.token(t, "cal-1", "r-0", "key-0"); status != 200 {
		t.Errorf("a token call is limited: %d", status)
	}
	d.walk(t, []step{
		{strings.Replace(list, "cal-1", "cal-2", 1), "", 200, `{"events":[` + one + `]}`},
		{list, "", 429, refused("rate_limited")},
		{list, "", 200, `{"events":[` + one + `]}`},
	})
	rowsBefore := len(d.ledger(t).Calls)
	d.behave(t, calendar.Behaviour{Mode: calendar.Down})
	if status, answer := d.token(t, "cal-1", "r-0", "key-0"); status != 503 || answer != refused("down") {
		t.Errorf("a token call while down: %d %s", status, answer)
	}
	d.walk(t, []step{
		{list, "", 503, refused("down")},
		{"POST /events", create("event-2", 9, 10, true), 503, refused("down")},
		{"GET /events/event-1?calendar=cal-2", "", 200, one},
	})
	d.behave(t, calendar.Behaviour{FailFirst: map[string]int{calendar.List: 2}})
	d.walk(t, []step{{list, "", 503, fail}})
	d.configure(t, calendar.Config{Default: &calendar.Behaviour{Mode: calendar.Down}}) // cal-1 has its own, whose counts go on
	d.walk(t, []step{
		{list, "", 503, fail},
		{list, "", 200, `{"events":[` + one + `]}`},
		{"GET /events/event-1?calendar=cal-2", "", 503, refused("down")},
		{ask, "", 200, one},
	})
	if l := d.ledger(t); len(l.Calls) != rowsBefore {
		t.Errorf("such calls have rows: %v", rows(l)[rowsBefore:])
	}
	want := map[string]int{"POST /events 503 failing": 2, "POST /events 503 down": 1, "GET /events 429 rate_limited": 1, "DELETE /events/{event_id} 503 failing": 2, "POST /events 201 created": 2}
	got := d.stats(t).Decisions
	for decision, n := range want {
		if got[decision] != n {
			t.Errorf("%s: %d, want %d", decision, got[decision], n)
		}
	}
}

// The first half of a latency passes before the decision.
func TestLatencyIsOfItsKind(t *testing.T) {
	d := newDesk(t, "cal-1")
	d.behave(t, calendar.Behaviour{LatencyMS: map[string]float64{calendar.Create: 400}})
	watch := clock.New()
	d.walk(t, []step{{"GET /events/event-1?calendar=cal-1", "", 404, refused("not_found")}})
	if took := watch.Now(); took > 390*time.Millisecond {
		t.Errorf("another kind took %s", took)
	}
	watch = clock.New()
	d.walk(t, []step{{"POST /events", create("event-1", 9, 10, true), 201, event("event-1", 9, 10, 1)}})
	took := watch.Now()
	l := d.ledger(t)
	decided := time.Duration((l.Calls[1].AtMS - l.Calls[0].AtMS) * float64(time.Millisecond))
	if took < 400*time.Millisecond || decided < 200*time.Millisecond {
		t.Errorf("took %s, decided after %s at least", took, decided)
	}
}
