package calendar

import (
	"cmp"
	"maps"
	"time"

	"github.com/overbook/overbook/stubs/double"
)

// settings is the configuration in force.
type settings struct {
	standard   Behaviour
	standardAt time.Time // when it was set
	calendars  map[string]Behaviour
	silence    time.Duration
}

func defaults(now time.Time) settings {
	return settings{standard: Behaviour{}.filled(), standardAt: now, calendars: map[string]Behaviour{}, silence: defaultSilence}
}

// of gives the behaviour of a calendar.
func (s *settings) of(calendar string) Behaviour {
	if b, own := s.calendars[calendar]; own {
		return b
	}
	return s.standard
}

// filled gives the behaviour with its defaults in. Nothing of it is shared
// with the one that was sent.
func (b Behaviour) filled() Behaviour {
	b.Mode, b.Freebusy = cmp.Or(b.Mode, Up), cmp.Or(b.Freebusy, Fresh)
	b.CreateAnswer, b.UpdateAnswer = cmp.Or(b.CreateAnswer, Final), cmp.Or(b.UpdateAnswer, Final)
	b.DeleteAnswer, b.TokenAnswer = cmp.Or(b.DeleteAnswer, Final), cmp.Or(b.TokenAnswer, Final)
	b.SlowMS = cmp.Or(b.SlowMS, float64(defaultSlow/time.Millisecond))
	b.Atomic = new(b.Atomic == nil || *b.Atomic)
	b.LatencyMS, b.FailFirst = maps.Clone(b.LatencyMS), maps.Clone(b.FailFirst)
	if b.RateLimit != nil {
		b.RateLimit = new(*b.RateLimit)
	}
	return b
}

// An answerRule is how calls of a kind are answered: the first ones, or with 0 all.
type answerRule struct {
	word  string
	first int
}

// answers gives the rules by kind of call; other kinds are answered.
func (b Behaviour) answers() map[string]answerRule {
	return map[string]answerRule{
		Create: {b.CreateAnswer, b.CreateFirst}, Update: {b.UpdateAnswer, b.UpdateFirst},
		Delete: {b.DeleteAnswer, b.DeleteFirst}, Token: {b.TokenAnswer, b.TokenFirst},
	}
}

// with gives the settings after the lasting part of a change that was validated.
func (s settings) with(c Config, now time.Time) settings {
	s.calendars = maps.Clone(s.calendars)
	if c.Default != nil {
		s.standard, s.standardAt = c.Default.filled(), now
	}
	for name, b := range c.Calendars {
		s.calendars[name] = b.filled()
	}
	if c.SilenceMS != nil {
		s.silence = double.Millis(*c.SilenceMS)
	}
	return s
}

// config is the settings as they were sent, with the defaults in.
func (s *settings) config() Config {
	standard := s.standard
	return Config{Default: &standard, Calendars: maps.Clone(s.calendars), SilenceMS: new(float64(s.silence) / float64(time.Millisecond))}
}
