package calendar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// to is one element of a reschedule's moves.
func to(id, start, end string) string {
	return fmt.Sprintf(`{"appointment_id":%q,%s}`, id, times(start, end))
}

func (o *office) reschedule(who, key string, moves ...string) answer {
	return o.keyed("POST", "/calendar/reschedules", who, key, `{"moves":[`+strings.Join(moves, ",")+`]}`)
}

func TestMove(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	o.booked("member-2", "b-2", 1, "03-10T11:00", "03-10T12:00")
	a := wants(t, o.move("member-1", "m-1", id, "03-10T09:30", "03-10T10:30"), "200") // over where it is now
	if a.str("appointment_id") != id || a.str("start") != "2026-03-10T08:30:00Z" || a.str("event_id") != "appointment-"+id || a.str("state") != "BOOKED" || len(a.doc) != 7 {
		t.Errorf("moved: %s", a.body)
	}
	o.is(id, "BOOKED 2: 1 BOOKED, 2 MOVED; 1 appointment.booked, 2 appointment.moved; due")
	no := wants(t, o.move("member-1", "m-2", id, "03-10T10:30", "03-10T11:01"), "409 overlap")
	if len(no.doc) != 5 || fmt.Sprint(no.doc["resource_id"]) != "1" {
		t.Errorf("an overlap says %s", no.body)
	}
	o.is(id, "BOOKED 2: 1 BOOKED, 2 MOVED; 1 appointment.booked, 2 appointment.moved; due")
	wants(t, o.move("member-1", "m-3", id, "03-10T10:00", "03-10T11:00"), "200")
	if got := o.during(id); got != `["2026-03-10 09:00:00+00","2026-03-10 10:00:00+00")` {
		t.Errorf("it is at %s", got)
	}
	o.booked("member-3", "b-3", 1, "03-10T09:00", "03-10T10:00") // what was left is free
	body := `{"start":"2026-03-10T10:00","end":"2026-03-10T11:00","time_zone":"America/New_York"}`
	wants(t, o.keyed("PATCH", "/calendar/appointments/"+id, "member-1", "m-4", body), "200")
	if got := scan[string](o, `select time_zone || ' ' || during from appointments where appointment_id = $1::text::uuid`, id); got != `America/New_York ["2026-03-10 14:00:00+00","2026-03-10 15:00:00+00")` {
		t.Errorf("moved to another zone: %s", got)
	}
	o.exec(`update resources set state = 'INACTIVE' where resource_id = 1`)
	wants(t, o.move("member-1", "m-5", id, "03-11T10:00", "03-11T11:00"), "200") // no bookings, but what is there goes on
	if replay := wants(t, o.move("member-1", "m-3", id, "03-10T10:00", "03-10T11:00"), "200"); replay.header.Get("Idempotency-Replayed") != "true" {
		t.Error("a retry was done again")
	}
	o.conflictFree()
}

func TestSwap(t *testing.T) {
	o := newOffice(t)
	a, b := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00"), o.booked("member-1", "b-2", 1, "03-10T10:00", "03-10T11:00")
	c := o.booked("member-1", "b-3", 2, "03-10T09:00", "03-10T10:00")
	other := o.booked("member-2", "b-4", 2, "03-10T12:00", "03-10T13:00")
	swapped := wants(t, o.reschedule("member-1", "r-1", to(b, "03-10T09:00", "03-10T10:00"), to(c, "03-10T10:00", "03-10T11:00"), to(a, "03-10T10:00", "03-10T11:00")), "200")
	if diff := cmp.Diff([]string{b, c, a}, swapped.list("appointments", "appointment_id")); diff != "" {
		t.Error("in the order of the moves:", diff)
	}
	for _, id := range []string{a, b, c} {
		o.is(id, "BOOKED 2: 1 BOOKED, 2 MOVED; 1 appointment.booked, 2 appointment.moved; due")
	}
	if got := o.during(a); got != `["2026-03-10 09:00:00+00","2026-03-10 10:00:00+00")` {
		t.Errorf("the first is at %s", got)
	}
	// All or nothing: resource 1 is in order, resource 2 is not.
	no := wants(t, o.reschedule("member-1", "r-2", to(a, "03-12T10:00", "03-12T11:00"), to(c, "03-10T12:59", "03-10T13:30")), "409 overlap")
	if fmt.Sprint(no.doc["resource_id"]) != "2" {
		t.Errorf("the overlap is said to be at %v", no.doc["resource_id"])
	}
	no = wants(t, o.reschedule("member-1", "r-3", to(c, "03-12T10:00", "03-12T11:00"), to(b, "03-10T10:59", "03-10T11:30"), to(a, "03-10T10:00", "03-10T11:00")), "409 overlap")
	if fmt.Sprint(no.doc["resource_id"]) != "1" {
		t.Errorf("the overlap is said to be at %v", no.doc["resource_id"])
	}
	before := o.sum()
	wants(t, o.reschedule("member-1", "r-4", to(a, "03-12T10:00", "03-12T11:00"), to(other, "03-12T12:59", "03-12T13:30")), "404 unknown-appointment")
	wants(t, o.reschedule("member-1", "r-4", to(a, "03-12T10:00", "03-12T11:00"), to(c, "03-29T02:30", "03-29T03:30")), "422 time-gap")
	wants(t, o.reschedule("member-1", "r-4", to(a, "03-12T10:00", "03-12T11:00"), to(c, "02-12T10:00", "02-12T11:00")), "422 bad-range")
	if o.sum() != before {
		t.Error("what was not done left something")
	}
	wants(t, o.cancel("member-1", "c-1", c), "200")
	if no := wants(t, o.reschedule("member-1", "r-5", to(a, "03-12T10:00", "03-12T11:00"), to(c, "03-13T10:00", "03-13T11:00")), "409 appointment-over"); no.str("appointment_id") != c {
		t.Errorf("over is said to be %s", no.body)
	}
	o.is(a, "BOOKED 2: 1 BOOKED, 2 MOVED; 1 appointment.booked, 2 appointment.moved; due")
	o.conflictFree()
}

// Swaps of the same two, cancellations and bookings of their times, at once:
// nobody deadlocks for good, and nothing overlaps.
func TestSwapsAtOnce(t *testing.T) {
	o := newOffice(t, crowded)
	a, b := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00"), o.booked("member-1", "b-2", 1, "03-10T10:00", "03-10T11:00")
	c, d := o.booked("member-1", "b-3", 2, "03-10T09:00", "03-10T10:00"), o.booked("member-1", "b-4", 2, "03-10T10:00", "03-10T11:00")
	early, late := [2]string{"03-10T09:00", "03-10T10:00"}, [2]string{"03-10T10:00", "03-10T11:00"}
	answers := burst(40, func(i int) answer {
		x, y, key := early, late, fmt.Sprint("r-", i)
		if i%2 == 0 {
			x, y = late, early
		}
		moves := []string{to(a, x[0], x[1]), to(b, y[0], y[1]), to(d, y[0], y[1]), to(c, x[0], x[1])}
		switch {
		case i%5 == 0:
			return o.book("member-2", key, 1+i%2, "03-10T09:30", "03-10T10:30")
		case i%3 == 0: // the other way round
			moves[0], moves[1], moves[2], moves[3] = moves[3], moves[2], moves[1], moves[0]
		}
		return o.reschedule("member-1", key, moves...)
	})
	if got := tally(answers); got["200"] != 32 || got["409 overlap"] != 8 {
		t.Errorf("%v", got)
	}
	o.conflictFree()
	if n := scan[int](o, `select count(*)::int from appointments where (select count(*) from appointment_audit h where h.appointment_id = appointments.appointment_id) <> version or version <> 33`); n != 0 {
		t.Errorf("%d appointments were not moved 32 times, or not written down", n)
	}
	if n := o.service.meters.retries.Get(); n != 0 {
		t.Errorf("%d transactions had to be run again: locks are taken in one order, nobody can deadlock", n)
	}
}

// A move, two cancellations and a booking of its time, at once: it is cancelled
// once, moved only before that, and what is booked overlaps nothing.
func TestMovesAndCancellationsAtOnce(t *testing.T) {
	o := newOffice(t, crowded)
	for round := range 20 {
		day, key := fmt.Sprintf("04-%02d", round+1), func(what string) string { return fmt.Sprint(what, "-", round) }
		id := o.booked("member-1", key("b"), 1, day+"T09:00", day+"T10:00")
		answers := burst(4, func(i int) answer {
			switch i {
			case 0:
				return o.move("member-1", key("m"), id, day+"T09:30", day+"T10:30")
			case 1:
				return o.book("member-2", key("b"), 1, day+"T09:15", day+"T09:45")
			default:
				return o.cancel("member-1", key(fmt.Sprint("c-", i)), id)
			}
		})
		moved, cancelled := answers[0].kind(), tally(answers[2:])
		if cancelled["200"] != 1 || cancelled["409 appointment-over"] != 1 {
			t.Fatalf("round %d: cancelled %v", round, cancelled)
		}
		switch moved {
		case "200":
			o.is(id, "CANCELLED 3: 1 BOOKED, 2 MOVED, 3 CANCELLED; 1 appointment.booked, 2 appointment.moved, 3 appointment.cancelled; due")
		case "409 appointment-over":
			o.is(id, "CANCELLED 2: 1 BOOKED, 2 CANCELLED; 1 appointment.booked, 2 appointment.cancelled; due")
		default:
			t.Fatalf("round %d: moved %s", round, moved)
		}
		if b := answers[1].kind(); b != "201" && b != "409 overlap" {
			t.Fatalf("round %d: booked %s", round, b)
		}
	}
	o.conflictFree()
}

func TestMoveSeries(t *testing.T) {
	o := newOffice(t)
	a := wants(t, o.keyed("POST", "/calendar/resources/1/appointments", "member-1", "s-1", "{"+times("03-14T09:00", "03-14T10:00")+`,"weekly":4}`), "201")
	series, ids := a.str("series_id"), a.list("appointments", "appointment_id")
	path := "/calendar/series/" + series
	// Each onto where the next one was, which only fits when all have moved.
	moved := wants(t, o.keyed("PATCH", path, "member-1", "m-1", "{"+times("03-21T09:30", "03-21T10:30")+"}"), "200")
	want := []string{"2026-03-21T08:30:00Z", "2026-03-28T08:30:00Z", "2026-04-04T07:30:00Z", "2026-04-11T07:30:00Z"}
	if diff := cmp.Diff(want, moved.list("appointments", "start")); diff != "" || moved.str("series_id") != series {
		t.Error(diff, moved.body)
	}
	if diff := cmp.Diff(ids, moved.list("appointments", "appointment_id")); diff != "" {
		t.Error(diff)
	}
	o.booked("member-2", "b-1", 1, "04-05T12:00", "04-05T13:00")
	wants(t, o.keyed("PATCH", path, "member-1", "m-2", "{"+times("03-22T12:30", "03-22T13:30")+"}"), "409 overlap") // the third one
	before := o.sum()
	wants(t, o.keyed("PATCH", path, "member-1", "m-3", "{"+times("03-22T02:30", "03-22T03:30")+"}"), "422 time-gap") // the second one
	wants(t, o.keyed("PATCH", path, "member-2", "m-3", "{"+times("03-22T09:30", "03-22T10:30")+"}"), "404 unknown-series")
	if o.sum() != before {
		t.Error("what was not done left something")
	}
	wants(t, o.cancel("member-1", "c-1", ids[1]), "200")
	o.clock.Stop(time.Date(2026, 3, 21, 8, 30, 0, 0, time.UTC), 0) // the first one begins
	moved = wants(t, o.keyed("PATCH", path, "member-1", "m-4", "{"+times("03-22T14:00", "03-22T14:30")+"}"), "200")
	want = []string{"2026-03-21T08:30:00Z", "2026-03-28T08:30:00Z", "2026-04-05T12:00:00Z", "2026-04-12T12:00:00Z"}
	if diff := cmp.Diff(want, moved.list("appointments", "start")); diff != "" {
		t.Error("those that are over stay:", diff)
	}
	o.is(ids[0], "BOOKED 2: 1 BOOKED, 2 MOVED; 1 appointment.booked, 2 appointment.moved; due")
	o.is(ids[1], "CANCELLED 3: 1 BOOKED, 2 MOVED, 3 CANCELLED; 1 appointment.booked, 2 appointment.moved, 3 appointment.cancelled; due")
	o.is(ids[2], "BOOKED 3: 1 BOOKED, 2 MOVED, 3 MOVED; 1 appointment.booked, 2 appointment.moved, 3 appointment.moved; due")
	o.clock.Stop(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), 0)
	wants(t, o.keyed("PATCH", path, "member-1", "m-5", "{"+times("06-22T14:00", "06-22T14:30")+"}"), "409 appointment-over")
	o.conflictFree()
}

// Whose it is: to everybody else there is no such appointment.
func TestWhoseItIs(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	before := o.sum()
	wants(t, o.cancel("member-2", "c-1", id), "404 unknown-appointment")
	wants(t, o.move("member-2", "m-1", id, "03-11T09:00", "03-11T10:00"), "404 unknown-appointment")
	wants(t, o.reschedule("member-2", "r-1", to(id, "03-11T09:00", "03-11T10:00")), "404 unknown-appointment")
	wants(t, o.send("GET", "/calendar/appointments/"+id, call{who: "member-2"}), "404 unknown-appointment")
	wants(t, o.cancel("staff-1", "c-1", id), "403 forbidden")
	wants(t, o.cancel("member-1", "c-1", strings.ToUpper(id)), "404 unknown-appointment")
	if o.sum() != before {
		t.Error("somebody else has changed something")
	}
	wants(t, o.send("GET", "/calendar/appointments/"+id, call{who: "member-1"}), "200")
	wants(t, o.send("GET", "/calendar/appointments/"+id, call{who: "staff-1"}), "200")
}

// The moment it begins, it is over: for moves and cancellations.
func TestBegun(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	o.clock.Stop(time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC), 0)
	wants(t, o.move("member-1", "m-1", id, "03-11T09:00", "03-11T10:00"), "409 appointment-over")
	wants(t, o.cancel("member-1", "c-1", id), "409 appointment-over")
	o.clock.Stop(time.Date(2026, 3, 10, 7, 59, 59, 0, time.UTC), 0)
	wants(t, o.cancel("member-1", "c-1", id), "409 appointment-over") // that is what the key says
	wants(t, o.cancel("member-1", "c-2", id), "200")
}
