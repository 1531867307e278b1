package calendar

import (
	"strings"
	"testing"
	"time"
)

// look looks at all calendars, a second later than anything before.
func (o *office) look() {
	o.t.Helper()
	o.later(time.Second)
	o.exec(`insert into looks (resource_id, due_at) select resource_id, $1 from resources where state = 'ACTIVE' on conflict (resource_id) do update set due_at = excluded.due_at`, o.clock.Now())
	r := newReconciler(o.service.background, o.service.provider, o.cfg, o.service.meters)
	due, err := r.claim(o.t.Context(), 10)
	if err != nil || len(due) < 1 {
		o.t.Fatal(due, err)
	}
	for _, l := range due {
		r.do(o.t.Context(), l)
	}
}

// decide has staff decide of the one conflict that is open.
func (o *office) decide(key, word string) {
	o.t.Helper()
	id := scan[string](o, `select conflict_id::text from conflicts where resolved_at is null`)
	wants(o.t, o.keyed("POST", "/calendar/conflicts/"+id+"/resolution", "staff-1", key, `{"decision":"`+word+`"}`), "200")
}

func (o *office) createdAt(start, end string) string {
	o.t.Helper()
	id := o.booked("member-1", "book-"+start, 1, start, end)
	o.sync()
	wantText(o.t, "its events", o.results(id), "booked created")
	return id
}

func TestReconciliationFindsConflicts(t *testing.T) {
	for policy, want := range map[string]struct{ events, conflicts, holds string }{
		policyKeep:   {"booked created", "overlap x by reconciliation: open", "EVENT@1 x"},
		policyReject: {"booked created, rejected deleted", "overlap x by reconciliation: rejected by server", "x"},
	} {
		t.Run(policy, func(t *testing.T) {
			o, f := newLinked(t, contractAtomic, policy)
			id := o.createdAt("04-01T10:00", "04-01T11:00")
			next := o.createdAt("04-01T11:00", "04-01T12:00")
			f.external("back-to-back", "04-01T09:00", "04-01T10:00")
			o.look()
			wantText(t, "conflicts of a calendar without any", o.conflicts(), "")
			f.external("x", "04-01T10:59", "04-01T11:00")
			for range 3 {
				o.look()
			}
			if policy == policyReject {
				wantText(t, "conflicts until it is deleted", o.conflicts(), "overlap x by reconciliation: open")
			}
			o.sync()
			o.look()
			wantText(t, "its events", o.results(id), want.events)
			wantText(t, "the next one's events", o.results(next), "booked created")
			wantText(t, "conflicts", o.conflicts(), want.conflicts)
			wantText(t, "at the provider", f.holds(), "back-to-back "+strings.ReplaceAll(want.holds, "EVENT", o.eventOf(id))+" "+o.eventOf(next)+"@1")
		})
	}
}

// TestConflictsEnd: the other one goes, or moves away; staff or the member
// cancel.
func TestConflictsEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		by   func(o *office, f *fakeCalendar, id string)
		want string
	}{
		"gone":  {func(_ *office, f *fakeCalendar, _ string) { f.gone("x") }, "overlap x by reconciliation: vanished by server"},
		"moved": {func(_ *office, f *fakeCalendar, _ string) { f.external("x", "04-01T11:00", "04-01T12:00") }, "overlap x by reconciliation: vanished by server"},
		"still": {func(_ *office, f *fakeCalendar, _ string) { f.external("x", "04-01T10:30", "04-01T12:00") }, "overlap x by reconciliation: open"},
		"ours": {func(o *office, _ *fakeCalendar, id string) {
			wants(o.t, o.move("member-1", "move-1", id, "04-02T10:00", "04-02T11:00"), "200")
		}, "overlap x by reconciliation: vanished by server"},
		"staff":  {func(o *office, _ *fakeCalendar, _ string) { o.decide("cancel-it", "cancel") }, "overlap x by reconciliation: cancelled by staff-1"},
		"member": {func(o *office, _ *fakeCalendar, id string) { wants(o.t, o.cancel("member-1", "cancel-1", id), "200") }, "overlap x by reconciliation: ended by member-1"},
	} {
		t.Run(name, func(t *testing.T) {
			o, f := newLinked(t, contractCheck, policyKeep)
			id := o.createdAt("04-01T10:00", "04-01T11:00")
			f.external("x", "04-01T10:00", "04-01T11:00")
			o.look()
			if name == "staff" || name == "member" {
				f.when("delete", down)
			}
			tt.by(o, f, id)
			o.look()
			o.sync()
			if name == "staff" || name == "member" {
				wantText(t, "conflicts before it is deleted", o.conflicts(), "overlap x by reconciliation: open")
				o.later(time.Minute)
				o.sync()
			}
			o.look()
			wantText(t, "conflicts", o.conflicts(), tt.want)
		})
	}
}

// TestPastConflicts stay until they are resolved, and are looked at.
func TestPastConflicts(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyKeep)
	o.createdAt("04-01T10:00", "04-01T11:00")
	f.external("x", "04-01T10:00", "04-01T11:00")
	o.look()
	o.later(60 * 24 * time.Hour)
	o.look()
	wantText(t, "conflicts", o.conflicts(), "overlap x by reconciliation: open")
	f.gone("x")
	o.look()
	wantText(t, "conflicts", o.conflicts(), "overlap x by reconciliation: vanished by server")
}

// TestKept: what staff keep is no conflict again while the other does not move.
func TestKept(t *testing.T) {
	o, f := newLinked(t, contractAtomic, policyKeep)
	f.external("x", "04-01T10:00", "04-01T11:00")
	id := o.createdAt("04-01T10:00", "04-01T11:00")
	o.decide("keep-it", "keep")
	kept := "overlap x by check: kept by staff-1"
	for range 2 {
		o.look()
	}
	wantText(t, "conflicts", o.conflicts(), kept)
	// Also for who moves it, and for the policy.
	o.exec(`update resources set conflict_policy = 'reject'`)
	wants(t, o.move("member-1", "move-1", id, "04-01T10:30", "04-01T11:30"), "200")
	o.sync()
	o.look()
	wantText(t, "its events", o.results(id), "booked created, moved updated")
	wantText(t, "conflicts after the move", o.conflicts(), kept)
	o.exec(`update resources set conflict_policy = 'keep-and-flag'`)
	f.external("x", "04-01T10:15", "04-01T11:00")
	o.look()
	wantText(t, "conflicts after the other moved", o.conflicts(), kept+", overlap x by reconciliation: open")
	o.decide("keep-again", "keep")
	o.look()
	wantText(t, "conflicts after that was kept", o.conflicts(), kept+", overlap x by reconciliation: kept by staff-1")
	f.gone("x")
	o.look()
	f.external("x", "04-01T10:15", "04-01T11:00")
	o.look()
	wantText(t, "conflicts after it went and came", o.conflicts(), kept+", overlap x by reconciliation: kept by staff-1, overlap x by reconciliation: open")
}

func TestMissing(t *testing.T) {
	for name, tt := range map[string]struct {
		policy, events, conflicts, holds string
		then                             func(o *office, f *fakeCalendar, gone event)
	}{
		"reject": {policyReject, "booked created, rejected deleted", "missing ours by reconciliation: rejected by server", "", func(*office, *fakeCalendar, event) {}},
		"open":   {policyKeep, "booked created", "missing ours by reconciliation: open", "", func(*office, *fakeCalendar, event) {}},
		"kept":   {policyKeep, "booked created, restored created", "missing ours by reconciliation: kept by staff-1", "EVENT@3", func(o *office, _ *fakeCalendar, _ event) { o.decide("keep-it", "keep") }},
		"cancelled": {policyKeep, "booked created, cancelled deleted", "missing ours by reconciliation: cancelled by staff-1", "", func(o *office, _ *fakeCalendar, _ event) {
			o.decide("cancel-it", "cancel")
		}},
		"back": {policyKeep, "booked created", "missing ours by reconciliation: vanished by server", "EVENT@1", func(_ *office, f *fakeCalendar, gone event) {
			f.with("cal-1", func(d *fakeDiary) { d.events[gone.ID] = gone })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o, f := newLinked(t, contractCheck, tt.policy)
			id := o.createdAt("04-01T10:00", "04-01T11:00")
			var gone event
			f.with("cal-1", func(d *fakeDiary) { gone = d.events[o.eventOf(id)]; delete(d.events, o.eventOf(id)) })
			o.look()
			tt.then(o, f, gone)
			o.sync()
			for range 2 {
				o.look()
			}
			wantText(t, "its events", o.results(id), tt.events)
			wantText(t, "conflicts", o.conflicts(), tt.conflicts)
			wantText(t, "at the provider", f.holds(), strings.ReplaceAll(tt.holds, "EVENT", o.eventOf(id)))
		})
	}
}

// TestNotMissing: who is still to be told, or was told after the look began, is
// not gone.
func TestNotMissing(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.createdAt("04-01T10:00", "04-01T11:00")
	f.gone(o.eventOf(id))
	wants(t, o.move("member-1", "move-1", id, "04-02T10:00", "04-02T11:00"), "200")
	o.look()
	wantText(t, "conflicts of one that is to be moved", o.conflicts(), "")
	o.sync()
	// The look reads the calendar, then the appointment is told to it anew.
	f.then("list", func() {
		f.with("cal-1", func(d *fakeDiary) { delete(d.events, o.eventOf(id)) })
		o.exec(`update syncs set synced_at = $1`, o.clock.Now())
	})
	f.gone(o.eventOf(id))
	o.look()
	wantText(t, "conflicts of one that was told meanwhile", o.conflicts(), "")
	o.look()
	wantText(t, "conflicts of one that is gone", o.conflicts(), "missing ours by reconciliation: open")
}

// TestOrphans: ours that no row knows are deleted; others' never, and ours that
// are to be deleted anyway, or of another time, neither.
func TestOrphans(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.createdAt("04-01T10:00", "04-01T11:00")
	f.external("appointment-of-others", "04-01T11:00", "04-01T12:00")
	f.with("cal-1", func(d *fakeDiary) {
		d.events["orphan"] = event{berlin("04-01T12:00", "04-01T13:00"), "orphan", 3, "", sourceOurs}
	})
	f.kinds()
	f.when("delete", down)
	o.look()
	o.look()
	wantText(t, "at the provider", f.holds(), o.eventOf(id)+"@1 appointment-of-others")
	if gone := f.made("delete"); len(gone) != 2 || gone[0].id != "orphan" || gone[1].id != "orphan" {
		t.Errorf("deletions %+v, want two attempts on orphan", gone)
	}
}

// TestLateLookHasNothingToSay: its claim ran out, and a later one has stored
// what it saw.
func TestLateLookHasNothingToSay(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyKeep)
	o.exec(`update resources set state = 'INACTIVE' where resource_id = 2`) // the late look is at calendar 1
	o.createdAt("04-01T10:00", "04-01T11:00")
	reached, goOn := f.late(t, "list")
	ended := make(chan struct{})
	go func() { defer close(ended); o.look() }()
	soon(t, reached)
	f.external("x", "04-01T10:00", "04-01T11:00")
	o.later(o.cfg.SyncClaim)
	o.look()
	wantText(t, "conflicts", o.conflicts(), "overlap x by reconciliation: open")
	before := o.sum()
	goOn()
	soon(t, ended)
	wantText(t, "stored by the late look", o.sum(), before)
}

// TestLookStoresWhatOthersHave, for who asks when the resource is busy.
func TestLookStoresWhatOthersHave(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyKeep)
	seen := func() string {
		return scan[string](o, `select coalesce(string_agg(event_id || ' ' || lower(during)::time, ', ' order by event_id), '') from external_events`)
	}
	f.external("x", "04-01T10:00", "04-01T11:00")
	f.external("y", "04-01T10:30", "04-01T11:00")
	f.external("odd", "04-01T10:30", "04-01T10:30")
	o.look()
	wantText(t, "seen", seen(), "x 08:00:00, y 08:30:00")
	f.gone("x")
	f.external("y", "04-01T12:30", "04-01T13:00")
	o.look()
	wantText(t, "seen", seen(), "y 10:30:00")
}

// TestLooksWait while the calendar's authorisation is over, or it is to be quiet.
func TestLooksWait(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyKeep)
	f.when("list", quiet)
	o.look()
	r := newReconciler(o.service.background, o.service.provider, o.cfg, o.service.meters)
	for _, step := range []struct {
		sql  string
		want int
	}{{`update looks set due_at = now() - interval '10 years'`, 1}, {`update accounts set state = 'FAILED_AUTH', quiet_until = null`, 0}} {
		o.exec(step.sql)
		due, err := r.claim(t.Context(), 10)
		if err != nil || len(due) != step.want {
			t.Errorf("%d looks are due (%v), want %d", len(due), err, step.want)
		}
		o.exec(`update looks set due_at = now() - interval '10 years'`)
	}
}

// TestPause: more unresolved conflicts than the limit.
func TestPause(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyKeep)
	o.exec(`update resources set conflict_limit = 1`)
	first := o.createdAt("04-01T10:00", "04-01T11:00")
	second := o.createdAt("04-02T10:00", "04-02T11:00")
	f.external("x", "04-01T10:00", "04-01T11:00")
	f.external("y", "04-02T10:00", "04-02T11:00")
	creation := func() string {
		return wants(t, o.send("GET", "/calendar/resources/1", call{who: "staff-1"}), "200").str("creation")
	}
	wantText(t, "creation", creation(), creationRunning)
	o.look()
	wantText(t, "creation", creation(), creationPaused)
	waits := o.booked("member-1", "book-3", 1, "04-03T10:00", "04-03T11:00")
	over := o.booked("member-1", "book-4", 1, "04-04T10:00", "04-04T11:00")
	other := o.booked("member-1", "book-5", 2, "04-03T10:00", "04-03T11:00")
	wants(t, o.move("member-1", "move-1", second, "04-05T10:00", "04-05T11:00"), "200")
	wants(t, o.cancel("member-1", "cancel-4", over), "200")
	o.sync()
	wantText(t, "one that is to be created", o.results(waits), "booked -")
	wantText(t, "one that was cancelled", o.results(over), "booked not-needed, cancelled not-needed")
	wantText(t, "one of another resource", o.results(other), "booked created")
	wantText(t, "one that is moved", o.results(second), "booked created, moved updated")
	wants(t, o.cancel("member-1", "cancel-1", first), "200")
	o.sync() // the conflict ends with the event
	wantText(t, "creation", creation(), creationRunning)
	o.sync()
	wantText(t, "one that was to be created", o.results(waits), "booked created")
}

func TestConflictsAreListed(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyKeep)
	id := o.createdAt("04-01T10:00", "04-01T11:00")
	later := o.createdAt("04-02T10:00", "04-02T11:00")
	list := func() answer { return wants(t, o.send("GET", "/calendar/conflicts", call{who: "staff-1"}), "200") }
	wantText(t, "none", list().body, "{\"conflicts\":[]}\n")
	f.external("y", "04-02T10:00", "04-02T11:00")
	o.look()
	f.external("x", "04-01T10:00", "04-01T11:00")
	o.look()
	got := list()
	wantText(t, "their events", strings.Join(got.list("conflicts", "external_event"), " "), "y x")
	wantText(t, "their appointments", strings.Join(got.list("conflicts", "appointment_id"), " "), later+" "+id)
	wantText(t, "found at", strings.Join(got.list("conflicts", "found_at"), " "), "2026-03-01T08:00:01Z 2026-03-01T08:00:02Z")
	wantText(t, "found by", strings.Join(got.list("conflicts", "found_by"), " "), "reconciliation reconciliation")
	wants(t, o.send("GET", "/calendar/conflicts", call{who: "member-1"}), "403 forbidden")
}

// TestLookForgetsNothingNewer: what was found and kept while a look was on its
// way, which saw nothing of it, is no conflict anew.
func TestLookForgetsNothingNewer(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyKeep)
	o.exec(`update resources set state = 'INACTIVE' where resource_id = 2`) // the look is at calendar 1
	reached, goOn := f.late(t, "list")
	ended := make(chan struct{})
	go func() { defer close(ended); o.look() }()
	soon(t, reached)
	f.external("x", "04-01T10:00", "04-01T11:00")
	o.createdAt("04-01T10:00", "04-01T11:00")
	o.decide("keep-it", "keep")
	goOn()
	soon(t, ended)
	o.look()
	wantText(t, "conflicts", o.conflicts(), "overlap x by check: kept by staff-1")
}
