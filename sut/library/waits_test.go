package library

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestWaitForSeat(t *testing.T) {
	w := newWorld(t, "A-1", "A-2")
	w.pyxis.holders["A-1"] = charge{ID: "c-x", Seat: "A-1", Student: "student-x"}
	w.pyxis.holders["A-2"] = charge{ID: "c-y", Seat: "A-2", Student: "student-y"}
	r := w.start()
	a := r.call("POST", "/library/waits", student(1), `{"seats":["A-1","A-1"]}`)
	if a.status != http.StatusAccepted || a.str("state") != stateRequested || !strings.HasPrefix(a.header.Get("Location"), "/library/intents/") {
		t.Fatalf("answer %+v, want 202 with a Location", a)
	}
	w.eventually("the wait looked and found nothing, several times", func() bool {
		return value[int](w, "select looks from library_reservation_intents") >= 3
	})
	if got := r.call("GET", a.header.Get("Location"), student(1), "").str("state"); got != stateWaiting {
		t.Errorf("state %s, want WAITING_FOR_SEAT", got)
	}
	if got := r.call("GET", a.header.Get("Location"), student(2), ""); got.status != http.StatusNotFound {
		t.Errorf("another student sees the intent: %+v", got)
	}
	w.pyxis.set(func() { delete(w.pyxis.holders, "A-2") }) // not a wanted one
	looks := value[int](w, "select looks from library_reservation_intents")
	w.eventually("one more look", func() bool { return value[int](w, "select looks from library_reservation_intents") > looks })
	if n := len(w.pyxis.postsTo("A-2")); n != 0 {
		t.Errorf("%d reserve calls for a seat that was not wanted", n)
	}
	w.pyxis.set(func() { delete(w.pyxis.holders, "A-1") })
	w.eventually("the wait got its seat", func() bool { return w.states()[stateSucceeded] == 1 })
	posts := w.pyxis.postsTo("A-1")
	if len(posts) != 1 || posts[0].Student != student(1) || posts[0].op != "op-student-1" || posts[0].traceparent == "" || posts[0].authorization != "Bearer student-1" {
		t.Errorf("reserve calls %+v, want one by the student, with the cause of the registration", posts)
	}
	w.wellRecorded()
}

func TestWaitGoesOnAfterALostRace(t *testing.T) {
	w := newWorld(t, "A-1", "A-2")
	lost := false
	w.pyxis.before = func(p post) { // somebody else is faster, once
		w.pyxis.set(func() {
			if !lost {
				w.pyxis.holders[p.Seat] = charge{ID: "c-fast", Seat: p.Seat, Student: "student-fast"}
			}
			lost = true
		})
	}
	r := w.start()
	r.call("POST", "/library/waits", student(1), `{"seats":[]}`)
	w.eventually("the wait got a seat", func() bool { return w.states()[stateSucceeded] == 1 })
	if n := len(w.pyxis.postsTo("A-1")) + len(w.pyxis.postsTo("A-2")); n != 2 {
		t.Errorf("%d reserve calls, want 2: one lost, one won", n)
	}
	want := "REQUESTED WAITING_FOR_SEAT RESERVING WAITING_FOR_SEAT RESERVING SUCCEEDED"
	if got := value[string](w, "select string_agg(to_state, ' ' order by seq) from library_transitions"); got != want {
		t.Errorf("transitions %s, want %s", got, want)
	}
	w.wellRecorded()
}

// The answer of the wait's call is lost, and the charge that is read turns out
// to be that of the student's earlier intent: the wait has no seat, and goes on.
func TestWaitFindsTheChargeOfAnotherIntent(t *testing.T) {
	w := newWorld(t, "A-1")
	r := w.start(func(c *Config) { c.WaitBackoff = time.Minute })
	if a := r.confirm(student(1), r.prepare(student(1), "A-1")); a.status != http.StatusCreated {
		t.Fatalf("answer %+v, want 201", a)
	}
	var first charge
	w.pyxis.set(func() {
		first = w.pyxis.holders["A-1"]
		delete(w.pyxis.holders, "A-1")
		w.pyxis.before = func(post) {
			w.pyxis.set(func() { w.pyxis.holders["A-1"] = first })
			panic(http.ErrAbortHandler)
		}
	})
	r.call("POST", "/library/waits", student(1), `{"seats":["A-1"]}`)
	const wait = "select state from library_reservation_intents where kind = 'wait'"
	w.eventually("the wait's attempt ended", func() bool {
		return value[int](w, "select attempts from library_reservation_intents where kind = 'wait'") == 1 && value[string](w, wait) != stateReserving
	})
	if got := value[string](w, wait); got != stateWaiting {
		t.Errorf("state %s, want WAITING_FOR_SEAT: a wait is never closed as a lost race", got)
	}
	w.wellRecorded()
}

func TestSuppressionLeavesWaitsAlone(t *testing.T) {
	w := newWorld(t, "A-1")
	w.pyxis.holders["A-1"] = charge{ID: "c-x", Seat: "A-1", Student: "student-x"}
	r := w.start()
	r.call("POST", "/library/waits", student(1), `{"seats":["A-1"]}`)
	for n := 2; n < 5; n++ { // one upstream, the others suppressed
		if a := r.confirm(student(n), r.prepare(student(n), "A-1")); a.status != http.StatusConflict {
			t.Errorf("answer %+v, want 409", a)
		}
	}
	if got := w.states(); got[stateWaiting]+got[stateRequested] != 1 || got[stateRace] != 3 {
		t.Errorf("states %v, want three lost and the wait going on", got)
	}
	// Given back within the window: the wait gets it, without a new confirm.
	w.pyxis.set(func() { delete(w.pyxis.holders, "A-1") })
	w.eventually("the wait got the seat", func() bool { return w.states()[stateSucceeded] == 1 })
	w.wellRecorded()
}

func TestWaitBacksOff(t *testing.T) {
	w := newWorld(t, "A-1")
	w.pyxis.holders["A-1"] = charge{ID: "c-x", Seat: "A-1", Student: "student-x"}
	r := w.start(func(c *Config) { c.WaitBackoff = time.Minute })
	r.call("POST", "/library/waits", student(1), `{"seats":["A-1"]}`)
	for i, total := range []time.Duration{0, 61 * time.Second, 182 * time.Second, 423 * time.Second} {
		r.cfg.Clock.Set(total)
		w.eventually("another look", func() bool { return value[int](w, "select looks from library_reservation_intents") == i+1 })
	}
	r.cfg.Clock.Set(423*time.Second + 470*time.Second) // the next one is 480 s after the last
	before := w.pyxis.readsOf("/seats")
	w.eventually("a few ticks passed", func() bool { // the tick's own clock moves with the offset, so look at what it does
		return value[int](w, "select count(*) from library_reservation_outbox where delivered_at is null") == 0
	})
	if got := w.pyxis.readsOf("/seats"); got != before {
		t.Errorf("%d looks at the seats during the backoff", got-before)
	}
}
