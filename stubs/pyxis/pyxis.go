package pyxis

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

// A Charge is one row of the ledger: a reservation that pyxis accepted.
type Charge struct {
	ID         string  `json:"charge_id"` // "charge-1", in the order in which seats were taken
	Seat       string  `json:"seat"`
	Student    string  `json:"student"`
	Reference  string  `json:"reference"` // the caller's; empty for a seat taken from elsewhere
	AtMS       float64 `json:"at_ms"`     // since the double was made
	ReleasedMS float64 `json:"released_at_ms,omitempty"`
}

func (c Charge) current() bool { return c.ReleasedMS == 0 }

// Stats are what the double counted, by "METHOD /path". Calls to control
// paths are not in it.
type Stats struct {
	Calls       map[string]int `json:"calls"`         // that arrived
	MaxInFlight map[string]int `json:"max_in_flight"` // at the same time
	Decisions   map[string]int `json:"decisions"`     // by "METHOD /path status word"
}

// double is the system. Everything is guarded by one mutex, which is never
// held over a wait.
type double struct {
	seed  uint64
	clock clock.Clock

	mu       sync.Mutex
	set      settings
	charges  []Charge
	stats    Stats
	inFlight map[string]int
}

// New gives a pyxis with 100 free seats, "A-001" to "A-100", that answers at
// once. Latencies come from the seed.
func New(seed uint64) http.Handler {
	d := &double{
		seed:     seed,
		clock:    clock.New(),
		set:      defaults(),
		charges:  []Charge{},
		stats:    Stats{Calls: map[string]int{}, MaxInFlight: map[string]int{}, Decisions: map[string]int{}},
		inFlight: map[string]int{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reserve", d.endpoint("POST /reserve", d.reserve))
	mux.HandleFunc("GET /charges/current", d.endpoint("GET /charges/current", d.current))
	mux.HandleFunc("GET /seats", d.endpoint("GET /seats", d.seats))
	mux.HandleFunc("POST /__double/config", d.configure)
	mux.HandleFunc("GET /__double/config", d.control(func() any { return d.set.config() }))
	mux.HandleFunc("GET /__double/ledger", d.control(func() any { return slices.Clone(d.charges) }))
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

// endpoint wraps a decision: counting, latency before and after, failures.
func (d *double) endpoint(name string, decide func(*http.Request, []byte) reply) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return // never arrived whole
		}
		latency := d.arrive(name)
		defer d.leave(name)
		wait(latency / 2)
		answer := d.failing(name, func() reply { return decide(r, body) })
		d.decided(name, answer)
		wait(latency - latency/2)
		writeJSON(w, answer.status, answer.body)
	}
}

// arrive counts a call and gives its latency.
func (d *double) arrive(name string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Calls[name]++
	d.inFlight[name]++
	d.stats.MaxInFlight[name] = max(d.stats.MaxInFlight[name], d.inFlight[name])
	model := d.set.readLatency
	if name == "POST /reserve" {
		model = d.set.latency
	}
	return model.Draw(d.seed, name, d.stats.Calls[name])
}

func (d *double) leave(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight[name]--
}

func (d *double) decided(name string, r reply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Decisions[fmt.Sprintf("%s %d %s", name, r.status, r.word)]++
}

// failing lets the decision be made, unless the call has to fail.
func (d *double) failing(name string, decide func() reply) reply {
	fails := d.nextFailure(name)
	if fails.Times == 0 {
		return decide()
	}
	if fails.AfterWork {
		decide()
	}
	return refuse(fails.Status, "failing")
}

// nextFailure takes one of the failures that are due; Times is 0 when none is.
func (d *double) nextFailure(name string) Failure {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &d.set.failReads
	if name == "POST /reserve" {
		f = &d.set.failReserve
	}
	due := *f
	if f.Times > 0 {
		f.Times--
	}
	return due
}

// reserve takes a seat for a student. The seat and the student's other
// charges are looked at first; without a window that and the taking are one step.
func (d *double) reserve(r *http.Request, body []byte) reply {
	var ask struct{ Student, Seat, Reference string }
	if err := json.Unmarshal(body, &ask); err != nil || ask.Student == "" || ask.Seat == "" {
		return refuse(http.StatusBadRequest, "bad_request")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.accepts(r, ask.Student) {
		return refuse(http.StatusUnauthorized, "credential_rejected")
	}
	if no, ok := d.mayTake(ask.Seat, ask.Student); !ok {
		return no
	}
	if window := d.set.window; window > 0 {
		d.mu.Unlock()
		wait(window)
		d.mu.Lock() // and not looked at again: that is the flaw asked for
	}
	c := d.charge(ask.Seat, ask.Student, ask.Reference)
	return reply{http.StatusCreated, "reserved", answerOf(c)}
}

// mayTake decides on what is known now. d.mu is held.
func (d *double) mayTake(seat, student string) (reply, bool) {
	if !slices.Contains(d.set.seats, seat) {
		return refuse(http.StatusNotFound, "unknown_seat"), false
	}
	for _, c := range d.charges {
		switch {
		case !c.current():
		case c.Seat == seat:
			return refuse(http.StatusConflict, "seat_taken"), false
		case c.Student == student:
			return refuse(http.StatusConflict, "has_charge"), false
		}
	}
	return reply{}, true
}

// charge writes a row of the ledger. d.mu is held.
func (d *double) charge(seat, student, reference string) Charge {
	c := Charge{
		ID:   fmt.Sprintf("charge-%d", len(d.charges)+1),
		Seat: seat, Student: student, Reference: reference, AtMS: d.nowMS(),
	}
	d.charges = append(d.charges, c)
	return c
}

func (d *double) nowMS() float64 { return float64(d.clock.Now()) / float64(time.Millisecond) }

// current gives the student's current charge (the first, should a window have allowed several).
func (d *double) current(r *http.Request, _ []byte) reply {
	student := r.URL.Query().Get("student")
	if student == "" {
		return refuse(http.StatusBadRequest, "bad_request")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.accepts(r, student) {
		return refuse(http.StatusUnauthorized, "credential_rejected")
	}
	for _, c := range d.charges {
		if c.current() && c.Student == student {
			return reply{http.StatusOK, "charge", answerOf(c)}
		}
	}
	return refuse(http.StatusNotFound, "no_charge")
}

func (d *double) seats(r *http.Request, _ []byte) reply {
	type seat struct {
		Seat string `json:"seat"`
		Free bool   `json:"free"`
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.accepts(r, bearer(r)) {
		return refuse(http.StatusUnauthorized, "credential_rejected")
	}
	held := map[string]bool{}
	for _, c := range d.charges {
		held[c.Seat] = held[c.Seat] || c.current()
	}
	all := make([]seat, len(d.set.seats))
	for i, name := range d.set.seats {
		all[i] = seat{name, !held[name]}
	}
	return reply{http.StatusOK, "seats", map[string]any{"seats": all}}
}

// accepts reports whether the call carries this student's own credential. d.mu is held.
func (d *double) accepts(r *http.Request, student string) bool {
	return student != "" && bearer(r) == student && !d.set.rejected[student]
}

func bearer(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return token
}

func answerOf(c Charge) any {
	return map[string]string{"charge_id": c.ID, "seat": c.Seat, "student": c.Student}
}

// configure merges a change and gives the configuration in force.
func (d *double) configure(w http.ResponseWriter, r *http.Request) {
	c, err := readConfig(r.Body)
	var now Config
	if err == nil {
		now, err = d.change(c)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "configure pyxis: " + err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, now)
}

// change does all of a change or, when a seat to be taken is held, nothing.
func (d *double) change(c Config) (Config, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	free := func(seat string) bool { return slices.Contains(c.Free, seat) }
	for _, t := range c.Taken {
		for _, row := range d.charges {
			if row.current() && row.Seat == t.Seat && !free(t.Seat) {
				return Config{}, fmt.Errorf("taken: seat %s is held by %s (%s); free it first", t.Seat, row.Student, row.ID)
			}
		}
	}
	d.set.apply(c)
	for i := range d.charges {
		if row := &d.charges[i]; row.current() && free(row.Seat) {
			row.ReleasedMS = d.nowMS()
		}
	}
	for _, t := range c.Taken {
		d.charge(t.Seat, t.Student, "")
	}
	return d.set.config(), nil
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
