package pyxis

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/stubs/double"
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

// system is the double. Everything is guarded by one mutex, which is never
// held over a wait.
type system struct {
	seed  uint64
	clock clock.Clock

	mu      sync.Mutex
	set     settings
	charges []Charge
	stats   double.Stats
}

// New gives a pyxis with 100 free seats, "A-001" to "A-100", that answers at
// once. Latencies come from the seed.
func New(seed uint64) http.Handler {
	s := &system{seed: seed, clock: clock.New(), set: defaults(), charges: []Charge{}, stats: double.NewStats()}
	mux := http.NewServeMux()
	s.serve(mux, "POST /reserve", s.reserve)
	s.serve(mux, "GET /charges/current", s.current)
	s.serve(mux, "GET /seats", s.seats)
	double.Control(mux, double.Controls[Config]{
		Name: Name, Lock: &s.mu, Stats: &s.stats,
		Change: s.change,
		Config: func() Config { return s.set.config() },
		Ledger: func() any { return slices.Clone(s.charges) },
	})
	return mux
}

// serve registers a call, which fails when it has to.
func (s *system) serve(mux *http.ServeMux, name string, decide func(*http.Request, []byte) double.Reply) {
	double.Serve(mux, &s.mu, &s.stats, double.Endpoint{
		Name:    name,
		Latency: func(n int) time.Duration { return s.model(name).Draw(s.seed, name, n) },
		Decide: func(r *http.Request, body []byte) double.Reply {
			return s.failing(name, func() double.Reply { return decide(r, body) })
		},
	})
}

// model is the latency of a call now. s.mu is held.
func (s *system) model(name string) Latency {
	if name == "POST /reserve" {
		return s.set.latency
	}
	return s.set.readLatency
}

// failing lets the decision be made, unless the call has to fail.
func (s *system) failing(name string, decide func() double.Reply) double.Reply {
	fails := s.nextFailure(name)
	if fails.Times == 0 {
		return decide()
	}
	if fails.AfterWork {
		decide()
	}
	return double.Refuse(fails.Status, "failing")
}

// nextFailure takes one of the failures that are due; Times is 0 when none is.
func (s *system) nextFailure(name string) Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.set.failReads
	if name == "POST /reserve" {
		f = &s.set.failReserve
	}
	due := *f
	if f.Times > 0 {
		f.Times--
	}
	return due
}

// reserve takes a seat for a student. The seat and the student's other
// charges are looked at first; without a window that and the taking are one step.
func (s *system) reserve(r *http.Request, body []byte) double.Reply {
	var ask struct{ Student, Seat, Reference string }
	if err := json.Unmarshal(body, &ask); err != nil || ask.Student == "" || ask.Seat == "" {
		return double.Refuse(http.StatusBadRequest, "bad_request")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.accepts(r, ask.Student) {
		return double.Refuse(http.StatusUnauthorized, "credential_rejected")
	}
	if no, ok := s.mayTake(ask.Seat, ask.Student); !ok {
		return no
	}
	if window := s.set.window; window > 0 {
		s.mu.Unlock()
		double.Wait(window)
		s.mu.Lock() // and not looked at again: that is the flaw asked for
	}
	c := s.charge(ask.Seat, ask.Student, ask.Reference)
	return double.Reply{Status: http.StatusCreated, Word: "reserved", Body: answerOf(c)}
}

// mayTake decides on what is known now. s.mu is held.
func (s *system) mayTake(seat, student string) (double.Reply, bool) {
	if !slices.Contains(s.set.seats, seat) {
		return double.Refuse(http.StatusNotFound, "unknown_seat"), false
	}
	for _, c := range s.charges {
		switch {
		case !c.current():
		case c.Seat == seat:
			return double.Refuse(http.StatusConflict, "seat_taken"), false
		case c.Student == student:
			return double.Refuse(http.StatusConflict, "has_charge"), false
		}
	}
	return double.Reply{}, true
}

// charge writes a row of the ledger. s.mu is held.
func (s *system) charge(seat, student, reference string) Charge {
	c := Charge{
		ID:   fmt.Sprintf("charge-%d", len(s.charges)+1),
		Seat: seat, Student: student, Reference: reference, AtMS: s.nowMS(),
	}
	s.charges = append(s.charges, c)
	return c
}

func (s *system) nowMS() float64 { return float64(s.clock.Now()) / float64(time.Millisecond) }

// current gives the student's current charge (the first, should a window have allowed several).
func (s *system) current(r *http.Request, _ []byte) double.Reply {
	student := r.URL.Query().Get("student")
	if student == "" {
		return double.Refuse(http.StatusBadRequest, "bad_request")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.accepts(r, student) {
		return double.Refuse(http.StatusUnauthorized, "credential_rejected")
	}
	for _, c := range s.charges {
		if c.current() && c.Student == student {
			return double.Reply{Status: http.StatusOK, Word: "charge", Body: answerOf(c)}
		}
	}
	return double.Refuse(http.StatusNotFound, "no_charge")
}

func (s *system) seats(r *http.Request, _ []byte) double.Reply {
	type seat struct {
		Seat string `json:"seat"`
		Free bool   `json:"free"`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.accepts(r, bearer(r)) {
		return double.Refuse(http.StatusUnauthorized, "credential_rejected")
	}
	held := map[string]bool{}
	for _, c := range s.charges {
		held[c.Seat] = held[c.Seat] || c.current()
	}
	all := make([]seat, len(s.set.seats))
	for i, name := range s.set.seats {
		all[i] = seat{name, !held[name]}
	}
	return double.Reply{Status: http.StatusOK, Word: "seats", Body: map[string]any{"seats": all}}
}

// accepts reports whether the call carries this student's own credential. s.mu is held.
func (s *system) accepts(r *http.Request, student string) bool {
	return student != "" && bearer(r) == student && !s.set.rejected[student]
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

// change does all of a change or, when a seat to be taken is held, nothing.
// s.mu is held.
func (s *system) change(c Config) error {
	free := func(seat string) bool { return slices.Contains(c.Free, seat) }
	for _, t := range c.Taken {
		for _, row := range s.charges {
			if row.current() && row.Seat == t.Seat && !free(t.Seat) {
				return fmt.Errorf("taken: seat %s is held by %s (%s); free it first", t.Seat, row.Student, row.ID)
			}
		}
	}
	s.set.apply(c)
	for i := range s.charges {
		if row := &s.charges[i]; row.current() && free(row.Seat) {
			row.ReleasedMS = s.nowMS()
		}
	}
	for _, t := range c.Taken {
		s.charge(t.Seat, t.Student, "")
	}
	return nil
}
