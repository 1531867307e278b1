package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// changing are zones whose clocks change twice a year: by an hour, by half an
// hour, by two; in the north and in the south; and with odd offsets.
var changing = []string{
	"Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Australia/Sydney", "Pacific/Chatham", "Antarctica/Troll", "America/Santiago",
}

// A change is when clocks in a zone change, and by how much; a gap when by is
// positive, a fold when it is negative.
type change struct {
	at time.Time
	by time.Duration
}

// nextChange is the first change after an instant of which gap says the sign.
func nextChange(zone string, after time.Time, gap bool) (change, error) {
	loc := location(zone)
	offset := func(t time.Time) int { _, s := t.In(loc).Zone(); return s }
	for d := range 500 {
		low := after.Add(time.Duration(d) * 24 * time.Hour)
		high := low.Add(24 * time.Hour)
		by := offset(high) - offset(low)
		if by == 0 || (by > 0) != gap {
			continue
		}
		for high.Sub(low) > time.Minute { // the change is in the minute before high
			if middle := low.Add(high.Sub(low) / 2).Truncate(time.Minute); offset(middle) == offset(low) {
				low = middle
			} else {
				high = middle
			}
		}
		return change{high, time.Duration(by) * time.Second}, nil
	}
	return change{}, fmt.Errorf("clocks in %s don't change in the 500 days after %s: choose another zone", zone, after.Format(time.DateOnly))
}

// A clockCase is a request about a clock that changes, and what its sender is told.
type clockCase struct {
	name string
	want string // in the words of answers.Word
	when when
}

// gapCases are of the day on which wall-clock times are left out. Each of those
// that are taken is apart from the others, on a resource for each zone.
func gapCases(zone string, c change) []clockCase {
	w := func(start, end time.Duration) when { return between(zone, c.at.Add(start), c.at.Add(end)) }
	// What a clock would have shown that had not been changed.
	old := func(at time.Duration) string {
		_, offset := c.at.Add(-time.Minute).In(location(zone)).Zone()
		return c.at.Add(at).In(time.FixedZone("before", offset)).Format(wallForm)
	}
	inGap := func(start, end string) when { return when{Start: start, End: end, Zone: zone} }
	later := c.at.Add(c.by + time.Hour).In(location(zone)).Format(wallForm)
	return []clockCase{
		{"gap-first-minute", "422 time-gap", inGap(old(0), later)},
		{"gap-last-minute", "422 time-gap", inGap(old(c.by-time.Minute), later)},
		{"gap-end", "422 time-gap", inGap(old(-20*time.Minute), old(c.by/2))},
		{"gap-both", "422 time-gap", inGap(old(0), old(10*time.Minute))},
		{"gap-crossed", "201", w(-30*time.Minute, 30*time.Minute)},
		{"gap-crossed-again", "409 overlap", w(-time.Minute, time.Minute)},
		{"gap-after", "201", w(30*time.Minute, 50*time.Minute)},
		{"gap-week-later", "201", between(zone, c.at.Add(7*24*time.Hour), c.at.Add(7*24*time.Hour+30*time.Minute))},
	}
}

// foldCases are of the day on which wall-clock times come twice.
func foldCases(zone string, c change) []clockCase {
	long := -c.by
	// The fold is long minutes before the change and as many after it.
	first := func(start, end time.Duration) when { return between(zone, c.at.Add(start-long), c.at.Add(end-long)) }
	second := func(start, end time.Duration) when { return between(zone, c.at.Add(start), c.at.Add(end)) }
	without := func(w when, start, end bool) when {
		if start {
			w.StartFold = ""
		}
		if end {
			w.EndFold = ""
		}
		return w
	}
	backwards := second(5*time.Minute, 10*time.Minute)
	backwards.EndFold = foldEarlier
	return []clockCase{
		{"fold-without-a-word", "422 time-ambiguous", without(first(5*time.Minute, 15*time.Minute), true, true)},
		{"fold-end-without-a-word", "422 time-ambiguous", without(first(5*time.Minute, 15*time.Minute), false, true)},
		{"fold-start-without-a-word", "422 time-ambiguous", without(second(0, 10*time.Minute), true, false)},
		{"fold-first-time", "201", first(5*time.Minute, 15*time.Minute)},
		{"fold-second-time", "201", second(5*time.Minute, 15*time.Minute)}, // the same wall-clock times
		{"fold-over-both", "409 overlap", between(zone, c.at.Add(12*time.Minute-long), c.at.Add(8*time.Minute))},
		{"fold-backwards", "422 bad-range", backwards},
		{"fold-first-minute", "201", first(0, 5*time.Minute)},
		{"fold-end-of-the-first", "201", first(long-time.Minute*10, long)},
		{"fold-word-where-none-is-needed", "201", func() when {
			w := between(zone, c.at.Add(5*time.Hour), c.at.Add(5*time.Hour+20*time.Minute))
			w.StartFold, w.EndFold = foldLater, foldEarlier
			return w
		}()},
	}
}

// midnights are the beginning and the end of the local day on which the clocks
// change, give or take some minutes.
func midnights(zone string, c change, minutes int) when {
	local := c.at.In(location(zone))
	d := time.Date(local.Year(), local.Month(), local.Day(), 12, 0, 0, 0, time.UTC) // a wall clock
	return when{Start: d.Add(-12 * time.Hour).Format(wallForm), End: d.Add(12*time.Hour + time.Duration(minutes)*time.Minute).Format(wallForm), Zone: zone}
}

// dayCases are of whole days that are not 24 hours long, each on a resource of its own.
func dayCases(zone string, gap, fold change) (short, long []clockCase) {
	by := int(gap.by / time.Minute)
	short = []clockCase{
		{"short-day-and-more", "422 bad-range", midnights(zone, gap, by+1)},
		{"short-day-and-what-it-lacks", "201", midnights(zone, gap, by)}, // 24 hours
	}
	back := int(-fold.by / time.Minute)
	long = []clockCase{
		{"long-day", "422 bad-range", midnights(zone, fold, 0)},
		{"long-day-and-a-minute-too-many", "422 bad-range", midnights(zone, fold, 1-back)},
		{"long-day-but-for-what-is-too-much", "201", midnights(zone, fold, -back)},
	}
	// Where clocks change at midnight a day does not begin, or ends twice.
	inexact := func(c clockCase) bool { _, exact := c.when.interval(); return !exact }
	return slices.DeleteFunc(short, inexact), slices.DeleteFunc(long, inexact)
}

// seriesCases are weekly ones over a change: by the wall clock, so that their
// instants shift; or one of them can't be.
func seriesCases(zone string, gap, fold change) []clockCase {
	weekly := func(w when, weeks int) when { w.Weekly = weeks; return w }
	weeksBefore := func(w when, weeks int) when { return w.weeksLater(-weeks) }
	local := gap.at.In(location(zone))
	noon := when{Start: local.Format("2006-01-02") + "T14:00", End: local.Format("2006-01-02") + "T14:45", Zone: zone}
	inGap := gapCases(zone, gap)[0].when
	inFold := foldCases(zone, fold)[0].when
	return []clockCase{
		{"weekly-over-the-gap", "201", weekly(weeksBefore(noon, 2), 4)},
		{"weekly-into-the-gap", "422 time-gap", weekly(weeksBefore(inGap, 2), 4)},
		{"weekly-into-the-fold", "422 time-ambiguous", weekly(weeksBefore(inFold, 2), 3)},
	}
}

type dstChoices struct {
	Zones     []string   `json:"zones"`
	Resources []resource `json:"resources"` // four a zone
}

// clocksPerZone is how many resources a zone takes: for the gap and the fold,
// for each odd day, and for the series.
const clocksPerZone = 4

func dst() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "calendar/dst",
		Title: "appointments are booked around the hours that clocks leave out or show twice",
		Doc: `For several zones whose clocks change, by an hour, by half an hour or by two: times in the gap, at its edges and over it; times in the fold, without a word for which, with either,
and back to front; days of 23 and of 25 hours against the bound of 24; weekly appointments over a change, and into a gap or a fold, which are booked whole or not at all;
a weekly one that is moved over a change, without the one that was given up.
Every answer is compared with what the zone's clocks show: one instant, or 422 that says why not. Beside them customers in zones of half hours and quarters book the same
instant, which is one however it is written.`,
		Sources: []string{"C-I6", "C-I1", "C-M7"},
		Params:  []harness.Param{paramReplicas},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := dstChoices{Zones: slices.Clone(changing)}
			rng.Shuffle(len(c.Zones), func(i, j int) { c.Zones[i], c.Zones[j] = c.Zones[j], c.Zones[i] })
			c.Zones = c.Zones[:4]
			c.Resources = chooseResources(rng, p, clocksPerZone*len(c.Zones)+1)
			return c, nil
		},
		Drive: driveDST,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(p), answers.Problems(where+"/dst.go"), toldOfClocks(), oneInstant())
		},
	}, nil)
}

func driveDST(ctx context.Context, env harness.Env) error {
	var c dstChoices
	o, err := begin(ctx, env, &c)
	if err != nil {
		return err
	}
	if err := setUp(ctx, env, c.Resources...); err != nil {
		return err
	}
	asked := 0.0
	for i, zone := range c.Zones {
		gap, err := nextChange(zone, o, true)
		if err != nil {
			return err
		}
		fold, err := nextChange(zone, o, false)
		if err != nil {
			return err
		}
		short, long := dayCases(zone, gap, fold)
		for k, list := range [clocksPerZone][]clockCase{slices.Concat(gapCases(zone, gap), foldCases(zone, fold)), short, long, seriesCases(zone, gap, fold)} {
			for n, cc := range list {
				r := book(n, member(n), c.Resources[clocksPerZone*i+k].ID, cc.when, fmt.Sprintf("%s-%d-%d", cc.name, i, k))
				op := env.Do(ctx, answers.As(clockKind(cc), r))
				asked += answers.Once(op.Status != 0)
			}
		}
		if err := movedSeries(ctx, env, c.Resources[clocksPerZone*i+clocksPerZone-1].ID, zone, i, gap); err != nil {
			return err
		}
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "clocks of " + zone, Text: fmt.Sprintf("change by %s at %s and by %s at %s", gap.by, gap.at.UTC().Format(time.RFC3339), fold.by, fold.at.UTC().Format(time.RFC3339))})
	}
	env.Witness("answered", float64(20*len(c.Zones)), asked, "requests about clocks that change that were answered")
	if err := sameInstant(ctx, env, c.Resources[len(c.Resources)-1], o); err != nil {
		return err
	}
	return finish(ctx, env)
}

// movedSeries books a weekly appointment over the gap, gives up the second of
// it, and moves the rest by two hours: each stays in its week, by the wall clock.
func movedSeries(ctx context.Context, env harness.Env, resource int64, zone string, i int, gap change) error {
	local := gap.at.In(location(zone)).AddDate(0, 0, -14).Format("2006-01-02")
	weekly := when{Start: local + "T16:00", End: local + "T16:30", Zone: zone, Weekly: 4}
	who := member(900 + i)
	booked := env.Do(ctx, book(0, who, resource, weekly, "moved-series"))
	s, err := seriesOf(booked)
	if err != nil || len(s.Appointments) != weekly.Weekly {
		return refused(booked, "201 and a series")
	}
	if err := need(ctx, env, cancel(0, who, s.Appointments[1].ID, "moved-series"), http.StatusOK); err != nil {
		return err
	}
	to := when{Start: local + "T18:00", End: local + "T18:45", Zone: zone}
	env.Do(ctx, answers.As(clockKind(clockCase{name: "series-moved-over-the-gap", want: "200"}), moveSeries(0, who, s.SeriesID, to, "moved-series")))
	return nil
}

// clockKind carries what the sender is to be told, as a plan can't: it knows no
// day, and so not which cases a zone has.
func clockKind(c clockCase) string { return "clock " + c.name + ", want " + c.want }

// sameInstant has customers in many zones book one instant, each as their own
// clocks show it.
func sameInstant(ctx context.Context, env harness.Env, r resource, o time.Time) error {
	b := harness.Burst{Name: "one-instant"}
	for n, zone := range slices.Concat(zones, changing) {
		b.Requests = append(b.Requests, book(n, member(n), r.ID, day(3, 600, 645).in(zone, o), "one-instant"))
	}
	report, _, err := env.Burst(ctx, b)
	if err != nil {
		return err
	}
	answers.WitnessOverlap(env, report)
	return nil
}

func oneInstant() harness.Check {
	n := len(zones) + len(changing)
	return words("answers.instant", "an instant that is written by many clocks is booked once", answers.ByBurst, answers.Fixed(answers.Tallies{"one-instant": {"201": 1, "409 overlap": n - 1}}))
}
