package payments

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/overbook/overbook/stubs/double"
)

// Words of a configuration.
const (
	Up   = "up"
	Down = "down" // every call is answered 503 and not looked at

	Final  = "final" // the decision
	Slow   = "slow"  // the decision, after LatencyMS
	Reset  = "reset" // accepted, then no answer: the connection is reset
	Silent = "none"  // accepted, then no answer: nothing comes

	AtOnce = "at-once"
	Held   = "held"
	Lost   = "lost"
)

// defaultSilence is longer than the server under test waits by default.
const defaultSilence = 7 * time.Second

// maxAttempts bounds the attempts and the copies of a callback.
const maxAttempts = 100

// A Behaviour is how the provider treats the payments of a card. A field that
// is left out has the default that is named first.
type Behaviour struct {
	Answer         string   `json:"answer,omitempty"`           // Final, Pending (whatever was decided), Reset, Silent or Slow: of the call that makes a payment
	Decide         string   `json:"decide,omitempty"`           // AtOnce; Held: pending until Config.Decide or Config.Release names it
	Attempts       []string `json:"attempts,omitempty"`         // outcomes of successive payments under one reference, Captured or Declined; [Captured]. The last one stands for all further ones
	AttemptsAtOnce bool     `json:"attempts_at_once,omitempty"` // the provider makes all attempts when it decides on the first; else each when Config.Decide names it
	Callbacks      string   `json:"callbacks,omitempty"`        // AtOnce; Held: until Config.Release; Lost
	Copies         int      `json:"copies,omitempty"`           // deliveries of each callback; 1
	Reversed       bool     `json:"reversed,omitempty"`         // the card's callbacks are to be delivered newest first
	LatencyMS      float64  `json:"latency_ms,omitempty"`       // of the call that makes a payment: half before it is accepted, half after; at most 30,000
	CaptureAmount  int64    `json:"capture_amount,omitempty"`   // what is captured, minor units; 0: what was asked for
}

// A Config is what POST /__double/config takes. A field that is not sent
// stays as it is; one that is sent replaces the old value, but for Cards.
type Config struct {
	Mode            string               `json:"mode,omitempty"`              // Up or Down
	Default         *Behaviour           `json:"default,omitempty"`           // of cards that have none of their own
	Cards           map[string]Behaviour `json:"cards,omitempty"`             // replaces these cards' behaviour whole; other cards keep theirs
	ChargeFailFirst *int                 `json:"charge_fail_first,omitempty"` // the next calls that are answered 503 and not looked at; counts down; -1: all
	AskFailFirst    *int                 `json:"ask_fail_first,omitempty"`
	RefundFailFirst *int                 `json:"refund_fail_first,omitempty"`
	RefundAnswer    string               `json:"refund_answer,omitempty"`     // Final, Reset or Silent: of refunds that were accepted
	RefundFirst     *int                 `json:"refund_first,omitempty"`      // how many get RefundAnswer, then Final; counts down; -1, the default: all
	RefundLatencyMS *float64             `json:"refund_latency_ms,omitempty"` // half before, half after the decision; at most 30,000
	SilenceMS       *float64             `json:"silence_ms,omitempty"`        // how long Silent lasts; 7,000. Sending it ends the silences that there are

	// Done once, in this order, and never part of GET /__double/config.
	Decide  []Decision `json:"decide,omitempty"`
	Cross   []Crossing `json:"cross,omitempty"`
	Release []string   `json:"release,omitempty"` // cards, or "*": decides on their pending payments, then makes their held callbacks due
}

// A Decision names payments by their reference or by their card. Those that
// are pending are decided; of a reference without a pending one the next
// attempt is made, if its card's Attempts has one left. It is an error when
// there was nothing to do.
type Decision struct {
	Reference string `json:"reference,omitempty"`
	Card      string `json:"card,omitempty"`
	Outcome   string `json:"outcome,omitempty"` // Captured or Declined; empty: the one of Attempts
}

// A Crossing makes one more callback, due at once: it tells of Card's newest
// payment, which must be decided, with the reference and the intent of
// Other's newest payment.
type Crossing struct {
	Card  string `json:"card"`
	Other string `json:"other"`
}

// settings is the configuration in force.
type settings struct {
	mode          string
	standard      Behaviour
	cards         map[string]Behaviour
	failFirst     map[string]int // by call
	refundAnswer  string
	refundFirst   int
	refundLatency time.Duration
	silence       time.Duration
}

func defaults() settings {
	return settings{
		mode: Up, standard: Behaviour{}.filled(), cards: map[string]Behaviour{}, failFirst: map[string]int{},
		refundAnswer: Final, refundFirst: -1, silence: defaultSilence,
	}
}

// of gives the behaviour of a card.
func (s *settings) of(card string) Behaviour {
	if b, own := s.cards[card]; own {
		return b
	}
	return s.standard
}

// filled gives the behaviour with its defaults in.
func (b Behaviour) filled() Behaviour {
	b.Attempts = slices.Clone(b.Attempts)
	if b.Answer == "" {
		b.Answer = Final
	}
	if b.Decide == "" {
		b.Decide = AtOnce
	}
	if len(b.Attempts) == 0 {
		b.Attempts = []string{Captured}
	}
	if b.Callbacks == "" {
		b.Callbacks = AtOnce
	}
	b.Copies = max(b.Copies, 1)
	return b
}

// with gives the settings after the lasting part of a change that was validated.
func (s settings) with(c Config) settings {
	s.cards, s.failFirst = maps.Clone(s.cards), maps.Clone(s.failFirst)
	if c.Mode != "" {
		s.mode = c.Mode
	}
	if c.Default != nil {
		s.standard = c.Default.filled()
	}
	for card, b := range c.Cards {
		s.cards[card] = b.filled()
	}
	for call, n := range map[string]*int{postCharges: c.ChargeFailFirst, getCharges: c.AskFailFirst, postRefunds: c.RefundFailFirst} {
		if n != nil {
			s.failFirst[call] = *n
		}
	}
	if c.RefundAnswer != "" {
		s.refundAnswer, s.refundFirst = c.RefundAnswer, -1
	}
	if c.RefundFirst != nil {
		s.refundFirst = *c.RefundFirst
	}
	if c.RefundLatencyMS != nil {
		s.refundLatency = double.Millis(*c.RefundLatencyMS)
	}
	if c.SilenceMS != nil {
		s.silence = double.Millis(*c.SilenceMS)
	}
	return s
}

// config is the settings as they were sent.
func (s *settings) config() Config {
	ms := func(d time.Duration) *float64 { f := float64(d) / float64(time.Millisecond); return &f }
	count := func(n int) *int { return &n }
	standard := s.standard
	return Config{
		Mode: s.mode, Default: &standard, Cards: maps.Clone(s.cards),
		ChargeFailFirst: count(s.failFirst[postCharges]), AskFailFirst: count(s.failFirst[getCharges]), RefundFailFirst: count(s.failFirst[postRefunds]),
		RefundAnswer: s.refundAnswer, RefundFirst: count(s.refundFirst), RefundLatencyMS: ms(s.refundLatency), SilenceMS: ms(s.silence),
	}
}

// Validate says all that is wrong with a change.
func (c Config) Validate() error {
	errs := []error{
		oneOf("mode", c.Mode, Up, Down), oneOf("refund_answer", c.RefundAnswer, Final, Reset, Silent),
		atLeast("charge_fail_first", c.ChargeFailFirst), atLeast("ask_fail_first", c.AskFailFirst), atLeast("refund_fail_first", c.RefundFailFirst),
		atLeast("refund_first", c.RefundFirst), millis("refund_latency_ms", c.RefundLatencyMS), millis("silence_ms", c.SilenceMS),
	}
	if c.Default != nil {
		errs = append(errs, c.Default.validate("default"))
	}
	for _, card := range slices.Sorted(maps.Keys(c.Cards)) {
		if card == "" || card == "*" {
			errs = append(errs, fmt.Errorf("cards: %q is no card", card))
		}
		errs = append(errs, c.Cards[card].validate("cards: "+card))
	}
	for _, d := range c.Decide {
		if (d.Reference == "") == (d.Card == "") {
			errs = append(errs, fmt.Errorf("decide: want a reference or a card, not %q and %q", d.Reference, d.Card))
		}
		errs = append(errs, oneOf("decide: outcome", d.Outcome, Captured, Declined))
	}
	for _, x := range c.Cross {
		if x.Card == "" || x.Other == "" || x.Card == x.Other {
			errs = append(errs, fmt.Errorf("cross: want two cards, not %q and %q", x.Card, x.Other))
		}
	}
	if slices.Contains(c.Release, "") {
		errs = append(errs, errors.New(`release: want cards or "*", not an empty name`))
	}
	return errors.Join(errs...)
}

func (b Behaviour) validate(of string) error {
	errs := []error{
		oneOf("answer", b.Answer, Final, Pending, Reset, Silent, Slow), oneOf("decide", b.Decide, AtOnce, Held),
		oneOf("callbacks", b.Callbacks, AtOnce, Held, Lost), millis("latency_ms", &b.LatencyMS),
	}
	for _, outcome := range b.Attempts {
		if outcome == "" {
			errs = append(errs, errors.New("attempts: an outcome is empty"))
		}
		errs = append(errs, oneOf("attempts", outcome, Captured, Declined))
	}
	if len(b.Attempts) > maxAttempts || b.Copies < 0 || b.Copies > maxAttempts {
		errs = append(errs, fmt.Errorf("want at most %d attempts and copies, not %d and %d", maxAttempts, len(b.Attempts), b.Copies))
	}
	if b.Answer == Slow && b.LatencyMS == 0 {
		errs = append(errs, errors.New("answer: slow needs a latency_ms"))
	}
	if b.CaptureAmount < 0 {
		errs = append(errs, fmt.Errorf("capture_amount: %d is less than 0", b.CaptureAmount))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", of, err)
	}
	return nil
}

// oneOf refuses a word that is sent and none of these.
func oneOf(field, word string, words ...string) error {
	if word == "" || slices.Contains(words, word) {
		return nil
	}
	return fmt.Errorf("%s: %q is none of %q", field, word, words)
}

func atLeast(field string, n *int) error {
	if n == nil || *n >= -1 {
		return nil
	}
	return fmt.Errorf("%s: %d is less than -1", field, *n)
}

func millis(field string, ms *float64) error {
	if most := float64(double.MaxWait / time.Millisecond); ms != nil && (*ms < 0 || *ms > most) {
		return fmt.Errorf("%s: %g is not between 0 and %g", field, *ms, most)
	}
	return nil
}
