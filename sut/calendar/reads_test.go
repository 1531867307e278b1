package calendar

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func (o *office) availability(resource int, from, to string) answer {
	return o.send("GET", fmt.Sprintf("/calendar/resources/%d/availability?from=%s&to=%s", resource, from, to), call{who: "member-1"})
}

func TestAvailability(t *testing.T) {
	o := newOffice(t)
	const day, next = "2026-03-10T00:00:00Z", "2026-03-11T01:00:00%2B01:00" // one day
	none := wants(t, o.availability(1, day, next), "200")
	if diff := cmp.Diff(map[string]any{"busy": []any{}, "as_of": nil}, none.doc); diff != "" {
		t.Error(diff)
	}
	o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	o.booked("member-2", "b-2", 1, "03-10T10:00", "03-10T11:00") // touches it
	gone := o.booked("member-2", "b-3", 1, "03-10T14:00", "03-10T15:00")
	wants(t, o.cancel("member-2", "c-3", gone), "200")
	o.booked("member-2", "b-4", 1, "03-10T23:30", "03-11T02:00") // past the day's end
	o.booked("member-2", "b-5", 2, "03-10T16:00", "03-10T17:00") // another resource
	o.booked("member-2", "b-6", 1, "03-12T16:00", "03-12T17:00") // another day
	o.exec(`insert into looks values (1, '2026-03-01 09:00+00', '2026-03-01 07:59:59.5+00')`)
	o.exec(`insert into external_events values (1, 'x-1', '[2026-03-10 09:30+00,2026-03-10 10:30+00)'), (1, 'x-2', '[2026-03-09 20:00+00,2026-03-10 01:00+00)'),
		(1, 'x-3', '[2026-03-10 08:15+00,2026-03-10 08:20+00)'), (2, 'x-1', '[2026-03-10 19:00+00,2026-03-10 20:00+00)')`)
	want := map[string]any{"as_of": "2026-03-01T07:59:59.5Z", "busy": []any{
		map[string]any{"start": "2026-03-10T00:00:00Z", "end": "2026-03-10T01:00:00Z"},
		map[string]any{"start": "2026-03-10T08:00:00Z", "end": "2026-03-10T10:30:00Z"},
		map[string]any{"start": "2026-03-10T22:30:00Z", "end": "2026-03-11T00:00:00Z"},
	}}
	if diff := cmp.Diff(want, wants(t, o.availability(1, day, next), "200").doc); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct{ from, to, want string }{
		{day, "2026-04-10T00:00:00Z", "200"}, // 31 days
		{day, "2026-04-10T00:00:01Z", "422 bad-range"},
		{day, day, "422 bad-range"},
		{next, day, "422 bad-range"},
		{"2026-03-10", next, "400 bad-request"},
		{"", next, "400 bad-request"},
		{day, "2026-03-11T00:00:00", "400 bad-request"},
	} {
		wants(t, o.availability(1, c.from, c.to), c.want)
	}
	wants(t, o.availability(9, day, next), "404 unknown-resource")
	wants(t, o.send("GET", "/calendar/resources/3/availability?from="+day+"&to="+next, call{who: "staff-1"}), "200")
}

// conflict writes a conflict down, and gives its id.
func (o *office) conflict(appointment, kind, external, at string) string {
	o.t.Helper()
	return scan[string](o, `insert into conflicts (conflict_id, resource_id, appointment_id, kind, external_event, found_at, found_by)
		select gen_random_uuid(), resource_id, appointment_id, $2, $3, $4::text::timestamptz, 'look' from appointments where appointment_id = $1::text::uuid
		returning conflict_id::text`, appointment, kind, external, at)
}

func TestAppointmentAndResource(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	other := o.booked("member-2", "b-2", 1, "03-10T10:00", "03-10T11:00")
	see := func(who string) map[string]any {
		t.Helper()
		return wants(t, o.send("GET", "/calendar/appointments/"+id, call{who: who}), "200").doc
	}
	want := map[string]any{
		"appointment_id": id, "resource_id": 1.0, "start": "2026-03-10T08:00:00Z", "end": "2026-03-10T09:00:00Z", "time_zone": "Europe/Berlin",
		"state": "BOOKED", "sync": "PENDING", "event_id": "appointment-" + id, "conflicts": []any{},
	}
	if diff := cmp.Diff(want, see("member-1")); diff != "" {
		t.Error(diff)
	}
	second := o.conflict(id, "overlap", "x-2", "2026-03-01 08:00:01.25+00")
	first := o.conflict(id, "overlap", "x-1", "2026-03-01 08:00:00+00")
	o.conflict(other, "overlap", "x-1", "2026-03-01 08:00:00+00")
	o.exec(`insert into conflicts select gen_random_uuid(), resource_id, appointment_id, kind, 'x-3', found_at, found_by, found_at, 'vanished', 'server'
		from conflicts where external_event = 'x-2'`)
	o.exec(`update syncs set parked_at = '2026-03-01' where appointment_id = $1::text::uuid`, id)
	entry := func(conflict, external, at string) map[string]any {
		return map[string]any{
			"conflict_id": conflict, "resource_id": 1.0, "appointment_id": id, "kind": "overlap", "external_event": external, "found_at": at, "found_by": "look",
		}
	}
	want["sync"] = "PARKED"
	want["conflicts"] = []any{entry(first, "x-1", "2026-03-01T08:00:00Z"), entry(second, "x-2", "2026-03-01T08:00:01.25Z")}
	if diff := cmp.Diff(want, see("staff-1")); diff != "" {
		t.Error(diff)
	}
	resource := func(creation string, unresolved, pending float64) {
		t.Helper()
		want := map[string]any{
			"resource_id": 1.0, "state": "ACTIVE", "provider_contract": "check-then-create", "conflict_policy": "keep-and-flag", "conflict_limit": 3.0,
			"creation": creation, "unresolved": unresolved, "pending": pending,
		}
		got := wants(t, o.send("GET", "/calendar/resources/1", call{who: "staff-1"}), "200").doc
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	resource("RUNNING", 3, 2) // as many as the limit
	o.conflict(other, "overlap", "x-9", "2026-03-01 08:00:00+00")
	o.exec(`update syncs set due_at = null where appointment_id = $1::text::uuid`, other)
	resource("PAUSED", 4, 1)
	o.exec(`update accounts set state = 'FAILED_AUTH' where resource_id = 1`)
	resource("FAILED_AUTH", 4, 1)
	o.exec(`update syncs set due_at = null, parked_at = null`)
	if got := see("member-1")["sync"]; got != "DONE" {
		t.Errorf("sync %v", got)
	}
}

func TestTriedAgain(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	path := "/calendar/appointments/" + id + "/sync"
	wants(t, o.send("POST", path, call{who: "staff-1"}), "409 not-parked")
	o.exec(`update syncs set parked_at = '2026-03-01', attempts = 50, due_at = '2026-03-05'`)
	a := wants(t, o.send("POST", path, call{who: "staff-1"}), "200")
	if diff := cmp.Diff(map[string]any{"appointment_id": id, "sync": "PENDING"}, a.doc); diff != "" {
		t.Error(diff)
	}
	if got := scan[string](o, `select concat_ws(' ', due_at, attempts, parked_at is null) from syncs`); got != "2026-03-01 08:00:00+00 0 t" {
		t.Errorf("sync %q", got)
	}
	wants(t, o.send("POST", path, call{who: "staff-1"}), "409 not-parked")
	wants(t, o.send("POST", "/calendar/appointments/00000000-0000-4000-8000-000000000000/sync", call{who: "staff-1"}), "404 unknown-appointment")
	o.exec(`update syncs set parked_at = '2026-03-01', attempts = 50, due_at = null`)
	wants(t, o.cancel("member-1", "c-1", id), "200") // news unparks it, too
	if got := scan[string](o, `select concat_ws(' ', due_at, attempts, parked_at is null) from syncs`); got != "2026-03-01 08:00:00+00 0 t" {
		t.Errorf("sync %q", got)
	}
}

func TestPurge(t *testing.T) {
	o := newOffice(t)
	o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	o.clock.Stop(today.Add(time.Hour), 0)
	o.booked("member-1", "b-2", 1, "03-10T10:00", "03-10T11:00")
	p := newPurger(o.service.background.Pool(), o.cfg)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{168 * time.Hour, 0}, {168*time.Hour + time.Microsecond, 1}, {168*time.Hour + time.Microsecond, 0}, {170 * time.Hour, 1}} {
		o.clock.Stop(today.Add(c.after), 0)
		if n, err := p.purge(t.Context()); err != nil || n != c.want {
			t.Errorf("after %v %d results were deleted, want %d: %v", c.after, n, c.want, err)
		}
	}
	if n := scan[int](o, `select count(*)::int from appointments`); n != 2 {
		t.Errorf("%d appointments: they are kept", n)
	}
}
