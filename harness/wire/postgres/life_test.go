package pgwire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	pgwire "github.com/overbook/overbook/harness/wire/postgres"
)

func TestURLs(t *testing.T) {
	w, err := pgwire.Start(t.Context(), pgwire.Config{
		Clock: clock.New(), Target: "postgresql://u:p%40w@127.0.0.1:1/db?application_name=x&sslmode=prefer&host=/tmp&pool_max_conns=7", Servers: []string{"a", "b"},
	})
	must(t, err)
	defer w.Close()
	hosts := map[string]bool{}
	for _, name := range []string{"a", "b"} {
		u, err := url.Parse(w.URL(name))
		must(t, err)
		hosts[u.Host] = true
		if host, _, err := net.SplitHostPort(u.Host); err != nil || host != "127.0.0.1" {
			t.Errorf("host %s", u.Host)
		}
		u.Host = "HOST"
		if want := "postgresql://u:p%40w@HOST/db?application_name=x&pool_max_conns=7&sslmode=disable"; u.String() != want {
			t.Errorf("%s, want %s", u, want)
		}
	}
	if len(hosts) != 2 || w.URL("c") != "" {
		t.Errorf("%d addresses, %q for an unknown one", len(hosts), w.URL("c"))
	}
}

func TestTargetsThatAreNone(t *testing.T) {
	for _, target := range []string{"", "redis://127.0.0.1", "postgres:///db", "postgres://u:secret@h/db?sslmode=require", "postgres://u:secret@h:x/db"} {
		w, err := pgwire.Start(t.Context(), pgwire.Config{Clock: clock.New(), Target: target})
		if err == nil {
			w.Close()
			t.Errorf("%q was taken", target)
		} else if strings.Contains(target, "require") && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is in %q", err)
		}
	}
	if _, err := pgwire.Start(t.Context(), pgwire.Config{Clock: clock.New(), Target: "postgres://h/db", Servers: []string{"a", "a"}}); err == nil {
		t.Error("two servers of one name")
	}
}

func TestPostgresThatIsNotThere(t *testing.T) {
	x := startWorld(t, func(c *pgwire.Config) { c.Target = "postgres://u@127.0.0.1:1/db" })
	if conn, err := pgx.Connect(limit(t), x.URL("sut-1")); err == nil {
		conn.Close(context.Background())
		t.Error("connected")
	}
}

func TestCloseWithUnitsThatAreHeld(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"before-statement", "after-statement", "before-commit", "after-commit"} {
		for _, s := range []shape{shapes[2], shapes[3]} {
			x := startWorld(t)
			in := x.inject("hold at " + at + "(insert)")
			done := make(chan error, 1)
			conn := x.dial(s.mode)
			go func() { done <- s.book(limit(t), conn) }()
			if _, err := in.Await(limit(t), patience); err != nil {
				t.Fatal(err)
			}
			must(t, x.Close())
			if err := <-done; err == nil {
				t.Error("answered")
			}
			if u := x.unit("insert"); u.Err != "the wire was closed" || u.Delivered != 0 {
				t.Errorf("%s: unit %+v", at, u)
			}
			must(t, x.Close())
			if _, err := in.Await(limit(t), patience); err == nil || !strings.Contains(err.Error(), "closed") {
				t.Errorf("err = %v", err)
			}
		}
	}
}

// A server that dies while its unit is held: the unit is let go, and never
// reaches Postgres.
func TestServerThatLeavesWhileItsUnitIsHeld(t *testing.T) {
	t.Parallel()
	for _, m := range bookingMoments {
		for _, s := range []shape{shapes[2], shapes[3], shapes[4]} {
			x := startWorld(t)
			in := x.inject("hold at " + m.at)
			conn := x.dial(s.mode)
			go func() { _ = s.book(limit(t), conn) }()
			if _, err := in.Await(limit(t), patience); err != nil {
				t.Fatal(err)
			}
			must(t, conn.PgConn().Conn().Close())
			x.gone()
			x.until("the unit to be let go", func(units []harness.Unit) bool {
				return slices.ContainsFunc(units, func(u harness.Unit) bool {
					return u.Fault != "" && u.Err == "the server under test closed the connection"
				})
			})
			if n, want := x.bookings(), map[bool]int{true: s.n}[m.committed]; n != want {
				t.Errorf("%s, %s: %d bookings, want %d", s.name, m.at, n, want)
			}
			for _, tx := range harness.Transactions(x.Units()) {
				if want := map[bool]string{true: "commit", false: "lost"}[m.committed]; tx.Outcome != want {
					t.Errorf("%s, %s: transaction %+v", s.name, m.at, tx)
				}
			}
		}
	}
}

// What a dying server sent behind a unit that is held doesn't get through
// either.
func TestPipelineBehindAUnitThatIsHeld(t *testing.T) {
	x := startWorld(t)
	in := x.inject("hold at before-statement(first)")
	f := raw(t, x.URL("sut-1"))
	f.SendQuery(&pgproto3.Query{String: "insert into payments (note) values ('first')"})
	f.SendQuery(&pgproto3.Query{String: "insert into payments (note) values ('second')"})
	must(t, f.Flush())
	if _, err := in.Await(limit(t), patience); err != nil {
		t.Fatal(err)
	}
	must(t, f.conn.Close())
	x.gone()
	if n := x.count("select count(*) from payments"); n != 0 {
		t.Errorf("%d payments", n)
	}
}

// A server that dies with a statement under way: Postgres finishes it, and
// the record says so.
func TestServerThatLeavesWhilePostgresWorks(t *testing.T) {
	for _, fault := range []string{"", "delay 1ms at after-commit"} {
		x := startWorld(t)
		if fault != "" {
			x.inject(fault)
		}
		lock := connect(t, x.direct, pgx.QueryExecModeExec)
		exec(t, lock, "begin; lock table payments")
		f := raw(t, x.URL("sut-1")) // pgx would cancel the statement
		f.SendQuery(&pgproto3.Query{String: "insert into payments (note) values ('x')"})
		must(t, f.Flush())
		must(t, clock.Await(t.Context(), "it to wait for the lock", patience, time.Millisecond, func(context.Context) (bool, string, error) {
			return x.count("select count(*) from pg_locks where not granted and relation = 'payments'::regclass") > 0, "", nil
		}))
		must(t, f.conn.Close())
		done := make(chan error, 1)
		go func() { done <- x.AwaitGone(limit(t)) }()
		exec(t, lock, "select pg_sleep(0.05)")
		select {
		case err := <-done:
			t.Fatalf("it is said to be gone while it waits: %v", err)
		default:
		}
		exec(t, lock, "rollback")
		must(t, <-done)
		u := x.unit("payments")
		if !u.Committed || u.Answered == 0 || u.Delivered != 0 || u.Err == "" || u.Statements[0].Tag != "INSERT 0 1" {
			t.Errorf("%q: unit %+v", fault, u)
		}
		if n := x.count("select count(*) from payments"); n != 1 {
			t.Errorf("%d payments", n)
		}
	}
}

func TestConnectionThatEndsInATransaction(t *testing.T) {
	x := startWorld(t)
	conn := x.dial(pgx.QueryExecModeExec)
	exec(t, conn, "begin")
	exec(t, conn, insert, 1, "m1")
	open := x.OpenTransactions("sut-1")
	if len(open) != 1 || len(open[0].Units) != 2 || open[0].Outcome != "" || open[0].Open == 0 || open[0].PID == 0 {
		t.Errorf("open: %+v", open)
	}
	if len(x.OpenTransactions("sut-2")) != 0 || len(x.OpenTransactions("")) != 1 {
		t.Error("open transactions of another server, or not of all")
	}
	must(t, conn.PgConn().Conn().Close())
	x.gone()
	x.until("the end to be recorded", func(u []harness.Unit) bool { return len(u) == 3 })
	txs := harness.Transactions(x.Units())
	if len(txs) != 1 || txs[0].Outcome != "lost" || txs[0].Ended == 0 || txs[0].Units[2].Step() || txs[0].Units[2].Err == "" {
		t.Errorf("transactions %+v", txs)
	}
	if n := len(x.OpenTransactions("")); n != 0 {
		t.Errorf("%d open", n)
	}
	if n := x.bookings(); n != 0 {
		t.Errorf("%d bookings", n)
	}
}

func TestAwaitGoneAfterManyDrops(t *testing.T) {
	x := startWorld(t)
	x.inject("drop at after-statement(insert)")
	var all sync.WaitGroup
	for i := range 20 {
		conn := x.dial(pgx.QueryExecModeExec)
		all.Go(func() { _, _ = conn.Exec(limit(t), insert, i+1, "m1") })
	}
	all.Wait()
	x.gone()
	if n := x.count("select count(*) from pg_stat_activity where application_name = current_setting('application_name') and pid <> pg_backend_pid()"); n != 0 {
		t.Errorf("%d backends are left", n)
	}
	if n := x.bookings(); n != 0 {
		t.Errorf("%d bookings", n)
	}
	must(t, x.AwaitGone(limit(t))) // nobody to ask for
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := x.AwaitGone(ctx); err != nil {
		t.Error(err)
	}
}

func TestRetarget(t *testing.T) {
	x := startWorld(t)
	old := x.dial(pgx.QueryExecModeExec)
	exec(t, old, "begin")
	exec(t, old, insert, 1, "m1")
	must(t, x.Retarget(database(t)))
	if _, err := old.Exec(limit(t), "commit"); err == nil {
		t.Error("a connection to the old database works")
	}
	exec(t, x.dial(pgx.QueryExecModeExec), "select 1") // the database's name is in the URL that the server has: of the new cluster it is
	if u := x.unit("commit|insert"); u.Err == "" && u.Delivered == 0 {
		t.Errorf("unit %+v", u)
	}
	for _, tx := range harness.Transactions(x.Units()) {
		if tx.Number == 1 && (tx.Outcome != "lost" || !strings.Contains(tx.Units[len(tx.Units)-1].Err, "another database")) {
			t.Errorf("transaction %+v", tx)
		}
	}
	must(t, x.AwaitGone(limit(t)))
	if err := x.Retarget("nowhere"); err == nil {
		t.Error("nowhere was taken")
	}
}

func TestUnitLimit(t *testing.T) {
	x := startWorld(t, func(c *pgwire.Config) { c.UnitLimit = 3 })
	conn := x.dial(pgx.QueryExecModeExec)
	for i := range 5 {
		if err := x.Err(); (err != nil) != (i > 3) {
			t.Errorf("after %d units: %v", i, err)
		}
		exec(t, conn, "select 1")
	}
	if n := len(x.Units()); n != 3 {
		t.Errorf("%d units", n)
	}
}

func TestMessagesThatAreNone(t *testing.T) {
	x := startWorld(t)
	f := raw(t, x.URL("sut-1"))
	_, err := f.conn.Write([]byte{'Q', 0x7f, 0xff, 0xff, 0xff, 'x'})
	must(t, err)
	m, err := f.Receive()
	must(t, err)
	if e, ok := m.(*pgproto3.ErrorResponse); !ok || e.Severity != "FATAL" || !strings.Contains(e.Message, "2147483647") {
		t.Errorf("%+v", m)
	}
	if err := x.Err(); err == nil || !strings.Contains(err.Error(), `type 'Q'`) {
		t.Errorf("err = %v", err)
	}
	x.gone()
}

func TestHundredSessions(t *testing.T) {
	t.Parallel()
	x := startWorld(t)
	x.inject("error 40001 at before-commit(update, 7)")
	x.inject("delay 1ms at before-commit(insert)")
	var all sync.WaitGroup
	conns := make([]*pgx.Conn, 100)
	for i := range conns {
		all.Go(func() {
			conns[i] = x.dial([]pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec}[i%3])
		})
	}
	all.Wait()
	failed := make(chan error, 1000)
	for i, conn := range conns {
		all.Go(func() {
			for range 3 {
				err := pgx.BeginFunc(limit(t), conn, func(tx pgx.Tx) error {
					if _, err := tx.Exec(limit(t), "insert into payments (note) values ($1)", fmt.Sprint(i)); err != nil {
						return err
					}
					_, err := tx.Exec(limit(t), "update slots set open = true where id = $1", i%20+1)
					return err
				})
				if err != nil {
					failed <- err
				}
			}
		})
	}
	all.Wait()
	close(failed)
	n := 0
	for err := range failed {
		if n++; code(errors.Unwrap(err)) != "40001" && code(err) != "40001" {
			t.Error(err)
		}
	}
	if got := x.count("select count(*) from payments"); n != 1 || got != 299 {
		t.Errorf("%d failed, %d payments", n, got)
	}
	checkRecord(t, x)
}

func TestPostgresThatEndsAnIdleConnection(t *testing.T) {
	x := startWorld(t)
	f := raw(t, x.URL("sut-1"))
	if n := x.count("select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity where application_name = current_setting('application_name') and pid <> pg_backend_pid()) x"); n != 1 {
		t.Fatalf("%d backends", n)
	}
	f.until(t, 'E')
	if _, err := f.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("err = %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	conn := connect(t, shared, pgx.QueryExecModeExec)
	var dir, port string
	must(t, conn.QueryRow(limit(t), "select split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port')").Scan(&dir, &port))
	if dir == "" {
		t.Skip("this Postgres has no unix socket")
	}
	if _, err := os.Stat(filepath.Join(dir, ".s.PGSQL."+port)); err != nil {
		t.Skip(err)
	}
	u, err := url.Parse(shared)
	must(t, err)
	u.Host, u.RawQuery = "", url.Values{"host": {dir}, "port": {port}}.Encode()
	x := startWorld(t, func(c *pgwire.Config) { c.Target = u.String() })
	through := x.dial(pgx.QueryExecModeExec)
	exec(t, through, "select 1")
	x.inject("drop at before-statement")
	if _, err := through.Exec(limit(t), "select 1"); err == nil {
		t.Error("answered")
	}
}

// When Postgres ends a connection, the server hears Postgres' last word, also
// where its unit is held.
func TestPostgresThatEndsTheConnection(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"", "hold at before-statement(sleep)", "delay 1ms at after-statement(sleep)", "delay 1ms at after-commit(sleep)"} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			x := startWorld(t)
			if fault != "" {
				x.inject(fault)
			}
			conn := x.dial(mode)
			pid := conn.PgConn().PID()
			done := make(chan error, 1)
			go func() {
				_, err := conn.Exec(limit(t), "select pg_sleep($1::int)", 30)
				done <- err
			}()
			must(t, clock.Await(t.Context(), "the statement to be there", patience, time.Millisecond, func(context.Context) (bool, string, error) {
				u := x.Units()
				held := len(u) > 0 && u[len(u)-1].Fault != ""
				return held || x.count("select count(*) from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'", pid) == 1, show(u), nil
			}))
			if n := x.count("select count(*) from (select pg_terminate_backend($1)) x", pid); n != 1 {
				t.Fatal(n)
			}
			if err := <-done; code(err) != "57P01" {
				t.Errorf("%q: the server got %v", fault, err)
			}
			x.until("the end to be recorded", func(u []harness.Unit) bool { return u[len(u)-1].Err != "" })
			if u := x.unit("sleep"); u.Err != "Postgres closed the connection" || u.Delivered != 0 || u.Committed {
				t.Errorf("%q: unit %+v", fault, u)
			}
			must(t, x.AwaitGone(limit(t)))
		}
	}
}
