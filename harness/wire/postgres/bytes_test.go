package pgwire_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	pgwire "github.com/overbook/overbook/harness/wire/postgres"
)

// A tap passes connections on and keeps what goes over them.
type tap struct {
	url string

	mu     sync.Mutex
	tapped []*tapped
}

type tapped struct {
	asked, answered bytes.Buffer
	done            chan struct{}
}

// startTap listens in front of the database at a URL.
func startTap(tb testing.TB, to string) *tap {
	tb.Helper()
	u, err := url.Parse(to)
	must(tb, err)
	address := u.Host
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(tb, err)
	u.Host = l.Addr().String()
	x := &tap{url: u.String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { x.serve(conn, address) })
		}
	})
	tb.Cleanup(func() { l.Close(); all.Wait() })
	return x
}

func (x *tap) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp4", address)
	if err != nil {
		return
	}
	defer server.Close()
	c := &tapped{done: make(chan struct{})}
	defer close(c.done)
	x.mu.Lock()
	x.tapped = append(x.tapped, c)
	x.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(io.MultiWriter(x.keep(&c.answered), client), server)
		_ = client.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(io.MultiWriter(x.keep(&c.asked), server), client)
	_ = server.(*net.TCPConn).CloseWrite()
	back.Wait()
}

type keeper struct {
	x *tap
	b *bytes.Buffer
}

func (k keeper) Write(p []byte) (int, error) {
	k.x.mu.Lock()
	defer k.x.mu.Unlock()
	return k.b.Write(p)
}

func (x *tap) keep(b *bytes.Buffer) io.Writer { return keeper{x, b} }

// bytes gives what went over the first connection, when it has ended.
func (x *tap) bytes(tb testing.TB) (asked, answered []byte) {
	tb.Helper()
	x.mu.Lock()
	c := x.tapped[0]
	x.mu.Unlock()
	select {
	case <-c.done:
	case <-limit(tb).Done():
		tb.Fatal("the connection does not end")
	}
	return c.asked.Bytes(), c.answered.Bytes()
}

// A mixed workload, all of which is the same each time that it is run on a
// fresh database.
var workload = []string{
	insert, "select * from slots where id < $1", "insert into bookings (slot, member) values (2, 'x') returning slot",
	"select nothing", "insert into bookings (slot, member) values (2, 'twice')", "",
	"-- nothing", "insert into lazy values (1, 99)", "insert into lazy values (1, 1)",
	"do $$ begin raise notice 'hello'; raise warning 'careful'; end $$",
	"vacuum slots", "set lock_timeout = 1000", "set local lock_timeout = 1000", "show lock_timeout",
	"listen here", "create table t (a int)", "lock table slots", "savepoint s", "declare c cursor for select 1",
	"begin", "select 1", "select nothing", "select 2", "commit", "begin", "savepoint a", "select nothing", "rollback to a", "select 3", "commit and chain", "select 4", "rollback",
	"commit", "rollback", "truncate lazy", "create or replace function f() returns trigger language plpgsql as $$ begin raise notice 'deferred'; if new.note = 'bad' then raise exception 'bad note' using errcode = '22222'; end if; return null; end $$",
	"create constraint trigger late after insert on payments deferrable initially deferred for each row execute function f()",
	"insert into payments (note) values ('good')", "insert into payments (note) values ('bad')",
	"insert into payments (note) values ('good') returning id",
	"prepare p (int) as select $1 + 1", "execute p (1)", "deallocate p", "deallocate all", "select generate_series(1, 3000)",
}

var queries = []string{
	"select 1; select 2", "insert into slots (id) values (101); insert into slots (id) values (102); select count(*) from slots",
	"insert into slots (id) values (103); select 1/0; select 1", "begin; insert into slots (id) values (104); commit", "begin; insert into slots (id) values (105); select 1/0; commit",
	"rollback", "begin; insert into slots (id) values (112); commit; select 1/0; select 2", "begin; insert into slots (id) values (113); commit; select nothing",
	"begin; insert into slots (id) values (114); commit; selec 2", "begin; insert into slots (id) values (115); commit nonsense", "begin; insert into slots (id) values (116); commit work", "rollback",
	"rollback", "begin; insert into slots (id) values (106); rollback; insert into slots (id) values (107)",
	"insert into slots (id) values (108); commit; select 1/0", "insert into slots (id) values (109); begin; insert into slots (id) values (110); commit; insert into slots (id) values (111)",
	"select 'a;b', $$;$$ ; /* ; */ select 2 -- ; \n; ;", "select 1;;",
	"insert into payments (note) values ('good'); insert into payments (note) values ('bad')",
	"begin; insert into payments (note) values ('bad'); commit", "select 'x' where false", "copy slots to stdout", "begin; commit; begin", "commit; begin", "commit",
}

// work runs the workload; errors of Postgres are part of it.
func work(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	ctx := limit(t)
	for round := range 2 {
		for _, sql := range workload {
			var args []any
			if n := strings.Count(sql, "$"); n <= 2 && !strings.Contains(sql, "$$") && !strings.HasPrefix(sql, "prepare") {
				args = []any{round + 1, "m1"}[:n]
			}
			tolerate(t, sql, func() error { _, err := conn.Exec(ctx, sql, args...); return err })
		}
	}
	for _, sql := range queries {
		tolerate(t, sql, func() error { return conn.PgConn().Exec(ctx, sql).Close() })
	}
	batches := [][]string{
		{"select 1", "insert into slots (id) values (201)", "select 2"},
		{"insert into slots (id) values (202)", "select 1/0", "select 2"},
		{"begin", "insert into slots (id) values (203)", "commit"},
		{"begin", "insert into slots (id) values (204)", "commit", "select 1/0", "select 1"},
		{"insert into payments (note) values ('good')", "insert into payments (note) values ('bad')"},
		{"begin", "insert into payments (note) values ('bad')", "commit"},
		{"rollback"},
	}
	for _, sql := range workload[2:] {
		batches = append(batches, []string{sql})
	}
	for _, sqls := range batches {
		var b pgconn.Batch
		for _, sql := range sqls {
			b.ExecParams(sql, nil, nil, nil, nil)
		}
		tolerate(t, sqls[0], func() error { return conn.PgConn().ExecBatch(ctx, &b).Close() })
	}
	tolerate(t, "copy in", func() error {
		_, err := conn.CopyFrom(ctx, pgx.Identifier{"slots"}, []string{"id"}, pgx.CopyFromRows([][]any{{301}, {302}}))
		return err
	})
	tolerate(t, "copy in twice", func() error {
		_, err := conn.CopyFrom(ctx, pgx.Identifier{"slots"}, []string{"id"}, pgx.CopyFromRows([][]any{{301}, {303}}))
		return err
	})
	tolerate(t, "copy out", func() error {
		_, err := conn.PgConn().CopyTo(ctx, io.Discard, "copy (select * from slots order by id) to stdout")
		return err
	})
}

// tolerate lets errors of Postgres pass, and no others.
func tolerate(t *testing.T, what string, do func() error) {
	t.Helper()
	if err := do(); err != nil && code(err) == "" {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestBytesArePassedOnAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := startTap(t, database(t))
			x := startWorld(t, func(c *pgwire.Config) { c.Target = inner.url })
			outer := startTap(t, x.URL("sut-1"))
			conn := connect(t, outer.url, mode)
			work(t, conn)
			must(t, conn.Close(limit(t)))
			asked, answered := outer.bytes(t)
			passed, came := inner.bytes(t)
			if !bytes.Equal(asked, passed) || len(asked) < 5000 {
				t.Errorf("of %d bytes asked %d came, and not the same", len(asked), len(passed))
			}
			if !bytes.Equal(came, answered) || len(came) < 5000 {
				t.Errorf("of %d bytes answered %d came, and not the same", len(came), len(answered))
			}
			checkRecord(t, x)
		})
	}
}

// What is taken apart must look to the server as if it had not been.
func TestAnswersOfSplitUnitsAreTheSame(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		if name == "cache_describe" || name == "describe_exec" {
			continue // as exec, with a unit before it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := startTap(t, database(t))
			conn := connect(t, plain.url, mode)
			work(t, conn)
			must(t, conn.Close(limit(t)))
			x := startWorld(t, func(c *pgwire.Config) { c.Split, c.Target = true, database(t) })
			split := startTap(t, x.URL("sut-1"))
			conn = connect(t, split.url, mode)
			work(t, conn)
			must(t, conn.Close(limit(t)))
			_, want := plain.bytes(t)
			_, got := split.bytes(t)
			compareFrames(t, frames(t, want), frames(t, got))
			checkRecord(t, x)
		})
	}
}

// frames takes an answer stream apart, without what differs between two
// backends.
func frames(t *testing.T, b []byte) []string {
	t.Helper()
	var list []string
	for len(b) > 0 {
		n := int(binary.BigEndian.Uint32(b[1:])) + 1
		if b[0] != 'K' && b[0] != 'S' && b[0] != 'R' {
			list = append(list, fmt.Sprintf("%q", b[:n]))
		}
		b = b[n:]
	}
	return list
}

func compareFrames(t *testing.T, want, got []string) {
	t.Helper()
	if len(want) < 200 {
		t.Errorf("%d messages: is the workload run?", len(want))
	}
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("message %d: got\n%s\nwant\n%s\nbefore:\n%s", i, strings.Join(got[i:min(i+4, len(got))], "\n"), strings.Join(want[i:min(i+4, len(want))], "\n"), strings.Join(want[max(0, i-6):i], "\n"))
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d messages, want %d", len(got), len(want))
	}
}

func TestBigRowsStream(t *testing.T) {
	t.Parallel()
	x := startWorld(t)
	conn := x.dial(pgx.QueryExecModeExec)
	var n int
	must(t, conn.QueryRow(limit(t), `select length($1 || repeat('x', 6000000))`, strings.Repeat("y", 5_000_000)).Scan(&n))
	if n != 11_000_000 {
		t.Errorf("%d bytes", n)
	}
	var text string
	must(t, conn.QueryRow(limit(t), `select repeat('x', 6000000)`).Scan(&text))
	if len(text) != 6_000_000 {
		t.Errorf("%d bytes", len(text))
	}
	in := x.inject("delay 1ms at after-commit")
	must(t, conn.QueryRow(limit(t), `select repeat('x', 6000000)`).Scan(&text))
	if len(in.Strikes()) != 1 || len(text) != 6_000_000 {
		t.Errorf("%d bytes", len(text))
	}
	rows := 0
	scanned, err := conn.Query(context.Background(), `select i, 'some text' from generate_series(1, 50000) i`)
	must(t, err)
	for scanned.Next() {
		rows++
	}
	if scanned.Err() != nil || rows != 50_000 {
		t.Errorf("%d rows, %v", rows, scanned.Err())
	}
}
