package library

import (
	"context"
	"net/http"
	"testing"
	"time"
)

func TestSuppressionIsNarrow(t *testing.T) {
	w := newWorld(t, "A-1", "A-2")
	r := w.start()
	confirm := func(n int, seat string) answer { return r.confirm(student(n), r.prepare(student(n), seat)) }
	expect := func(what string, a answer, status, postsToA1, postsToA2 int) {
		t.Helper()
		if a.status != status {
			t.Errorf("%s: answer %+v, want %d", what, a, status)
		}
		if n := len(w.pyxis.postsTo("A-1")); n != postsToA1 {
			t.Errorf("%s: %d reserve calls for A-1 so far, want %d", what, n, postsToA1)
		}
		if n := len(w.pyxis.postsTo("A-2")); n != postsToA2 {
			t.Errorf("%s: %d reserve calls for A-2 so far, want %d", what, n, postsToA2)
		}
	}
	move := func(offset time.Duration) {
		t.Helper()
		// A look at the queue that began before the clock moved judges by the
		// time at which it began.
		w.eventually("the worker rests", r.worker.rests)
		r.cfg.Clock.Set(offset)
	}
	expect("the first", confirm(1, "A-1"), http.StatusCreated, 1, 0)
	expect("a latecomer is closed locally", confirm(2, "A-1"), http.StatusConflict, 1, 0)
	expect("another seat is not", confirm(3, "A-2"), http.StatusCreated, 1, 1)
	move(119 * time.Second)
	expect("still within the window", confirm(4, "A-1"), http.StatusConflict, 1, 1)
	move(125 * time.Second)
	expect("after the window upstream decides", confirm(5, "A-1"), http.StatusConflict, 2, 1)
	move(240 * time.Second)
	expect("which decides for another window", confirm(6, "A-1"), http.StatusConflict, 2, 1)
	w.pyxis.set(func() { delete(w.pyxis.holders, "A-1") })
	move(250 * time.Second)
	expect("a seat that was given back can be had again", confirm(7, "A-1"), http.StatusCreated, 3, 1)
	w.wellRecorded()
}

// A look at a seat's queue may take long: it waits for the seat's row. By the
// time at which it began it closes those who were there then, nobody who came
// when that time was over.
func TestSuppressionLeavesThoseWhoCameAfterItBegan(t *testing.T) {
	w := newWorld(t, "A-1")
	r := w.start()
	if a := r.confirm(student(1), r.prepare(student(1), "A-1")); a.status != http.StatusCreated {
		t.Fatalf("the first: answer %+v, want 201", a)
	}
	w.eventually("the worker rests", r.worker.rests)
	answers := make([]chan answer, 2)
	ask := func(i int) {
		action := r.prepare(student(2+i), "A-1")
		answers[i] = make(chan answer, 1)
		go func() { answers[i] <- r.confirm(student(2+i), action) }()
	}
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from library_seats where seat = 'A-1' for update`); err != nil {
		t.Fatal(err)
	}
	count := func(sql string) (n int) {
		if err := tx.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	ask(0)
	w.eventually("a look waits for the seat's row", func() bool {
		return count(`select count(*) from pg_locks l join pg_stat_activity a using (pid) where not l.granted and a.datname = current_database()`) > 0
	})
	r.cfg.Clock.Set(125 * time.Second) // the seat was decided longer ago than an action lives
	ask(1)
	w.eventually("the second has come", func() bool {
		return count(`select count(*) from library_reservation_intents where state = 'REQUESTED'`) == 2
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"closed by the look", "decided by the university"} {
		if a := <-answers[i]; a.status != http.StatusConflict {
			t.Errorf("who is %s: answer %+v, want 409", want, a)
		}
	}
	if n := len(w.pyxis.postsTo("A-1")); n != 2 {
		t.Errorf("%d reserve calls, want 2: the first one's, and that of who came after the look began", n)
	}
	w.wellRecorded()
}

func TestFailureDoesNotSuppress(t *testing.T) {
	w := newWorld(t, "A-1")
	w.pyxis.rejected[student(1)] = true
	r := w.start()
	for n, want := range map[int]int{1: http.StatusForbidden} {
		if a := r.confirm(student(n), r.prepare(student(n), "A-1")); a.status != want {
			t.Errorf("answer %+v, want %d", a, want)
		}
	}
	if a := r.confirm(student(2), r.prepare(student(2), "A-1")); a.status != http.StatusCreated {
		t.Errorf("answer %+v, want the seat that nobody holds", a)
	}
	// A later failure must not make the seat's decision forgotten.
	if a := r.confirm(student(3), r.prepare(student(3), "A-1")); a.status != http.StatusConflict || len(w.pyxis.postsTo("A-1")) != 2 {
		t.Errorf("answer %+v after %d calls, want a local 409", a, len(w.pyxis.postsTo("A-1")))
	}
}

func TestManySeats(t *testing.T) {
	w := newWorld(t)
	w.pyxis.latency = 30 * time.Millisecond
	rs := []*replica{w.start(func(c *Config) { c.Workers = 2 }), w.start(named("sut-2"), func(c *Config) { c.Workers = 2 })}
	seats := []string{"A-0", "A-1", "A-2", "A-3", "A-4", "A-5", "A-6", "A-7", "A-8", "A-9"}
	type result struct {
		seat string
		a    answer
	}
	results := make(chan result, 100)
	for i := range 100 {
		seat := seats[i%len(seats)]
		r := rs[i%2]
		action := r.prepare(student(i), seat)
		go func() { results <- result{seat, r.confirm(student(i), action)} }()
	}
	winners := map[string]int{}
	for range 100 {
		if res := <-results; res.a.status == http.StatusCreated {
			winners[res.seat]++
		} else if res.a.status != http.StatusConflict {
			t.Errorf("%s: answer %+v", res.seat, res.a)
		}
	}
	for _, seat := range seats {
		if winners[seat] != 1 || len(w.pyxis.postsTo(seat)) != 1 {
			t.Errorf("%s: %d winners, %d reserve calls; want 1 and 1", seat, winners[seat], len(w.pyxis.postsTo(seat)))
		}
	}
	w.wellRecorded()
}
