package telescope

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/sut/httpapi"
)

// A slot belongs to the day on which it starts by the wall clock of the
// observatory, also where midnight is missing (São Paulo, spring 2018) or
// there twice (Havana, autumn 2026), where days have 23 or 25 hours, and where
// a whole day was left out (Apia, end of 2011).
func TestDayIsTheObservatorys(t *testing.T) {
	b := newBackstage(t)
	for _, tt := range []struct {
		zone, date         string
		first, last, count string // start of the first and last slot in UTC
	}{
		{"Pacific/Honolulu", "2026-12-24", "2026-12-24T10:00:00Z", "2026-12-25T09:30:00Z", "48"},
		{"UTC", "2026-12-24", "2026-12-24T00:00:00Z", "2026-12-24T23:30:00Z", "48"},
		{"Asia/Kathmandu", "2026-12-24", "2026-12-23T18:30:00Z", "2026-12-24T18:00:00Z", "48"},
		{"America/Sao_Paulo", "2018-11-03", "2018-11-03T03:00:00Z", "2018-11-04T02:30:00Z", "48"},
		{"America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00Z", "2018-11-05T01:30:00Z", "46"},
		{"America/Havana", "2026-11-01", "2026-11-01T04:00:00Z", "2026-11-02T04:30:00Z", "50"},
		{"Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z", "2026-03-29T21:30:00Z", "46"},
		{"Pacific/Apia", "2011-12-29", "2011-12-29T10:00:00Z", "2011-12-30T09:30:00Z", "48"},
		{"Pacific/Apia", "2011-12-30", "", "", "0"},
		{"Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z", "2011-12-31T09:30:00Z", "48"},
		{"Pacific/Kiritimati", "2026-12-24", "2026-12-23T10:00:00Z", "2026-12-24T09:30:00Z", "48"},
	} {
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		b.exec(`insert into observing_slots
				select extract(epoch from at)::bigint, at, 'open', 1, $2
				from generate_series($1::timestamptz - interval '2 days', $1::timestamptz + interval '3 days', interval '30 minutes') at
				on conflict (slot_id) do nothing`,
			tt.date+"T00:00:00Z", b.cfg.Clock.Now())
		b.cfg.Clock.Set(b.cfg.Clock.Offset() + b.cfg.ProjectionInterval)
		b.cfg.TimeZone = zone
		p := b.projection()
		b.tick(p)
		slots := b.day(p, tt.date).Slots
		want, got := []string{tt.first, tt.last, tt.count}, []string{"", "", "0"}
		if n := len(slots); n > 0 {
			got = []string{slots[0].StartsAt.Format(time.RFC3339), slots[n-1].StartsAt.Format(time.RFC3339), strconv.Itoa(n)}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s:\n%s", tt.zone, tt.date, diff)
		}
	}
}

func TestScheduleAnswerTellsNoNames(t *testing.T) {
	b := newBackstage(t)
	b.slot(1, "2026-12-24T20:00:00Z", "open", "member-77")
	p := b.projection()
	b.tick(p)
	answer := b.day(p, "2026-12-24")
	body, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	asOf, _ := json.Marshal(answer.AsOf)
	want := `{"date":"2026-12-24","as_of":` + string(asOf) + `,"stale":false,"slots":[{"slot_id":1,"starts_at":"2026-12-24T20:00:00Z","state":"taken"}]}`
	if string(body) != want {
		t.Errorf("answer %s\nwant   %s", body, want)
	}
	if body, _ = json.Marshal(b.day(p, "2026-12-25")); !strings.HasSuffix(string(body), `"slots":[]}`) {
		t.Errorf("a day without slots: %s", body)
	}
}

func TestDayMustBeADate(t *testing.T) {
	b := newBackstage(t)
	p := b.projection()
	b.tick(p)
	for _, date := range []string{"", "today", "2026-2-3", "2026-02-30", "2026-12-24T00:00:00Z", "24-12-2026", "2026-12-24 ", "+026-12-24"} {
		_, err := p.day(t.Context(), date)
		if problem, ok := httpapi.ProblemOf(err); !ok || problem.Type != "bad-request" || problem.Status != 400 {
			t.Errorf("%q: %v, want a 400 bad-request", date, err)
		}
	}
	for _, date := range []string{"0000-01-01", "9999-12-31"} {
		if n := len(b.day(p, date).Slots); n != 0 {
			t.Errorf("%s has %d slots", date, n)
		}
	}
}
