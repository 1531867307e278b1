package telescope

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/sut/clock"
)

// TestLockHeldBySomebodyElse: everybody is answered within the deadlines, those
// who get no connection included, and nothing is left behind.
func TestLockHeldBySomebodyElse(t *testing.T) { //nolint:tparallel // one lock after another
	o := newObservatory(t)
	r := o.start(func(c *Config) { c.LockTimeout, c.PoolSize = 100*time.Millisecond, 6 })
	locks := map[string]struct {
		sql  string
		send func(i int) answer
	}{
		"slot, booking": {"select 1 from observing_slots where slot_id = 5 for update", func(i int) answer { return r.book(member(i), "k", 5) }},
		"slot, closure": {"select 1 from observing_slots where slot_id = 5 for update", func(i int) answer { return r.closeSlot(fmt.Sprint("staff-", i), "k", 5) }},
		"slot, import": {"select 1 from observing_slots where slot_id = 5 for update", func(i int) answer {
			return r.send("POST", "/telescope/maintenance-imports", call{who: fmt.Sprint("staff-", i), key: "k", body: importOf(4, 3, "closed")})
		}},
		"whole table": {"lock table active_reservations", func(i int) answer { return r.book(member(i), "k", 5) }},
	}
	for name, lock := range locks {
		t.Run(name, func(t *testing.T) {
			before := o.rows()
			release := o.hold(lock.sql)
			began := clock.Mono()
			answers := burst(12, lock.send)
			if took := clock.Mono() - began; took > 6*time.Second {
				t.Errorf("took %v", took)
			}
			release()
			if diff := cmp.Diff(map[string]int{"503 busy": 12}, tally(answers)); diff != "" {
				t.Error(diff)
			}
			for _, a := range answers {
				if a.header.Get("Retry-After") == "" {
					t.Fatalf("no Retry-After: %v", a.header)
				}
			}
			if after := o.rows(); after != before {
				t.Errorf("rows %s, before %s", after, before)
			}
		})
	}
	wants(t, r.book(member(1), "k", 5), "201")
	o.soundly()
}

// TestQuotaRowHeldBySomebodyElse: the wait for it is no wait for the key.
func TestQuotaRowHeldBySomebodyElse(t *testing.T) {
	o := newObservatory(t)
	r := o.start(func(c *Config) { c.LockTimeout = 100 * time.Millisecond })
	release := o.hold("insert into member_quotas values ('member-1', '2026-12')")
	wants(t, r.book(member(1), "k", 5), "503 busy")
	wants(t, r.book(member(2), "k", 5), "201")
	release()
	wants(t, r.book(member(1), "k", 6), "201")
	o.soundly()
}

// TestDeadlockIsRunAgain: the server is the victim, once, and its client does
// not notice.
func TestDeadlockIsRunAgain(t *testing.T) {
	o := newObservatory(t)
	r := o.start(func(c *Config) { c.DatabaseURL += "&deadlock_timeout=1000"; c.LockTimeout = 4 * time.Second })
	other := o.session("select 1 from observing_slots where slot_id = 5 for update")
	sent := make(chan answer, 1)
	go func() { sent <- r.book(member(1), "k", 5) }()
	o.awaitWaiting("sut-1", 1) // has the quota row, wants the slot
	if _, err := other.Exec(t.Context(), "insert into member_quotas values ('member-1', '2026-12')"); err != nil {
		t.Fatalf("the test was chosen as the victim: %v", err)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(t, <-sent, "201")
	if n := r.meters.retries.Get(); n == 0 {
		t.Error("nothing was run again")
	}
	if got := o.history(5); got != "CREATED BOOKED" {
		t.Errorf("history %s", got)
	}
	o.soundly()
}

// TestSessionsAreCut: a transaction whose session ends is answered busy, not
// done, and the next requests get new sessions.
func TestSessionsAreCut(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	release := o.hold("select 1 from observing_slots where slot_id = 5 for update")
	sent := make(chan []answer, 1)
	go func() { sent <- burst(5, func(i int) answer { return r.book(member(i), "k", 5) }) }()
	o.awaitWaiting("sut-1", 5)
	if n := scan[int](o, "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'sut-1' and datname = current_database()"); n != 8 {
		t.Errorf("%d sessions by the replica's name, want 8", n)
	}
	if diff := cmp.Diff(map[string]int{"503 busy": 5}, tally(<-sent)); diff != "" {
		t.Error(diff)
	}
	release()
	await(t, "a booking on a new session", func() (answer, bool) {
		a := r.book(member(1), "k", 5)
		return a, a.status == 201
	})
	if got := o.history(5); got != "CREATED BOOKED" {
		t.Errorf("history %s", got)
	}
	o.soundly()
}

// TestStatementTakesTooLong: 57014 is an answer that says to try again.
func TestStatementTakesTooLong(t *testing.T) {
	o := newObservatory(t)
	r := o.start(func(c *Config) { c.LockTimeout, c.StatementTimeout = 30*time.Second, 200*time.Millisecond }) // configuration would refuse that
	release := o.hold("select 1 from observing_slots where slot_id = 5 for update")
	wants(t, r.book(member(1), "k", 5), "503 busy")
	release()
	wants(t, r.book(member(1), "k", 5), "201")
}

// TestDrain: what is under way ends, then everything is closed; no session is left.
func TestDrain(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	release := o.hold("select 1 from observing_slots where slot_id = 5 for update")
	sent := make(chan answer, 1)
	go func() { sent <- r.book(member(1), "k", 5) }()
	o.awaitWaiting("sut-1", 1)
	if err := r.Drain(t.Context()); err != nil {
		t.Errorf("Drain = %v", err)
	}
	release()
	wants(t, <-sent, "201")
	r.end()
	await(t, "no session left", func() (int, bool) {
		n := scan[int](o, "select count(*) from pg_stat_activity where application_name = 'sut-1' and datname = current_database()")
		return n, n == 0
	})
	o.soundly()
}

// TestCloseGivesUpWhatIsUnderWay: nobody is waited for longer than needed.
func TestCloseGivesUpWhatIsUnderWay(t *testing.T) {
	o := newObservatory(t)
	r := o.start(func(c *Config) { c.LockTimeout, c.StatementTimeout = 20*time.Second, 25*time.Second })
	o.hold("select 1 from observing_slots where slot_id = 5 for update")
	sent := make(chan answer, 1)
	go func() { sent <- r.book(member(1), "k", 5) }()
	o.awaitWaiting("sut-1", 1)
	began := clock.Mono()
	r.Close()
	if took := clock.Mono() - began; took > 10*time.Second {
		t.Errorf("closing took %v", took)
	}
	wants(t, <-sent, "503 busy")
}

func TestStartRefusesAnOldSchema(t *testing.T) {
	o := newObservatory(t)
	cfg := o.base
	cfg.DatabaseURL = cluster.Database(t)
	s, err := Start(t.Context(), cfg)
	if err == nil {
		s.Close()
		t.Fatal("Start went on without a schema")
	}
	cfg.DatabaseURL = "postgres://x@127.0.0.1:1/x?connect_timeout=2"
	if s, err := Start(t.Context(), cfg); err == nil {
		s.Close()
		t.Error("Start went on without a database")
	}
}
