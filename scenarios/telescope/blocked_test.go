package telescope

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness/clock"
)

// blockedSQL counts who waits for our session, directly or in the queue behind
// somebody who does; two others who wait for each other are nobody's witness.
func TestBlockedByOurSession(t *testing.T) {
	look := openRows(t)
	if _, err := look.Exec(t.Context(), "create table row_to_hold as select n from generate_series(1, 2) n"); err != nil {
		t.Fatal(err)
	}
	session := func() *pgx.Conn {
		conn, err := pgx.ConnectConfig(t.Context(), look.Config().Copy())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	var waiters []chan error
	var waiting []*pgx.Conn
	lock := func(n int) { // in a session of its own, which waits
		conn, done := session(), make(chan error, 1)
		waiting, waiters = append(waiting, conn), append(waiters, done)
		go func() {
			_, err := conn.Exec(context.Background(), "select from row_to_hold where n = $1 for update", n)
			done <- err
		}()
	}
	held := func(n int) *pgx.Conn {
		conn := session()
		if _, err := conn.Exec(t.Context(), "begin"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "select from row_to_hold where n = $1 for update", n); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ours, theirs := held(1), held(2)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err := errors.Join(ours.Close(ctx), theirs.Close(ctx))
		for i, done := range waiters { // each is let go by the end of who holds
			err = errors.Join(err, <-done, waiting[i].Close(ctx))
		}
		if err != nil {
			t.Error(err)
		}
	})
	behind := func(holder *pgx.Conn) (n int) {
		if err := look.QueryRow(t.Context(), blockedSQL, int(holder.PgConn().PID())).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, step := range []struct{ row, ours, theirs int }{{2, 0, 1}, {1, 1, 1}, {1, 2, 1}, {2, 2, 2}, {1, 3, 2}} {
		lock(step.row)
		what := fmt.Sprintf("%d wait behind us, %d behind the other", step.ours, step.theirs)
		err := clock.Await(t.Context(), what, 10*time.Second, 5*time.Millisecond, func(context.Context) (bool, string, error) {
			us, them := behind(ours), behind(theirs)
			return us == step.ours && them == step.theirs, fmt.Sprintf("%d and %d", us, them), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
