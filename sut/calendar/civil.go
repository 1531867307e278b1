package calendar

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/overbook/overbook/sut/httpapi"
)

// wallLayout is how wall-clock times are written: to the minute, of no zone.
const wallLayout = "2006-01-02T15:04"

// longest is how long an appointment may be, by the clock that never jumps.
const longest = 24 * time.Hour

// farthestOffset is more than any zone was ever away from UTC.
const farthestOffset = 26 * time.Hour

// A wall is what a clock on the wall shows, wherever the wall is: the date and
// time that the value has in UTC. It is no instant.
type wall struct{ reading time.Time }

// readWall reads a wall-clock time; it is written in one way only.
func readWall(word string) (wall, bool) {
	t, err := time.Parse(wallLayout, word)
	return wall{t}, err == nil && t.Format(wallLayout) == word
}

func (w wall) String() string { return w.reading.Format(wallLayout) }

// weeksOn is the same time of day, so many weeks later.
func (w wall) weeksOn(n int) wall { return wall{w.reading.AddDate(0, 0, 7*n)} }

// instants are all instants at which a clock in the zone shows this, in order:
// none where clocks are turned on over it, two where they are turned back.
func (w wall) instants(zone *time.Location) []time.Time {
	var found []time.Time
	for at, last := w.reading.Add(-farthestOffset), w.reading.Add(farthestOffset); !at.After(last); {
		from, until := at.In(zone).ZoneBounds()
		_, offset := at.In(zone).Zone()
		t := w.reading.Add(-time.Duration(offset) * time.Second)
		if (from.IsZero() || !t.Before(from)) && (until.IsZero() || t.Before(until)) {
			found = append(found, t)
		}
		if until.IsZero() {
			break
		}
		at = until
	}
	return found
}

// in is the instant at which a clock in the zone shows this. The fold decides
// between two. The error is made of a problem.
func (w wall) in(zone *time.Location, fold string) (time.Time, error) {
	found := w.instants(zone)
	switch {
	case len(found) == 0:
		return time.Time{}, timeGap.With(fmt.Sprintf("clocks of %s are turned on over %s and never show it; choose a time before or after", zone, w)).Err()
	case len(found) == 1 || fold == foldEarlier:
		return found[0], nil
	case fold == foldLater:
		return found[len(found)-1], nil
	}
	choices := []string{stamp(found[0]), stamp(found[len(found)-1])}
	return time.Time{}, timeAmbiguous.
		With(fmt.Sprintf("clocks of %s show %s twice; say which is meant with a fold, \"earlier\" or \"later\"", zone, w)).
		WithMembers(map[string]any{"choices": choices}).Err()
}

// Which of two instants a wall-clock time means.
const (
	foldEarlier = "earlier"
	foldLater   = "later"
)

// A when is the members of a body that say when an appointment is.
type when struct {
	Start     string  `json:"start"`
	End       string  `json:"end"`
	Zone      string  `json:"time_zone"`
	StartFold *string `json:"start_fold"`
	EndFold   *string `json:"end_fold"`
}

// A civil is when an appointment is, by the clocks of its zone.
type civil struct {
	start, end         wall
	startFold, endFold string // "" when none was sent
	zone               *time.Location
}

// A span is when an appointment is: half-open, in instants.
type span struct{ start, end time.Time }

// read reads what was sent. The error is made of a problem.
func (w when) read() (c civil, err error) {
	for _, field := range []struct {
		name, word string
		to         *wall
	}{{"start", w.Start, &c.start}, {"end", w.End, &c.end}} {
		var ok bool
		if *field.to, ok = readWall(field.word); !ok {
			return civil{}, httpapi.BadRequest.With(fmt.Sprintf("%q must be a wall-clock time like 2026-03-29T09:00, without an offset, not %q", field.name, field.word)).Err()
		}
	}
	for _, field := range []struct {
		name string
		word *string
		to   *string
	}{{"start_fold", w.StartFold, &c.startFold}, {"end_fold", w.EndFold, &c.endFold}} {
		if field.word == nil {
			continue
		}
		if *field.word != foldEarlier && *field.word != foldLater {
			return civil{}, unknownWord.With(fmt.Sprintf("%q must be earlier or later, or be left out", field.name)).Err()
		}
		*field.to = *field.word
	}
	if w.Zone == "" {
		return civil{}, httpapi.BadRequest.With(`"time_zone" is missing`).Err()
	}
	c.zone, err = zoneNamed(w.Zone)
	return c, err
}

// week is the span of the appointment so many weeks on, at the same time by the
// clocks of its zone. The error is made of a problem.
func (c civil) week(n int) (span, error) {
	start, err := c.start.weeksOn(n).in(c.zone, c.startFold)
	if err != nil {
		return span{}, err
	}
	end, err := c.end.weeksOn(n).in(c.zone, c.endFold)
	if err != nil {
		return span{}, err
	}
	switch {
	case !end.After(start):
		return span{}, badRange.With(fmt.Sprintf("it must end after it starts, and %s is not after %s", stamp(end), stamp(start))).Err()
	case end.Sub(start) > longest:
		return span{}, badRange.With(fmt.Sprintf("it may be %v long at most, and from %s to %s is longer", longest, stamp(start), stamp(end))).Err()
	}
	return span{start, end}, nil
}

// ahead checks that all of it lies between now and the horizon. The error is
// made of a problem.
func (s span) ahead(now time.Time, horizon time.Duration) error {
	switch {
	case !s.start.After(now):
		return badRange.With(fmt.Sprintf("it must lie ahead, and %s does not", stamp(s.start))).Err()
	case s.end.After(now.Add(horizon)):
		return badRange.With(fmt.Sprintf("it may be %v ahead at most, and %s is farther", horizon, stamp(s.end))).Err()
	}
	return nil
}

// zoneName is what names of the IANA database look like.
var zoneName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$`)

// zoneNamed gives a time zone of the IANA database. What a machine has beside
// it under such names, its own zone and clocks that count leap seconds, is
// unknown here. The error is made of a problem.
func zoneNamed(name string) (*time.Location, error) {
	own := name == "Local" || name == "localtime" || name == "posixrules"
	if own || strings.HasPrefix(name, "posix/") || strings.HasPrefix(name, "right/") || !zoneName.MatchString(name) {
		return nil, unknownTimeZone.Err()
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknownTimeZone.Err()
	}
	return zone, nil
}
