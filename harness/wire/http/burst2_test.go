//go:build linux

package wirehttp

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/load"
)

// speak makes the server speak HTTP/2 without TLS, with prior knowledge.
func speakH2C(s *httptest.Server, streams int) {
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
}

func TestH2BurstDeliversEachRequestOnce(t *testing.T) {
	for _, n := range []int{1, 2, 100, 500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newWitness(t, nil)
			speakH2C(w.Server, 1000)
			w.Start()
			b := harness.Burst{Name: "b", Technique: harness.H2SinglePacket, Requests: requests(n, func(i int) string {
				if i%3 == 0 {
					return "" // read to its end by the server, so it waits for the last frame too
				}
				return fmt.Sprintf(`{"i":%d}`, i)
			})}
			rep, ops, err := w.client().Burst(t.Context(), same(w.URL, n), b)
			if err != nil {
				t.Fatal(err)
			}
			checkWhole(t, w, n, rep, ops)
		})
	}
}

func TestBurstsOverTLS(t *testing.T) {
	for _, tc := range []struct {
		kind harness.Technique
		want string
	}{
		{harness.H1LastHeaderByte, "h1-last-header-byte/io_uring"},
		{harness.H2SinglePacket, "h2-single-packet/io_uring"},
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			w := newWitness(t, nil)
			w.EnableHTTP2 = true
			w.StartTLS()
			b := harness.Burst{Name: "b", Technique: tc.kind, Requests: requests(100, func(i int) string { return fmt.Sprintf(`{"i":%d}`, i) })}
			rep, ops, err := trust(w.client(), w.Server).Burst(t.Context(), same(w.URL, 100), b)
			if err != nil {
				t.Fatal(err)
			}
			if newRingWorks() && rep.Technique != tc.want {
				t.Errorf("technique %q, want %q", rep.Technique, tc.want)
			}
			checkWhole(t, w, 100, rep, ops)
		})
	}
}

func newRingWorks() bool {
	r, err := newRing(1)
	if err == nil {
		r.close()
	}
	return err == nil
}

func TestTLSRefusesAnUnknownCertificate(t *testing.T) {
	w := newWitness(t, nil)
	w.StartTLS()
	rep, ops, err := w.client().Burst(t.Context(), same(w.URL, 2), harness.Burst{Requests: requests(2, nil)})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Fatalf("error %v, want one about the certificate", err)
	}
	if rep.Ready != 0 || ops[0].Outcome != harness.Fail || len(w.arrivals()) != 0 {
		t.Errorf("%+v %+v", rep, ops[0])
	}
}

func TestBurstOverReplicas(t *testing.T) {
	eachTechnique(t, func(t *testing.T, kind harness.Technique, _ string) {
		var servers []*witness
		var targets []string
		for range 3 {
			w := newWitness(t, nil)
			speakH2C(w.Server, 100)
			w.Start()
			servers = append(servers, w)
		}
		for i := range 99 {
			targets = append(targets, servers[i%3].URL)
		}
		b := harness.Burst{Technique: kind, Requests: requests(99, func(int) string { return `{"a":"` + strings.Repeat("x", 1000) + `"}` })}
		rep, ops, err := servers[0].client().Burst(t.Context(), targets, b)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Answered != 99 || rep.Ready != 99 {
			t.Errorf("%+v", rep)
		}
		for i, w := range servers {
			if got := len(w.arrivals()); got != 33 {
				t.Errorf("server %d saw %d requests, want 33", i, got)
			}
		}
		for i, op := range ops {
			if len(servers[i%3].seen[op.ID]) != 1 || op.Outcome != harness.OK {
				t.Fatalf("operation %d went astray: %+v", i, op)
			}
		}
	})
}

// TestH2LargeBodies needs windows that open only when the server reads: one
// body is larger than both windows of a server at its defaults.
func TestH2LargeBodies(t *testing.T) {
	w := newWitness(t, nil)
	speakH2C(w.Server, 100)
	w.Config.HTTP2.MaxReceiveBufferPerStream = 64 << 10
	w.Config.HTTP2.MaxReceiveBufferPerConnection = 128 << 10
	w.Start()
	b := harness.Burst{Name: "b", Technique: harness.H2SinglePacket, Requests: requests(5, func(i int) string {
		return `"` + strings.Repeat("x", 300_000+i) + `"`
	})}
	rep, ops, err := w.client().Burst(t.Context(), same(w.URL, 5), b)
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, w, 5, rep, ops)
}

func TestH2RefusesMoreStreamsThanAllowed(t *testing.T) {
	w := newWitness(t, nil)
	speakH2C(w.Server, 10)
	w.Start()
	rep, ops, err := w.client().Burst(t.Context(), same(w.URL, 11), harness.Burst{Name: "b", Technique: harness.H2SinglePacket, Requests: requests(11, nil)})
	if err == nil || !strings.Contains(err.Error(), "allows 10 streams") {
		t.Fatalf("error %v", err)
	}
	if rep.Ready != 0 || len(w.arrivals()) != 0 {
		t.Errorf("%+v, %d arrivals", rep, len(w.arrivals()))
	}
	if op := ops[0]; op.Outcome != harness.Fail || load.ClassOf(op.Err) == "" {
		t.Errorf("operation %+v", op)
	}
}

func TestH2NeedsAServerThatSpeaksIt(t *testing.T) {
	w := newWitness(t, nil)
	w.Start()
	_, _, err := w.client().Burst(t.Context(), same(w.URL, 3), harness.Burst{Technique: harness.H2SinglePacket, Requests: requests(3, nil)})
	if err == nil || !strings.Contains(err.Error(), "HTTP/2") {
		t.Fatalf("error %v, want one that says that the server does not speak HTTP/2", err)
	}
}

// TestH2EarlyAnswer: a handler that does not read the body answers before the
// release. That fails the burst, and what it did is not known.
func TestH2EarlyAnswer(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	speakH2C(s, 100)
	s.Start()
	defer s.Close()
	w := newWitness(t, nil)
	// The ping is answered by the connection's own goroutine, so the answers
	// may come just after it; many rounds are not needed, but some are.
	for range 20 {
		rep, ops, err := w.client().Burst(t.Context(), same(s.URL, 50), harness.Burst{Technique: harness.H2SinglePacket, Requests: requests(50, func(int) string { return "{}" })})
		if err == nil {
			continue
		}
		if rep.Early == 0 || rep.Sent != 0 {
			t.Fatalf("%+v, error %v", rep, err)
		}
		var got []harness.Outcome
		for _, op := range ops {
			got = append(got, op.Outcome)
		}
		want := make([]harness.Outcome, 50)
		for i := range want {
			want[i] = harness.Info // the headers were whole
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		return
	}
	t.Fatal("no early answer was noticed in 20 bursts")
}

// TestGoAwayEndsWhatItNames: the server's word that it will not act on a
// stream is not evidence, so such a request ends as info; the others go on.
func TestGoAwayEndsWhatItNames(t *testing.T) {
	l := &line{cn: &conn{sock: nowhere{}}, waits: true}
	p := newProto2(l)
	for i := range 3 {
		ra := &racer{req: requests(3, nil)[i], exposed: true}
		l.racers = append(l.racers, ra)
		p.streams = append(p.streams, &stream{id: uint32(2*i + 1), ra: ra, length: -1})
	}
	p.released = true
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	_ = w.WriteGoAway(1, http2.ErrCodeNo, nil)
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
	p.feed(b.Bytes(), 7)
	want := []harness.Outcome{harness.OK, harness.Info, harness.Info}
	for i, ra := range l.racers {
		op := ra.operation()
		if op.Outcome != want[i] || ra.ended != 7 || (i > 0 && load.ClassOf(op.Err) != load.ClassReset) {
			t.Errorf("stream %d: %+v", 2*i+1, op)
		}
	}
}

// TestH2ConnectionKilled: the server dies under all streams at once.
func TestH2ConnectionKilled(t *testing.T) {
	const n = 10
	var once sync.Once
	hold := make(chan struct{})
	var w *witness
	w = newWitness(t, func(http.ResponseWriter, *http.Request) {
		once.Do(w.CloseClientConnections)
		<-hold
	})
	speakH2C(w.Server, 100)
	w.Start()
	defer close(hold)
	rep, ops, err := w.client().Burst(t.Context(), same(w.URL, n), harness.Burst{Technique: harness.H2SinglePacket, Requests: requests(n, nil)})
	if err != nil || rep.Sent != n || rep.Answered != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	for _, op := range ops {
		if c := load.ClassOf(op.Err); op.Outcome != harness.Info || (c != load.ClassReset && c != load.ClassClosed) {
			t.Fatalf("%+v", op)
		}
	}
}

// FuzzFrames: whatever a server sends before and after the release, nothing
// panics, and an answer that is taken for whole is within bounds.
func FuzzFrames(f *testing.F) {
	frames := func(write func(*http2.Framer)) []byte {
		var b bytes.Buffer
		write(http2.NewFramer(&b, nil))
		return b.Bytes()
	}
	ok := []byte{0x88} // :status 200, indexed
	f.Add(frames(func(w *http2.Framer) {
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
		_ = w.WriteSettingsAck()
		_ = w.WritePing(true, [8]byte{})
	}), frames(func(w *http2.Framer) {
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: ok, EndHeaders: true})
		_ = w.WriteData(1, true, []byte("body"))
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: ok})
		_ = w.WriteContinuation(3, true, ok)
	}))
	f.Add([]byte{}, frames(func(w *http2.Framer) {
		_ = w.WriteRSTStream(1, http2.ErrCodeCancel)
		_ = w.WriteGoAway(1, http2.ErrCodeNo, nil)
		_ = w.WriteWindowUpdate(3, 1<<30)
	}))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), []byte{0, 0, 0, 5, 0, 0, 0, 0, 2})
	f.Fuzz(func(t *testing.T, before, after []byte) {
		l := &line{cn: &conn{sock: nowhere{}}, waits: true}
		p := newProto2(l)
		for i := range 3 {
			ra := &racer{req: requests(3, nil)[i]}
			l.racers = append(l.racers, ra)
			p.streams = append(p.streams, &stream{id: uint32(2*i + 1), ra: ra, length: -1})
		}
		if n, _ := p.early(before); n < 0 || n > len(before) {
			t.Errorf("%d early answers in %d bytes", n, len(before))
		}
		p.feed(after, 1)
		p.end(io.EOF, 2)
		for i, ra := range l.racers {
			if ra.ended == 0 || ra.answered == (ra.err != nil) {
				t.Errorf("racer %d: ended %v, answered %v, error %v", i, ra.ended, ra.answered, ra.err)
			}
			if ra.answered && (ra.op.Status < 200 || ra.op.Status > 599 || len(ra.op.Output) > outputCap) {
				t.Errorf("racer %d: %+v", i, ra.op)
			}
		}
	})
}

// nowhere is a socket with nothing behind it.
type nowhere struct{}

func (nowhere) Read([]byte) (int, error)    { return 0, errWouldBlock }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) Close() error                { return nil }
