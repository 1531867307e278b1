package library

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// both runs a test on the intent path and on the direct one.
func both(t *testing.T, test func(t *testing.T, path func(*Config))) {
	for _, p := range []string{pathIntent, pathDirect} {
		t.Run(p, func(t *testing.T) { test(t, func(c *Config) { c.Path = p }) })
	}
}

func TestDoubleConfirm(t *testing.T) {
	both(t, func(t *testing.T, path func(*Config)) {
		w := newWorld(t, "A-1")
		w.pyxis.latency = 50 * time.Millisecond
		rs := []*replica{w.start(path), w.start(path, named("sut-2"))}
		action := rs[0].prepare(student(1), "A-1")
		answers := make([]answer, 20)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = rs[i%2].confirm(student(1), action) })
		}
		wg.Wait()
		late := rs[1].confirm(student(1), action)
		for _, a := range append(answers, late) {
			if a.status != http.StatusCreated || a.str("intent_id") != late.str("intent_id") || a.str("state") != stateSucceeded {
				t.Errorf("answer %+v, want the one intent's success", a)
			}
		}
		if n := len(w.pyxis.postsTo("A-1")); n != 1 {
			t.Errorf("%d reserve calls, want 1", n)
		}
		if n := value[int](w, "select count(*) from library_reservation_intents"); n != 1 {
			t.Errorf("%d intents, want 1", n)
		}
		w.wellRecorded()
	})
}

func TestAcceptedThenReset(t *testing.T) {
	both(t, func(t *testing.T, path func(*Config)) {
		w := newWorld(t, "A-1")
		w.pyxis.after = func(post) bool { return false }
		r := w.start(path)
		a := r.confirm(student(1), r.prepare(student(1), "A-1"))
		if a.status != http.StatusCreated {
			t.Errorf("answer %+v, want 201: the charge is there to be read", a)
		}
		if n := len(w.pyxis.postsTo("A-1")); n != 1 {
			t.Errorf("%d reserve calls, want 1", n)
		}
		w.wellRecorded()
	})
}

func TestResetWithoutChargeWaitsForTheLease(t *testing.T) {
	both(t, func(t *testing.T, path func(*Config)) {
		w := newWorld(t, "A-1")
		w.pyxis.status = 0
		var hold sync.WaitGroup
		hold.Add(1)
		w.pyxis.before = func(post) { hold.Wait(); panic(http.ErrAbortHandler) } // reset before anything was decided
		r := w.start(path)
		action := r.prepare(student(1), "A-1")
		var a answer
		var wg sync.WaitGroup
		wg.Go(func() { a = r.confirm(student(1), action) })
		hold.Done()
		w.eventually("the charge read once, in vain", func() bool { return w.pyxis.readsOf("/charges/current") >= 1 })
		if got := value[string](w, "select state from library_reservation_intents"); got != stateReserving {
			t.Errorf("state %s, want RESERVING: the call may still be on its way", got)
		}
		r.cfg.Clock.Set(time.Minute)
		defer w.base.Clock.Set(0)
		wg.Wait()
		if a.status != http.StatusBadGateway || a.str("state") != stateUpstream {
			t.Errorf("answer %+v, want 502 once the lease was over", a)
		}
		if n := len(w.pyxis.postsTo("A-1")); n != 1 {
			t.Errorf("%d reserve calls, want 1", n)
		}
		w.wellRecorded()
	})
}

func TestCrashAfterAcceptThenReaper(t *testing.T) {
	both(t, func(t *testing.T, path func(*Config)) {
		w := newWorld(t, "A-1")
		accepted, hold := make(chan struct{}), make(chan struct{})
		w.pyxis.after = func(post) bool {
			close(accepted)
			<-hold
			return false
		}
		first := w.start(path)
		action := first.prepare(student(1), "A-1")
		var wg sync.WaitGroup
		wg.Go(func() { first.confirm(student(1), action) })
		<-accepted
		first.end()
		close(hold)
		wg.Wait()
		if got := value[string](w, "select state from library_reservation_intents"); got != stateReserving {
			t.Fatalf("state %s after the crash, want RESERVING", got)
		}
		w.pyxis.set(func() { w.pyxis.after = nil })
		second := w.start(path)
		second.cfg.Clock.Set(time.Minute)
		a := second.confirm(student(1), action)
		if a.status != http.StatusCreated {
			t.Errorf("answer after the restart %+v, want 201", a)
		}
		if n := len(w.pyxis.postsTo("A-1")); n != 1 {
			t.Errorf("%d reserve calls, want 1: a reaper reads, it does not reserve", n)
		}
		w.wellRecorded()
	})
}

func TestLateAnswerAfterTheReaper(t *testing.T) {
	tests := []struct {
		name        string
		decideFirst bool // pyxis decides, then is slow; else it is slow, then decides
		want        string
	}{
		{"accepted, answered late", true, stateSucceeded},
		{"accepted late", false, stateUpstream},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "A-1")
			arrived, hold := make(chan struct{}), make(chan struct{})
			slow := func() { close(arrived); <-hold }
			if tt.decideFirst {
				w.pyxis.after = func(post) bool { slow(); return true }
			} else {
				w.pyxis.before = func(post) { slow() }
			}
			r := w.start(func(c *Config) { c.Lease, c.UpstreamTimeout = 300*time.Millisecond, 20*time.Second })
			var a answer
			var wg sync.WaitGroup
			action := r.prepare(student(1), "A-1")
			wg.Go(func() { a = r.confirm(student(1), action) })
			<-arrived
			w.eventually("the reaper decided", func() bool { return w.states()[tt.want] == 1 })
			before := value[string](w, "select i::text from library_reservation_intents i")
			close(hold)
			w.eventually("the worker's answer came late", func() bool {
				return r.metrics.set.GetOrCreateCounter(`overbook_library_late_answers_total{answer="SUCCEEDED"}`).Get() == 1
			})
			wg.Wait()
			if a.str("state") != tt.want {
				t.Errorf("client was told %+v, want %s", a, tt.want)
			}
			if after := value[string](w, "select i::text from library_reservation_intents i"); after != before {
				t.Errorf("the late answer changed the intent:\n%s\n%s", before, after)
			}
			if n := len(w.pyxis.postsTo("A-1")); n != 1 {
				t.Errorf("%d reserve calls, want 1", n)
			}
			w.wellRecorded()
		})
	}
}

func TestCredentialRejectedThenTheNextOne(t *testing.T) {
	w := newWorld(t, "A-1")
	w.pyxis.latency = 300 * time.Millisecond // so that all queue behind the first
	w.pyxis.rejected[student(0)] = true
	r := w.start()
	first := r.prepare(student(0), "A-1")
	var rejected answer
	var wg sync.WaitGroup
	wg.Go(func() { rejected = r.confirm(student(0), first) })
	w.eventually("the first one upstream", func() bool { return len(w.pyxis.postsTo("A-1")) == 1 })
	actions := map[string]string{}
	for i := 1; i < 10; i++ {
		actions[student(i)] = r.prepare(student(i), "A-1")
	}
	var mu sync.Mutex
	var others []answer
	for name, action := range actions {
		wg.Go(func() {
			a := r.confirm(name, action)
			mu.Lock()
			defer mu.Unlock()
			others = append(others, a)
		})
	}
	wg.Wait()
	if rejected.status != http.StatusForbidden || rejected.str("state") != stateAuth {
		t.Errorf("the rejected one got %+v, want 403", rejected)
	}
	if diff := cmp.Diff(map[string]int{"201 SUCCEEDED": 1, "409 FAILED_RACE": 8}, tally(others)); diff != "" {
		t.Errorf("the others: %s", diff)
	}
	if n := len(w.pyxis.postsTo("A-1")); n != 2 {
		t.Errorf("%d reserve calls, want 2", n)
	}
	w.wellRecorded()
}

func TestUpstreamFaultIsReadAndDoesNotCostTheSeat(t *testing.T) {
	both(t, func(t *testing.T, path func(*Config)) {
		w := newWorld(t, "A-1")
		var posts atomic.Int32
		w.pyxis.before = func(post) {
			posts.Add(1)
		}
		w.pyxis.status = http.StatusInternalServerError
		r := w.start(path)
		action := r.prepare(student(1), "A-1")
		var a answer
		var wg sync.WaitGroup
		wg.Go(func() { a = r.confirm(student(1), action) })
		w.eventually("the charge read, in vain", func() bool { return w.pyxis.readsOf("/charges/current") >= 1 })
		w.pyxis.set(func() { w.pyxis.status = 0 })
		r.cfg.Clock.Set(time.Minute) // the read failed too, so the reaper decides
		wg.Wait()
		if a.status != http.StatusBadGateway || a.str("state") != stateUpstream {
			t.Errorf("answer %+v, want 502", a)
		}
		b := r.confirm(student(2), r.prepare(student(2), "A-1"))
		if b.status != http.StatusCreated {
			t.Errorf("the next student got %+v, want the seat, which nobody holds", b)
		}
		if posts.Load() != 2 {
			t.Errorf("%d reserve calls, want 2", posts.Load())
		}
		w.wellRecorded()
	})
}
