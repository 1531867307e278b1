//go:build linux

package wirehttp

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/load"
)

// eachTechnique runs a test for every way to hand requests over.
func eachTechnique(t *testing.T, run func(t *testing.T, kind harness.Technique, how string)) {
	t.Helper()
	t.Run("h1 io_uring", func(t *testing.T) {
		if !newRingWorks() {
			t.Skip("io_uring is not allowed here")
		}
		run(t, harness.H1LastHeaderByte, howRing)
	})
	t.Run("h1 thread", func(t *testing.T) {
		t.Setenv(noRingEnv, "1")
		run(t, harness.H1LastHeaderByte, howThread)
	})
	t.Run("h2 io_uring", func(t *testing.T) {
		if !newRingWorks() {
			t.Skip("io_uring is not allowed here")
		}
		run(t, harness.H2SinglePacket, howRing)
	})
	t.Run("h2 write", func(t *testing.T) {
		t.Setenv(noRingEnv, "1")
		run(t, harness.H2SinglePacket, howWrite)
	})
}

func TestTechniqueIsNamed(t *testing.T) {
	eachTechnique(t, func(t *testing.T, kind harness.Technique, how string) {
		w := newWitness(t, nil)
		speakH2C(w.Server, 1000)
		w.Start()
		c := w.client()
		for round := range 5 {
			rep, ops, err := c.Burst(t.Context(), same(w.URL, 40), harness.Burst{Name: fmt.Sprint(round), Technique: kind, Requests: requests(40, func(i int) string { return fmt.Sprint(i) })})
			if err != nil {
				t.Fatal(err)
			}
			if want := string(kind) + "/" + how; rep.Technique != want {
				t.Errorf("technique %q, want %q", rep.Technique, want)
			}
			w.mu.Lock()
			for _, op := range ops {
				if len(w.seen[op.ID]) != 1 || op.Outcome != harness.OK {
					t.Errorf("round %d: %s arrived %d times, %+v", round, op.ID, len(w.seen[op.ID]), op)
				}
			}
			w.mu.Unlock()
		}
		if got := len(w.arrivals()); got != 200 {
			t.Errorf("%d arrivals in 5 rounds of 40", got)
		}
	})
}

// TestMaxInFlightOfAMeeting: a server that answers nobody before everybody is
// there has all of them in flight at once. With HTTP/2 the figure is a lower
// bound, which a busy machine can lower: it must be reached, never exceeded.
func TestMaxInFlightOfAMeeting(t *testing.T) {
	const n = 60
	eachTechnique(t, func(t *testing.T, kind harness.Technique, _ string) {
		bursts := 1
		if kind == harness.H2SinglePacket {
			bursts = 20
		}
		most := 0
		for range bursts {
			rep := meet(t, kind, n)
			if rep.MaxInFlight > n || rep.MaxInFlight < 1 || rep.Answered != n {
				t.Fatalf("%+v", rep)
			}
			if most = max(most, rep.MaxInFlight); most == n {
				return
			}
		}
		t.Errorf("max in flight %d in %d bursts, want %d", most, bursts, n)
	})
}

func meet(t *testing.T, kind harness.Technique, n int) harness.BurstReport {
	t.Helper()
	var all sync.WaitGroup
	all.Add(n)
	w := newWitness(t, func(http.ResponseWriter, *http.Request) { all.Done(); all.Wait() })
	speakH2C(w.Server, 1000)
	w.Start()
	rep, ops, err := w.client().Burst(t.Context(), same(w.URL, n), harness.Burst{Name: "b", Technique: kind, Requests: requests(n, func(int) string { return "{}" })})
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, w, n, rep, ops)
	return rep
}

// TestASerialServer: requests that are handled one by one are counted as the
// client sees them, sent and not answered, never more than the stamps of the
// operations allow.
func TestASerialServer(t *testing.T) {
	const n = 50
	eachTechnique(t, func(t *testing.T, kind harness.Technique, _ string) {
		var one sync.Mutex
		w := newWitness(t, func(rw http.ResponseWriter, _ *http.Request) {
			one.Lock()
			defer one.Unlock()
			fmt.Fprint(rw, "done")
			_ = http.NewResponseController(rw).Flush()
		})
		speakH2C(w.Server, 1000)
		w.Start()
		rep, ops, err := w.client().Burst(t.Context(), same(w.URL, n), harness.Burst{Name: "b", Technique: kind, Requests: requests(n, func(int) string { return "{}" })})
		if err != nil {
			t.Fatal(err)
		}
		if rep.MaxInFlight > n {
			t.Errorf("max in flight %d of %d", rep.MaxInFlight, n)
		}
		checkWhole(t, w, n, rep, ops)
		if fromOps := load.MaxInFlight(load.Intervals(ops)); rep.MaxInFlight > fromOps {
			t.Errorf("the report says %d in flight, the operations' stamps say %d", rep.MaxInFlight, fromOps)
		}
	})
}

// TestStampsAgainstTheServers: by the clock that both share, no request
// arrives before the release, or is answered before it arrived; and each was
// sent within the reported spread.
func TestStampsAgainstTheServers(t *testing.T) {
	const n = 100
	eachTechnique(t, func(t *testing.T, kind harness.Technique, _ string) {
		w := newWitness(t, nil)
		speakH2C(w.Server, 1000)
		w.Start()
		rep, ops, err := w.client().Burst(t.Context(), same(w.URL, n), harness.Burst{Name: "b", Technique: kind, Requests: requests(n, func(int) string { return "{}" })})
		if err != nil {
			t.Fatal(err)
		}
		at := w.arrivals()
		if at[0] < rep.Released {
			t.Errorf("the first request arrived %v before the release", rep.Released-at[0])
		}
		if rep.Spread <= 0 {
			t.Errorf("spread %v", rep.Spread)
		}
		for _, op := range ops {
			if op.Sent > rep.Released+rep.Spread {
				t.Errorf("%s was sent at %v, after release %v and spread %v", op.ID, op.Sent, rep.Released, rep.Spread)
			}
			if op.Answered < w.seen[op.ID][0] {
				t.Errorf("%s was answered %v before it arrived", op.ID, w.seen[op.ID][0]-op.Answered)
			}
		}
	})
}

// TestTheHandlerCannotStartEarly holds a burst at the barrier and looks: no
// handler is running, though everything but the held parts is there.
func TestTheHandlerCannotStartEarly(t *testing.T) {
	const n = 20
	started := make(chan struct{}, n)
	w := newWitness(t, nil)
	w.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { // before any of the body is read
		started <- struct{}{}
		http.NotFound(rw, r)
	})
	w.Start()
	b := harness.Burst{Requests: requests(n, func(int) string { return "{}" })}
	bu := newBurst(w.client(), b)
	if err := bu.plan(same(w.URL, n), b); err != nil {
		t.Fatal(err)
	}
	defer bu.close()
	if err := bu.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A request of its own goes all the way while the burst is held.
	if op := w.client().Do(t.Context(), w.URL, requests(1, nil)[0]); op.Status != 404 || op.Outcome != harness.Fail {
		t.Fatalf("%+v", op)
	}
	if got := len(started); got != 1 {
		t.Fatalf("%d handlers started, want the lone request's alone", got)
	}
}

// TestLargeBodies are taken by the kernel in parts, as the server reads them.
func TestLargeBodies(t *testing.T) {
	const n, size = 4, 6 << 20
	eachTechnique(t, func(t *testing.T, kind harness.Technique, _ string) {
		if kind == harness.H2SinglePacket {
			t.Skip("has a test of its own")
		}
		w := newWitness(t, nil)
		w.Start()
		rep, ops, err := w.client().Burst(t.Context(), same(w.URL, n), harness.Burst{Name: "b", Technique: kind, Requests: requests(n, func(i int) string {
			return `"` + strings.Repeat("x", size+i) + `"`
		})})
		if err != nil {
			t.Fatal(err)
		}
		checkWhole(t, w, n, rep, ops)
	})
}

func TestAnswersOfAllSizes(t *testing.T) {
	sizes := []int{0, 1, outputCap - 1, outputCap, outputCap + 1, 1 << 20, bodyMax, bodyMax + 1}
	eachTechnique(t, func(t *testing.T, kind harness.Technique, _ string) {
		w := newWitness(t, func(rw http.ResponseWriter, r *http.Request) {
			var i int
			fmt.Sscan(r.URL.Query().Get("i"), &i)
			rw.Header().Set("Content-Type", "application/problem+json")
			rw.Header().Set("Retry-After", "7")
			rw.WriteHeader(503)
			_, _ = rw.Write([]byte(strings.Repeat("y", sizes[i])))
		})
		speakH2C(w.Server, 1000)
		w.Start()
		_, ops, err := w.client().Burst(t.Context(), same(w.URL, len(sizes)), harness.Burst{Technique: kind, Requests: requests(len(sizes), nil)})
		if err != nil {
			t.Fatal(err)
		}
		for i, op := range ops {
			if sizes[i] > bodyMax {
				if op.Answered != 0 || op.Outcome != harness.Info || load.ClassOf(op.Err) != load.ClassAnswer {
					t.Errorf("%d bytes: %+v", sizes[i], op.Err)
				}
				continue
			}
			if op.Status != 503 || op.Outcome != harness.Info || len(op.Output) != min(sizes[i], outputCap) || op.Answered == 0 || op.Err != "" {
				t.Errorf("%d bytes: status %d, outcome %v, %d kept, error %q", sizes[i], op.Status, op.Outcome, len(op.Output), op.Err)
			}
			if op.Header["Content-Type"] != "application/problem+json" || op.Header["Retry-After"] != "7" {
				t.Errorf("header %v", op.Header)
			}
		}
	})
}

func TestTimeoutIsFromTheRelease(t *testing.T) {
	hold := make(chan struct{})
	w := newWitness(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("i") == "1" {
			<-hold
		}
	})
	w.Start()
	defer close(hold)
	reqs := requests(3, nil)
	reqs[1].Timeout = 200 * time.Millisecond
	rep, ops, err := w.client().Burst(t.Context(), same(w.URL, 3), harness.Burst{Requests: reqs})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Answered != 2 || rep.Sent != 3 || ops[1].Outcome != harness.Info || load.ClassOf(ops[1].Err) != load.ClassTimeout || ops[0].Outcome != harness.OK || ops[2].Outcome != harness.OK {
		t.Errorf("%+v\n%+v", rep, ops)
	}
	if d := load.Account(3, rep.Ready, ops); d.TimedOut != 1 || d.Answered != 2 || !d.AsPlanned() {
		t.Errorf("%v", d)
	}
}
