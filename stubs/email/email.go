package email

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

// endpoint is the one call of the provider.
const endpoint = "POST /messages"

// A Message is what a caller hands over.
type Message struct {
	EventID   string `json:"event_id"`
	Kind      string `json:"kind"` // BOOKED, CANCELLED or FLAGGED
	To        string `json:"to"`
	SlotID    int64  `json:"slot_id"`
	BookingID string `json:"booking_id"`
}

// An Entry is one row of the ledger: a message that was accepted, in the
// order in which the first deliveries came.
type Entry struct {
	Message
	Deliveries int     `json:"deliveries"` // accepted ones, at least 1
	MessageID  string  `json:"message_id"` // "message-1" and so on
	AtMS       float64 `json:"at_ms"`      // of the first delivery, since the double was made
}

// Stats are what the double counted, by "METHOD /path". Calls to control
// paths are not in it.
type Stats struct {
	Calls       map[string]int `json:"calls"`         // that arrived
	MaxInFlight map[string]int `json:"max_in_flight"` // at the same time
	Decisions   map[string]int `json:"decisions"`     // by "METHOD /path status word"
}

// double is the provider. Everything is guarded by one mutex, which is never
// held over a wait.
type double struct {
	clock clock.Clock

	mu       sync.Mutex
	set      settings
	entries  []Entry
	byEvent  map[string]int // index in entries
	stats    Stats
	inFlight int
}

// New gives a provider that is up, accepts every sound message and answers at
// once. The seed is not used: nothing here is left to chance.
func New(uint64) http.Handler {
	d := &double{
		clock: clock.New(), set: settings{mode: Up}, entries: []Entry{}, byEvent: map[string]int{},
		stats: Stats{Calls: map[string]int{}, MaxInFlight: map[string]int{}, Decisions: map[string]int{}},
	}
	mux := http.NewServeMux()
	mux.HandleFunc(endpoint, d.messages)
	mux.HandleFunc("POST /__double/config", d.configure)
	mux.HandleFunc("GET /__double/config", d.control(func() any { return d.set.config() }))
	mux.HandleFunc("GET /__double/ledger", d.control(func() any { return slices.Clone(d.entries) }))
	mux.HandleFunc("GET /__double/stats", d.control(func() any { return d.stats.clone() }))
	return mux
}

// A reply is a decision, made but not told yet.
type reply struct {
	status int
	word   string // for the stats, and the error's name
	body   any
}

func refuse(status int, word string) reply {
	return reply{status, word, map[string]string{"error": word}}
}

// messages serves the provider's call. It works on when its caller has gone.
func (d *double) messages(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return // never arrived whole
	}
	latency := d.arrive()
	defer d.leave()
	wait(latency / 2)
	answer := d.decide(r.Header.Values("Idempotency-Key"), body)
	wait(latency - latency/2)
	writeJSON(w, answer.status, answer.body)
}

// arrive counts a call and gives its latency.
func (d *double) arrive() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Calls[endpoint]++
	d.inFlight++
	d.stats.MaxInFlight[endpoint] = max(d.stats.MaxInFlight[endpoint], d.inFlight)
	return d.set.latency
}

func (d *double) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight--
}

func (d *double) decide(keys []string, body []byte) reply {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := d.take(keys, body)
	d.stats.Decisions[fmt.Sprintf("%s %d %s", endpoint, answer.status, answer.word)]++
	return answer
}

// take decides on one delivery; an outage comes before any look at it. d.mu is held.
func (d *double) take(keys []string, body []byte) reply {
	if d.set.mode == Down {
		return refuse(http.StatusServiceUnavailable, "down")
	}
	if d.set.failFirst > 0 {
		d.set.failFirst--
		return refuse(http.StatusServiceUnavailable, "failing")
	}
	m, word := readMessage(keys, body)
	if word != "" {
		return refuse(http.StatusBadRequest, word)
	}
	if slices.Contains(d.set.refused, m.Kind) {
		return refuse(http.StatusUnprocessableEntity, "kind_refused")
	}
	i, known := d.byEvent[m.EventID]
	if known && d.entries[i].Message != m {
		return refuse(http.StatusConflict, "event_differs") // one id must not stand for two messages
	}
	if !known {
		i = len(d.entries)
		d.byEvent[m.EventID] = i
		d.entries = append(d.entries, Entry{
			Message: m, MessageID: fmt.Sprintf("message-%d", i+1), AtMS: float64(d.clock.Now()) / float64(time.Millisecond),
		})
	}
	d.entries[i].Deliveries++
	return reply{http.StatusAccepted, "accepted", map[string]string{"message_id": d.entries[i].MessageID}}
}

// readMessage gives a sound message, or the word for what is wrong with it.
func readMessage(keys []string, body []byte) (m Message, word string) {
	if len(keys) != 1 || keys[0] == "" {
		return m, "key_missing"
	}
	if json.Unmarshal(body, &m) != nil || m.EventID == "" || m.To == "" || m.BookingID == "" || m.SlotID < 1 || !slices.Contains(kinds, m.Kind) {
		return m, "bad_request"
	}
	if keys[0] != m.EventID {
		return m, "key_differs"
	}
	return m, ""
}

// configure merges a change and gives the configuration in force.
func (d *double) configure(w http.ResponseWriter, r *http.Request) {
	c, err := readConfig(r.Body)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "configure email: " + err.Error()})
		return
	}
	d.mu.Lock()
	d.set.apply(c)
	now := d.set.config()
	d.mu.Unlock()
	writeJSON(w, http.StatusOK, now)
}

func (d *double) control(give func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		d.mu.Lock()
		v := give()
		d.mu.Unlock()
		writeJSON(w, http.StatusOK, v)
	}
}

func (s Stats) clone() Stats {
	return Stats{maps.Clone(s.Calls), maps.Clone(s.MaxInFlight), maps.Clone(s.Decisions)}
}

// wait waits without regard to the caller. d is at most maxLatency.
func wait(d time.Duration) {
	if d > 0 {
		timer := time.NewTimer(d)
		<-timer.C
	}
}

// writeJSON writes an answer; a caller that has gone misses it.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only our own types come here
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
