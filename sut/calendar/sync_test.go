package calendar

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// newLinked gives an office with a provider, whose background work is done when
// the test says so.
func newLinked(t *testing.T, contract, policy string, change ...func(*Config)) (*office, *fakeCalendar) {
	t.Helper()
	f := newFakeCalendar(t)
	f.atomic = contract == contractAtomic
	o := newOffice(t, append([]func(*Config){func(c *Config) {
		c.CalendarURL, c.SyncInterval, c.ReconcileInterval, c.ParkAfter = f.url, 10_000*time.Hour, 10_000*time.Hour, 3
	}}, change...)...)
	o.exec(`update resources set provider_contract = $1, conflict_policy = $2 where resource_id < 3`, contract, policy)
	return o, f
}

func (o *office) synchroniser() *synchroniser {
	return newSynchroniser(o.service.background, o.service.provider, o.cfg, o.service.meters)
}

// sync brings everything that is due, and what that makes due.
func (o *office) sync() {
	o.t.Helper()
	y := o.synchroniser()
	for range 20 {
		work, err := y.claim(o.t.Context(), 16)
		if err != nil {
			o.t.Fatal(err)
		}
		if len(work) == 0 {
			return
		}
		for _, w := range work {
			y.do(o.t.Context(), w)
		}
	}
	o.t.Fatal("it never comes to rest")
}

// later turns the clock on, which stands still.
func (o *office) later(d time.Duration) { o.clock.Stop(o.clock.Now().Add(d), 0) }

// results are what became of an appointment's events: "booked created, moved -".
func (o *office) results(id string) string {
	o.t.Helper()
	return scan[string](o, `select string_agg(substr(type, 13) || ' ' || coalesce(result, '-'), ', ' order by seq) from outbox where appointment_id = $1::text::uuid`, id)
}

// conflicts are all of them, by when they were found: "overlap x by look of 1", with their resolution.
func (o *office) conflicts() string {
	o.t.Helper()
	return scan[string](o, `select coalesce(string_agg(kind || ' ' || case kind when 'missing' then 'ours' else external_event end || ' by ' || found_by || ': ' ||
		coalesce(resolution || ' by ' || resolved_by, 'open'), ', ' order by found_at, external_event), '') from conflicts`)
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (o *office) eventOf(id string) string {
	return scan[string](o, `select event_id from appointments where appointment_id = $1::text::uuid`, id)
}

func TestCreatedOnceUnderALostAnswer(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	f.when("create", lost)
	o.sync()
	wantText(t, "after the lost answer", o.story(id), "BOOKED 1: 1 BOOKED; 1 appointment.booked; due")
	created := f.made("create")
	if len(created) != 1 || created[0].op != "book-1" || created[0].traceparent != traceparent || created[0].id != o.eventOf(id) || created[0].event.Version != 1 {
		t.Errorf("creations %+v", created)
	}
	wantText(t, "first attempt", f.kinds(), "freebusy create")
	o.sync()
	wantText(t, "before the backoff is over", f.kinds(), "")
	o.later(time.Second)
	o.sync()
	wantText(t, "second attempt", f.kinds(), "get list")
	o.is(id, "CREATED 2: 1 BOOKED, 2 CREATED; 1 appointment.booked; not due")
	wantText(t, "its events", o.results(id), "booked created")
	wantText(t, "at the provider", f.holds(), o.eventOf(id)+"@1")
}

// TestUnderOneIDThereIsOneEvent: two at once create, under one id.
func TestUnderOneIDThereIsOneEvent(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	f.with("cal-1", func(d *fakeDiary) {
		d.events[o.eventOf(id)] = event{berlin("04-01T10:00", "04-01T11:00"), o.eventOf(id), 1, "", sourceOurs}
	})
	o.sync()
	wantText(t, "calls", f.kinds(), "freebusy list create update list")
	wantText(t, "its events", o.results(id), "booked created")
}

func TestFinalCheck(t *testing.T) {
	for _, tt := range []struct{ contract, policy, story, calls, conflicts string }{
		{contractCheck, policyReject, "REJECTED 2: 1 BOOKED, 2 REJECTED; 1 appointment.booked, 2 appointment.rejected; not due", "freebusy list delete", ""},
		{contractAtomic, policyReject, "REJECTED 2: 1 BOOKED, 2 REJECTED; 1 appointment.booked, 2 appointment.rejected; not due", "freebusy list delete", ""},
		{contractCheck, policyKeep, "CREATED 2: 1 BOOKED, 2 CREATED; 1 appointment.booked; not due", "freebusy list create list", "overlap x by check: open"},
		{contractAtomic, policyKeep, "CREATED 2: 1 BOOKED, 2 CREATED; 1 appointment.booked; not due", "freebusy list create list", "overlap x by check: open"},
	} {
		t.Run(tt.contract+" "+tt.policy, func(t *testing.T) {
			o, f := newLinked(t, tt.contract, tt.policy)
			f.external("before", "04-01T09:00", "04-01T10:00")
			f.external("x", "04-01T10:30", "04-01T12:00")
			id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
			back := o.booked("member-1", "book-2", 1, "04-01T08:00", "04-01T09:00")
			o.exec(`update syncs set due_at = null where appointment_id = $1::text::uuid`, back)
			o.sync()
			o.is(id, tt.story)
			wantText(t, "calls", f.kinds(), tt.calls)
			wantText(t, "conflicts", o.conflicts(), tt.conflicts)
		})
	}
}

func TestBackToBackIsNoConflict(t *testing.T) {
	o, f := newLinked(t, contractAtomic, policyReject)
	f.external("before", "04-01T09:00", "04-01T10:00")
	f.external("behind", "04-01T11:00", "04-01T12:00")
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	o.sync()
	wantText(t, "its events", o.results(id), "booked created")
	if created := f.made("create"); len(created) != 1 || !created[0].ifFree {
		t.Errorf("creations %+v, want one, if free", created)
	}
}

// TestExternalAfterTheCheck: what came between the check and the creation.
func TestExternalAfterTheCheck(t *testing.T) {
	for _, tt := range []struct{ contract, policy, results, calls, conflicts string }{
		{contractCheck, policyReject, "booked created, rejected deleted", "freebusy create list delete", "overlap x by look: rejected by server"},
		{contractCheck, policyKeep, "booked created", "freebusy create list", "overlap x by look: open"},
		{contractAtomic, policyReject, "booked refused, rejected deleted", "freebusy create list delete", ""},
		{contractAtomic, policyKeep, "booked created", "freebusy create list create list", "overlap x by check: open"},
	} {
		t.Run(tt.contract+" "+tt.policy, func(t *testing.T) {
			o, f := newLinked(t, tt.contract, tt.policy)
			id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
			f.then("freebusy", func() { f.external("x", "04-01T10:00", "04-01T11:00") })
			o.sync()
			wantText(t, "its events", o.results(id), tt.results)
			wantText(t, "calls", f.kinds(), tt.calls)
			wantText(t, "conflicts", o.conflicts(), tt.conflicts)
		})
	}
}

func TestExternalAfterTheCreation(t *testing.T) {
	for policy, want := range map[string]struct{ story, conflicts string }{
		policyReject: {"REJECTED 3: 1 BOOKED, 2 CREATED, 3 REJECTED; 1 appointment.booked, 3 appointment.rejected; not due", "overlap x by look: rejected by server"},
		policyKeep:   {"CREATED 2: 1 BOOKED, 2 CREATED; 1 appointment.booked; not due", "overlap x by look: open"},
	} {
		t.Run(policy, func(t *testing.T) {
			o, f := newLinked(t, contractAtomic, policy)
			id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
			f.then("create", func() { f.external("x", "04-01T10:59", "04-01T11:30") })
			o.sync()
			o.is(id, want.story)
			wantText(t, "conflicts", o.conflicts(), want.conflicts)
		})
	}
}

// TestStaleFreebusy: it knows nothing of an event that is there, or knows one
// that is not.
func TestStaleFreebusy(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	f.external("x", "04-01T10:00", "04-01T11:00")
	f.with("cal-1", func(d *fakeDiary) { d.frozen = []period{berlin("04-01T12:00", "04-01T13:00")} })
	first := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	second := o.booked("member-1", "book-2", 1, "04-01T12:00", "04-01T13:00")
	o.sync()
	wantText(t, "the busy one's events", o.results(first), "booked created, rejected deleted")
	wantText(t, "the free one's events", o.results(second), "booked created")
	wantText(t, "conflicts", o.conflicts(), "overlap x by look: rejected by server")
}

// TestSwapAtTheProvider: our own events, which are still where they were, are not in the way.
func TestSwapAtTheProvider(t *testing.T) {
	for _, contract := range []string{contractAtomic, contractCheck} {
		t.Run(contract, func(t *testing.T) {
			o, f := newLinked(t, contract, policyReject)
			one := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
			two := o.booked("member-1", "book-2", 1, "04-01T12:00", "04-01T13:00")
			o.sync()
			f.kinds()
			moves := fmt.Sprintf(`{"moves":[{"appointment_id":%q,%s},{"appointment_id":%q,%s}]}`, one, times("04-01T12:00", "04-01T13:00"), two, times("04-01T10:00", "04-01T11:00"))
			wants(t, o.keyed("POST", "/calendar/reschedules", "member-1", "swap", moves), "200")
			o.sync()
			o.is(one, "CREATED 3: 1 BOOKED, 2 CREATED, 3 MOVED; 1 appointment.booked, 3 appointment.moved; not due")
			wantText(t, "calls", f.kinds(), "get freebusy list update list get freebusy update list")
			wantText(t, "at the provider", f.holds(), o.eventOf(two)+"@3 "+o.eventOf(one)+"@3")
			wantText(t, "conflicts", o.conflicts(), "")
		})
	}
}

func TestMoveAtTheProvider(t *testing.T) {
	for name, tt := range map[string]struct {
		policy, results, holds, conflicts string
		meanwhile                         func(o *office, f *fakeCalendar, event string)
	}{
		"free":         {policyReject, "booked created, moved updated", "EVENT@3", "", func(*office, *fakeCalendar, string) {}},
		"busy":         {policyReject, "booked created, moved refused, rejected deleted", "x", "", func(_ *office, f *fakeCalendar, _ string) { f.external("x", "04-02T10:00", "04-02T11:00") }},
		"busy, kept":   {policyKeep, "booked created, moved updated", "EVENT@3 x", "overlap x by check: open", func(_ *office, f *fakeCalendar, _ string) { f.external("x", "04-02T10:00", "04-02T11:00") }},
		"lost at last": {policyReject, "booked created, moved updated", "EVENT@3", "", func(_ *office, f *fakeCalendar, _ string) { f.when("update", lost) }},
		"gone":         {policyReject, "booked created, moved created", "EVENT@3", "", func(_ *office, f *fakeCalendar, event string) { f.gone(event) }},
		"gone at last": {policyReject, "booked created, moved created", "EVENT@3", "", func(_ *office, f *fakeCalendar, event string) { f.then("freebusy", func() { f.gone(event) }) }},
		"busy at last": {policyReject, "booked created, moved refused, rejected deleted", "x", "", func(_ *office, f *fakeCalendar, _ string) {
			f.then("freebusy", func() { f.external("x", "04-02T10:00", "04-02T11:00") })
		}},
		"a later one there": {policyReject, "booked created, moved updated", "EVENT@9", "", func(_ *office, f *fakeCalendar, event string) {
			f.then("freebusy", func() {
				f.with("cal-1", func(d *fakeDiary) {
					e := d.events[event]
					e.Version = 9
					d.events[event] = e
				})
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o, f := newLinked(t, contractAtomic, tt.policy)
			id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
			o.sync()
			wants(t, o.move("member-1", "move-1", id, "04-02T10:00", "04-02T11:00"), "200")
			tt.meanwhile(o, f, o.eventOf(id))
			o.sync()
			o.later(time.Minute)
			o.sync()
			wantText(t, "its events", o.results(id), tt.results)
			wantText(t, "at the provider", f.holds(), strings.ReplaceAll(tt.holds, "EVENT", o.eventOf(id)))
			wantText(t, "conflicts", o.conflicts(), tt.conflicts)
		})
	}
}

// TestMovedBeforeTheCreation costs no call of its own.
func TestMovedBeforeTheCreation(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	wants(t, o.move("member-1", "move-1", id, "04-02T10:00", "04-02T11:00"), "200")
	o.sync()
	wantText(t, "calls", f.kinds(), "freebusy create list")
	wantText(t, "at the provider", f.holds(), o.eventOf(id)+"@2")
	wantText(t, "its events", o.results(id), "booked not-needed, moved created")
}

func TestMovedWhileItIsRefused(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	f.external("x", "04-01T10:00", "04-01T11:00")
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	f.then("list", func() { wants(t, o.move("member-1", "move-1", id, "04-02T10:00", "04-02T11:00"), "200") })
	o.sync()
	wantText(t, "its events", o.results(id), "booked not-needed, moved created")
}

func TestCancelledBeforeTheCreation(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	wants(t, o.cancel("member-1", "cancel-1", id), "200")
	o.sync()
	wantText(t, "calls", f.kinds(), "")
	wantText(t, "its events", o.results(id), "booked not-needed, cancelled not-needed")
}

// TestCancelledInFlight: the cancellation comes while the creation is on its
// way, which is answered, or not.
func TestCancelledInFlight(t *testing.T) {
	for _, word := range []string{asUsual, lost} {
		t.Run(word, func(t *testing.T) {
			o, f := newLinked(t, contractCheck, policyReject)
			id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
			f.when("create", word)
			f.then("create", func() { wants(t, o.cancel("member-1", "cancel-1", id), "200") })
			o.sync()
			o.later(time.Minute)
			o.sync()
			o.is(id, "CANCELLED 2: 1 BOOKED, 2 CANCELLED; 1 appointment.booked, 2 appointment.cancelled; not due")
			wantText(t, "at the provider", f.holds(), "")
			if n := len(f.made("delete")); n != 1 {
				t.Errorf("%d deletions, want 1", n)
			}
		})
	}
}

// TestCreationAfterTheDeletion: a creation that was slow meets a spent id.
func TestCreationAfterTheDeletion(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	reached, goOn := f.gate(t, "create")
	done := o.begun(1)
	soon(t, reached)
	wants(t, o.cancel("member-1", "cancel-1", id), "200")
	o.later(o.cfg.SyncClaim)
	o.sync()
	before := o.sum()
	goOn()
	soon(t, done)
	wantText(t, "stored by the slow one", o.sum(), before)
	wantText(t, "at the provider", f.holds(), "")
	wantText(t, "its events", o.results(id), "booked not-needed, cancelled deleted")
}
