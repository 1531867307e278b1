package library

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fakePyxis decides about seats under one mutex, and misbehaves on request.
type fakePyxis struct {
	*httptest.Server

	mu       sync.Mutex
	holders  map[string]charge // by seat
	seats    []string
	posts    []post
	reads    map[string]int // by path
	latency  time.Duration
	rejected map[string]bool // students whose credential is no good
	status   int             // answered instead of deciding, 0 for none
	racy     time.Duration   // check-then-act window: everybody who checks in it gets the seat

	// before and after are called around the decision of a reserve call,
	// outside the mutex; after may give false to reset the connection.
	before func(post)
	after  func(post) bool
}

type charge struct {
	ID      string `json:"charge_id"`
	Seat    string `json:"seat"`
	Student string `json:"student"`
}

type post struct {
	Student   string `json:"student"`
	Seat      string `json:"seat"`
	Reference string `json:"reference"`

	op, traceparent, authorization string
}

func newFakePyxis(t *testing.T, seats ...string) *fakePyxis {
	f := &fakePyxis{holders: map[string]charge{}, seats: seats, reads: map[string]int{}, rejected: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /base/reserve", f.reserve)
	mux.HandleFunc("GET /base/charges/current", f.current)
	mux.HandleFunc("GET /base/seats", f.list)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func (f *fakePyxis) base() string { return f.URL + "/base" }

func (f *fakePyxis) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakePyxis) postsTo(seat string) []post {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []post
	for _, p := range f.posts {
		if p.Seat == seat {
			out = append(out, p)
		}
	}
	return out
}

func (f *fakePyxis) readsOf(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads[path]
}

func (f *fakePyxis) reserve(w http.ResponseWriter, r *http.Request) {
	var p post
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.op, p.traceparent, p.authorization = r.Header.Get("X-Overbook-Op"), r.Header.Get("Traceparent"), r.Header.Get("Authorization")
	f.mu.Lock()
	f.posts = append(f.posts, p)
	latency, before, after, racy := f.latency, f.before, f.after, f.racy
	f.mu.Unlock()
	time.Sleep(latency)
	if before != nil {
		before(p)
	}
	status, body := f.decide(p, racy)
	if after != nil && !after(p) {
		panic(http.ErrAbortHandler) // resets the connection
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprint(w, body)
}

func (f *fakePyxis) decide(p post, racy time.Duration) (int, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status != 0 {
		return f.status, "{}"
	}
	if f.rejected[p.Student] {
		return http.StatusUnauthorized, "{}"
	}
	_, taken := f.holders[p.Seat]
	if racy > 0 {
		f.mu.Unlock()
		time.Sleep(racy)
		f.mu.Lock()
	}
	if taken {
		return http.StatusConflict, "{}"
	}
	c := charge{ID: fmt.Sprintf("c-%d", len(f.posts)) + "-" + p.Student, Seat: p.Seat, Student: p.Student}
	f.holders[p.Seat] = c
	b, _ := json.Marshal(c)
	return http.StatusCreated, string(b)
}

func (f *fakePyxis) current(w http.ResponseWriter, r *http.Request) {
	student := r.URL.Query().Get("student")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads["/charges/current"]++
	if f.status != 0 {
		w.WriteHeader(f.status)
		return
	}
	if f.rejected[student] || !strings.HasSuffix(r.Header.Get("Authorization"), student) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	for _, c := range f.holders {
		if c.Student == student {
			_ = json.NewEncoder(w).Encode(c)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

func (f *fakePyxis) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads["/seats"]++
	if f.rejected[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	type seat struct {
		Seat string `json:"seat"`
		Free bool   `json:"free"`
	}
	out := []seat{}
	for _, s := range f.seats {
		_, taken := f.holders[s]
		out = append(out, seat{s, !taken})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"seats": out})
}
