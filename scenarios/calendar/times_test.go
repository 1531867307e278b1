package calendar

import (
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
)

func TestInstantsOf(t *testing.T) {
	for _, tt := range []struct{ zone, text, want string }{
		{"Europe/Berlin", "2026-03-29T01:59", "2026-03-29T00:59"},
		{"Europe/Berlin", "2026-03-29T02:00", ""},
		{"Europe/Berlin", "2026-03-29T02:59", ""},
		{"Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00"},
		{"Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30 2026-10-25T01:30"},
		{"Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00"},
		{"Australia/Lord_Howe", "2026-10-04T02:15", ""},
		{"Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45 2026-04-04T15:15"},
		{"Antarctica/Troll", "2026-03-29T02:30", ""},
		{"Asia/Kathmandu", "2026-01-01T05:45", "2026-01-01T00:00"},
		{"Pacific/Apia", "2011-12-30T12:00", ""}, // the day that was left out
	} {
		at, ok := instantsOf(tt.zone, tt.text)
		var got []string
		for _, i := range at {
			got = append(got, i.UTC().Format(wallForm))
		}
		if strings.Join(got, " ") != tt.want || !ok {
			t.Errorf("%s in %s: %q, %v, want %q", tt.text, tt.zone, got, ok, tt.want)
		}
	}
	for _, tt := range [][2]string{{"Local", "2026-01-01T00:00"}, {"", "2026-01-01T00:00"}, {"Etc/UTC", "2026-02-30T00:00"}, {"Etc/UTC", "now"}} {
		if at, ok := instantsOf(tt[0], tt[1]); ok {
			t.Errorf("%q in %q: %v", tt[1], tt[0], at)
		}
	}
}

// TestThereAndBack: what a clock shows at an instant, with its fold, is that
// instant again, in every zone: around the changes of its clocks, and now and
// then in a year.
func TestThereAndBack(t *testing.T) {
	for _, zone := range append(append([]string{}, zones...), changing...) {
		folds := 0
		back := func(first time.Time, days int, step time.Duration) {
			for at := first; at.Before(first.AddDate(0, 0, days)); at = at.Add(step) {
				text, fold := wall(zone, at)
				if fold != "" {
					folds++
				}
				if got, n, ok := pick(zone, text, fold); !ok || n != 1 || !got.Equal(at) {
					t.Fatalf("%s in %s: %s %s, and back %s (%d, %v)", at, zone, text, fold, got, n, ok)
				}
			}
		}
		back(dawn, 365, 31*time.Hour)
		folds = 0
		for _, gap := range []bool{true, false} {
			c, err := nextChange(zone, dawn, gap)
			if err == nil {
				back(c.at.AddDate(0, 0, -1), 2, 15*time.Minute)
			}
			if !gap && (err == nil) != (folds > 0) {
				t.Errorf("%s: %d folds, and the next change: %v", zone, folds, err)
			}
		}
	}
}

// TestClockCasesAreWhatTheySay asks our own reading of clocks about each case.
func TestClockCasesAreWhatTheySay(t *testing.T) {
	for _, zone := range changing {
		gap, err1 := nextChange(zone, dawn, true)
		fold, err2 := nextChange(zone, dawn, false)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if gap.by <= 0 || fold.by >= 0 || gap.by > 2*time.Hour {
			t.Errorf("%s: a gap of %s, a fold of %s", zone, gap.by, fold.by)
		}
		short, long := dayCases(zone, gap, fold)
		for _, list := range [][]clockCase{gapCases(zone, gap), foldCases(zone, fold), short, long, seriesCases(zone, gap, fold)} {
			var taken []interval
			for _, c := range list {
				if got := judgeClock(c.when, &taken); got != c.want {
					t.Errorf("%s, %s: %+v is %s, want %s", zone, c.name, c.when, got, c.want)
				}
			}
		}
	}
}

// judgeClock is what the contract has for a booking after those that were taken.
func judgeClock(w when, taken *[]interval) string {
	times, exact := w.intervals()
	switch {
	case !exact && w.somewhere(func(n int) bool { return n == 0 }):
		return "422 time-gap"
	case !exact:
		return "422 time-ambiguous"
	}
	for _, i := range times {
		if !i.End.After(i.Start) || i.End.Sub(i.Start) > 24*time.Hour {
			return "422 bad-range"
		}
	}
	if anyOverlap(times, *taken) {
		return "409 overlap"
	}
	*taken = append(*taken, times...)
	return "201"
}

func TestWallClock(t *testing.T) {
	berlin := func(start, end string) when { return when{Start: start, End: end, Zone: "Europe/Berlin"} }
	r := func(w when) harness.Request { return book(1, "member-1", 1, w, "key") }
	answer := func(start, end string) string {
		return `{"appointment_id":"a","resource_id":1,"start":"` + start + `","end":"` + end + `","event_id":"e"}`
	}
	for name, tt := range map[string]struct {
		op   harness.Operation
		want harness.Status
		text string
	}{
		"as it is":               {replied(r(berlin("2026-03-29T01:30", "2026-03-29T03:30")), 201, answer("2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z")), harness.Pass, ""},
		"as if it were UTC":      {replied(r(berlin("2026-03-29T01:30", "2026-03-29T03:30")), 201, answer("2026-03-29T01:30:00Z", "2026-03-29T03:30:00Z")), harness.Failed, "taken as"},
		"a gap that was taken":   {replied(r(berlin("2026-03-29T02:30", "2026-03-29T03:30")), 201, answer("2026-03-29T01:30:00Z", "2026-03-29T01:30:00Z")), harness.Failed, "no instant"},
		"a gap":                  {denied(r(berlin("2026-03-29T02:30", "2026-03-29T03:30")), 422, "time-gap", ""), harness.Pass, ""},
		"no gap":                 {denied(r(berlin("2026-03-29T03:00", "2026-03-29T03:30")), 422, "time-gap", ""), harness.Failed, "said to be in a gap"},
		"a fold":                 {denied(r(berlin("2026-10-25T02:30", "2026-10-25T03:30")), 422, "time-ambiguous", `,"choices":["2026-10-25T00:30:00Z","2026-10-25T01:30:00Z"]`), harness.Pass, ""},
		"other choices":          {denied(r(berlin("2026-10-25T02:30", "2026-10-25T03:30")), 422, "time-ambiguous", `,"choices":["2026-10-25T00:30:00Z","2026-10-25T02:30:00Z"]`), harness.Failed, "said to be one of"},
		"a fold that was judged": {denied(r(berlin("2026-10-25T02:30", "2026-10-25T03:30")), 409, "overlap", ""), harness.Failed, "judged"},
	} {
		t.Run(name, func(t *testing.T) { expectVerdict(t, wallClock().Judge(recordOf(tt.op)), tt.want, tt.text) })
	}
}
