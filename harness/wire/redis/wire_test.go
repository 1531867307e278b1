package redis_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/wire/redis"
)

const patience = 10 * time.Second // for what must happen, on a busy machine

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); served.Wait() })
	return l.Addr().String()
}

func startWire(t *testing.T, target string) *redis.Wire {
	t.Helper()
	w, err := redis.Start(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func dial(t *testing.T, w *redis.Wire) net.Conn {
	t.Helper()
	conn, err := open(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func open(w *redis.Wire) (net.Conn, error) {
	u, err := url.Parse(w.URL())
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: patience}).Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(clock.Wall().Add(patience))
}

// ask opens a connection for one line. On a cut wire already the opening may
// be reset.
func ask(w *redis.Wire, line string) error {
	conn, err := open(w)
	if err != nil {
		return err
	}
	defer conn.Close()
	return say(conn, line)
}

// say sends a line and reads it back.
func say(conn net.Conn, line string) error {
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return err
	}
	got, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && got != line+"\n" {
		err = fmt.Errorf("said %q, heard %q", line, got)
	}
	return err
}

func TestURLKeepsUserAndDatabase(t *testing.T) {
	for target, want := range map[string]string{
		"127.0.0.1:6379":             "redis://HOST/0",
		"redis://127.0.0.1:6379":     "redis://HOST/0",
		"redis://127.0.0.1":          "redis://HOST/0",
		"redis://u:pw@127.0.0.1:1/3": "redis://u:pw@HOST/3",
	} {
		w := startWire(t, target)
		u, err := url.Parse(w.URL())
		if err != nil {
			t.Fatal(err)
		}
		if host, _, _ := net.SplitHostPort(u.Host); host != "127.0.0.1" {
			t.Errorf("%s listens on %s", target, u.Host)
		}
		u.Host = "HOST"
		if u.String() != want {
			t.Errorf("%s gives %s, want %s", target, u, want)
		}
	}
}

func TestTargetsThatAreNone(t *testing.T) {
	for _, target := range []string{"", "nowhere", "rediss://127.0.0.1:6379", "http://127.0.0.1:6379"} {
		if w, err := redis.Start(t.Context(), target); err == nil {
			w.Close()
			t.Errorf("%q was taken", target)
		}
	}
}

func TestPassesBytesUnchanged(t *testing.T) {
	w := startWire(t, echo(t))
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		sent := make([]byte, rapid.IntRange(0, 200_000).Draw(rt, "size"))
		for i := range sent {
			sent[i] = byte(rng.Uint32())
		}
		conn := dial(t, w)
		defer conn.Close()
		var sender sync.WaitGroup
		defer sender.Wait()
		sender.Go(func() {
			_, _ = conn.Write(sent)
			_ = conn.(*net.TCPConn).CloseWrite()
		})
		got, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(got, sent) {
			rt.Fatalf("sent %d bytes, got %d, %v", len(sent), len(got), err)
		}
	})
}

func TestCutResetsAndRefusesUntilMended(t *testing.T) {
	w := startWire(t, echo(t))
	before := dial(t, w)
	if err := say(before, "hello"); err != nil {
		t.Fatal(err)
	}
	if n := w.Refused(); n != 0 {
		t.Errorf("%d connections met a cut before there was one", n)
	}
	mend := w.Cut()
	if err := say(before, "still there?"); !broken(err) {
		t.Errorf("a connection survived the cut: %v", err)
	}
	if n := w.Refused(); n != 1 {
		t.Errorf("%d connections met the cut, want the one that was there", n)
	}
	if err := ask(w, "anybody?"); !broken(err) {
		t.Errorf("a new connection works during the cut: %v", err)
	}
	second := w.Cut()
	mend()
	mend() // mending twice does not undo the second cut
	if err := ask(w, "anybody?"); !broken(err) {
		t.Errorf("a new connection works during the second cut: %v", err)
	}
	second()
	if err := ask(w, "hello again"); err != nil {
		t.Errorf("after mending: %v", err)
	}
	if n := w.Refused(); n != 3 {
		t.Errorf("%d connections met the cuts, want 3: one broken, two refused", n)
	}
}

// broken is an end of the connection, not a time-out.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func TestDelayHoldsEachDirection(t *testing.T) {
	w := startWire(t, echo(t))
	conn := dial(t, w)
	const delay = 60 * time.Millisecond
	w.SetDelay(delay)
	watch := clock.New()
	if err := say(conn, "slowly"); err != nil {
		t.Fatal(err)
	}
	if took := watch.Now(); took < 2*delay {
		t.Errorf("there and back took %s, less than twice %s", took, delay)
	}
	w.SetDelay(0)
	if err := say(conn, "quickly"); err != nil {
		t.Fatal(err)
	}
}

func TestCloseEndsEverythingAlsoDuringADelay(t *testing.T) {
	w, err := redis.Start(t.Context(), echo(t))
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, w)
	if err := say(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	w.SetDelay(time.Hour)
	if _, err := fmt.Fprintln(conn, "never arrives"); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Close hangs")
	}
	if err := w.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestTargetThatIsDownBreaksTheConnection(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	w := startWire(t, l.Addr().String())
	if err := ask(w, "anybody?"); !broken(err) {
		t.Errorf("err = %v", err)
	}
}

func TestCutsUnderLoadLeaveNoLinkBehind(t *testing.T) {
	w := startWire(t, echo(t))
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := open(w)
				if err != nil {
					continue
				}
				for err == nil {
					err = say(conn, "x")
				}
				if !broken(err) {
					t.Errorf("a client saw %v", err)
				}
				conn.Close()
			}
		})
	}
	for range 50 {
		mend := w.Cut()
		mend()
		if err := ask(w, "between cuts"); err != nil {
			t.Errorf("between cuts: %v", err)
		}
	}
	close(stop)
	w.Cut()
	clients.Wait()
}

// A real client reconnects by itself after a cut.
func TestRedisClientThroughTheWire(t *testing.T) {
	server := miniredis.RunT(t)
	w := startWire(t, server.Addr())
	options, err := goredis.ParseURL(w.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries = -1
	client := goredis.NewClient(options)
	defer client.Close()
	ctx := context.Background()
	if err := client.Set(ctx, "seat:A-001", "student-1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	mend := w.Cut()
	if err := client.Get(ctx, "seat:A-001").Err(); err == nil {
		t.Error("answered during the cut")
	}
	mend()
	if got, err := client.Get(ctx, "seat:A-001").Result(); err != nil || got != "student-1" {
		t.Errorf("after mending: %q, %v", got, err)
	}
}
