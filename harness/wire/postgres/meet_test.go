package pgwire_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	pgwire "github.com/overbook/overbook/harness/wire/postgres"
)

// Two members read the slot before either writes it: without a meeting this
// needs luck, with one it happens each time.
func TestMeetingMakesTheRace(t *testing.T) {
	x := startWorld(t)
	exec(t, connect(t, x.direct, pgx.QueryExecModeExec), "create table free (slot int, member text)")
	const members = 4
	wait, cancel := x.Meet(harness.Meeting{At: harness.AfterStatement, Match: `count\(\*\) from free`, Sessions: members, Within: patience})
	defer cancel()
	var all sync.WaitGroup
	for i := range members {
		conn := x.dial(pgx.QueryExecModeExec)
		all.Go(func() {
			err := pgx.BeginFunc(limit(t), conn, func(tx pgx.Tx) error {
				var n int
				if err := tx.QueryRow(limit(t), "select count(*) from free where slot = $1", 1).Scan(&n); err != nil || n > 0 {
					return err
				}
				_, err := tx.Exec(limit(t), "insert into free values (1, $1)", fmt.Sprint(i))
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	report, err := wait(limit(t))
	all.Wait()
	if err != nil || report.Met != members || report.Want != members || report.At == 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if n := x.count("select count(*) from free"); n != members {
		t.Errorf("%d of %d members have the slot", n, members)
	}
	together := 0
	for _, u := range x.Units() {
		if strings.HasPrefix(u.Fault, "meeting of 4 at after-statement") {
			together++
			if u.Answered > report.At || u.Delivered < report.At {
				t.Errorf("unit %+v, met at %s", u, report.At)
			}
		}
	}
	if together != members {
		t.Errorf("%d units met", together)
	}
	exec(t, x.dial(pgx.QueryExecModeExec), "select count(*) from free") // it is over
}

func TestMeetingAtEveryMoment(t *testing.T) {
	t.Parallel()
	for _, m := range []harness.Moment{harness.BeforeStatement, harness.AfterStatement, harness.BeforeCommit, harness.AfterCommit} {
		for _, s := range []shape{shapes[2], shapes[3], shapes[4], shapes[6], shapes[9]} {
			t.Run(string(m)+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				x := startWorld(t)
				exec(t, connect(t, x.direct, pgx.QueryExecModeExec), "alter table bookings drop constraint bookings_pkey")
				wait, _ := x.Meet(harness.Meeting{At: m, Match: "insert", Sessions: 3, Within: patience})
				var all sync.WaitGroup
				for range 3 {
					conn := x.dial(s.mode)
					all.Go(func() {
						if err := s.book(limit(t), conn); err != nil {
							t.Error(err)
						}
					})
				}
				report, err := wait(limit(t))
				if err != nil || report.Met != 3 {
					t.Errorf("%+v, %v", report, err)
				}
				all.Wait()
				if n := x.bookings(); n != 3*s.n {
					t.Errorf("%d bookings", n)
				}
				checkRecord(t, x)
			})
		}
	}
}

func TestMeetingThatTooFewComeTo(t *testing.T) {
	t.Parallel()
	x := startWorld(t)
	wait, cancel := x.Meet(harness.Meeting{At: harness.BeforeCommit, Sessions: 3, Within: 400 * time.Millisecond})
	defer cancel()
	ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	if _, err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "0 sessions are there") {
		t.Errorf("err = %v", err)
	}
	watch := clock.New()
	var all sync.WaitGroup
	for range 2 {
		conn := x.dial(pgx.QueryExecModeExec)
		all.Go(func() {
			if _, err := conn.Exec(limit(t), "insert into payments (note) values ('x')"); err != nil {
				t.Error(err)
			}
		})
	}
	report, err := wait(limit(t))
	if err != nil || report.Met != 2 || report.Want != 3 || watch.Now() < 30*time.Millisecond {
		t.Errorf("%+v, %v", report, err)
	}
	all.Wait()
	if n := x.count("select count(*) from payments"); n != 2 {
		t.Errorf("%d payments", n)
	}
}

func TestMeetingCalledOff(t *testing.T) {
	x := startWorld(t)
	for _, off := range []func(cancel func()){func(cancel func()) { cancel(); cancel() }, func(func()) { x.Heal() }} {
		wait, cancel := x.Meet(harness.Meeting{At: harness.BeforeStatement, Match: "select 7", Sessions: 2, Within: time.Hour})
		conn := x.dial(pgx.QueryExecModeExec)
		done := make(chan error, 1)
		go func() {
			_, err := conn.Exec(limit(t), "select 7")
			done <- err
		}()
		x.until("one to be there", func(u []harness.Unit) bool {
			return len(u) > 0 && u[len(u)-1].Fault != "" && u[len(u)-1].Answered == 0
		})
		off(cancel)
		must(t, <-done)
		if _, err := wait(limit(t)); err == nil || !strings.Contains(err.Error(), "called off") {
			t.Errorf("err = %v", err)
		}
	}
}

// Who leaves the meeting by dying is not there any more.
func TestMeetingLeftByOne(t *testing.T) {
	x := startWorld(t)
	wait, cancel := x.Meet(harness.Meeting{At: harness.BeforeCommit, Match: "payments", Sessions: 2, Within: patience})
	defer cancel()
	first := x.dial(pgx.QueryExecModeExec)
	go func() { _, _ = first.Exec(limit(t), "insert into payments (note) values ('first')") }()
	x.until("the first to be there", func(u []harness.Unit) bool { return len(u) > 0 && u[len(u)-1].Fault != "" })
	must(t, first.PgConn().Conn().Close())
	x.until("the first to have left", func(u []harness.Unit) bool { return u[len(u)-1].Err != "" })
	x.gone()
	var all sync.WaitGroup
	for range 2 {
		conn := x.dial(pgx.QueryExecModeExec)
		all.Go(func() {
			if _, err := conn.Exec(limit(t), "insert into payments (note) values ('x')"); err != nil {
				t.Error(err)
			}
		})
	}
	if report, err := wait(limit(t)); err != nil || report.Met != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	all.Wait()
	units := slices.DeleteFunc(x.Units(), func(u harness.Unit) bool { return u.Fault == "" })
	if len(units) != 3 { // the one that left, and the two that met
		t.Errorf("units that came:\n%s", show(units))
	}
	if n := x.count("select count(*) from payments where note = 'first'"); n != 0 {
		t.Error("what the dead one began is committed")
	}
}

func TestMeetingAndFaultTogether(t *testing.T) {
	x := startWorld(t)
	wait, _ := x.Meet(harness.Meeting{At: harness.BeforeCommit, Sessions: 2, Within: patience})
	x.inject("error 40001 at before-commit(, 1)")
	errs := make(chan error, 2)
	for range 2 {
		conn := x.dial(pgx.QueryExecModeExec)
		go func() {
			_, err := conn.Exec(limit(t), "insert into payments (note) values ('x')")
			errs <- err
		}()
	}
	if report, err := wait(limit(t)); err != nil || report.Met != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	a, b := code(<-errs), code(<-errs)
	if a+b != "40001" {
		t.Errorf("the two got %q and %q, want one failure", a, b)
	}
}

func TestMeetingsThatAreNone(t *testing.T) {
	x := startWorld(t, func(c *pgwire.Config) { c.Servers = nil })
	for _, m := range []harness.Meeting{{}, {At: harness.BeforeResponse, Sessions: 2, Within: 1}, {At: harness.BeforeCommit, Within: 1}, {At: harness.BeforeCommit, Sessions: 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", m)
				}
			}()
			x.Meet(m)
		}()
	}
}
