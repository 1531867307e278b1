package calendar

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (o *office) resolve(key, conflict, decision string) answer {
	return o.keyed("POST", "/calendar/conflicts/"+conflict+"/resolution", "staff-1", key, `{"decision":"`+decision+`"}`)
}

// resolved is what a conflict came to.
func (o *office) resolved(conflict string) string {
	o.t.Helper()
	return scan[string](o, `select coalesce(resolution || ' by ' || resolved_by || ' at ' || resolved_at, 'unresolved') from conflicts where conflict_id = $1::text::uuid`, conflict)
}

func TestKeep(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	o.exec(`update syncs set due_at = null`)
	c := o.conflict(id, "overlap", "x-1", "2026-03-01 08:00+00")
	a := wants(t, o.resolve("r-1", c, "keep"), "200")
	if diff := cmp.Diff(map[string]any{"conflict_id": c, "resolution": "kept"}, a.doc); diff != "" {
		t.Error(diff)
	}
	if got := o.resolved(c); got != "kept by staff-1 at 2026-03-01 08:00:00+00" {
		t.Error(got)
	}
	o.is(id, "BOOKED 1: 1 BOOKED; 1 appointment.booked; not due") // nothing to tell
	if again := wants(t, o.resolve("r-1", c, "keep"), "200"); again.body != a.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("replayed as %s", again.body)
	}
	wants(t, o.resolve("r-1", c, "cancel"), "422 key-reused")
	wants(t, o.resolve("r-2", c, "cancel"), "409 already-resolved")

	missing := o.conflict(id, "missing", "appointment-"+id, "2026-03-01 08:00+00")
	wants(t, o.resolve("r-3", missing, "keep"), "200")
	o.is(id, "BOOKED 2: 1 BOOKED, 2 RESTORED; 1 appointment.booked, 2 appointment.restored; due")
	if got := o.resolved(missing); got != "kept by staff-1 at 2026-03-01 08:00:00+00" {
		t.Error(got)
	}
}

func TestStaffCancel(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	c, second := o.conflict(id, "overlap", "x-1", "2026-03-01 08:00+00"), o.conflict(id, "overlap", "x-2", "2026-03-01 08:00+00")
	a := wants(t, o.resolve("r-1", c, "cancel"), "200")
	if diff := cmp.Diff(map[string]any{"conflict_id": c, "resolution": "cancelled"}, a.doc); diff != "" {
		t.Error(diff)
	}
	o.is(id, "CANCELLED 2: 1 BOOKED, 2 CANCELLED; 1 appointment.booked, 2 appointment.cancelled; due")
	if got := scan[string](o, `select actor || ' ' || reason from appointment_audit where seq = 2`); got != "staff-1 conflict" {
		t.Errorf("cancelled by %q", got)
	}
	if got := o.resolved(c); got != "unresolved" { // until the provider has deleted the event
		t.Error(got)
	}
	wants(t, o.resolve("r-2", c, "keep"), "409 being-resolved")
	wants(t, o.resolve("r-3", second, "cancel"), "409 being-resolved")
	o.booked("member-2", "b-2", 1, "03-10T09:00", "03-10T10:00") // here the time is free at once

	before := o.sum()
	wants(t, o.resolve("r-4", "00000000-0000-4000-8000-000000000000", "keep"), "404 unknown-conflict")
	wants(t, o.resolve("r-4", "x", "keep"), "404 unknown-conflict")
	wants(t, o.resolve("r-4", second, "reject"), "400 bad-request")
	wants(t, o.keyed("POST", "/calendar/conflicts/"+second+"/resolution", "staff-1", "r-4", ""), "400 bad-request")
	if diff := cmp.Diff(before, o.sum()); diff != "" {
		t.Error("something was stored:", diff)
	}
}

// Two of staff decide at once: one does, the other one is told so.
func TestTwoDecide(t *testing.T) {
	o := newOffice(t, crowded)
	for n, words := range [][2]string{{"keep", "cancel"}, {"cancel", "cancel"}, {"keep", "keep"}} {
		day := fmt.Sprint("03-1", n)
		id := o.booked("member-1", fmt.Sprint("b-", n), 1, day+"T09:00", day+"T10:00")
		c := o.conflict(id, "overlap", "x-1", "2026-03-01 08:00+00")
		answers := burst(2, func(i int) answer { return o.resolve(fmt.Sprint("r-", n, "-", i), c, words[i]) })
		got := tally(answers)
		if got["200"] != 1 || got["409 already-resolved"]+got["409 being-resolved"] != 1 {
			t.Errorf("%v: %v", words, got)
		}
	}
}
