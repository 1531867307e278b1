package calendar

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBooking(t *testing.T) {
	o := newOffice(t)
	a := wants(t, o.book("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00"), "201")
	id := a.str("appointment_id")
	want := map[string]any{
		"appointment_id": id, "resource_id": 1.0, "start": "2026-03-10T08:00:00Z", "end": "2026-03-10T09:00:00Z",
		"time_zone": "Europe/Berlin", "state": "BOOKED", "event_id": "appointment-" + id,
	}
	if diff := cmp.Diff(want, a.doc); diff != "" {
		t.Error(diff)
	}
	if at := a.header.Get("Location"); at != "/calendar/appointments/"+id {
		t.Errorf("Location %q", at)
	}
	o.is(id, "BOOKED 1: 1 BOOKED; 1 appointment.booked; due")
	got := scan[string](o, `select concat_ws(' ', h.actor, h.overbook_op, h.during, h.at, e.payload->>'op', e.payload->>'traceparent', e.payload->>'start', y.due_at)
		from appointment_audit h join outbox e using (appointment_id, seq) join syncs y using (appointment_id)`)
	if want := `member-1 b-1 ["2026-03-10 08:00:00+00","2026-03-10 09:00:00+00") 2026-03-01 08:00:00+00 b-1 ` + traceparent +
		` 2026-03-10T08:00:00Z 2026-03-01 08:00:00+00`; got != want {
		t.Errorf("audit, event and sync:\n%s, want\n%s", got, want)
	}
	no := wants(t, o.book("member-2", "b-2", 1, "03-10T09:59", "03-10T10:01"), "409 overlap")
	if fmt.Sprint(no.doc["resource_id"]) != "1" || len(no.doc) != 5 {
		t.Errorf("an overlap says %s: the resource is all that it may tell", no.body)
	}
	if n := scan[int](o, `select count(*)::int from outbox`); n != 1 {
		t.Errorf("%d events, want the winner's alone", n)
	}
	wants(t, o.book("member-2", "b-3", 2, "03-10T09:59", "03-10T10:01"), "201") // another resource
	wants(t, o.book("member-2", "b-4", 3, "03-10T09:00", "03-10T10:00"), "409 resource-inactive")
}

func TestBackToBackAndAfterwards(t *testing.T) {
	o := newOffice(t)
	first := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	o.booked("member-2", "b-2", 1, "03-10T10:00", "03-10T11:00")
	o.booked("member-2", "b-3", 1, "03-10T08:00", "03-10T09:00")
	wants(t, o.book("member-3", "b-4", 1, "03-10T09:59", "03-10T10:00"), "409 overlap")
	wants(t, o.cancel("member-1", "c-1", first), "200")
	o.is(first, "CANCELLED 2: 1 BOOKED, 2 CANCELLED; 1 appointment.booked, 2 appointment.cancelled; due")
	o.booked("member-3", "b-5", 1, "03-10T09:00", "03-10T10:00") // what is cancelled is in nobody's way
	wants(t, o.cancel("member-1", "c-2", first), "409 appointment-over")
	wants(t, o.move("member-1", "m-1", first, "03-11T09:00", "03-11T10:00"), "409 appointment-over")
	o.conflictFree()
}

// Two that overlap, at once, a hundred times: one is booked, one is refused,
// and there is one event.
func TestTwoOverlapping(t *testing.T) {
	o := newOffice(t, crowded)
	for round := range 100 {
		day := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, round).Format("01-02")
		answers := burst(2, func(i int) answer {
			return o.book(fmt.Sprint("member-", i), fmt.Sprint("b-", round, "-", i), 1, fmt.Sprintf("%sT09:%d0", day, i), fmt.Sprintf("%sT10:%d0", day, i))
		})
		if got := tally(answers); got["201"] != 1 || got["409 overlap"] != 1 {
			t.Fatalf("round %d: %v", round, got)
		}
	}
	o.conflictFree()
	got := scan[string](o, `select concat_ws(' ', (select count(*) from appointments), (select count(*) from outbox), (select count(*) from appointment_audit), (select count(*) from syncs))`)
	if got != "100 100 100 100" {
		t.Errorf("appointments, events, audit rows, syncs: %s, want 100 of each", got)
	}
}

// Fifty ranges at random, at once: who is booked overlaps nobody, and who is
// refused overlaps somebody who was booked.
func TestPartialOverlaps(t *testing.T) {
	o := newOffice(t, crowded)
	random := rand.New(rand.NewPCG(7, 11))
	day := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	type wanted struct{ start, end time.Time }
	for round := range 4 {
		ranges := make([]wanted, 50)
		for i := range ranges {
			start := day.Add(time.Duration(random.IntN(20*60)) * time.Minute)
			ranges[i] = wanted{start, start.Add(time.Duration(5+random.IntN(115)) * time.Minute)}
		}
		answers := burst(50, func(i int) answer {
			return o.book("member-1", fmt.Sprint("b-", round, "-", i), 1, ranges[i].start.Format("01-02T15:04"), ranges[i].end.Format("01-02T15:04"))
		})
		refused := 0
		for i, a := range answers {
			inTheWay := 0
			for k, b := range answers {
				if k != i && b.kind() == "201" && ranges[i].start.Before(ranges[k].end) && ranges[k].start.Before(ranges[i].end) {
					inTheWay++
				}
			}
			switch kind := a.kind(); {
			case kind == "409 overlap":
				refused++
				if inTheWay == 0 {
					t.Errorf("round %d: %v was refused, and is in nobody's way", round, ranges[i])
				}
			case kind != "201" || inTheWay > 0:
				t.Errorf("round %d: %v: %s, with %d in its way", round, ranges[i], kind, inTheWay)
			}
		}
		if refused == 0 || refused == 50 {
			t.Errorf("round %d: %d of 50 refused, this tests nothing", round, refused)
		}
		day = day.AddDate(0, 0, 7)
	}
	o.conflictFree()
	if got := scan[string](o, `select concat_ws(' ', count(*) = (select count(*) from outbox), count(*) = (select count(*) from appointment_audit)) from appointments`); got != "t t" {
		t.Errorf("as many events and audit rows as appointments: %s", got)
	}
}

// The loser of a race waits for the winner's commit and is then told by the
// constraint, without the resource's lock as well.
func TestTheConstraintDecides(t *testing.T) {
	o := newOffice(t)
	tx, err := o.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `insert into appointments (appointment_id, resource_id, member, during, time_zone, state, event_id, created_at)
		values (gen_random_uuid(), 1, 'member-9', '[2026-03-10 08:30+00,2026-03-10 08:40+00)', 'Etc/UTC', 'BOOKED', 'event-9', '2026-03-01')`) // by somebody who takes no lock
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan answer, 1)
	go func() { answered <- o.book("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00") }()
	o.await("the booking waits", `select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%insert into appointments%'`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(t, <-answered, "409 overlap")
	if n := scan[int](o, `select count(*)::int from outbox`); n != 0 {
		t.Errorf("%d events of who lost", n)
	}
}

// A series is the same time of the wall clock each week, whole or not at all.
func TestSeries(t *testing.T) {
	o := newOffice(t)
	series := func(key string, resource, weekly int, start, end, more string) answer {
		return o.keyed("POST", fmt.Sprintf("/calendar/resources/%d/appointments", resource), "member-1", key, fmt.Sprintf(`{%s,"weekly":%d%s}`, times(start, end), weekly, more))
	}
	a := wants(t, series("s-1", 1, 5, "03-14T09:00", "03-14T10:00", ""), "201")
	want := []string{"2026-03-14T08:00:00Z", "2026-03-21T08:00:00Z", "2026-03-28T08:00:00Z", "2026-04-04T07:00:00Z", "2026-04-11T07:00:00Z"}
	if diff := cmp.Diff(want, a.list("appointments", "start")); diff != "" {
		t.Error("nine o'clock is nine o'clock, summer or not:", diff)
	}
	ids := a.list("appointments", "appointment_id")
	for _, id := range ids {
		o.is(id, "BOOKED 1: 1 BOOKED; 1 appointment.booked; due")
	}
	if a.header.Get("Location") != "" {
		t.Error("a series has no place of its own")
	}
	o.booked("member-2", "b-1", 2, "03-28T09:30", "03-28T09:40")
	before := o.sum()
	wants(t, series("s-2", 2, 2, "03-22T02:30", "03-22T03:30", ""), "422 time-gap") // on the 29th
	wants(t, series("s-2", 2, 2, "10-18T02:30", "10-18T03:30", ""), "422 time-ambiguous")
	wants(t, series("s-2", 2, 1, "03-14T09:00", "03-14T10:00", ""), "400 bad-request")
	wants(t, series("s-2", 2, 54, "03-14T09:00", "03-14T10:00", ""), "400 bad-request")
	if o.sum() != before {
		t.Error("a series that can't be left something")
	}
	wants(t, series("s-2", 2, 3, "03-14T09:00", "03-14T10:00", ""), "409 overlap")
	if n := scan[int](o, `select count(*)::int from appointments where resource_id = 2`); n != 1 {
		t.Errorf("%d appointments: a series is booked whole or not at all", n)
	}
	wants(t, series("s-3", 2, 2, "10-18T02:30", "10-18T03:30", `,"start_fold":"later"`), "201")
	wants(t, series("s-4", 2, 53, "03-10T09:00", "03-10T10:00", ""), "201")
	if n := scan[int](o, `select count(*)::int from appointments where resource_id = 2 and series_no = 52`); n != 1 {
		t.Error("no 53rd week")
	}
	o.conflictFree()
}

func TestKeys(t *testing.T) {
	o := newOffice(t, crowded)
	first := wants(t, o.book("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00"), "201")
	lost := wants(t, o.book("member-2", "b-1", 1, "03-10T09:00", "03-10T10:00"), "409 overlap")
	before := o.sum()
	body := "{ " + strings.Replace(times("03-10T09:00", "03-10T10:00"), ",", " , ", 1) + "}"
	again := wants(t, o.keyed("POST", "/calendar/resources/1/appointments", "member-1", "b-1", body), "201")
	if again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" || again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("replayed as %s, %v", again.body, again.header)
	}
	if again := wants(t, o.book("member-2", "b-1", 1, "03-10T09:00", "03-10T10:00"), "409 overlap"); again.body != lost.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("a refusal was replayed as %s", again.body)
	}
	wants(t, o.book("member-1", "b-1", 1, "03-10T09:00", "03-10T10:01"), "422 key-reused")
	wants(t, o.book("member-1", "b-1", 2, "03-10T09:00", "03-10T10:00"), "422 key-reused")
	if o.sum() != before {
		t.Error("retries have changed something")
	}
	wants(t, o.cancel("member-1", "b-1", first.str("appointment_id")), "200") // of another type
	wants(t, o.book("member-2", "b-1", 1, "03-10T09:00", "03-10T10:00"), "409 overlap")
	wants(t, o.book("member-2", "b-2", 1, "03-10T09:00", "03-10T10:00"), "201")

	answers := burst(20, func(int) answer { return o.book("member-3", "same", 2, "03-10T09:00", "03-10T10:00") })
	bodies := map[string]bool{}
	for _, a := range answers {
		bodies[a.body] = true
	}
	if got := tally(answers); !maps.Equal(got, map[string]int{"201": 20}) || len(bodies) != 1 {
		t.Errorf("twenty at once under one key: %v, %d different bodies", got, len(bodies))
	}
	o.clock.Stop(today.Add(24*time.Hour), 0)
	wants(t, o.book("member-2", "b-2", 1, "03-10T09:00", "03-10T10:00"), "409 retry-window-over")
	o.clock.Stop(today.Add(168*time.Hour), 0)
	wants(t, o.book("member-2", "b-2", 1, "03-10T09:00", "03-10T10:00"), "409 overlap") // as good as new
}
