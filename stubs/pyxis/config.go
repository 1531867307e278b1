package pyxis

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/overbook/overbook/stubs/double"
)

// Bounds of what a configuration may ask for.
const (
	maxSeats = 100_000
	maxSkip  = 10_000_000
)

// A Config is what POST /__double/config takes. A field that is not sent
// stays as it is; one that is sent replaces the old value whole. All waits
// are bounded by 30 s.
type Config struct {
	Latency        *Latency  `json:"latency,omitempty"`      // of POST /reserve
	ReadLatency    *Latency  `json:"read_latency,omitempty"` // of both reads
	WindowMS       *float64  `json:"window_ms,omitempty"`    // between the look at the seat and taking it; 0: atomic
	Seats          *Seats    `json:"seats,omitempty"`        // the seats there are; charges on others stay in the ledger
	RejectStudents *[]string `json:"reject_students,omitempty"`
	FailReserve    *Failure  `json:"fail_reserve,omitempty"`
	FailReads      *Failure  `json:"fail_reads,omitempty"`

	// Done once, in this order, and never part of GET /__double/config.
	Free  []string `json:"free,omitempty"`  // release every charge on these seats
	Taken []Taken  `json:"taken,omitempty"` // somebody takes a seat without our server: a charge without reference
}

// A Latency says how long a call takes: half before its decision, half after.
type Latency struct {
	Model    string  `json:"model"`               // "none", "fixed" or "lognormal"
	MedianMS float64 `json:"median_ms,omitempty"` // fixed: the value
	Sigma    float64 `json:"sigma,omitempty"`     // lognormal: of the logarithm
	Skip     int     `json:"skip,omitempty"`      // lognormal: draws to leave out, for going on where another run stopped
}

// A Failure makes calls fail.
type Failure struct {
	Status    int  `json:"status"`               // 500 to 599
	Times     int  `json:"times"`                // the next calls that fail; -1: until changed
	AfterWork bool `json:"after_work,omitempty"` // the work is done first, then its answer is the failure
}

// A Taken is a seat held by a student from elsewhere.
type Taken struct {
	Seat    string `json:"seat"`
	Student string `json:"student"`
}

// Seats are names, or in JSON a count n for "A-001" to "A-<n>".
type Seats []string

// UnmarshalJSON reads a list of names or a count.
func (s *Seats) UnmarshalJSON(b []byte) error {
	var n int
	if json.Unmarshal(b, &n) == nil {
		if n < 1 || n > maxSeats {
			return fmt.Errorf("seats: %d is not between 1 and %d", n, maxSeats)
		}
		*s = numbered(n)
		return nil
	}
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return errors.New("seats: want a list of names or a count")
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if name == "" || seen[name] {
			return fmt.Errorf("seats: name %q is empty or there twice", name)
		}
		seen[name] = true
	}
	if len(names) == 0 || len(names) > maxSeats {
		return fmt.Errorf("seats: want 1 to %d names, not %d", maxSeats, len(names))
	}
	*s = names
	return nil
}

func numbered(n int) Seats {
	seats := make(Seats, n)
	for i := range seats {
		seats[i] = fmt.Sprintf("A-%03d", i+1)
	}
	return seats
}

// settings is the configuration in force.
type settings struct {
	latency, readLatency   Latency
	window                 time.Duration
	seats                  Seats
	rejected               map[string]bool
	failReserve, failReads Failure
}

func defaults() settings {
	none := Latency{Model: "none"}
	return settings{latency: none, readLatency: none, seats: numbered(100), rejected: map[string]bool{}}
}

// Validate says all that is wrong with a change.
func (c Config) Validate() error {
	var errs []error
	for name, l := range map[string]*Latency{"latency": c.Latency, "read_latency": c.ReadLatency} {
		if l != nil {
			errs = append(errs, l.validate(name))
		}
	}
	for name, f := range map[string]*Failure{"fail_reserve": c.FailReserve, "fail_reads": c.FailReads} {
		if f != nil && f.Times != 0 && (f.Status < 500 || f.Status > 599 || f.Times < -1) {
			errs = append(errs, fmt.Errorf("%s: want a status from 500 to 599 and times >= -1, not %d and %d", name, f.Status, f.Times))
		}
	}
	if c.WindowMS != nil && (*c.WindowMS < 0 || *c.WindowMS > float64(double.MaxWait/time.Millisecond)) {
		errs = append(errs, fmt.Errorf("window_ms: %g is not between 0 and %d", *c.WindowMS, double.MaxWait/time.Millisecond))
	}
	for _, t := range c.Taken {
		if t.Seat == "" || t.Student == "" {
			errs = append(errs, errors.New("taken: want a seat and a student"))
		}
	}
	return errors.Join(errs...)
}

func (l Latency) validate(name string) error {
	switch {
	case l.Model != "none" && l.Model != "fixed" && l.Model != "lognormal":
		return fmt.Errorf("%s: model %q is none of none, fixed, lognormal", name, l.Model)
	case l.MedianMS < 0 || l.MedianMS > float64(double.MaxWait/time.Millisecond):
		return fmt.Errorf("%s: median_ms: %g is not between 0 and %d", name, l.MedianMS, double.MaxWait/time.Millisecond)
	case l.Skip < 0 || l.Skip > maxSkip:
		return fmt.Errorf("%s: skip: %d is not between 0 and %d", name, l.Skip, maxSkip)
	case l.Sigma < 0 || l.Sigma > 4:
		return fmt.Errorf("%s: sigma: %g is not between 0 and 4", name, l.Sigma)
	}
	return nil
}

// apply merges the lasting part of a change.
func (s *settings) apply(c Config) {
	set(&s.latency, c.Latency)
	set(&s.readLatency, c.ReadLatency)
	set(&s.seats, c.Seats)
	set(&s.failReserve, c.FailReserve)
	set(&s.failReads, c.FailReads)
	if c.WindowMS != nil {
		s.window = double.Millis(*c.WindowMS)
	}
	if c.RejectStudents != nil {
		s.rejected = make(map[string]bool, len(*c.RejectStudents))
		for _, student := range *c.RejectStudents {
			s.rejected[student] = true
		}
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// config is the settings as they were sent.
func (s settings) config() Config {
	window := float64(s.window) / float64(time.Millisecond)
	rejected := slices.Sorted(maps.Keys(s.rejected))
	if rejected == nil {
		rejected = []string{}
	}
	return Config{
		Latency: &s.latency, ReadLatency: &s.readLatency, WindowMS: &window, Seats: &s.seats,
		RejectStudents: &rejected, FailReserve: &s.failReserve, FailReads: &s.failReads,
	}
}
