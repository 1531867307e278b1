package email

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overbook/overbook/stubs/double"
)

// Modes of the provider.
const (
	Up   = "up"
	Down = "down" // every call is answered 503, nothing is accepted
)

// Kinds of messages.
var kinds = []string{"BOOKED", "CANCELLED", "FLAGGED"}

// A Config is what POST /__double/config takes. A field that is not sent
// stays as it is; one that is sent replaces the old value whole.
type Config struct {
	Mode        string    `json:"mode,omitempty"`         // Up or Down
	FailFirst   *int      `json:"fail_first,omitempty"`   // the next calls that are answered 503 and not looked at; counts down
	RefuseKinds *[]string `json:"refuse_kinds,omitempty"` // answered 422, however often they come
	LatencyMS   *float64  `json:"latency_ms,omitempty"`   // half before the decision, half after; at most 30,000
}

// settings is the configuration in force.
type settings struct {
	mode      string
	failFirst int
	refused   []string
	latency   time.Duration
}

// Validate says all that is wrong with a change.
func (c Config) Validate() error {
	var errs []error
	if c.Mode != "" && c.Mode != Up && c.Mode != Down {
		errs = append(errs, fmt.Errorf("mode: %q is neither up nor down", c.Mode))
	}
	if c.FailFirst != nil && *c.FailFirst < 0 {
		errs = append(errs, fmt.Errorf("fail_first: %d is less than 0", *c.FailFirst))
	}
	if c.RefuseKinds != nil {
		for _, kind := range *c.RefuseKinds {
			if !slices.Contains(kinds, kind) {
				errs = append(errs, fmt.Errorf("refuse_kinds: %q is none of %q", kind, kinds))
			}
		}
	}
	if most := float64(double.MaxWait / time.Millisecond); c.LatencyMS != nil && (*c.LatencyMS < 0 || *c.LatencyMS > most) {
		errs = append(errs, fmt.Errorf("latency_ms: %g is not between 0 and %g", *c.LatencyMS, most))
	}
	return errors.Join(errs...)
}

// apply merges a change that was validated.
func (s *settings) apply(c Config) {
	if c.Mode != "" {
		s.mode = c.Mode
	}
	if c.FailFirst != nil {
		s.failFirst = *c.FailFirst
	}
	if c.RefuseKinds != nil {
		s.refused = slices.Clone(*c.RefuseKinds)
	}
	if c.LatencyMS != nil {
		s.latency = double.Millis(*c.LatencyMS)
	}
}

// config is the settings as they were sent.
func (s *settings) config() Config {
	failFirst, latency := s.failFirst, float64(s.latency)/float64(time.Millisecond)
	refused := append([]string{}, s.refused...)
	return Config{Mode: s.mode, FailFirst: &failFirst, RefuseKinds: &refused, LatencyMS: &latency}
}
