package library

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
)

func TestDrain(t *testing.T) {
	w := newWorld(t, "A-1", "A-2")
	arrived, hold := make(chan struct{}, 1), make(chan struct{})
	w.pyxis.before = func(post) { arrived <- struct{}{}; <-hold }
	r := w.start(func(c *Config) { c.Workers = 1 })
	inFlight, queued := r.prepare(student(1), "A-1"), r.prepare(student(2), "A-2")
	var a, b answer
	var wg sync.WaitGroup
	wg.Go(func() { a = r.confirm(student(1), inFlight) })
	<-arrived
	wg.Go(func() { b = r.confirm(student(2), queued) })
	w.eventually("the second one stored", func() bool { return w.states()[stateRequested] == 1 })
	drained := make(chan error, 1)
	go func() { drained <- r.Drain(context.Background()) }()
	w.eventually("the worker stopped", r.worker.isStopped)
	close(hold)
	if err := <-drained; err != nil {
		t.Errorf("Drain = %v", err)
	}
	wg.Wait()
	if a.status != http.StatusCreated {
		t.Errorf("the call under way was answered %+v, want 201", a)
	}
	if b.status != http.StatusAccepted || b.str("state") != stateRequested || b.header.Get("Location") == "" {
		t.Errorf("the queued one was answered %+v, want 202", b)
	}
	if n := len(w.pyxis.postsTo("A-2")); n != 0 {
		t.Errorf("%d reserve calls after the drain began", n)
	}
	second := w.start(named("sut-2"))
	if c := second.confirm(student(2), queued); c.status != http.StatusCreated || c.str("intent_id") != b.str("intent_id") {
		t.Errorf("the next replica answered %+v, want the same intent's success", c)
	}
	w.wellRecorded()
}

func TestDrainGivesUpInTime(t *testing.T) {
	w := newWorld(t, "A-1")
	hold := make(chan struct{})
	arrived := make(chan struct{}, 1)
	w.pyxis.before = func(post) { arrived <- struct{}{}; <-hold }
	defer close(hold)
	r := w.start()
	action := r.prepare(student(1), "A-1")
	var a answer
	var wg sync.WaitGroup
	wg.Go(func() { a = r.confirm(student(1), action) })
	<-arrived
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := r.Drain(ctx); err == nil {
		t.Error("Drain = nil although a call did not end")
	}
	wg.Wait()
	if a.status != http.StatusAccepted || a.str("state") != stateReserving {
		t.Errorf("answer %+v, want 202 RESERVING", a)
	}
	r.end()
	if diff := cmp.Diff(map[string]int{stateReserving: 1}, w.states()); diff != "" {
		t.Errorf("what can't be known was decided: %s", diff)
	}
}

func TestConfirmWaitEnds(t *testing.T) {
	both(t, func(t *testing.T, path func(*Config)) {
		w := newWorld(t, "A-1")
		w.pyxis.before = func(post) { panic(http.ErrAbortHandler) }
		r := w.start(path, func(c *Config) { c.ConfirmWait = 50 * time.Millisecond })
		a := r.confirm(student(1), r.prepare(student(1), "A-1"))
		if a.status != http.StatusAccepted || a.str("state") != stateReserving {
			t.Errorf("answer %+v, want 202 RESERVING", a)
		}
		if got := r.call("GET", a.header.Get("Location"), student(1), ""); got.status != http.StatusOK || got.str("seat") != "A-1" {
			t.Errorf("intent: %+v", got)
		}
	})
}

func TestSeatLock(t *testing.T) {
	redis := miniredis.RunT(t)
	w := newWorld(t, "A-1")
	w.pyxis.latency = 50 * time.Millisecond
	locked := func(c *Config) { c.RedisURL = "redis://" + redis.Addr() }
	rs := []*replica{w.start(locked), w.start(locked, named("sut-2"))}
	check := func(seat string) {
		t.Helper()
		if diff := cmp.Diff(map[string]int{"201 SUCCEEDED": 1, "409 FAILED_RACE": 29}, tally(burst(t, seat, 30, rs...))); diff != "" {
			t.Errorf("answers: %s", diff)
		}
		if n := len(w.pyxis.postsTo(seat)); n != 1 {
			t.Errorf("%d reserve calls for %s, want 1", n, seat)
		}
	}
	check("A-1")
	w.eventually("no lock left behind", func() bool { return len(redis.Keys()) == 0 })
	if err := redis.Set("test:library:seat:A-2", "held by a replica that died"); err != nil {
		t.Fatal(err)
	}
	check("A-2")
	redis.SetError("LOADING")
	check("A-3")
	if n := rs[0].metrics.redisTrouble.Get() + rs[1].metrics.redisTrouble.Get(); n == 0 {
		t.Error("Redis' trouble was not counted")
	}
	redis.Close()
	check("A-4")
	w.wellRecorded()
}

func TestRedisThatIsNotThere(t *testing.T) {
	w := newWorld(t, "A-1")
	r := w.start(func(c *Config) { c.RedisURL = "redis://127.0.0.1:1/0" })
	if a := r.confirm(student(1), r.prepare(student(1), "A-1")); a.status != http.StatusCreated {
		t.Errorf("answer %+v, want 201 without Redis", a)
	}
}

func TestBreakerFailsFast(t *testing.T) {
	w := newWorld(t, "A-1")
	w.pyxis.status = http.StatusServiceUnavailable
	r := w.start(func(c *Config) { c.BreakerFailures, c.BreakerOpen, c.CacheTTL = 3, time.Hour, time.Nanosecond })
	for range 5 {
		if a := r.call("GET", "/library/charges/current", student(1), ""); a.status != http.StatusBadGateway || a.str("type") != "/problems/upstream-failed" {
			t.Errorf("answer %+v, want 502", a)
		}
	}
	if n := w.pyxis.readsOf("/charges/current"); n != 3 {
		t.Errorf("%d calls, want the 3 that opened the breaker", n)
	}
	a := r.confirm(student(1), r.prepare(student(1), "A-1"))
	if a.status != http.StatusBadGateway || len(w.pyxis.postsTo("A-1")) != 0 {
		t.Errorf("answer %+v after %d reserve calls, want 502 at once and no call", a, len(w.pyxis.postsTo("A-1")))
	}
	w.wellRecorded()
}

// TestLostSession: the session that hears other replicas dies, and so do all
// others; clients get their answers all the same.
func TestLostSession(t *testing.T) {
	w := newWorld(t, "A-1")
	arrived, hold := make(chan struct{}), make(chan struct{})
	w.pyxis.before = func(post) { close(arrived); <-hold }
	r := w.start()
	action := r.prepare(student(1), "A-1")
	var a answer
	var wg sync.WaitGroup
	wg.Go(func() { a = r.confirm(student(1), action) })
	<-arrived
	if n := value[int](w, "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'sut-1'"); n != r.cfg.PoolSize {
		t.Errorf("%d sessions by the replica's name, want %d", n, r.cfg.PoolSize)
	}
	close(hold)
	wg.Wait()
	if a.status != http.StatusCreated {
		t.Errorf("answer %+v, want 201", a)
	}
	if n := len(w.pyxis.postsTo("A-1")); n != 1 {
		t.Errorf("%d reserve calls, want 1", n)
	}
	w.wellRecorded()
}

func TestBlockedRowIsAnsweredBusy(t *testing.T) {
	w := newWorld(t, "A-1")
	r := w.start()
	action := r.prepare(student(1), "A-1")
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select 1 from library_actions for update"); err != nil {
		t.Fatal(err)
	}
	a := r.confirm(student(1), action)
	if a.status != http.StatusServiceUnavailable || a.str("type") != "/problems/busy" || a.header.Get("Retry-After") == "" {
		t.Errorf("answer %+v, want 503 busy with Retry-After", a)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := r.confirm(student(1), action); a.status != http.StatusCreated {
		t.Errorf("answer %+v, want 201 once the row is free", a)
	}
	w.wellRecorded()
}

func TestStartRefusesAnOldSchema(t *testing.T) {
	w := newWorld(t)
	cfg := w.base
	cfg.DatabaseURL = cluster.Database(t)
	s, err := Start(t.Context(), cfg)
	if err == nil {
		s.Close()
		t.Fatal("Start went on without a schema")
	}
	if !strings.Contains(err.Error(), "sut migrate") {
		t.Errorf("error %q does not say what to run", err)
	}
	u, _ := url.Parse(w.url)
	u.Host = "127.0.0.1:1"
	cfg.DatabaseURL = u.String()
	if s, err := Start(t.Context(), cfg); err == nil {
		s.Close()
		t.Error("Start went on without a database")
	}
}
