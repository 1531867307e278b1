package library

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestChaos: a misbehaving pyxis, three replicas of which two die and come
// back, waits and confirms on few seats. Whatever happened, the records must
// be right in the end.
func TestChaos(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { chaos(t, seed) })
	}
}

func chaos(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test's choices
	seats := []string{"A-1", "A-2", "A-3", "A-4", "A-5"}
	w := newWorld(t, seats...)
	misbehave(w.pyxis, rand.New(rand.NewPCG(seed, 8))) //nolint:gosec // a test's choices
	start := func(n int) *replica {
		return w.start(named(fmt.Sprintf("sut-%d", n)), func(c *Config) {
			c.UpstreamTimeout, c.Lease, c.ConfirmWait, c.PoolSize = 200*time.Millisecond, time.Second, 5*time.Second, 8
		})
	}
	rs := []*replica{start(1), start(2), start(3)}
	type job struct {
		student, seat, action string
		at                    *replica
	}
	var jobs []job
	for i := range 90 {
		j := job{student: student(i), seat: seats[rng.IntN(len(seats))], at: rs[i%3]}
		j.action = j.at.prepare(j.student, j.seat)
		jobs = append(jobs, j)
	}
	for i := range 6 {
		rs[i%3].call("POST", "/library/waits", student(1000+i), `{"seats":[]}`)
	}
	var clients sync.WaitGroup
	for _, j := range jobs {
		wait := time.Duration(rng.IntN(1500)) * time.Millisecond
		clients.Go(func() {
			time.Sleep(wait) // an arrival, spread over the run
			j.at.confirm(j.student, j.action)
		})
	}
	for n := range 2 {
		time.Sleep(time.Duration(300+rng.IntN(300)) * time.Millisecond)
		rs[n].end()
		rs[n] = start(n + 1)
	}
	clients.Wait()
	for _, j := range jobs { // whoever did not reach a replica that was down asks again
		rs[2].confirm(j.student, j.action)
	}
	w.eventually("everything is decided", func() bool {
		s := w.states()
		return s[stateRequested]+s[stateReserving] == 0
	})
	w.wellRecorded()
	w.agreesWithPyxis(seats)
}

// misbehave makes pyxis do to each reserve call one of the things that
// upstreams do.
func misbehave(f *fakePyxis, rng *rand.Rand) {
	var mu sync.Mutex
	fate := map[string]int{}
	f.before = func(p post) {
		mu.Lock()
		n := rng.IntN(10)
		fate[p.Reference] = n
		mu.Unlock()
		switch n {
		case 0:
			panic(http.ErrAbortHandler) // gone before anything was decided
		case 1:
			f.set(func() { f.rejected[p.Student] = true })
		}
		time.Sleep(time.Duration(n) * 10 * time.Millisecond)
	}
	f.after = func(p post) bool {
		mu.Lock()
		n := fate[p.Reference]
		mu.Unlock()
		if n == 2 {
			time.Sleep(400 * time.Millisecond) // decided, answered too late
		}
		return n != 3 && n != 4 // decided, connection reset
	}
}

// agreesWithPyxis checks that what is stored is what pyxis says, and that
// pyxis was not asked more often than it had to be.
func (w *world) agreesWithPyxis(seats []string) {
	w.t.Helper()
	w.pyxis.mu.Lock()
	holders := map[string]charge{}
	maps.Copy(holders, w.pyxis.holders)
	posts := append([]post(nil), w.pyxis.posts...)
	w.pyxis.mu.Unlock()
	for _, seat := range seats {
		stored := value[string](w, `select coalesce(string_agg(student || ' by ' || charge_id, ', '), 'nobody')
			from library_reservation_intents where seat = $1 and state = 'SUCCEEDED'`, seat)
		said := "nobody"
		if c, ok := holders[seat]; ok {
			said = c.Student + " by " + c.ID
		}
		if stored != said {
			w.t.Errorf("%s: stored as held by %s, pyxis says %s", seat, stored, said)
		}
		if said == "nobody" && value[int](w, "select count(*) from library_reservation_intents where seat = $1 and state = 'FAILED_RACE'", seat) > 0 {
			w.t.Errorf("%s: somebody lost the race for a seat that nobody holds", seat)
		}
	}
	calls := map[string]int{}
	for _, p := range posts {
		calls[p.Reference]++
	}
	for ref, n := range calls {
		if kind := value[string](w, "select kind from library_reservation_intents where intent_id = $1", ref); n > 1 && kind != kindWait {
			w.t.Errorf("%d reserve calls for intent %s", n, ref)
		}
	}
	for _, seat := range seats {
		// Every call beyond the first needs an attempt that ended without telling who has the seat.
		undecided := value[int](w, `select count(*) from library_transitions t join library_reservation_intents i using (intent_id)
			where i.seat = $1 and t.from_state = 'RESERVING' and t.to_state in ('FAILED_AUTH', 'FAILED_UPSTREAM', 'WAITING_FOR_SEAT')`, seat)
		n := 0
		for _, p := range posts {
			if p.Seat == seat {
				n++
			}
		}
		if n > undecided+1 {
			w.t.Errorf("%s: %d reserve calls although only %d attempts ended undecided", seat, n, undecided)
		}
	}
}
