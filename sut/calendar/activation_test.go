package calendar

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// activate sends an activation of a resource with the rule of the day and more.
func (o *office) activate(id int, more string) answer {
	return o.send("POST", fmt.Sprintf("/calendar/resources/%d/activation", id), call{
		who: "staff-1", op: fmt.Sprint("activate-", id), body: `{"provider_contract":"check-then-create","conflict_policy":"reject",` + more + `}`,
	})
}

func (o *office) resourceState(id int) string {
	return scan[string](o, `select concat_ws(' ', state, provider_contract, conflict_policy, conflict_limit) from resources where resource_id = $1`, id)
}

func TestActivation(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	f.with("cal-3", func(d *fakeDiary) {
		d.events["x"] = event{berlin("04-01T10:00", "04-01T11:00"), "x", 0, "", sourceExternal}
	})
	a := wants(t, o.activate(3, `"conflict_limit":0`), "200")
	wantText(t, "answer", fmt.Sprint(a.doc), "map[conflict_limit:0 conflict_policy:reject creation:RUNNING pending:0 provider_contract:check-then-create resource_id:3 state:ACTIVE unresolved:0]")
	wantText(t, "calls", f.kinds(), "list")
	wantText(t, "seen", scan[string](o, `select event_id || ' ' || (select looked_at::text from looks where resource_id = 3) from external_events`), "x 2026-03-01 08:00:00+00")
	wants(t, o.activate(3, `"conflict_limit":0`), "409 already-active")
	wants(t, o.book("member-1", "book-1", 3, "04-01T10:00", "04-01T11:00"), "201")
	end := func(id int) answer {
		return o.send("DELETE", fmt.Sprintf("/calendar/resources/%d/activation", id), call{who: "staff-1"})
	}
	wantText(t, "answer", wants(t, end(3), "200").str("state"), resourceInactive)
	wants(t, end(3), "409 not-active")
	wants(t, end(9), "404 unknown-resource")
	wants(t, o.book("member-1", "book-2", 3, "04-02T10:00", "04-02T11:00"), "409 resource-inactive")
	o.sync() // what was booked goes on
	wantText(t, "what was booked", scan[string](o, `select state from appointments`), stateRejected)
	wants(t, o.activate(3, `"conflict_limit":2`), "200")
	wantText(t, "resource", o.resourceState(3), "ACTIVE check-then-create reject 2")
}

func TestActivationRefused(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	before := o.sum()
	for body, want := range map[string]string{
		`{"provider_contract":"best-effort","conflict_policy":"reject","conflict_limit":1}`:                           "422 unknown-word",
		`{"provider_contract":"atomic-hold","conflict_policy":"","conflict_limit":1}`:                                 "422 unknown-word",
		`{"provider_contract":"atomic-hold","conflict_policy":"reject"}`:                                              "400 bad-request",
		`{"provider_contract":"atomic-hold","conflict_policy":"reject","conflict_limit":-1}`:                          "400 bad-request",
		`{"provider_contract":"atomic-hold","conflict_policy":"reject","conflict_limit":1,"refresh_token":"a b"}`:     "400 bad-request",
		`{"provider_contract":"atomic-hold","conflict_policy":"reject","conflict_limit":1,"refresh_token":"r","x":1}`: "400 bad-request",
	} {
		wants(t, o.send("POST", "/calendar/resources/3/activation", call{who: "staff-1", body: body}), want)
	}
	wants(t, o.activate(4, `"conflict_limit":1`), "404 unknown-resource")
	wants(t, o.send("POST", "/calendar/resources/3/activation", call{who: "member-1", body: "{}"}), "403 forbidden")
	wantText(t, "stored", o.sum(), before)
	wantText(t, "calls", f.kinds(), "")
}

// TestActivationThatFails leaves the resource inactive, and lets others.
func TestActivationThatFails(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, word, want, retry string
	}{
		"down":        {"list", down, "503 provider-unavailable", "1"},
		"lost":        {"list", lost, "503 provider-unavailable", "1"},
		"no token":    {"token", down, "503 provider-unavailable", "1"},
		"quiet":       {"list", quiet, "503 provider-unavailable", "60"},
		"quiet token": {"token", quiet, "503 provider-unavailable", "60"},
	} {
		t.Run(name, func(t *testing.T) {
			o, f := newLinked(t, contractCheck, policyReject)
			f.when(tt.kind, tt.word)
			a := wants(t, o.activate(3, `"conflict_limit":1`), tt.want)
			wantText(t, "Retry-After", a.header.Get("Retry-After"), tt.retry)
			wantText(t, "resource", o.resourceState(3), "INACTIVE")
			o.later(time.Minute)
			wants(t, o.activate(3, `"conflict_limit":1`), "200")
		})
	}
}

func TestActivationWithoutAuthorisation(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	f.with("cal-3", func(d *fakeDiary) { d.revoked = true })
	for range 2 {
		wants(t, o.activate(3, `"conflict_limit":1`), "503 authorisation-failed")
	}
	if n := len(f.made("token")); n != 1 {
		t.Errorf("%d calls for a token that is worth nothing, want 1", n)
	}
	f.with("cal-3", func(d *fakeDiary) { d.revoked, d.refresh = false, "r-9" })
	wants(t, o.activate(3, `"conflict_limit":1,"refresh_token":"r-9"`), "200")
}

// TestOneActivationAtATime, on two replicas, of one resource and of several.
func TestOneActivationAtATime(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject, crowded)
	o.resource(4)
	reached, goOn := f.gate(t, "list")
	var under sync.WaitGroup
	var first answer
	under.Go(func() { first = o.activate(3, `"conflict_limit":1`) })
	soon(t, reached)
	for _, a := range burst(8, func(i int) answer { return o.activate(3+i%2, `"conflict_limit":1`) }) {
		wants(t, a, "409 activation-busy")
		if a.doc["resource_id"] != float64(3) {
			t.Errorf("busy with %v, want 3", a.doc["resource_id"])
		}
	}
	goOn()
	under.Wait()
	wants(t, first, "200")
	// All at once: whoever is first, never two at a time.
	n := tally(burst(8, func(int) answer { return o.activate(4, `"conflict_limit":1`) }))
	if n["200"] != 1 || n["200"]+n["409 activation-busy"]+n["409 already-active"] != 8 {
		t.Errorf("answers %v, want one that activates", n)
	}
}

// TestActivationThatDied keeps others away until its time is over, and then
// has nothing to say any more.
func TestActivationThatDied(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	o.resource(4)
	reached, goOn := f.gate(t, "list")
	var under sync.WaitGroup
	var first answer
	under.Go(func() { first = o.activate(3, `"conflict_limit":1`) })
	soon(t, reached)
	o.later(o.cfg.SyncClaim - time.Second)
	wants(t, o.activate(4, `"conflict_limit":1`), "409 activation-busy")
	o.later(time.Second)
	wants(t, o.activate(4, `"conflict_limit":1`), "200")
	goOn()
	under.Wait()
	wants(t, first, "503 provider-unavailable")
	wantText(t, "the late one", o.resourceState(3), "INACTIVE")
}
