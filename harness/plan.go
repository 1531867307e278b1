package harness

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Seed is the one source of a run's choices, printed as eight hex digits.
type Seed uint32

// String gives eight hex digits.
func (s Seed) String() string { return fmt.Sprintf("%08x", uint32(s)) }

// MarshalText writes String.
func (s Seed) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what [ParseSeed] reads.
func (s *Seed) UnmarshalText(b []byte) error {
	v, err := ParseSeed(string(b))
	*s = v
	return err
}

// ParseSeed reads one to eight hex digits, with or without 0x.
func ParseSeed(text string) (Seed, error) {
	digits := strings.TrimPrefix(strings.ToLower(text), "0x")
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || len(digits) > 8 {
		return 0, fmt.Errorf("seed %q: want one to eight hex digits, like 7f3a91c2", text)
	}
	return Seed(v), nil
}

// Rand gives the generator that belongs to the seed and a purpose. Different
// purposes have independent streams, so that one more draw in one place
// changes nothing in another.
func (s Seed) Rand(purpose string) *rand.Rand {
	var key [32]byte
	copy(key[:], s.String())
	for i := range len(purpose) { // fold: purposes are short fixed words
		key[8+i%24] ^= purpose[i] + byte(i/24)
	}
	return rand.New(rand.NewChaCha8(key))
}

// A ParamKind says how a parameter's text is read.
type ParamKind string

// The kinds of parameters.
const (
	IntParam      ParamKind = "int"
	DurationParam ParamKind = "duration"
	ChoiceParam   ParamKind = "choice"
)

// A Param is a knob of a scenario, set by --set name=value.
type Param struct {
	Name    string    `json:"name"`
	Kind    ParamKind `json:"kind"`
	Default string    `json:"default"`
	Values  []string  `json:"values,omitempty"` // of a choice
	Min     int       `json:"min,omitempty"`    // of an int
	Max     int       `json:"max,omitempty"`    // of an int; 0 for no bound
	Doc     string    `json:"doc"`
	_       struct{}
}

// Check says what is wrong with a value for the parameter.
func (p Param) Check(value string) error {
	switch p.Kind {
	case IntParam:
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%s=%s: want a whole number, like %s", p.Name, value, p.Default)
		}
		switch {
		case p.Max > 0 && (n < p.Min || n > p.Max):
			return fmt.Errorf("%s=%s: want %d to %d", p.Name, value, p.Min, p.Max)
		case n < p.Min:
			return fmt.Errorf("%s=%s: want at least %d", p.Name, value, p.Min)
		}
	case DurationParam:
		if d, err := time.ParseDuration(value); err != nil || d < 0 {
			return fmt.Errorf("%s=%s: want a duration, like %s", p.Name, value, p.Default)
		}
	case ChoiceParam:
		if !slices.Contains(p.Values, value) {
			return fmt.Errorf("%s=%s: want one of %s", p.Name, value, strings.Join(p.Values, ", "))
		}
	default:
		return fmt.Errorf("parameter %s has the unknown kind %q", p.Name, p.Kind)
	}
	return nil
}

// Params are the values of a scenario's parameters. They were checked when
// the plan was made, so the accessors panic on what can't be.
type Params map[string]string

// Int gives a whole number.
func (p Params) Int(name string) int {
	n, err := strconv.Atoi(p.Text(name))
	if err != nil {
		panic(fmt.Sprintf("parameter %s: %v", name, err))
	}
	return n
}

// Duration gives a duration.
func (p Params) Duration(name string) time.Duration {
	d, err := time.ParseDuration(p.Text(name))
	if err != nil {
		panic(fmt.Sprintf("parameter %s: %v", name, err))
	}
	return d
}

// Text gives the value as it was set.
func (p Params) Text(name string) string {
	v, ok := p[name]
	if !ok {
		panic("scenario asks for the parameter " + name + ", which it does not declare")
	}
	return v
}

// A Plan is a scenario with every choice made. The same scenario, seed and
// parameters give the same plan, byte for byte.
type Plan struct {
	SchemaVersion int             `json:"schema_version"`
	Scenario      string          `json:"scenario"`
	Seed          Seed            `json:"seed"`
	Params        Params          `json:"params"`
	Mutant        string          `json:"mutant,omitempty"`
	Choices       json.RawMessage `json:"choices"`
	_             struct{}
}

// Decode reads the scenario's choices into v.
func (p Plan) Decode(v any) error {
	if err := json.Unmarshal(p.Choices, v); err != nil {
		return fmt.Errorf("plan of %s: decode choices: %w", p.Scenario, err)
	}
	return nil
}

// MakePlan makes every choice of the scenario from the seed. An unknown or
// ill-formed parameter is an error that says what is possible.
func (s Scenario) MakePlan(seed Seed, set Params) (Plan, error) {
	params := Params{}
	var problems []error
	for _, p := range s.Params {
		params[p.Name] = p.Default
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		value := set[name]
		i := slices.IndexFunc(s.Params, func(p Param) bool { return p.Name == name })
		if i < 0 {
			problems = append(problems, fmt.Errorf("%s has no parameter %q; it has %s", s.Name, name, cmp.Or(strings.Join(s.paramNames(), ", "), "none")))
			continue
		}
		problems = append(problems, s.Params[i].Check(value))
		params[name] = value
	}
	if err := errors.Join(problems...); err != nil {
		return Plan{}, err
	}
	plan := Plan{SchemaVersion: 1, Scenario: s.Name, Seed: seed, Params: params, Choices: json.RawMessage("{}")}
	if s.Choose == nil {
		return plan, nil
	}
	choices, err := s.Choose(seed.Rand("choices"), params)
	if err != nil {
		return Plan{}, fmt.Errorf("plan %s: %w", s.Name, err)
	}
	if plan.Choices, err = json.Marshal(choices); err != nil {
		return Plan{}, fmt.Errorf("plan %s: encode choices: %w", s.Name, err)
	}
	return plan, nil
}

func (s Scenario) paramNames() []string {
	names := make([]string, 0, len(s.Params))
	for _, p := range s.Params {
		names = append(names, p.Name)
	}
	return names
}

// Defaults gives the scenario's parameters as they are without --set.
func (s Scenario) Defaults() Params {
	params := Params{}
	for _, p := range s.Params {
		params[p.Name] = p.Default
	}
	return params
}
