// Package double owns the plumbing that every provider double shares: reading
// a change of configuration strictly, the control paths, counting calls,
// waiting, and writing answers. What a provider knows and how it decides is
// its own.
//
// What must not happen here: a decision, or any word of a provider. A double
// keeps everything under one lock, which is never held over a wait.
package double

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// Bounds of every double.
const (
	MaxWait = 30 * time.Second // of one wait: a latency, a window

	bodyLimit   = 1 << 20 // bytes of a call's body that are read
	configLimit = 4 << 20 // bytes of a configuration
)

// A Reply is a decision, made but not told yet.
type Reply struct {
	Status int
	Word   string // for the stats
	Body   any    // sent as JSON
}

// Refuse is the reply of a call that got nothing: {"error": word}.
func Refuse(status int, word string) Reply {
	return Reply{status, word, map[string]string{"error": word}}
}

// An Endpoint is one call of the provider.
type Endpoint struct {
	Name    string                                   // "POST /messages", for the mux and the stats
	Latency func(n int) time.Duration                // of the n-th call, from 1; half before the decision, half after. The lock is held
	Decide  func(r *http.Request, body []byte) Reply // the lock is not held, and r.Body is read already
}

// Serve registers a call of the provider: it counts it, waits, lets it be
// decided, counts the decision, waits and answers. The call goes on when its
// caller has gone, as a provider does. The lock guards the stats.
func Serve(mux *http.ServeMux, lock sync.Locker, stats *Stats, e Endpoint) {
	arrive := func() time.Duration {
		lock.Lock()
		defer lock.Unlock()
		return e.Latency(stats.Arrive(e.Name))
	}
	leave := func() {
		lock.Lock()
		defer lock.Unlock()
		stats.Leave(e.Name)
	}
	decided := func(r Reply) {
		lock.Lock()
		defer lock.Unlock()
		stats.Decided(e.Name, r.Status, r.Word)
	}
	mux.HandleFunc(e.Name, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
		if err != nil {
			return // never arrived whole
		}
		latency := arrive()
		defer leave()
		Wait(latency / 2)
		reply := e.Decide(r, body)
		decided(reply)
		Wait(latency - latency/2)
		WriteJSON(w, reply.Status, reply.Body)
	})
}

// Wait waits without regard to the caller: a provider works on when its
// caller has gone. It never waits longer than [MaxWait].
func Wait(d time.Duration) {
	if d > 0 {
		timer := time.NewTimer(min(d, MaxWait))
		<-timer.C
	}
}

// Millis is a time of so many milliseconds, at most [MaxWait].
func Millis(ms float64) time.Duration {
	return time.Duration(min(ms*float64(time.Millisecond), float64(MaxWait))) // bounded before the conversion can overflow
}

// WriteJSON writes an answer; a caller that has gone misses it. It panics on a
// value that is not JSON, as only a double's own types come here.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
