package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
	_ "time/tzdata" // zones are what they are, whatever the machine knows

	"github.com/overbook/overbook/harness"
)

// A span is when an appointment is, in a plan: minutes after [origin], half
// open. The plan can't know the day on which it is carried out.
type span struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// overlaps says whether two half-open spans have a minute in common.
func (s span) overlaps(o span) bool { return s.From < o.To && o.From < s.To }

func (s span) start(origin time.Time) time.Time {
	return origin.Add(time.Duration(s.From) * time.Minute)
}

func (s span) end(origin time.Time) time.Time {
	return origin.Add(time.Duration(s.To) * time.Minute)
}

// day is the n-th day's span from one minute of it to another.
func day(n, from, to int) span { return span{n*24*60 + from, n*24*60 + to} }

// firstDay is how many days after the run's own the plans' times begin: so far
// ahead that no appointment begins while it runs, however the clock is moved.
const firstDay = 30

// origin is the instant from which a plan's minutes are counted, a midnight of
// UTC, for a run that is carried out now.
func origin(now time.Time) time.Time {
	y, m, d := now.UTC().Date()
	return time.Date(y, m, d+firstDay, 0, 0, 0, 0, time.UTC)
}

// originNow asks the servers what time it is, and gives the origin. A drive
// asks once.
func originNow(ctx context.Context, env harness.Env) (time.Time, error) {
	now, err := serverNow(ctx, env)
	return origin(now), err
}

// serverNow is the servers' time, asked of the first one that answers.
func serverNow(ctx context.Context, env harness.Env) (time.Time, error) {
	last := "no server is running"
	for _, s := range env.Servers() {
		if s.URL() == "" {
			continue
		}
		op := env.Do(ctx, harness.Request{Kind: kindClock, Process: clockProcess, Server: s.Name(), Method: http.MethodGet, Path: "/testing/clock"})
		var answer struct {
			Now time.Time `json:"now"`
		}
		if op.Status == http.StatusOK && op.Decode(&answer) == nil && !answer.Now.IsZero() {
			return answer.Now, nil
		}
		last = fmt.Sprintf("%s answered %d %s %s", s.Name(), op.Status, op.Err, op.Output)
	}
	return time.Time{}, fmt.Errorf("ask for the servers' time: %s", last)
}

// zones are where the customers are: east and west, whole hours, half ones and
// quarters, with summer time and without, and one whose summer is half an hour.
var zones = []string{
	"Etc/UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia", "Pacific/Chatham",
}

func chooseZone(rng *rand.Rand) string { return zones[rng.IntN(len(zones))] }

// location is a zone of the IANA database; the names stand in this package.
func location(zone string) *time.Location {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err) // the database is linked in
	}
	return loc
}

// wallForm is how the contract writes a wall-clock time.
const wallForm = "2006-01-02T15:04"

// wall is what a clock in the zone shows at the instant, and which of the two
// times it shows that this is: earlier, later, "" when it shows it once.
func wall(zone string, at time.Time) (text, fold string) {
	loc := location(zone)
	text = at.In(loc).Format(wallForm)
	for _, by := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour} {
		switch text {
		case at.Add(by).In(loc).Format(wallForm):
			return text, foldEarlier
		case at.Add(-by).In(loc).Format(wallForm):
			return text, foldLater
		}
	}
	return text, ""
}

// instantsOf are the instants at which clocks in the zone show the time: none
// in a gap, two in a fold, in order. ok says that the text is one and the zone exists.
func instantsOf(zone, text string) (at []time.Time, ok bool) {
	loc, err := time.LoadLocation(zone)
	utc, err2 := time.Parse(wallForm, text)
	if err != nil || err2 != nil || zone == "" || zone == "Local" {
		return nil, false
	}
	for _, near := range []time.Duration{-26 * time.Hour, 0, 26 * time.Hour} { // offsets on both sides of a transition
		_, offset := utc.Add(near).In(loc).Zone()
		t := utc.Add(-time.Duration(offset) * time.Second)
		if t.In(loc).Format(wallForm) == text && !slices.ContainsFunc(at, t.Equal) {
			at = append(at, t)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at, true
}

// pick is the instant that a wall-clock time with its fold names; n says how
// many there are to choose from when it names none.
func pick(zone, text, fold string) (at time.Time, n int, ok bool) {
	list, ok := instantsOf(zone, text)
	switch {
	case !ok || len(list) == 0:
		return at, 0, ok
	case len(list) == 1, fold == foldEarlier:
		return list[0], 1, true
	case fold == foldLater:
		return list[1], 1, true
	}
	return at, len(list), true
}

// weeksLater is the time of the appointment that comes so many weeks after the
// first, by the wall clock.
func (w when) weeksLater(weeks int) when {
	for _, t := range []*string{&w.Start, &w.End} {
		if at, err := time.Parse(wallForm, *t); err == nil {
			*t = at.AddDate(0, 0, 7*weeks).Format(wallForm)
		}
	}
	return w
}

// interval is the time that is asked for; ok is false when it is in a gap, in a
// fold without a word for which, or no time at all.
func (w when) interval() (i interval, ok bool) {
	start, n, ok1 := pick(w.Zone, w.Start, w.StartFold)
	end, m, ok2 := pick(w.Zone, w.End, w.EndFold)
	return interval{start, end}, ok1 && ok2 && n == 1 && m == 1
}

// intervals are the times of all appointments that a booking asks for.
func (w when) intervals() (list []interval, ok bool) {
	for week := range max(1, w.Weekly) {
		i, ok := w.weeksLater(week).interval()
		if !ok {
			return nil, false
		}
		list = append(list, i)
	}
	return list, true
}

// askedOf is what a booking or a move asked for.
func askedOf(op harness.Operation) (w when, ok bool) {
	return w, json.Unmarshal(op.Input, &w) == nil
}
