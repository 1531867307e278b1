package email

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/stubs/double"
)

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

// provider is the double. Everything is guarded by one mutex, which is never
// held over a wait.
type provider struct {
	clock clock.Clock

	mu      sync.Mutex
	set     settings
	entries []Entry
	byEvent map[string]int // index in entries
	stats   double.Stats
}

// New gives a provider that is up, accepts every sound message and answers at
// once. The seed is not used: nothing here is left to chance.
func New(uint64) http.Handler {
	p := &provider{clock: clock.New(), set: settings{mode: Up}, entries: []Entry{}, byEvent: map[string]int{}, stats: double.NewStats()}
	mux := http.NewServeMux()
	double.Serve(mux, &p.mu, &p.stats, double.Endpoint{
		Name: "POST /messages", Latency: func(int) time.Duration { return p.set.latency }, Decide: p.messages,
	})
	double.Control(mux, double.Controls[Config]{
		Name: Name, Lock: &p.mu, Stats: &p.stats,
		Change: func(c Config) error { p.set.apply(c); return nil },
		Config: p.set.config,
		Ledger: func() any { return slices.Clone(p.entries) },
	})
	return mux
}

// messages decides on one delivery; an outage comes before any look at it.
func (p *provider) messages(r *http.Request, body []byte) double.Reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set.mode == Down {
		return double.Refuse(http.StatusServiceUnavailable, "down")
	}
	if p.set.failFirst > 0 {
		p.set.failFirst--
		return double.Refuse(http.StatusServiceUnavailable, "failing")
	}
	m, word := readMessage(r.Header.Values("Idempotency-Key"), body)
	if word != "" {
		return double.Refuse(http.StatusBadRequest, word)
	}
	if slices.Contains(p.set.refused, m.Kind) {
		return double.Refuse(http.StatusUnprocessableEntity, "kind_refused")
	}
	i, known := p.byEvent[m.EventID]
	if known && p.entries[i].Message != m {
		return double.Refuse(http.StatusConflict, "event_differs") // one id must not stand for two messages
	}
	if !known {
		i = len(p.entries)
		p.byEvent[m.EventID] = i
		p.entries = append(p.entries, Entry{
			Message: m, MessageID: fmt.Sprintf("message-%d", i+1), AtMS: float64(p.clock.Now()) / float64(time.Millisecond),
		})
	}
	p.entries[i].Deliveries++
	return double.Reply{Status: http.StatusAccepted, Word: "accepted", Body: map[string]string{"message_id": p.entries[i].MessageID}}
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
