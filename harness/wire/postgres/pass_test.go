package pgwire_test

import (
	"testing"
)

func TestEveryModeOfPgx(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			x := startWorld(t)
			conn := x.dial(mode)
			for i := range 3 {
				exec(t, conn, `insert into bookings (slot, member) values ($1, $2)`, i+1, "m1")
			}
			tx, err := conn.Begin(limit(t))
			must(t, err)
			_, err = tx.Exec(limit(t), `update bookings set member = $1 where slot = 1`, "m2")
			must(t, err)
			must(t, tx.Commit(limit(t)))
			if n := x.bookings(); n != 3 {
				t.Errorf("%d bookings", n)
			}
			t.Log("\n" + show(x.Units()))
		})
	}
}
