package calendar

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// begun has a worker begin with one of the due appointments, and tells when it
// has ended.
func (o *office) begun(n int) (done <-chan struct{}) {
	o.t.Helper()
	y := o.synchroniser()
	work, err := y.claim(o.t.Context(), n)
	if err != nil || len(work) != n {
		o.t.Fatal(work, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, w := range work {
			y.do(context.Background(), w)
		}
	}()
	return ended
}

// TestSlowWorkerWritesNothing: its claim ran out over a call, whatever that
// said, and somebody else has done the work.
func TestSlowWorkerWritesNothing(t *testing.T) {
	for name, tt := range map[string]struct{ kind, word, calls string }{
		"saw it busy":      {"list", asUsual, "freebusy list get freebusy create list"},
		"created it":       {"create", asUsual, "freebusy create get list list"},
		"was not answered": {"freebusy", lost, "freebusy get freebusy create list"},
		"was to be quiet":  {"freebusy", quiet, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, f := newLinked(t, contractCheck, policyReject)
			if tt.kind == "list" {
				f.external("x", "04-01T10:00", "04-01T11:00")
			}
			id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
			f.when(tt.kind, tt.word)
			reached, goOn := f.late(t, tt.kind)
			done := o.begun(1)
			soon(t, reached)
			f.with("cal-1", func(d *fakeDiary) { delete(d.events, "x") })
			o.later(o.cfg.SyncClaim)
			o.sync()
			wantText(t, "its events", o.results(id), "booked created")
			before := o.sum()
			goOn()
			soon(t, done)
			if tt.word == quiet { // which is of the calendar, not of the appointment
				o.exec(`update accounts set quiet_until = null`)
			}
			wantText(t, "stored by the slow one", o.sum(), before)
			if tt.calls != "" {
				wantText(t, "calls", f.kinds(), tt.calls)
			}
		})
	}
}

// TestClaimsAreApart: many workers on two replicas, each appointment once.
func TestClaimsAreApart(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject, crowded)
	two := o.second()
	for i := range 30 {
		o.booked("member-1", fmt.Sprint("book-", i), 1+i%2, fmt.Sprintf("04-%02dT10:00", 1+i/2), fmt.Sprintf("04-%02dT11:00", 1+i/2))
	}
	var workers sync.WaitGroup
	for i := range 8 {
		s := []*Service{o.service, two}[i%2]
		workers.Go(func() {
			y := newSynchroniser(s.background, s.provider, o.cfg, s.meters)
			for {
				work, err := y.claim(t.Context(), 3)
				if err != nil || len(work) == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				for _, w := range work {
					y.do(t.Context(), w)
				}
			}
		})
	}
	workers.Wait()
	wantText(t, "appointments", scan[string](o, `select string_agg(distinct state, ' ') from appointments`), stateCreated)
	if n := len(f.made("create")); n != 30 {
		t.Errorf("%d creations of 30", n)
	}
	if n := len(f.made("freebusy")); n != 30 {
		t.Errorf("%d checks of 30", n)
	}
}

// TestSpentButActive: the provider never takes it again, and nobody can say
// that it is there.
func TestSpentButActive(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject)
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	f.with("cal-1", func(d *fakeDiary) { d.spent[o.eventOf(id)] = true })
	o.sync()
	o.is(id, "BOOKED 1: 1 BOOKED; 1 appointment.booked; due")
	if why := scan[string](o, `select last_error from syncs`); !strings.Contains(why, "spent") {
		t.Errorf("the error is %q", why)
	}
}

// TestEndInTheMiddle: a replica that ends lets its call end, begins no other
// one, and gives the work back. Nothing is lost, and it is no failed attempt.
func TestEndInTheMiddle(t *testing.T) {
	o, f := newLinked(t, contractCheck, policyReject, func(c *Config) { c.SyncInterval = 5 * time.Millisecond })
	id := o.booked("member-1", "book-1", 1, "04-01T10:00", "04-01T11:00")
	reached, goOn := f.gate(t, "create")
	running := o.second()
	soon(t, reached)
	ended := make(chan error, 1)
	go func() { ended <- running.Drain(context.Background()) }()
	running.halt() // as Drain does: no earlier than that may the call end
	goOn()
	if err := soon(t, ended); err != nil {
		t.Fatal(err)
	}
	wantText(t, "calls", f.kinds(), "freebusy create")
	wantText(t, "sync row", scan[string](o, `select concat(attempts, claim, due_at is null) from syncs`), "0f")
	o.sync()
	wantText(t, "calls of another replica", f.kinds(), "get list")
	wantText(t, "its events", o.results(id), "booked created")
}
