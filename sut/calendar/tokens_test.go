package calendar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/clock"
)

var calendar1 = resource{id: 1, calendar: "cal-1", state: resourceActive}

// free asks whether resource 1 is free.
func (s *Service) free(ctx context.Context) error {
	_, err := s.provider.busy(ctx, calendar1, berlin("04-01T10:00", "04-01T11:00"), cause{})
	return err
}

// second runs another replica on the office's database.
func (o *office) second() *Service {
	o.t.Helper()
	cfg := o.cfg
	cfg.Replica = "sut-2"
	s, err := Start(o.t.Context(), cfg)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(s.Close)
	return s
}

// TestOneRefreshForAll: fifty callers on two replicas meet an expired token,
// again and again.
func TestOneRefreshForAll(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject, crowded)
	two := o.second()
	if err := o.service.free(t.Context()); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		f.with("cal-1", func(d *fakeDiary) { d.access = fmt.Sprint("ended-", round) })
		var callers sync.WaitGroup
		errs := make(chan error, 50)
		for i := range 50 {
			s := o.service
			if i%2 == 1 {
				s = two
			}
			callers.Go(func() { errs <- s.free(t.Context()) })
		}
		callers.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := len(f.made("token")); n != 2+round {
			t.Fatalf("%d refreshes after %d expiries, want one each and the first", n, round+1)
		}
	}
	if n := scan[int](o, `select generation from accounts where resource_id = 1`); n != 6 {
		t.Errorf("generation %d, want 6", n)
	}
}

// TestRefreshTakenOver: who has the lease died. Others wait while it lasts, and
// then ask under its key, as the token may have rotated already.
func TestRefreshTakenOver(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject, func(c *Config) { c.RefreshLease = 100 * time.Millisecond })
	key := uuid.NewString()
	o.exec(`update accounts set refresh_key = $1::text::uuid, refreshing_until = $2 where resource_id = 1`, key, o.clock.Now().Add(time.Second))
	if err := o.service.free(t.Context()); !errors.Is(err, errPassing) {
		t.Errorf("while the lease lasts: %v, want a passing error", err)
	}
	if n := len(f.made("token")); n != 0 {
		t.Fatalf("%d refreshes while somebody else has the lease", n)
	}
	// The dead one's call had been taken.
	f.with("cal-1", func(d *fakeDiary) { d.token(&fakeCall{calendar: "cal-1", key: key}, "r-1") })
	o.later(time.Second)
	if err := o.service.free(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked := f.made("token"); len(asked) != 1 || asked[0].key != key {
		t.Errorf("refreshes %+v, want one under the key %s", asked, key)
	}
	wantText(t, "lease", scan[string](o, `select concat(refresh_key, refreshing_until) from accounts where resource_id = 1`), "")
}

// TestRefreshWhoseAnswerIsLost is asked for again under its key, by whoever
// needs it next.
func TestRefreshWhoseAnswerIsLost(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	f.when("token", lost)
	if err := o.service.free(t.Context()); !errors.Is(err, errUnclear) {
		t.Errorf("the first call: %v, want an unclear error", err)
	}
	if err := o.service.free(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asked := f.made("token"); len(asked) != 2 || asked[0].key != asked[1].key {
		t.Errorf("refreshes %+v, want two under one key", asked)
	}
}

// TestLateAnswerOfARefresh: meanwhile staff have given another token.
func TestLateAnswerOfARefresh(t *testing.T) {
	for word, name := range map[string]string{asUsual: "granted", "revoked": "refused"} {
		t.Run(name, func(t *testing.T) {
			o, f := newLinked(t, contractCheck, policyReject)
			if err := o.service.free(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.with("cal-1", func(d *fakeDiary) { d.access = "ended" })
			f.mu.Lock()
			f.before["token"] = func(c fakeCall) string {
				if c.key != "" && scan[string](o, `select refresh_token from accounts where resource_id = 1`) == "cal-1-refresh-1" {
					o.exec(sqlNewToken, 1, "r-2", o.clock.Now())
					f.with("cal-1", func(d *fakeDiary) { d.revoked = word == "revoked" })
				} else {
					f.with("cal-1", func(d *fakeDiary) { d.revoked, d.refresh = false, "r-2" })
				}
				return asUsual
			}
			f.mu.Unlock()
			if err := o.service.free(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantText(t, "account", scan[string](o, `select concat_ws(' ', state, access_token, generation) from accounts where resource_id = 1`),
				map[string]string{asUsual: "OK cal-1-access-3 3", "revoked": "OK cal-1-access-2 3"}[word])
		})
	}
}

// TestExpiredTokenCostsNothingElse: also in the middle of the work.
func TestExpiredTokenCostsNothingElse(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	f.when("create", expired)
	o.sync()
	wantText(t, "its events", o.results(id), "booked created")
	wantText(t, "attempts", scan[string](o, `select attempts::text from syncs`), "0")
	wantText(t, "calls", f.kinds(), "freebusy create create list")
}

// TestAuthorisationOver: nothing is called, nothing is lost, and a new token
// has it all done.
func TestAuthorisationOver(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	f.with("cal-1", func(d *fakeDiary) { d.revoked = true })
	first := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	other := o.booked("member-1", "book-2", 2, "04-01T10:00", "04-01T11:00")
	o.sync()
	second := o.booked("member-1", "book-3", 1, "04-01T12:00", "04-01T13:00")
	o.later(time.Hour)
	o.sync()
	wantText(t, "the other resource's events", o.results(other), "booked created")
	if n := len(f.made("token")); n != 2 { // one of each calendar
		t.Errorf("%d calls for tokens, want 2", n)
	}
	wantText(t, "creation", wants(t, o.send("GET", "/calendar/resources/1", call{who: "staff-1"}), "200").str("creation"), creationFailed)
	wantText(t, "attempts", scan[string](o, `select string_agg(attempts::text, ' ') from syncs`), "0 0 0")
	wants(t, o.activate(1, `"conflict_limit":3`), "409 already-active")
	wants(t, o.activate(1, `"conflict_limit":3,"refresh_token":"r-8"`), "503 authorisation-failed")
	f.with("cal-1", func(d *fakeDiary) { d.revoked, d.refresh = false, "r-9" })
	a := wants(t, o.activate(1, `"conflict_limit":3,"refresh_token":"r-9"`), "200")
	wantText(t, "creation", a.str("creation"), creationRunning)
	wants(t, o.activate(1, `"conflict_limit":3,"refresh_token":"r-10"`), "409 already-active")
	o.sync()
	wantText(t, "its events", o.results(first)+", "+o.results(second), "booked created, booked created")
}

// TestQuiet: 429 is no failed attempt, and nobody calls before the time is over.
func TestQuiet(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	other := o.booked("member-1", "book-2", 2, "04-01T10:00", "04-01T11:00")
	f.mu.Lock()
	f.before["create"] = func(c fakeCall) string {
		if c.calendar == "cal-1" {
			return quiet
		}
		return asUsual
	}
	f.mu.Unlock()
	o.sync()
	wantText(t, "the other resource's events", o.results(other), "booked created")
	f.kinds()
	f.when("create")
	o.later(59 * time.Second)
	o.sync()
	if err := o.service.free(t.Context()); err == nil || !strings.Contains(err.Error(), "wants no calls") {
		t.Errorf("a call before the time is over: %v", err)
	}
	wantText(t, "calls before the time is over", f.kinds(), "")
	wantText(t, "attempts", scan[string](o, `select string_agg(attempts::text, ' ') from syncs`), "0 0")
	o.later(time.Second)
	o.sync()
	wantText(t, "its events", o.results(id), "booked created")
}

// TestOneRequestOnTheWire: a connection that dies under a call, the kept one
// too, makes no second request.
func TestOneRequestOnTheWire(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	if err := o.service.free(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.kinds()
	f.when("freebusy", lost)
	if err := o.service.free(t.Context()); !errors.Is(err, errUnclear) {
		t.Errorf("%v, want an unclear error", err)
	}
	f.when("delete", lost)
	if err := o.service.provider.remove(t.Context(), calendar1, "x-1-y", cause{}); !errors.Is(err, errUnclear) {
		t.Errorf("%v, want an unclear error", err)
	}
	wantText(t, "calls", f.kinds(), "freebusy delete")
}

// TestProviderIsAway: every attempt fails until the last one parks, and staff
// have it tried again.
func TestParkedAndTriedAgain(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	f.when("freebusy", down, lost, down)
	for attempt := 1; attempt <= 3; attempt++ {
		o.sync()
		wantText(t, "attempts", scan[string](o, `select attempts::text from syncs`), fmt.Sprint(attempt))
		o.later(time.Second << (attempt - 1))
	}
	path := "/calendar/appointments/" + id
	wantText(t, "sync", wants(t, o.send("GET", path, call{who: "member-1"}), "200").str("sync"), syncParked)
	o.later(time.Hour)
	f.kinds()
	o.sync()
	wantText(t, "calls while it is parked", f.kinds(), "")
	wants(t, o.send("POST", path+"/sync", call{who: "staff-1", body: "{}"}), "200")
	o.sync()
	wantText(t, "its events", o.results(id), "booked created")
	wantText(t, "what is left of it", scan[string](o, `select concat(attempts, last_error, parked_at, claim, due_at) from syncs`), "0")
}

// TestParkedIsTakenUpByAChange: there is something new to tell.
func TestParkedIsTakenUpByAChange(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject, func(c *Config) { c.ParkAfter = 1 })
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	f.when("freebusy", down)
	o.sync()
	wants(t, o.cancel("member-1", "cancel-1", id), "200")
	o.sync()
	wantText(t, "its events", o.results(id), "booked not-needed, cancelled deleted")
}

// TestLoopsDoIt: with the intervals of a server that runs.
func TestLoopsDoIt(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject, func(c *Config) {
		c.SyncInterval, c.ReconcileInterval = 5*time.Millisecond, 5*time.Millisecond
	})
	o.clock.Set(today.Sub(clock.New(0).Now()))
	running := o.second() // the office's own replica does nothing by itself
	wants(t, o.activate(3, `"conflict_limit":3`), "200")
	id := o.booked("member-1", "book-1", 3, "04-01T10:00", "04-01T11:00")
	o.await("created", `select state = 'CREATED' from appointments where appointment_id = $1::text::uuid`, id)
	f.with("cal-3", func(d *fakeDiary) {
		d.events["x"] = event{berlin("04-01T10:30", "04-01T11:30"), "x", 0, "", sourceExternal}
	})
	o.await("rejected and deleted", `select state = 'REJECTED' and due_at is null from appointments join syncs using (appointment_id) where appointment_id = $1::text::uuid`, id)
	wantText(t, "conflicts", o.conflicts(), "overlap x by reconciliation: rejected by server")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := running.Drain(ctx); err != nil {
		t.Error(err)
	}
}
