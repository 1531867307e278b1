package calendar

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What becomes of a call, beside what the contract says.
const (
	asUsual = ""
	lost    = "lost"   // done, but the connection is dropped instead of an answer
	down    = "down"   // 503, not looked at
	quiet   = "quiet"  // 429 with Retry-After 60, not looked at
	expired = "expire" // the access token ends right before it
)

// fakeCalendar is the calendar provider, over HTTP.
type fakeCalendar struct {
	url string

	mu     sync.Mutex
	atomic bool // knows if_free
	cals   map[string]*fakeDiary
	calls  []fakeCall
	before map[string]func(fakeCall) string // by kind of call: what becomes of it; may wait
	after  map[string]func(fakeCall)        // by kind of call: when it was decided, before it is answered
}

// A fakeDiary is one calendar.
type fakeDiary struct {
	events          map[string]event
	spent           map[string]bool
	frozen          []period // what free/busy says, unless nil
	access, refresh string
	refreshes       int
	byKey           map[string]map[string]any
	revoked         bool
}

// A fakeCall is a call as it came over the wire, and how it was answered.
type fakeCall struct {
	kind, calendar, id, op, traceparent, key string
	event                                    event
	ifFree                                   bool
	status                                   int
}

func newFakeCalendar(t *testing.T) *fakeCalendar {
	t.Helper()
	f := &fakeCalendar{cals: map[string]*fakeDiary{}, before: map[string]func(fakeCall) string{}, after: map[string]func(fakeCall){}}
	srv := httptest.NewServer(http.HandlerFunc(f.serve))
	f.url = srv.URL + "/calendar"
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return f
}

// diary is a calendar's; f.mu is held.
func (f *fakeCalendar) diary(name string) *fakeDiary {
	d, ok := f.cals[name]
	if !ok {
		d = &fakeDiary{events: map[string]event{}, spent: map[string]bool{}, byKey: map[string]map[string]any{}}
		f.cals[name] = d
	}
	return d
}

// with changes a calendar.
func (f *fakeCalendar) with(name string, do func(*fakeDiary)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.diary(name))
}

// external puts somebody else's event into cal-1, wall-clock times of 2026 in
// Berlin.
func (f *fakeCalendar) external(id, start, end string) {
	f.with("cal-1", func(d *fakeDiary) { d.events[id] = event{berlin(start, end), id, 0, "of others", sourceExternal} })
}

func (f *fakeCalendar) gone(id string) {
	f.with("cal-1", func(d *fakeDiary) { delete(d.events, id) })
}

func berlin(start, end string) period {
	where, _ := time.LoadLocation("Europe/Berlin")
	at := func(word string) time.Time {
		t, err := time.ParseInLocation("2006-01-02T15:04", "2026-"+word, where)
		if err != nil {
			panic(err)
		}
		return t.UTC()
	}
	return period{at(start), at(end)}
}

// when says what becomes of the next calls of a kind, one word each; the rest
// is as usual.
func (f *fakeCalendar) when(kind string, words ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before[kind] = func(fakeCall) string {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(words) == 0 {
			return asUsual
		}
		word := words[0]
		words = words[1:]
		return word
	}
}

// then has something happen once, when a call of the kind was decided.
func (f *fakeCalendar) then(kind string, do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var once sync.Once
	f.after[kind] = func(fakeCall) { once.Do(do) }
}

// gate has the first call of a kind wait, before it is looked at, until go on.
func (f *fakeCalendar) gate(t *testing.T, kind string) (reached <-chan struct{}, goOn func()) {
	reached, wait, goOn := barrier(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before[kind] = func(fakeCall) string { wait(); return asUsual }
	return reached, goOn
}

// late has the first call of a kind wait when it was decided.
func (f *fakeCalendar) late(t *testing.T, kind string) (reached <-chan struct{}, goOn func()) {
	reached, wait, goOn := barrier(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after[kind] = func(fakeCall) { wait() }
	return reached, goOn
}

// barrier has the first who waits wait until go on.
func barrier(t *testing.T) (reached <-chan struct{}, wait, goOn func()) {
	arrived, open := make(chan struct{}), make(chan struct{})
	var opened sync.Once
	var waits atomic.Bool
	goOn = func() { opened.Do(func() { close(open) }) }
	t.Cleanup(goOn)
	return arrived, func() {
		if waits.CompareAndSwap(false, true) {
			close(arrived)
			<-open // until the test ends, at the latest
		}
	}, goOn
}

// soon gives what comes out of a channel that is closed or gets something in time.
func soon[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("it did not happen within %v", patience)
	}
	return v
}

// made are the calls of a kind.
func (f *fakeCalendar) made(kind string) (out []fakeCall) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.kind == kind {
			out = append(out, c)
		}
	}
	return out
}

// kinds are the kinds of all calls but refreshes, in order, since it was asked last.
func (f *fakeCalendar) kinds() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, c := range f.calls {
		if c.kind != "token" {
			out = append(out, c.kind)
		}
	}
	f.calls = nil
	return strings.Join(out, " ")
}

// holds is what cal-1 has, by start: id@version of ours, the id of others'.
func (f *fakeCalendar) holds() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, e := range f.diary("cal-1").sorted() {
		if e.Source == sourceExternal {
			out = append(out, e.ID)
		} else {
			out = append(out, fmt.Sprint(e.ID, "@", e.Version))
		}
	}
	return strings.Join(out, " ")
}

func (d *fakeDiary) sorted() (out []event) {
	for _, e := range d.events {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b event) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID)) })
	return out
}

func (f *fakeCalendar) serve(w http.ResponseWriter, r *http.Request) {
	c := fakeCall{op: r.Header.Get("X-Overbook-Op"), traceparent: r.Header.Get("Traceparent"), key: r.Header.Get("Idempotency-Key"), calendar: r.URL.Query().Get("calendar")}
	body := struct {
		event

		Calendar string `json:"calendar"`
		IfFree   bool   `json:"if_free"`
		Token    string `json:"refresh_token"`
	}{}
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.calendar, c.event, c.ifFree = body.Calendar, body.event, body.IfFree
	}
	path := strings.TrimPrefix(r.URL.Path, "/calendar")
	if id, ok := strings.CutPrefix(path, "/events/"); ok {
		c.id = id
		c.kind = map[string]string{"GET": "get", "PUT": "update", "DELETE": "delete"}[r.Method]
	} else {
		c.kind = map[string]string{"GET /freebusy": "freebusy", "GET /events": "list", "POST /events": "create", "POST /token": "token"}[r.Method+" "+path]
		c.id = c.event.ID
	}
	f.mu.Lock()
	before := f.before[c.kind]
	f.mu.Unlock()
	word := asUsual
	if before != nil {
		word = before(c)
	}
	f.mu.Lock()
	status, doc := f.decide(&c, word, r, body.Token)
	c.status = status
	f.calls = append(f.calls, c)
	after := f.after[c.kind]
	f.mu.Unlock()
	if after != nil && word != down {
		after(c)
	}
	if word == lost {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "60")
	}
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		_ = json.NewEncoder(w).Encode(doc)
	}
}

// decide decides a call; f.mu is held.
func (f *fakeCalendar) decide(c *fakeCall, word string, r *http.Request, token string) (int, any) {
	d := f.diary(c.calendar)
	switch word {
	case down:
		return http.StatusServiceUnavailable, map[string]any{"error": "down"}
	case quiet:
		return http.StatusTooManyRequests, map[string]any{"error": "too many"}
	case expired:
		d.access = "ended"
	}
	if c.kind == "token" {
		return d.token(c, token)
	}
	if d.access == "" || r.Header.Get("Authorization") != "Bearer "+d.access {
		return http.StatusUnauthorized, map[string]any{"error": "token_expired"}
	}
	switch c.kind {
	case "create", "update":
		return f.put(d, c)
	case "get":
		if e, ok := d.events[c.id]; ok {
			return http.StatusOK, e
		}
		return http.StatusNotFound, map[string]any{"error": "not_found"}
	case "delete":
		e, ok := d.events[c.id]
		if ok && e.Source == sourceExternal {
			return http.StatusForbidden, map[string]any{"error": "not_yours"}
		}
		delete(d.events, c.id)
		d.spent[c.id] = true
		if !ok {
			return http.StatusNotFound, map[string]any{"error": "not_found"}
		}
		return http.StatusNoContent, nil
	}
	at := func(name string) time.Time { t, _ := time.Parse(time.RFC3339, r.URL.Query().Get(name)); return t }
	asked := period{at("from"), at("to")}
	events, spans := []event{}, []period{}
	for _, e := range d.sorted() {
		if e.overlaps(asked) {
			events, spans = append(events, e), append(spans, e.period)
		}
	}
	if c.kind == "list" {
		return http.StatusOK, map[string]any{"events": events}
	}
	if d.frozen != nil {
		spans = d.frozen
	}
	return http.StatusOK, map[string]any{"busy": spans, "as_of": at("from")}
}

// put makes or moves an event; f.mu is held.
func (f *fakeCalendar) put(d *fakeDiary, c *fakeCall) (int, any) {
	e, there := d.events[c.id]
	conflict := func(word string) (int, any) { return http.StatusConflict, map[string]any{"error": word, "event": e} }
	switch {
	case c.kind == "create" && there:
		return conflict("exists")
	case c.kind == "create" && d.spent[c.id]:
		return conflict("spent")
	case c.kind == "update" && !there:
		return http.StatusNotFound, map[string]any{"error": "not_found"}
	case c.kind == "update" && c.event.Version <= e.Version:
		return conflict("stale")
	case f.atomic && c.ifFree && slices.ContainsFunc(d.sorted(), func(o event) bool { return o.Source == sourceExternal && o.overlaps(c.event.period) }):
		return conflict("busy")
	}
	now := c.event
	now.ID, now.Source = c.id, sourceOurs
	d.events[c.id] = now
	if c.kind == "create" {
		return http.StatusCreated, now
	}
	return http.StatusOK, now
}

// token rotates the tokens; f.mu is held.
func (d *fakeDiary) token(c *fakeCall, token string) (int, any) {
	if before, again := d.byKey[c.key]; again {
		return http.StatusOK, before
	}
	if d.revoked || d.refresh != "" && token != d.refresh {
		return http.StatusBadRequest, map[string]any{"error": "invalid_grant"}
	}
	d.refreshes++
	d.access, d.refresh = c.calendar+"-access-"+strconv.Itoa(d.refreshes), c.calendar+"-refresh-"+strconv.Itoa(d.refreshes)
	d.byKey[c.key] = map[string]any{"access_token": d.access, "refresh_token": d.refresh, "expires_in": 3600}
	return http.StatusOK, d.byKey[c.key]
}
