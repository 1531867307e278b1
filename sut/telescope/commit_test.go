package telescope

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/overbook/overbook/sut/internal/pgtest"
)

// A cutter stands between the server and Postgres and, once armed, ends the
// connection of the next COMMIT: before Postgres sees it, or after it has done
// it, with the answer withheld.
type cutter struct {
	t    *testing.T
	to   string
	l    net.Listener
	done sync.WaitGroup

	mu    sync.Mutex
	armed string // "", "before", "after"
}

// cut gives the database's URL with a cutter in the way.
func (o *observatory) cut() (*cutter, string) {
	o.t.Helper()
	u, err := url.Parse(o.url)
	if err != nil {
		o.t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(o.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	c := &cutter{t: o.t, to: u.Host, l: l}
	c.done.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			c.done.Go(func() { c.serve(client) })
		}
	})
	o.t.Cleanup(func() { _ = l.Close(); c.done.Wait() })
	u.Host = l.Addr().String()
	return c, u.String()
}

func (c *cutter) arm(when string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = when
}

// due disarms the cutter when the bytes are a COMMIT.
func (c *cutter) due(sent []byte) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	when := c.armed
	if when == "" || !bytes.Equal(sent, []byte("Q\x00\x00\x00\x0bcommit\x00")) {
		return ""
	}
	c.armed = ""
	return when
}

func (c *cutter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer server.Close()
	answers := make(chan struct{})
	var mu sync.Mutex
	withhold := false
	c.done.Go(func() {
		defer close(answers)
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			mu.Lock()
			if err != nil || withhold { // the answer is here: what it tells has been done
				mu.Unlock()
				return
			}
			mu.Unlock()
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		when := c.due(buf[:n])
		if when == "before" {
			break
		}
		mu.Lock()
		withhold = when == "after"
		mu.Unlock()
		if _, err := server.Write(buf[:n]); err != nil || when == "after" {
			break
		}
	}
	if withhold {
		<-answers
	}
	_ = server.Close()
	<-answers
}

// TestCommitWithoutAnswer: nobody can say what became of it, and the answer
// says so; the same key finds out, both ways.
func TestCommitWithoutAnswer(t *testing.T) { //nolint:tparallel // one cutter for both
	o := newObservatory(t)
	c, through := o.cut()
	r := o.start(func(cfg *Config) { cfg.DatabaseURL = through })
	for slot, when := range map[int]string{1: "before", 2: "after"} {
		t.Run(when, func(t *testing.T) {
			c.arm(when)
			a := wants(t, r.book(member(slot), "k", slot), "503 outcome-unknown")
			if a.header.Get("Retry-After") == "" {
				t.Errorf("no Retry-After: %v", a.header)
			}
			done := scan[int](o, "select count(*) from active_reservations where slot_id = $1", slot)
			if (done == 1) != (when == "after") {
				t.Errorf("%d reservations after a commit that was cut %s it was done", done, when)
			}
			b := wants(t, r.book(member(slot), "k", slot), "201")
			if replayed := b.header.Get("Idempotency-Replayed") == "true"; replayed != (when == "after") {
				t.Errorf("replayed: %v", replayed)
			}
			if got := o.history(slot); got != "CREATED BOOKED" {
				t.Errorf("history %s", got)
			}
		})
	}
	if n := r.meters.retries.Get(); n != 0 {
		t.Errorf("the server tried %d times by itself, which might have booked twice", n)
	}
	o.soundly()
}

// TestStandbyThatDoesNotAnswer: a commit whose wait for the synchronous standby
// was cut off is reported as a success by Postgres, and can be seen. It may be
// lost in a failover, so nobody is told 201, neither now nor on a retry that
// finds it.
func TestStandbyThatDoesNotAnswer(t *testing.T) {
	if os.Getenv(pgtest.EnvURL) != "" {
		t.Skip("changes settings of the whole server, which is somebody else's")
	}
	o := newObservatory(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := o.db.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	r := o.start(func(c *Config) {
		c.DatabaseURL += "&synchronous_commit=on"
		c.LockTimeout, c.StatementTimeout = 200*time.Millisecond, 400*time.Millisecond
	})
	waits := func(names string) {
		exec("alter system set synchronous_standby_names = '" + names + "'")
		exec("select pg_reload_conf()")
		await(t, "the setting", func() (string, bool) {
			now := scan[string](o, "select setting from pg_settings where name = 'synchronous_standby_names'")
			return now, now == names
		})
	}
	defer waits("")
	waits("nobody")
	sent := make(chan answer, 1)
	go func() { sent <- r.book(member(1), "k", 1) }()
	await(t, "a wait for the standby to be cut off", func() (int, bool) {
		n := scan[int](o, `select count(pg_cancel_backend(pid)) from pg_stat_activity
where application_name = 'sut-1' and query = 'commit' and wait_event = 'SyncRep' and datname = current_database()`)
		return n, n == 1
	})
	wants(t, <-sent, "503 outcome-unknown")
	if n := scan[int](o, "select count(*) from active_reservations"); n != 1 {
		t.Fatalf("%d reservations can be seen, want the one that may be lost", n)
	}
	wants(t, r.book(member(1), "k", 1), "503 outcome-unknown") // its wait is cut off by the deadline
	waits("")
	if a := wants(t, r.book(member(1), "k", 1), "201"); a.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%v", a.header)
	}
	o.soundly()
}
