package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/wire/upstream"
)

func TestDropBeforeAndAfterTheWork(t *testing.T) {
	for moment, forwarded := range map[harness.Moment]int{harness.MomentReceived: 0, harness.MomentAccepted: 1} {
		t.Run(string(moment), func(t *testing.T) {
			url, reached := serve(t, ok)
			w := start(t, upstream.Config{Target: url})
			heal := w.Inject(harness.UpstreamFault{Name: "lost", At: moment, Drop: true})
			_, _, err := call(t, "POST", w.URL("sut-1")+"/reserve", "{}")
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the caller got %v, want a reset", err)
			}
			heal()
			heal() // twice is fine
			if _, _, err := call(t, "POST", w.URL("sut-1")+"/reserve", "{}"); err != nil {
				t.Errorf("after the healing: %v", err)
			}
			quiesce(t, w)
			c := w.Calls()[0]
			if c.Fault != "lost" || c.Err == "" || c.Answered != 0 || (c.Forwarded != 0) != (forwarded == 1) || (c.Status == 201) != (forwarded == 1) {
				t.Errorf("ledger: %+v", c)
			}
			if n := w.Count("POST", "/reserve"); n != 1+forwarded || reached.Load() != int64(n) {
				t.Errorf("count %d, target %d, want %d", n, reached.Load(), 1+forwarded)
			}
		})
	}
}

func TestCallGoesOnWithoutItsCaller(t *testing.T) {
	for _, moment := range []harness.Moment{harness.MomentReceived, harness.MomentAccepted} {
		t.Run(string(moment), func(t *testing.T) {
			url, reached := serve(t, ok)
			w := start(t, upstream.Config{Target: url})
			c := dial(t, w.URL("sut-1"))
			var at harness.UpstreamCall
			w.Inject(harness.UpstreamFault{Name: "kill", At: moment, Do: func(_ context.Context, call harness.UpstreamCall) {
				at = call
				_ = c.Close() // as the kernel does for a process that was killed
			}})
			if _, err := io.WriteString(c, "POST /reserve HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
				t.Fatal(err)
			}
			line := until(t, w, "the call to end", func(c []harness.UpstreamCall) bool { return len(c) == 1 && c[0].Err != "" })[0]
			if line.Accepted == 0 || line.Status != 201 || line.Answered != 0 || reached.Load() != 1 {
				t.Errorf("ledger %+v, target %d", line, reached.Load())
			}
			if at.Seq != 1 || at.Fault != "kill" || (at.Accepted != 0) != (moment == harness.MomentAccepted) {
				t.Errorf("the fault was given %+v", at)
			}
		})
	}
}

func TestCallerThatDiesWhileTheUpstreamWorks(t *testing.T) {
	working, finish := make(chan struct{}), make(chan struct{})
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		close(working)
		<-finish
		ok(w, r)
	})
	w := start(t, upstream.Config{Target: url})
	c := dial(t, w.URL("sut-1"))
	if _, err := io.WriteString(c, "POST /reserve HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
		t.Fatal(err)
	}
	<-working
	_ = c.SetLinger(0) // a reset, as for a process killed with unread data
	_ = c.Close()
	if n := w.InFlight(); n != 1 {
		t.Errorf("%d in flight without their callers, want 1", n)
	}
	close(finish)
	quiesce(t, w)
	line := until(t, w, "the call to end", func(c []harness.UpstreamCall) bool { return c[0].Err != "" })[0]
	if line.Accepted == 0 || line.Answered != 0 || !strings.Contains(line.Err, "gone") {
		t.Errorf("ledger: %+v", line)
	}
}

func TestHoldEndsWithItsChannelItsHealingOrTheWire(t *testing.T) {
	for _, how := range []string{"channel", "heal", "close"} {
		t.Run(how, func(t *testing.T) {
			url, reached := serve(t, ok)
			w := start(t, upstream.Config{Target: url})
			hold := make(chan struct{})
			heal := w.Inject(harness.UpstreamFault{Name: "held", At: harness.MomentReceived, Hold: hold})
			done := make(chan error, 1)
			go func() {
				_, _, err := call(t, "POST", w.URL("sut-1")+"/reserve", "{}")
				done <- err
			}()
			until(t, w, "the hold", func(c []harness.UpstreamCall) bool { return len(c) == 1 && c[0].Fault == "held" })
			soon, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			err := w.Quiesce(soon)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "#1 POST /reserve from sut-1") || !strings.Contains(err.Error(), "held") {
				t.Errorf("Quiesce: %v", err)
			}
			if w.InFlight() != 1 || reached.Load() != 0 {
				t.Errorf("in flight %d, target %d", w.InFlight(), reached.Load())
			}
			switch how {
			case "channel":
				close(hold)
			case "heal":
				heal()
			case "close":
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := <-done; (err == nil) != (how != "close") {
				t.Errorf("the caller got %v", err)
			}
			quiesce(t, w)
			if c := w.Calls()[0]; (c.Answered != 0) != (how != "close") || (c.Err == "") != (how != "close") {
				t.Errorf("ledger: %+v", c)
			}
		})
	}
}

func TestAnswerHeldBackIsQuiescent(t *testing.T) {
	url, _ := serve(t, ok)
	w := start(t, upstream.Config{Target: url})
	hold := make(chan struct{})
	w.Inject(harness.UpstreamFault{Name: "never answers", At: harness.MomentAccepted, Hold: hold})
	done := make(chan error, 1)
	go func() {
		_, _, err := call(t, "POST", w.URL("sut-1")+"/reserve", "{}")
		done <- err
	}()
	until(t, w, "acceptance", func(c []harness.UpstreamCall) bool { return len(c) == 1 && c[0].Accepted != 0 })
	quiesce(t, w)
	if c := w.Calls()[0]; c.Answered != 0 || w.Count("POST", "/reserve") != 1 {
		t.Errorf("ledger: %+v", c)
	}
	close(hold)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDelay(t *testing.T) {
	url, _ := serve(t, ok)
	w := start(t, upstream.Config{Target: url})
	const d = 30 * time.Millisecond
	w.Inject(harness.UpstreamFault{Name: "slow", Path: "/before", At: harness.MomentReceived, Delay: d})
	w.Inject(harness.UpstreamFault{Name: "late", Path: "/after", At: harness.MomentAccepted, Delay: d})
	for _, path := range []string{"/before", "/after"} {
		if _, _, err := call(t, "GET", w.URL("sut-1")+path, ""); err != nil {
			t.Fatal(err)
		}
	}
	calls := until(t, w, "answers", func(c []harness.UpstreamCall) bool { return c[1].Answered != 0 })
	if got := calls[0].Forwarded - calls[0].Received; got < d {
		t.Errorf("forwarded after %s", got)
	}
	if got := calls[1].Answered - calls[1].Accepted; got < d {
		t.Errorf("answered after %s", got)
	}
}

func TestNthIsCountedPerFaultAmongItsCalls(t *testing.T) {
	url, _ := serve(t, ok)
	w := start(t, upstream.Config{Target: url})
	at := harness.MomentReceived
	w.Inject(harness.UpstreamFault{Name: "second POST", Method: "POST", Nth: 2, At: at})
	w.Inject(harness.UpstreamFault{Name: "second of all", Nth: 2, At: at})
	w.Inject(harness.UpstreamFault{Name: "third POST of sut-2", Method: "POST", Caller: "sut-2", Path: "/a", Nth: 3, At: at})
	w.Inject(harness.UpstreamFault{Name: "every GET's answer", Method: "GET", At: harness.MomentAccepted})
	for _, c := range []string{"POST sut-1 /a", "GET sut-2 /a", "POST sut-2 /a", "POST sut-2 /b", "POST sut-2 /a", "GET sut-1 /a", "POST sut-2 /a", "POST sut-2 /a"} {
		p := strings.Fields(c)
		if _, _, err := call(t, p[0], w.URL(p[1])+p[2], ""); err != nil {
			t.Fatal(err)
		}
	}
	quiesce(t, w)
	var got []string
	for _, c := range w.Calls() {
		got = append(got, c.Fault)
	}
	want := []string{"", "second of all, every GET's answer", "second POST", "", "", "every GET's answer", "third POST of sut-2", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNthAmongSimultaneousCallsHitsOne(t *testing.T) {
	url, reached := serve(t, ok)
	w := start(t, upstream.Config{Target: url})
	w.Inject(harness.UpstreamFault{Name: "one", Nth: 17, At: harness.MomentReceived, Drop: true})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { _, _, _ = call(t, "POST", w.URL("sut-1")+"/x", "") })
	}
	wg.Wait()
	quiesce(t, w)
	hit := 0
	for _, c := range w.Calls() {
		if c.Fault != "" {
			hit++
		}
	}
	if hit != 1 || reached.Load() != 49 || w.Count("POST", "/x") != 49 {
		t.Errorf("%d dropped, target %d, count %d", hit, reached.Load(), w.Count("POST", "/x"))
	}
}

func TestPanickingFaultIsNotSwallowed(t *testing.T) {
	url, _ := serve(t, ok)
	w := start(t, upstream.Config{Target: url})
	w.Inject(harness.UpstreamFault{Name: "broken", At: harness.MomentAccepted, Do: func(context.Context, harness.UpstreamCall) { panic("a bug") }})
	if _, _, err := call(t, "POST", w.URL("sut-1")+"/x", ""); err == nil {
		t.Error("the call was answered")
	}
	quiesce(t, w)
	if err := w.Err(); err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("Err: %v", err)
	}
}

func TestUnknownMomentPanics(t *testing.T) {
	url, _ := serve(t, ok)
	w := start(t, upstream.Config{Target: url})
	defer func() {
		if recover() == nil {
			t.Error("a fault without a moment was installed")
		}
	}()
	w.Inject(harness.UpstreamFault{Name: "when?", Drop: true})
}

// A caller that keeps its connection gets the next call through, also after a
// long answer's deadline was set on it.
func TestKeptConnection(t *testing.T) {
	url, _ := serve(t, ok)
	w := start(t, upstream.Config{Target: url, Deadline: 200 * time.Millisecond})
	c := dial(t, w.URL("sut-1"))
	in := bufio.NewReader(c)
	w.Inject(harness.UpstreamFault{Name: "beyond the deadline", Nth: 2, At: harness.MomentReceived, Delay: 250 * time.Millisecond})
	for i := range 3 {
		if _, err := io.WriteString(c, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("call %d: %v", i+1, err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "got 2 bytes" {
			t.Errorf("call %d: %q %v", i+1, body, err)
		}
		_ = resp.Body.Close()
	}
}
