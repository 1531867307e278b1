package pgwire_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	pgwire "github.com/overbook/overbook/harness/wire/postgres"
)

// A shape is a way of writing two bookings, slots 1 and 2, in one transaction.
type shape struct {
	name string
	mode pgx.QueryExecMode
	book func(ctx context.Context, conn *pgx.Conn) error
	n    int // bookings that it makes
}

const insert = `insert into bookings (slot, member) values ($1, $2)`

func autocommit(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, insert, 1, "m1")
	return err
}

func transaction(ctx context.Context, conn *pgx.Conn) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	for slot := range 2 {
		if _, err := tx.Exec(ctx, insert, slot+1, "m1"); err != nil {
			_ = tx.Rollback(ctx)
			return err
		}
	}
	return tx.Commit(ctx)
}

func batch(ctx context.Context, conn *pgx.Conn) error {
	var b pgx.Batch
	b.Queue(insert, 1, "m1")
	b.Queue(insert, 2, "m1")
	return conn.SendBatch(ctx, &b).Close()
}

// batchWithCommit has BEGIN and COMMIT in one pipelined batch, before one Sync.
func batchWithCommit(ctx context.Context, conn *pgx.Conn) error {
	var b pgconn.Batch
	for _, sql := range []string{"begin", "insert into bookings (slot, member) values (1, 'm1')", "insert into bookings (slot, member) values (2, 'm1')", "commit"} {
		b.ExecParams(sql, nil, nil, nil, nil)
	}
	return conn.PgConn().ExecBatch(ctx, &b).Close()
}

func simple(sql string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		return conn.PgConn().Exec(ctx, sql).Close()
	}
}

var shapes = []shape{
	{"autocommit, prepared", pgx.QueryExecModeCacheStatement, autocommit, 1},
	{"autocommit, described", pgx.QueryExecModeCacheDescribe, autocommit, 1},
	{"autocommit, one unit", pgx.QueryExecModeExec, autocommit, 1},
	{"autocommit, simple", pgx.QueryExecModeSimpleProtocol, autocommit, 1},
	{"transaction, prepared", pgx.QueryExecModeCacheStatement, transaction, 2},
	{"transaction, simple", pgx.QueryExecModeSimpleProtocol, transaction, 2},
	{"batch", pgx.QueryExecModeCacheStatement, batch, 2},
	{"batch, one unit", pgx.QueryExecModeExec, batch, 2},
	{"batch, simple", pgx.QueryExecModeSimpleProtocol, batch, 2},
	{"batch with commit", pgx.QueryExecModeExec, batchWithCommit, 2},
	{
		"query with commit", pgx.QueryExecModeExec,
		simple("begin; insert into bookings (slot, member) values (1, 'm1');\ninsert into bookings (slot, member) values (2, 'm1') ;commit ; "), 2,
	},
	{
		"query of two", pgx.QueryExecModeExec,
		simple("insert into bookings (slot, member) values (1, 'm1'); insert into bookings (slot, member) values (2, 'm1')"), 2,
	},
}

// mainShapes leave out what differs from another one in preparing alone.
var mainShapes = []shape{shapes[2], shapes[3], shapes[4], shapes[6], shapes[8], shapes[9], shapes[10], shapes[11]}

// moments of the two bookings, and whether they are committed there.
var bookingMoments = []struct {
	at        string
	executed  bool // Postgres has executed it
	committed bool
}{
	{"before-statement(insert into bookings)", false, false},
	{"after-statement(insert into bookings)", true, false},
	{"before-commit(insert into bookings)", true, false},
	{"after-commit(insert into bookings)", true, true},
}

// eachShape runs a test for each way of booking at each moment.
func eachShape(t *testing.T, shapes []shape, run func(t *testing.T, x *world, s shape, at string, executed, committed bool)) {
	for _, s := range shapes {
		for _, m := range bookingMoments {
			moment, _, _ := strings.Cut(m.at, "(")
			t.Run(s.name+"/"+moment, func(t *testing.T) {
				t.Parallel()
				run(t, startWorld(t), s, m.at, m.executed, m.committed)
			})
		}
	}
}

func TestDropAtEveryMoment(t *testing.T) {
	t.Parallel()
	eachShape(t, mainShapes, func(t *testing.T, x *world, s shape, at string, _, committed bool) {
		conn := x.dial(s.mode)
		in := x.inject("drop at " + at)
		if err := s.book(limit(t), conn); err == nil || code(err) != "" {
			t.Fatalf("the server got %v, want a broken connection", err)
		}
		x.gone()
		want := 0
		if committed {
			want = s.n
		}
		if n := x.bookings(); n != want {
			t.Errorf("%d bookings, want %d\n%s", n, want, show(x.Units()))
		}
		struck := in.Strikes()
		if len(struck) != 1 || struck[0].Server != "sut-1" || struck[0].At == 0 || struck[0].What == "" {
			t.Fatalf("strikes %+v", struck)
		}
		u := x.Units()[struck[0].Unit-1]
		if u.Fault != "drop at "+at || u.Err != u.Fault || u.Delivered != 0 || u.Committed != committed {
			t.Errorf("unit %+v", u)
		}
		in.Heal()
		if err := s.book(limit(t), x.dial(s.mode)); committed != (code(err) == "23505") || !committed && err != nil {
			t.Errorf("after the healing: %v", err)
		}
	})
}

func TestHoldAtEveryMoment(t *testing.T) {
	t.Parallel()
	eachShape(t, shapes, func(t *testing.T, x *world, s shape, at string, executed, committed bool) {
		conn, other := x.dial(s.mode), connect(t, x.direct, pgx.QueryExecModeExec)
		in := x.inject("hold at " + at)
		done := make(chan error, 1)
		go func() { done <- s.book(limit(t), conn) }()
		if _, err := in.Await(limit(t), patience); err != nil {
			t.Fatal(err)
		}
		// Whoever books the same slot waits for what is not committed, and only for that.
		exec(t, other, `set lock_timeout = '10ms'`)
		_, err := other.Exec(limit(t), `begin; insert into bookings (slot, member) values (1, 'other'); rollback`, pgx.QueryExecModeSimpleProtocol)
		want := ""
		if executed {
			want = "55P03"
		}
		if committed {
			want = "23505"
		}
		if code(err) != want {
			t.Errorf("the other one got %v, want %q", err, want)
		}
		if n, want := x.bookings(), map[bool]int{true: s.n}[committed]; n != want {
			t.Errorf("%d bookings are committed while it is held, want %d", n, want)
		}
		select {
		case err := <-done:
			t.Fatalf("the server has its answer: %v", err)
		default:
		}
		in.Heal()
		if err := <-done; err != nil {
			t.Errorf("after the healing: %v\n%s", err, show(x.Units()))
		}
		if n := x.bookings(); n != s.n {
			t.Errorf("%d bookings, want %d", n, s.n)
		}
		// The session is as it was.
		exec(t, conn, `delete from bookings where member = $1`, "m1")
		if err := s.book(limit(t), conn); err != nil {
			t.Errorf("the second time: %v", err)
		}
		checkRecord(t, x)
	})
}

func TestErrorAtEveryMomentBefore(t *testing.T) {
	t.Parallel()
	eachShape(t, shapes, func(t *testing.T, x *world, s shape, at string, _, _ bool) {
		if !strings.HasPrefix(at, "before") {
			t.Skip("an error can't be given there")
		}
		conn := x.dial(s.mode)
		in := x.inject("error 40001 at " + at)
		err := s.book(limit(t), conn)
		if code(err) != "40001" || !strings.HasPrefix(err.Error(), "ERROR: could not serialize access") {
			t.Fatalf("the server got %v\n%s", err, show(x.Units()))
		}
		u := x.Units()[in.Strikes()[0].Unit-1]
		found := false
		for _, st := range u.Statements {
			found = found || st.Code == "40001" && strings.HasPrefix(st.Text, "could not serialize")
		}
		if !found || u.Committed || u.Fault == "" || u.Err != "" || u.Delivered == 0 {
			t.Errorf("unit %+v", u)
		}
		in.Heal()
		if conn.PgConn().TxStatus() == 'E' { // what drivers do after an error in a transaction
			exec(t, conn, "rollback")
		}
		if n := x.bookings(); n != 0 {
			t.Errorf("%d bookings", n)
		}
		if err := s.book(limit(t), conn); err != nil {
			t.Errorf("the second attempt on the same session: %v\n%s", err, show(x.Units()))
		}
		if n := x.bookings(); n != s.n {
			t.Errorf("%d bookings after the second attempt, want %d", n, s.n)
		}
		checkRecord(t, x)
	})
}

func TestFatalErrors(t *testing.T) {
	t.Parallel()
	for i, s := range mainShapes {
		for _, code57 := range []string{[]string{"57P01", "53300"}[i%2]} {
			for _, at := range []string{"before-statement(insert)", "before-commit(insert)"} {
				t.Run(code57+"/"+s.name+"/"+at, func(t *testing.T) {
					t.Parallel()
					x := startWorld(t)
					conn := x.dial(s.mode)
					x.inject("error " + code57 + " at " + at)
					err := s.book(limit(t), conn)
					pg, ok := errors.AsType[*pgconn.PgError](err)
					if !ok || pg.Code != code57 || pg.Severity != "FATAL" {
						t.Fatalf("the server got %v", err)
					}
					if !conn.IsClosed() {
						t.Error("the connection is open")
					}
					x.gone()
					if n := x.bookings(); n != 0 {
						t.Errorf("%d bookings", n)
					}
				})
			}
		}
	}
}

func TestKillRunsToItsEndFirst(t *testing.T) {
	t.Parallel()
	eachShape(t, []shape{shapes[2], shapes[3], shapes[4], shapes[9], shapes[10]}, func(t *testing.T, x *world, s shape, at string, _, committed bool) {
		conn := x.dial(s.mode)
		bystander := x.dial(pgx.QueryExecModeExec)
		elsewhere := connect(t, x.URL("sut-2"), pgx.QueryExecModeExec)
		in := x.inject("kill at " + at)
		x.kill = func(string) error { return conn.PgConn().Conn().Close() } // as the kernel does for a process that dies
		if err := s.book(limit(t), conn); err == nil {
			t.Fatal("the server got its answer")
		}
		strike, err := in.Await(limit(t), patience)
		if err != nil {
			t.Fatal(err)
		}
		if len(x.killed) != 1 || x.killed[0] != "sut-1" {
			t.Errorf("killed %v", x.killed)
		}
		x.gone()
		if n, want := x.bookings(), map[bool]int{true: s.n}[committed]; n != want {
			t.Errorf("%d bookings, want %d\n%s", n, want, show(x.Units()))
		}
		if u := x.Units()[strike.Unit-1]; u.Err != "kill at "+at || u.Fault != u.Err {
			t.Errorf("unit %+v", u)
		}
		if _, err := bystander.Exec(limit(t), "select 1"); err == nil {
			t.Error("another connection of the killed server works")
		}
		exec(t, elsewhere, "select 1")
	})
}

func TestKillThatFails(t *testing.T) {
	x := startWorld(t)
	in := x.inject("kill at after-commit")
	x.kill = func(string) error { return errors.New("no such process") }
	_ = autocommit(limit(t), x.dial(pgx.QueryExecModeExec))
	if _, err := in.Await(limit(t), patience); err == nil || !strings.Contains(err.Error(), "no such process") || !strings.Contains(err.Error(), "kill at after-commit") {
		t.Errorf("err = %v", err)
	}
}

func TestStopGoesOn(t *testing.T) {
	x := startWorld(t)
	in := x.inject("stop at before-commit of sut-1")
	must(t, transaction(limit(t), connect(t, x.URL("sut-2"), pgx.QueryExecModeExec)))
	if len(in.Strikes()) != 0 {
		t.Error("it struck the other server")
	}
	exec(t, x.dial(pgx.QueryExecModeExec), "delete from bookings")
	if len(x.stopped) != 1 || x.stopped[0] != "sut-1" || x.bookings() != 0 {
		t.Errorf("stopped %v, %d bookings", x.stopped, x.bookings())
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	const d = 50 * time.Millisecond
	for _, m := range bookingMoments {
		x := startWorld(t)
		conn := x.dial(pgx.QueryExecModeExec)
		in := x.inject(fmt.Sprintf("delay %s at %s", d, m.at))
		watch := clock.New()
		must(t, autocommit(limit(t), conn))
		if took := watch.Now(); took < d || len(in.Strikes()) != 1 {
			t.Errorf("%s: took %s, strikes %v", m.at, took, in.Strikes())
		}
	}
	x := startWorld(t)
	in := x.inject("delay 1h at before-statement")
	done := make(chan error, 1)
	conn := x.dial(pgx.QueryExecModeExec)
	go func() { done <- autocommit(limit(t), conn) }()
	if _, err := in.Await(limit(t), patience); err != nil {
		t.Fatal(err)
	}
	x.Heal()
	must(t, <-done)
}

func TestNthAndOrderOfFaults(t *testing.T) {
	x := startWorld(t)
	conn := x.dial(pgx.QueryExecModeExec)
	second := x.inject("error 40001 at before-statement(insert, 2)")
	third := x.inject("error 40P01 at before-statement(INSERT  into, 3)")
	every := x.inject("error 55P03 at before-statement(values \\(\\$1)")
	third.Heal() // "INSERT  into" can't match: white space is made single
	third = x.inject("error 40P01 at before-statement(INSERT into, 2)")
	var got []string
	for range 4 {
		got = append(got, code(autocommit(limit(t), conn)))
	}
	every.Heal()
	got = append(got, code(autocommit(limit(t), conn)))
	if want := []string{"55P03", "40001", "55P03", "55P03", ""}; strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(second.Strikes()) != 1 || len(third.Strikes()) != 0 || len(every.Strikes()) != 3 {
		t.Errorf("strikes: %v, %v, %v", second.Strikes(), third.Strikes(), every.Strikes())
	}
	if len(x.strikes) != 4 || len(x.healed) != 2 {
		t.Errorf("told of %d strikes and %d healings", len(x.strikes), len(x.healed))
	}
}

// What fails by itself is not executed, and an error needs none put in.
func TestFaultsAndStatementsThatFail(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		x := startWorld(t)
		conn := x.dial(mode)
		must(t, autocommit(limit(t), conn))
		after := x.inject("drop at after-statement(insert)")
		before := x.inject("drop at before-commit(insert)")
		committed := x.inject("drop at after-commit(insert)")
		if err := autocommit(limit(t), conn); code(err) != "23505" {
			t.Errorf("err = %v", err)
		}
		for _, in := range []harness.Injected{after, before, committed} {
			in.Heal()
		}
		exec(t, conn, "begin")
		if err := autocommit(limit(t), conn); code(err) != "23505" {
			t.Errorf("err = %v", err)
		}
		failed := x.inject("error 40001 at before-statement(insert)")
		rolledBack := x.inject("error 40001 at before-commit(insert)")
		if err := autocommit(limit(t), conn); code(err) != "25P02" {
			t.Errorf("in a failed transaction: %v", err)
		}
		_, err := conn.Exec(limit(t), "commit")
		must(t, err)
		for _, in := range []harness.Injected{after, before, committed, failed, rolledBack} {
			if s := in.Strikes(); len(s) != 0 {
				t.Errorf("strikes %+v", s)
			}
		}
		checkRecord(t, x)
	}
}

func TestAwaitSaysWhatItWaitsFor(t *testing.T) {
	x := startWorld(t)
	in := x.inject("drop at before-commit(never, 2)")
	_, err := in.Await(limit(t), time.Millisecond)
	if _, ok := errors.AsType[*clock.DeadlineError](err); !ok || !strings.Contains(err.Error(), "drop at before-commit(never, 2)") {
		t.Errorf("err = %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := in.Await(ctx, patience); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestFaultsThatAreNone(t *testing.T) {
	x := startWorld(t, func(c *pgwire.Config) { c.Kill = nil })
	for _, f := range []harness.Fault{
		{},
		{Action: harness.ActionDrop, At: harness.MomentReceived},
		{Action: harness.ActionError, Code: "x", At: harness.BeforeCommit},
		{Action: harness.ActionKill, At: harness.BeforeCommit},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", f)
				}
			}()
			x.Inject(f)
		}()
	}
}

// checkRecord tries what must hold in every record without a lost unit.
func checkRecord(t *testing.T, x *world) {
	t.Helper()
	if err := x.Err(); err != nil {
		t.Error(err)
	}
	for i, u := range x.Units() {
		if u.Seq != i+1 || u.Arrived == 0 || u.Answered == 0 || u.Delivered < u.Answered || u.Answered < u.Forwarded || u.Err != "" || u.Before == "" || u.After == "" {
			t.Errorf("unit %+v", u)
		}
	}
	for _, tx := range harness.Transactions(x.Units()) {
		// COMMIT AND CHAIN and the like end a transaction and leave another one open.
		if last := tx.Units[len(tx.Units)-1]; tx.Outcome != "commit" && tx.Outcome != "rollback" && !last.Committed {
			t.Errorf("transaction %+v", tx)
		}
	}
}
