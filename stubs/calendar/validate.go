package calendar

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/overbook/overbook/stubs/double"
)

var (
	plainCalendar = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,100}$`)
	plainEvent    = regexp.MustCompile(`^[a-z0-9-]{5,64}$`)

	kinds = []string{Freebusy, List, Get, Create, Update, Delete, Token}
)

// Validate says all that is wrong with a change.
func (c Config) Validate() error {
	errs := []error{millis("silence_ms", c.SilenceMS)}
	if c.Default != nil {
		errs = append(errs, c.Default.validate("default"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Calendars)) {
		errs = append(errs, calendarName("calendars", name), c.Calendars[name].validate("calendars: "+name))
	}
	for _, e := range c.External {
		errs = append(errs, e.validate("external"))
	}
	for _, e := range c.Orphans {
		errs = append(errs, e.validate("orphans"))
		if e.Remove {
			errs = append(errs, fmt.Errorf("orphans: %s can't be removed; lose it", e.EventID))
		}
	}
	for _, l := range c.Lose {
		errs = append(errs, calendarName("lose", l.Calendar), eventID("lose", l.EventID))
	}
	for field, names := range map[string][]string{"expire_tokens": c.ExpireTokens, "revoke": c.Revoke, "release": c.Release} {
		for _, name := range names {
			if name != All {
				errs = append(errs, calendarName(field, name))
			}
		}
	}
	for _, g := range c.Grant {
		errs = append(errs, calendarName("grant", g.Calendar))
		if g.RefreshToken == "" {
			errs = append(errs, errors.New("grant: the refresh_token is empty"))
		}
	}
	for _, a := range c.At {
		errs = append(errs, a.validate())
	}
	return errors.Join(errs...)
}

func (e External) validate(field string) error {
	errs := []error{calendarName(field, e.Calendar), eventID(field, e.EventID)}
	if !e.Remove && !isRange(e.Start, e.End) {
		errs = append(errs, fmt.Errorf("%s: %s must be a range of years 0 to 9999, not from %s to %s", field, e.EventID, e.Start.Format(time.RFC3339), e.End.Format(time.RFC3339)))
	}
	return errors.Join(errs...)
}

func (a At) validate() error {
	errs := []error{calendarName("at", a.Calendar), oneOf("at: moment", a.Moment, AfterFreebusy, BeforeCreate, AfterCreate, AfterLook)}
	if a.Moment == "" {
		errs = append(errs, errors.New("at: the moment is empty"))
	}
	if a.External.Calendar != "" && a.External.Calendar != a.Calendar {
		errs = append(errs, fmt.Errorf("at: the external event is of calendar %q, not of %q", a.External.Calendar, a.Calendar))
	}
	if a.Overlapping && a.External.Remove {
		errs = append(errs, errors.New("at: overlapping needs a range, which an event that is removed has not"))
	}
	return errors.Join(append(errs, atLeast("at: nth", a.Nth, 0), a.external().validate("at: external"))...)
}

// external is the event with its calendar in.
func (a At) external() External {
	e := a.External
	e.Calendar = a.Calendar
	return e
}

func (b Behaviour) validate(of string) error {
	errs := []error{oneOf("mode", b.Mode, Up, Down), oneOf("freebusy", b.Freebusy, Fresh, Frozen), millis("slow_ms", &b.SlowMS)}
	for kind, a := range b.answers() {
		errs = append(errs, oneOf(kind+"_answer", a.word, Final, Reset, Silent, Slow), atLeast(kind+"_first", a.first, 0))
	}
	for _, kind := range slices.Sorted(maps.Keys(b.LatencyMS)) {
		ms := b.LatencyMS[kind]
		errs = append(errs, oneOf("latency_ms", kind, kinds...), millis("latency_ms: "+kind, &ms))
	}
	for _, kind := range slices.Sorted(maps.Keys(b.FailFirst)) {
		errs = append(errs, oneOf("fail_first", kind, kinds...), atLeast("fail_first: "+kind, b.FailFirst[kind], -1))
	}
	if r := b.RateLimit; r != nil {
		errs = append(errs, atLeast("rate_limit: after", r.After, 0), atLeast("rate_limit: retry_after_s", r.RetryAfterS, 0), atLeast("rate_limit: for", r.For, 1))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", of, err)
	}
	return nil
}

func calendarName(field, name string) error {
	if plainCalendar.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%s: %q is no calendar: want 1 to 100 of A-Z, a-z, 0-9 and . _ @ -", field, name)
}

func eventID(field, id string) error {
	if plainEvent.MatchString(id) {
		return nil
	}
	return fmt.Errorf("%s: %q is no event_id: want 5 to 64 of a-z, 0-9 and -", field, id)
}

// oneOf refuses a word that is sent and none of these.
func oneOf(field, word string, words ...string) error {
	if word == "" || slices.Contains(words, word) {
		return nil
	}
	return fmt.Errorf("%s: %q is none of %q", field, word, words)
}

func atLeast(field string, n, least int) error {
	if n >= least {
		return nil
	}
	return fmt.Errorf("%s: %d is less than %d", field, n, least)
}

func millis(field string, ms *float64) error {
	if most := float64(double.MaxWait / time.Millisecond); ms != nil && (*ms < 0 || *ms > most) {
		return fmt.Errorf("%s: %g is not between 0 and %g", field, *ms, most)
	}
	return nil
}
