package calendar_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/calendar"
	"github.com/overbook/overbook/stubs/double"
)

// A desk is a provider and the access tokens that were asked for there.
type desk struct {
	http.Handler
	access map[string]string // by calendar
}

func newDesk(tb testing.TB, calendars ...string) *desk {
	tb.Helper()
	d := &desk{calendar.New(1), map[string]string{}}
	for _, name := range calendars {
		d.refresh(tb, name, "r-0", "key-0")
	}
	return d
}

// send calls the handler without a network.
func (d *desk) send(tb testing.TB, method, path, bearer, key, body string) *httptest.ResponseRecorder {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), method, path, strings.NewReader(body))
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// call calls with cal-1's access token, unless the call names another calendar.
func (d *desk) call(tb testing.TB, call, body string) (int, string) {
	tb.Helper()
	name := "cal-1"
	for other := range d.access {
		if strings.Contains(call, "calendar="+other) || strings.Contains(body, fmt.Sprintf(`"calendar":%q`, other)) {
			name = other
		}
	}
	method, path, _ := strings.Cut(call, " ")
	w := d.send(tb, method, path, d.access[name], "", body)
	return w.Code, w.Body.String()
}

type tokens struct {
	Access    string `json:"access_token"`
	Refresh   string `json:"refresh_token"`
	ExpiresIn int    `json:"expires_in"`
}

func (d *desk) token(tb testing.TB, name, refresh, key string) (int, string) {
	tb.Helper()
	w := d.send(tb, "POST", "/token", "", key, fmt.Sprintf(`{"calendar":%q,"refresh_token":%q}`, name, refresh))
	return w.Code, w.Body.String()
}

// refresh asks for tokens, and uses them from now on.
func (d *desk) refresh(tb testing.TB, name, refresh, key string) (got tokens) {
	tb.Helper()
	status, answer := d.token(tb, name, refresh, key)
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != 200 || got.Access == "" || got.Refresh == "" || got.ExpiresIn <= 0 {
		tb.Fatalf("refresh %s with %s: %d %s, %v", name, refresh, status, answer, err)
	}
	d.access[name] = got.Access
	return got
}

func (d *desk) configure(tb testing.TB, change calendar.Config) {
	tb.Helper()
	text, err := json.Marshal(change)
	if err != nil {
		tb.Fatal(err)
	}
	if w := d.send(tb, "POST", "/__double/config", "", "", string(text)); w.Code != 200 {
		tb.Fatalf("configure %s: %d %s", text, w.Code, w.Body)
	}
}

// behave configures cal-1.
func (d *desk) behave(tb testing.TB, b calendar.Behaviour) {
	tb.Helper()
	d.configure(tb, calendar.Config{Calendars: map[string]calendar.Behaviour{"cal-1": b}})
}

func (d *desk) ledger(tb testing.TB) (l calendar.Ledger) {
	tb.Helper()
	if err := json.Unmarshal(d.send(tb, "GET", "/__double/ledger", "", "", "").Body.Bytes(), &l); err != nil {
		tb.Fatal(err)
	}
	return l
}

func (d *desk) stats(tb testing.TB) (s double.Stats) {
	tb.Helper()
	if err := json.Unmarshal(d.send(tb, "GET", "/__double/stats", "", "", "").Body.Bytes(), &s); err != nil {
		tb.Fatal(err)
	}
	return s
}

// Hours of the one day of these tests.
func hour(h int) time.Time { return time.Date(2027, 3, 1, h, 0, 0, 0, time.UTC) }

func span(from, to int) string {
	return fmt.Sprintf(`"start":%q,"end":%q`, hour(from).Format(time.RFC3339), hour(to).Format(time.RFC3339))
}

func in(path string, from, to int) string {
	return fmt.Sprintf("GET %s?calendar=cal-1&from=%s&to=%s", path, hour(from).Format(time.RFC3339), hour(to).Format(time.RFC3339))
}

func create(id string, from, to int, ifFree bool) string {
	return fmt.Sprintf(`{"calendar":"cal-1","event_id":%q,%s,"version":1,"title":"t","if_free":%t}`, id, span(from, to), ifFree)
}

func update(from, to, version int, ifFree bool) string {
	return fmt.Sprintf(`{"calendar":"cal-1",%s,"version":%d,"if_free":%t}`, span(from, to), version, ifFree)
}

func event(id string, from, to, version int) string {
	return fmt.Sprintf(`{"event_id":%q,%s,"version":%d,"title":"t","source":"ours"}`, id, span(from, to), version)
}

func theirs(id string, from, to int) string {
	return fmt.Sprintf(`{"event_id":%q,%s,"version":0,"title":"","source":"external"}`, id, span(from, to))
}

func external(id string, from, to int) calendar.External {
	return calendar.External{Calendar: "cal-1", EventID: id, Start: hour(from), End: hour(to)}
}

func refused(word string) string { return fmt.Sprintf(`{"error":%q}`, word) }

func refusedWith(word, event string) string {
	return fmt.Sprintf(`{"error":%q,"event":%s}`, word, event)
}

var asOf = regexp.MustCompile(`"as_of":"[^"]*",`)

// step is a call and the answer that it must have, or a change of configuration.
type step struct {
	call, body string
	status     int
	answer     string // without as_of
}

func (d *desk) walk(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		status, answer := d.call(t, s.call, s.body)
		answer = asOf.ReplaceAllString(answer, "")
		if strings.Contains(s.call, "/__double/config") && s.status == 200 {
			answer = ""
		}
		if status != s.status || answer != s.answer {
			t.Errorf("%s %s: %d %s\nwant %d %s", s.call, s.body, status, answer, s.status, s.answer)
		}
	}
}

const del = "DELETE /events/%s?calendar=cal-1"

func TestCallsOfEvents(t *testing.T) {
	d := newDesk(t, "cal-1")
	d.configure(t, calendar.Config{External: []calendar.External{external("other-1", 12, 13)}})
	d.walk(t, []step{
		{in("/freebusy", 9, 18), "", 200, `{"busy":[{` + span(12, 13) + `}]}`},
		{in("/events", 9, 18), "", 200, `{"events":[` + theirs("other-1", 12, 13) + `]}`},
		{"GET /events/event-1?calendar=cal-1", "", 404, refused("not_found")},
		{"GET /events/other-1?calendar=cal-1", "", 200, theirs("other-1", 12, 13)},
		{"POST /events", create("event-1", 9, 10, true), 201, event("event-1", 9, 10, 1)},
		{"POST /events", create("event-1", 9, 11, true), 409, refusedWith("exists", event("event-1", 9, 10, 1))},
		{"POST /events", create("other-1", 9, 11, true), 409, refusedWith("exists", theirs("other-1", 12, 13))},
		{"POST /events", create("event-2", 11, 13, true), 409, refused("busy")},
		{"POST /events", create("event-2", 11, 12, true), 201, event("event-2", 11, 12, 1)}, // back to back
		{"POST /events", create("event-3", 9, 10, true), 201, event("event-3", 9, 10, 1)},   // ours alone is not busy
		{"POST /events", create("event-4", 12, 14, false), 201, event("event-4", 12, 14, 1)},
		{"GET /events/event-4?calendar=cal-1", "", 200, event("event-4", 12, 14, 1)},
		{in("/freebusy", 9, 18), "", 200, `{"busy":[{` + span(9, 10) + `},{` + span(11, 14) + `}]}`},
		{in("/freebusy", 10, 11), "", 200, `{"busy":[]}`},
		{in("/events", 12, 18), "", 200, `{"events":[` + event("event-4", 12, 14, 1) + "," + theirs("other-1", 12, 13) + `]}`},
		{"PUT /events/event-4", update(14, 15, 1, true), 409, refusedWith("stale", event("event-4", 12, 14, 1))},
		{"PUT /events/event-4", update(12, 15, 2, true), 409, refused("busy")},
		{"PUT /events/event-4", update(12, 15, 2, false), 200, event("event-4", 12, 15, 2)},
		{"PUT /events/event-4", update(14, 15, 9, true), 200, event("event-4", 14, 15, 9)},
		{"PUT /events/event-4", update(14, 15, 8, true), 409, refusedWith("stale", event("event-4", 14, 15, 9))},
		{"PUT /events/event-9", update(14, 15, 1, true), 404, refused("not_found")},
		{"PUT /events/other-1", update(14, 15, 1, true), 403, refused("not_yours")},
		{fmt.Sprintf(del, "other-1"), "", 403, refused("not_yours")},
		{fmt.Sprintf(del, "event-4"), "", 204, ""},
		{fmt.Sprintf(del, "event-4"), "", 404, refused("not_found")},
		{"POST /events", create("event-4", 14, 15, true), 409, refused("spent")},
		{"PUT /events/event-4", update(14, 15, 10, true), 404, refused("not_found")},
		{fmt.Sprintf(del, "event-5"), "", 404, refused("not_found")}, // never there, and spent all the same
		{"POST /events", create("event-5", 14, 15, true), 409, refused("spent")},
	})
	var got []string
	for _, e := range d.ledger(t).Events {
		got = append(got, fmt.Sprintf("%s %s v%d %d-%d", e.Source, e.EventID, e.Version, e.Start.Hour(), e.End.Hour()))
	}
	want := []string{"ours event-1 v1 9-10", "ours event-3 v1 9-10", "ours event-2 v1 11-12", "external other-1 v0 12-13"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCallsThatCantBeRead(t *testing.T) {
	d := newDesk(t, "cal-1")
	good := create("event-1", 9, 10, true)
	for call, bodies := range map[string][]string{
		"POST /events": {
			"", "[]", "{", strings.Replace(good, "event-1", "even", 1), strings.Replace(good, "event-1", "Event-1", 1), strings.Replace(good, "event-1", strings.Repeat("e", 65), 1),
			strings.Replace(good, "cal-1", "", 1), strings.Replace(good, "cal-1", "cal 1", 1), strings.Replace(good, `"version":1`, `"version":0`, 1), strings.Replace(good, `"version":1`, `"version":1.5`, 1),
			create("event-1", 9, 9, true), create("event-1", 10, 9, true), strings.Replace(good, "2027-03-01T09:00:00Z", "2027-03-01T09:00", 1),
			strings.Replace(good, "2027-03-01T10:00:00Z", "9999-12-31T23:59:59-01:00", 1), // can't be written in UTC
		},
		"PUT /events/event-1":             {"", update(9, 9, 2, true), update(9, 10, -2, true)},
		"PUT /events/x":                   {update(9, 10, 2, true)},
		"GET /events/even?calendar=cal-1": {""},
		"GET /events/event-1":             {""},
		"DELETE /events/event-1":          {""},
		"GET /freebusy?calendar=cal-1":    {""},
		in("/freebusy", 10, 10):           {""},
		in("/events", 10, 9):              {""},
		"GET /events?from=2027-03-01T09:00:00Z&to=2027-03-01T10:00:00Z":                                {""},
		"GET /events?calendar=cal-1&from=2027-03-01T09:00:00Z&to=2027-03-01":                           {""},
		"GET /events?calendar=cal-1&from=2027-03-01T09:00:00Z&to=2027-03-01T11:00:00+01:00&and=a-plus": {""}, // an unescaped + is a space
		"POST /token": {"", `{"calendar":"cal-1"}`, `{"calendar":"cal-1","refresh_token":"r-1"}`}, // no key
	} {
		for _, body := range bodies {
			if status, answer := d.call(t, call, body); status != 400 || answer != refused("bad_request") {
				t.Errorf("%s %s: %d %s", call, body, status, answer)
			}
		}
	}
	if l := d.ledger(t); len(l.Events) > 0 || len(l.Calls) != 1 {
		t.Errorf("ledger: %+v", l)
	}
	if status, answer := d.call(t, "GET /events?calendar=cal-1&from=2027-03-01T09:00:00Z&to=2027-03-01T11:00:00%2B01:00", ""); status != 200 {
		t.Errorf("an escaped offset: %d %s", status, answer)
	}
}

func TestProviderWithoutAtomicHold(t *testing.T) {
	d := newDesk(t, "cal-1", "cal-2")
	d.behave(t, calendar.Behaviour{Atomic: new(false)})
	d.configure(t, calendar.Config{External: []calendar.External{external("other-1", 9, 11), {Calendar: "cal-2", EventID: "other-1", Start: hour(9), End: hour(11)}}})
	d.walk(t, []step{
		{"POST /events", create("event-1", 9, 10, true), 201, event("event-1", 9, 10, 1)},
		{"PUT /events/event-1", update(10, 11, 2, true), 200, event("event-1", 10, 11, 2)},
		{"POST /events", strings.Replace(create("event-1", 9, 10, true), "cal-1", "cal-2", 1), 409, refused("busy")}, // ids and behaviour are the calendar's
	})
	l := d.ledger(t).Of("cal-1")
	for _, c := range l.Calls[len(l.Calls)-2:] {
		if !c.Overlapped || !c.IfFree || !cmp.Equal(c.Externals, []string{"other-1"}) {
			t.Errorf("row: %+v", c)
		}
	}
}

// rows are the ledger's calls as short words.
func rows(l calendar.Ledger) (list []string) {
	for _, c := range l.Calls {
		word := c.Call + " " + c.EventID + " " + c.Outcome
		if c.Overlapped {
			word += " over " + strings.Join(c.Externals, ",")
		}
		if c.Moment != "" {
			word += " " + c.Moment
		}
		list = append(list, word)
	}
	return list
}

func TestLedgerIsPlainRowsInOrder(t *testing.T) {
	d := newDesk(t, "cal-1")
	d.configure(t, calendar.Config{External: []calendar.External{external("other-1", 12, 13)}})
	d.call(t, in("/freebusy", 9, 10), "")
	d.call(t, "POST /events", create("event-1", 9, 10, true))
	d.call(t, in("/freebusy", 9, 10), "")
	d.call(t, "POST /events", create("event-1", 9, 10, true))
	d.call(t, "POST /events", create("event-2", 12, 13, true))
	d.call(t, "PUT /events/event-1", update(12, 13, 2, false))
	d.configure(t, calendar.Config{Lose: []calendar.Lost{{Calendar: "cal-1", EventID: "event-1"}}})
	d.call(t, "POST /events", create("event-1", 9, 10, true))
	d.call(t, fmt.Sprintf(del, "event-1"), "")
	d.call(t, fmt.Sprintf(del, "event-1"), "")
	d.configure(t, calendar.Config{ExpireTokens: []string{"*"}, Grant: []calendar.Grant{{Calendar: "cal-1", RefreshToken: "r-1"}}})
	d.call(t, "POST /events", create("event-3", 9, 10, true)) // 401: no row
	l := d.ledger(t)
	want := []string{
		"token  issued", "external other-1 appeared", "freebusy  free", "create event-1 created", "freebusy  busy", "create event-1 exists", "create event-2 busy over other-1",
		"update event-1 updated over other-1", "lose event-1 lost", "create event-1 created", "delete event-1 deleted", "delete event-1 not_found", "expire  ended", "grant  granted",
	}
	if diff := cmp.Diff(want, rows(l)); diff != "" {
		t.Error(diff)
	}
	last := 0.0
	for i, c := range l.Calls {
		if c.N != i+1 || c.AtMS < last || c.Calendar != "cal-1" {
			t.Errorf("row %d: %+v", i, c)
		}
		last = c.AtMS
	}
	if again, gone := l.Calls[9], l.Calls[10]; again.Created != 2 || gone.Version != 1 || gone.Source != calendar.Ours || !gone.Start.Equal(hour(9)) || l.Calls[3].Created != 1 || l.Calls[5].Created != 1 {
		t.Errorf("created again: %+v, deleted: %+v", again, gone)
	}
	if c := l.Calendars[0]; c != (calendar.Calendar{Calendar: "cal-1", Refreshes: 1, Created: 2}) {
		t.Errorf("calendar: %+v", c)
	}
	text := d.send(t, "GET", "/__double/ledger", "", "", "").Body.Bytes()
	if strings.Contains(string(text), "null") {
		t.Errorf("a row has no value: %s", text)
	}
	var stored []harness.Row
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	if again, err := calendar.LedgerOf(stored); err != nil || !cmp.Equal(again, l) {
		t.Errorf("stored rows read otherwise: %v\n%s", err, cmp.Diff(l, again))
	}
	if _, err := calendar.LedgerOf([]harness.Row{{"row": "tea"}}); err == nil || !strings.Contains(err.Error(), `row 1: "tea" is none of`) {
		t.Errorf("an unknown row: %v", err)
	}
	kinds := map[any]int{}
	for _, r := range stored {
		kinds[r["row"]]++
	}
	if !cmp.Equal(kinds, map[any]int{"call": len(want), "event": 1, "calendar": 1}) {
		t.Errorf("rows: %v", kinds)
	}
	if empty := newDesk(t).send(t, "GET", "/__double/ledger", "", "", "").Body.String(); empty != "[]" {
		t.Errorf("the ledger of nothing: %s", empty)
	}
}
