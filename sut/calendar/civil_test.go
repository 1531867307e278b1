package calendar

import (
	"archive/zip"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/sut/httpapi"
)

// told is what a wall-clock time comes to: an instant, or a problem's word with
// its choices.
func told(t time.Time, err error) string {
	if p, ok := httpapi.ProblemOf(err); ok {
		if p.Status != 422 {
			return fmt.Sprint(p.Status, " ", p.Type)
		}
		return strings.TrimSpace(fmt.Sprint(p.Type, " ", strings.Trim(fmt.Sprint(p.Members["choices"]), "<nil>[]")))
	}
	if err != nil {
		return err.Error()
	}
	return stamp(t)
}

func TestWallClock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, wall, fold, want string }{
		{"Europe/Berlin", "2026-03-29T01:59", "", "2026-03-29T00:59:00Z"},
		{"Europe/Berlin", "2026-03-29T02:00", "", "time-gap"},
		{"Europe/Berlin", "2026-03-29T02:59", "later", "time-gap"},
		{"Europe/Berlin", "2026-03-29T03:00", "", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "2026-03-29T03:00", "later", "2026-03-29T01:00:00Z"}, // a fold that is not needed is no fault
		{"Europe/Berlin", "2026-10-25T01:59", "", "2026-10-24T23:59:00Z"},
		{"Europe/Berlin", "2026-10-25T02:00", "", "time-ambiguous 2026-10-25T00:00:00Z 2026-10-25T01:00:00Z"},
		{"Europe/Berlin", "2026-10-25T02:59", "earlier", "2026-10-25T00:59:00Z"},
		{"Europe/Berlin", "2026-10-25T02:59", "later", "2026-10-25T01:59:00Z"},
		{"Europe/Berlin", "2026-10-25T03:00", "", "2026-10-25T02:00:00Z"},
		{"Australia/Lord_Howe", "2026-10-04T02:15", "", "time-gap"}, // half an hour
		{"Australia/Lord_Howe", "2026-10-04T02:30", "", "2026-10-03T15:30:00Z"},
		{"Australia/Lord_Howe", "2026-04-05T01:45", "", "time-ambiguous 2026-04-04T14:45:00Z 2026-04-04T15:15:00Z"},
		{"Australia/Lord_Howe", "2026-04-05T01:29", "", "2026-04-04T14:29:00Z"},
		{"Antarctica/Troll", "2026-03-29T02:30", "", "time-gap"}, // two hours
		{"Antarctica/Troll", "2026-10-25T01:30", "", "time-ambiguous 2026-10-24T23:30:00Z 2026-10-25T01:30:00Z"},
		{"Asia/Kathmandu", "2026-06-01T12:00", "", "2026-06-01T06:15:00Z"},
		{"Pacific/Chatham", "2026-09-27T03:00", "", "time-gap"}, // at a quarter to
		{"America/St_Johns", "2026-11-01T01:30", "", "time-ambiguous 2026-11-01T04:00:00Z 2026-11-01T05:00:00Z"},
		{"Europe/Dublin", "2026-10-25T01:30", "earlier", "2026-10-25T00:30:00Z"}, // whose winter is the exception
		{"Africa/Casablanca", "2026-02-15T02:30", "", "time-ambiguous 2026-02-15T01:30:00Z 2026-02-15T02:30:00Z"},
		{"Pacific/Apia", "2011-12-30T12:00", "", "time-gap"}, // a day that never was
		{"Pacific/Apia", "2011-12-31T00:00", "", "2011-12-30T10:00:00Z"},
		{"Pacific/Kiritimati", "2026-06-01T00:00", "", "2026-05-31T10:00:00Z"},
		{"UTC", "2028-02-29T23:59", "", "2028-02-29T23:59:00Z"},
	} {
		w, ok := readWall(c.wall)
		if !ok {
			t.Fatalf("%s can't be read", c.wall)
		}
		zone, err := zoneNamed(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := told(w.in(zone, c.fold)); got != c.want {
			t.Errorf("%s in %s, fold %q: %s, want %s", c.wall, c.zone, c.fold, got, c.want)
		}
	}
	for _, word := range []string{
		"", "2026-03-29", "2026-03-29T09", "2026-03-29T9:00", "2026-03-29T09:00:00", "2026-03-29T09:00Z", "2026-03-29T09:00+01:00", "2026-03-29 09:00",
		"2026-02-29T09:00", "2026-03-29T24:00", "2026-03-29T09:60", "26-03-29T09:00", "12026-03-29T09:00", " 2026-03-29T09:00", "２026-03-29T09:00",
	} {
		if w, ok := readWall(word); ok {
			t.Errorf("%q was read as %s", word, w)
		}
	}
	for _, name := range []string{
		"Local", "localtime", "posixrules", "right/Europe/Berlin", "posix/Europe/Berlin", "europe/berlin", "Europe/Atlantis", "Europe/", "/etc/passwd",
		"../etc/passwd", "Europe/../Europe/Berlin", "+01:00", "CET-1CEST", "zone.tab", "Europe/Berlin\x00", "Mars",
	} {
		if zone, err := zoneNamed(name); err == nil {
			t.Errorf("there is a zone %q: %v", name, zone)
		}
	}
}

// What one week comes to: when nothing but the wall clock is the same, it may
// be shorter, longer, or nothing.
func TestWeeks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		start, end, startFold, endFold string
		weeks                          int
		want                           string
	}{
		{"2026-03-22T01:00", "2026-03-22T04:00", "", "", 0, "3h0m0s"},
		{"2026-03-22T01:00", "2026-03-22T04:00", "", "", 1, "2h0m0s"},   // the day of 23 hours
		{"2026-10-18T01:00", "2026-10-18T04:00", "", "", 1, "4h0m0s"},   // the day of 25
		{"2026-03-28T03:00", "2026-03-29T03:30", "", "", 0, "23h30m0s"}, // by the wall it is longer than a day
		{"2026-10-24T12:00", "2026-10-25T12:00", "", "", 0, "bad-range"},
		{"2026-10-24T12:00", "2026-10-25T11:00", "", "", 0, "24h0m0s"},
		{"2026-03-22T01:30", "2026-03-22T02:30", "", "", 1, "time-gap"},
		{"2026-10-25T02:00", "2026-10-25T02:00", "earlier", "later", 0, "1h0m0s"},
		{"2026-10-25T02:45", "2026-10-25T02:15", "earlier", "later", 0, "30m0s"}, // ends before it starts, by the wall
		{"2026-10-25T02:00", "2026-10-25T02:30", "later", "earlier", 0, "bad-range"},
		{"2026-06-01T09:00", "2026-06-01T09:00", "", "", 0, "bad-range"},
		{"2026-06-01T09:00", "2026-06-01T08:59", "", "", 0, "bad-range"},
		{"2026-06-01T09:00", "2026-06-02T09:01", "", "", 0, "bad-range"},
	} {
		in := when{Start: c.start, End: c.end, Zone: "Europe/Berlin"}
		if c.startFold != "" {
			in.StartFold, in.EndFold = &c.startFold, &c.endFold
		}
		times, err := in.read()
		if err != nil {
			t.Fatal(err)
		}
		at, err := times.week(c.weeks)
		got := told(time.Time{}, err)
		if err == nil {
			got = at.end.Sub(at.start).String()
		}
		if got != c.want {
			t.Errorf("%s to %s, %d weeks on: %s, want %s", c.start, c.end, c.weeks, got, c.want)
		}
	}
}

// allZones are the zones that this version of Go has within, once each.
func allZones(t *testing.T) map[string]*time.Location {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal("ask where Go is:", err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal("read Go's time zones:", err)
	}
	defer func() { _ = archive.Close() }()
	zones, known := map[string]*time.Location{}, map[[sha256.Size]byte]bool{}
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := zoneNamed(f.Name); err != nil {
			t.Errorf("zone %s is unknown: %v", f.Name, err)
		}
		if sum := sha256.Sum256(data); !known[sum] { // many are another's name
			known[sum] = true
			if zones[f.Name], err = time.LoadLocationFromTZData(f.Name, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	return zones
}

// shownAt is what the clock of a zone shows at an instant, as the minute that
// UTC's clock shows then.
func shownAt(t time.Time, zone *time.Location) int64 {
	_, offset := t.In(zone).Zone()
	return (t.Unix() + int64(offset)) / 60
}

// changesOf are the instants of 2026 and 2027 from which on the zone has another
// offset.
func changesOf(zone *time.Location) (changes []time.Time) {
	const step = 3 * time.Hour
	offset := func(t time.Time) int { _, o := t.In(zone).Zone(); return o }
	for at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2028; at = at.Add(step) {
		if offset(at) == offset(at.Add(step)) {
			continue
		}
		low, high := at, at.Add(step)
		for high.Sub(low) > time.Second {
			if middle := low.Add(high.Sub(low) / 2); offset(middle) == offset(at) {
				low = middle
			} else {
				high = middle
			}
		}
		changes = append(changes, high.Truncate(time.Second))
	}
	return changes
}

// Around every change of every zone: what a clock there shows, minute by
// minute, is what the times come back from. No minute that it shows is a gap,
// none that it does not show is a time, and what it shows twice is ambiguous.
func TestEveryZone(t *testing.T) {
	t.Parallel()
	zones := allZones(t)
	gaps, folds, halves, changed := 0, 0, 0, 0
	for name, zone := range zones {
		changes := changesOf(zone)
		if len(changes) > 0 {
			changed++
		}
		for _, change := range changes {
			g, f, odd := aroundChange(t, zone, change)
			gaps, folds = gaps+g, folds+f
			if odd {
				halves++
			}
		}
		anyTimes(t, name, zone)
	}
	t.Logf("%d zones, %d with changes; minutes in gaps %d, in folds %d; changes by or at no full hour %d", len(zones), changed, gaps, folds, halves)
	if len(zones) < 300 || changed < 60 || gaps < 10_000 || folds < 10_000 || halves < 8 {
		t.Error("that is too little: does the test still see the zones?")
	}
}

// aroundChange checks every minute around a change, and counts those in a gap
// and in a fold. odd: the change is not by full hours, or of an offset that is
// not of full hours.
func aroundChange(t *testing.T, zone *time.Location, change time.Time) (gaps, folds int, odd bool) {
	t.Helper()
	const around = 5 * time.Hour
	shown := map[int64][]time.Time{}
	for at := change.Add(-around); at.Before(change.Add(around)); at = at.Add(time.Minute) {
		shown[shownAt(at, zone)] = append(shown[shownAt(at, zone)], at)
	}
	before, after := shownAt(change.Add(-time.Minute), zone)+1, shownAt(change, zone) // what it would show, and what it does
	for minute := min(before, after) - 60; minute < max(before, after)+60; minute++ {
		w := wall{time.Unix(60*minute, 0).UTC()}
		want := shown[minute]
		if got := w.instants(zone); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%s in %s: %v, want %v", w, zone, got, want)
		}
		plain, earlier, later := told(w.in(zone, "")), told(w.in(zone, foldEarlier)), told(w.in(zone, foldLater))
		ok := false
		switch len(want) {
		case 0:
			gaps++
			ok = plain == "time-gap" && earlier == plain && later == plain
		case 1:
			ok = plain == stamp(want[0]) && earlier == plain && later == plain
		case 2:
			folds++
			ok = plain == "time-ambiguous "+stamp(want[0])+" "+stamp(want[1]) && earlier == stamp(want[0]) && later == stamp(want[1])
		}
		if !ok {
			t.Fatalf("%s in %s is %q, %q with the earlier fold, %q with the later one; the clock shows it at %v", w, zone, plain, earlier, later, want)
		}
	}
	_, offset := change.In(zone).Zone()
	return gaps, folds, (after-before)%60 != 0 || offset%3600 != 0
}

// anyTimes checks times at random, far from any change as well.
func anyTimes(t *testing.T, name string, zone *time.Location) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(len(name)), uint64(name[0])))
	for range 40 {
		w := wall{time.Date(2026, 1, 1, 0, random.IntN(2*365*24*60), 0, 0, time.UTC)}
		for _, at := range w.instants(zone) {
			if got := at.In(zone).Format(wallLayout); got != w.String() {
				t.Fatalf("%s in %s is %s, when the clock shows %s", w, name, stamp(at), got)
			}
		}
		r := w.reading
		if at := time.Date(r.Year(), r.Month(), r.Day(), r.Hour(), r.Minute(), 0, 0, zone); len(w.instants(zone)) == 0 && at.Format(wallLayout) == w.String() {
			t.Fatalf("%s in %s is said not to exist, and is %s", w, name, stamp(at))
		}
	}
}
