package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness/provision"
)

// migrations is where the server's schema is; the invariants are about it.
const migrations = "../../sut/calendar/migrations"

// openRows gives a connection to a database with the server's schema.
func openRows(t *testing.T) *pgx.Conn {
	t.Helper()
	env, err := provision.Up(t.Context(), provision.Options{Need: provision.Need{Postgres: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := env.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	db, err := env.Postgres.Clone(t.Context(), "", "calendar_rows")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	files, err := fs.Glob(os.DirFS(migrations), "*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations in %s, %v", len(files), migrations, err)
	}
	for _, name := range files {
		text, err := fs.ReadFile(os.DirFS(migrations), name)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "---- create above / drop below ----")
		if _, err := conn.Exec(t.Context(), up); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return conn
}

// uid is the id of the n-th appointment.
func uid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// hours is a range on the day of the rows.
func hours(from, to string) string {
	return fmt.Sprintf(`tstzrange('2031-01-01 %s+00', '2031-01-01 %s+00')`, from, to)
}

// rowsSQL builds rows as the server would write them.
type rowsSQL struct {
	b      strings.Builder
	last   map[int]int    // steps of each appointment
	during map[int]string // where it is now
}

func newRows() *rowsSQL { return &rowsSQL{last: map[int]int{}, during: map[int]string{}} }

func (r *rowsSQL) add(format string, args ...any) { fmt.Fprintf(&r.b, format+";\n", args...) }

// appointment is a row, booked, with its first step and its sync.
func (r *rowsSQL) appointment(n int, during string) {
	r.during[n] = during
	r.add(`insert into appointments values ('%s', 1, 'member-%d', %s, 'Etc/UTC', 'BOOKED', 'event-%d', null, null, 0, 'op-%d', '2031-01-01', null)`, uid(n), n, during, n, n)
	r.add(`insert into syncs (appointment_id, touched_at) values ('%s', '2031-01-01')`, uid(n))
	r.step(n, "BOOKED", fmt.Sprintf("op-%d", n))
}

// step is a row of the history, with its event, which is done, and what it does
// to the appointment.
func (r *rowsSQL) step(n int, event, op string) {
	r.last[n]++
	r.add(`insert into appointment_audit (appointment_id, seq, event, during, actor, overbook_op, at) values ('%s', %d, '%s', %s, 'a', '%s', '2031-01-01')`, uid(n), r.last[n], event, r.during[n], op)
	if event != "CREATED" {
		r.add(`insert into outbox (appointment_id, seq, type, payload, created_at, done_at, result) values ('%s', %d, 'appointment.%s', '{}', '2031-01-01', '2031-01-01', 'created')`, uid(n), r.last[n], strings.ToLower(event))
	}
	state, ended := event, "null"
	switch event {
	case "MOVED", "RESTORED":
		r.add(`update appointments set version = %d, during = %s where appointment_id = '%s'`, r.last[n], r.during[n], uid(n))
		return
	case "CANCELLED", "REJECTED":
		ended = "'2031-01-01'"
	}
	r.add(`update appointments set version = %d, state = '%s', ended_at = %s where appointment_id = '%s'`, r.last[n], state, ended, uid(n))
}

func (r *rowsSQL) move(n int, to, op string) {
	r.during[n] = to
	r.step(n, "MOVED", op)
}

// conflict is a row about an appointment; a resolution of "" is none.
func (r *rowsSQL) conflict(n int, external, resolution, by string) {
	at, how, who := "null", "null", "null"
	if resolution != "" {
		at, how, who = "'2031-01-02'", "'"+resolution+"'", "'"+by+"'"
	}
	r.add(`insert into conflicts values (gen_random_uuid(), 1, '%s', 'overlap', '%s', '2031-01-01', 'look', %s, %s, %s)`, uid(n), external, at, how, who)
}

// goodSteps are a world in which everything has happened once and nothing is
// wrong: two that swapped, one that follows at once, two that are over at the
// same time as one that is not, and one of each way for a conflict to end.
func goodSteps() *rowsSQL {
	r := newRows()
	r.add(`set local session_replication_role = replica`) // rows stand as they are written
	r.add(`insert into resources values (1, 'cal-1', 'ACTIVE', 'check-then-create', 'reject', 3, null, null, '2031-01-01', '', '2031-01-01'), (2, 'cal-2', 'ACTIVE', 'check-then-create', 'reject', 3, null, null, '2031-01-01', '', '2031-01-01')`)
	r.add(`insert into accounts values (1, 'OK', 'a', 'r', 1, null, null, null, '2031-01-01'), (2, 'OK', 'a', 'r', 1, null, null, null, '2031-01-01')`)
	r.appointment(1, hours("09:00", "10:00"))
	r.step(1, "CREATED", "op-1")
	r.appointment(2, hours("10:00", "11:00"))
	r.add(`set constraints appointments_no_overlap deferred`)
	r.move(1, hours("10:00", "11:00"), "op-swap")
	r.move(2, hours("09:00", "10:00"), "op-swap")
	r.add(`set constraints appointments_no_overlap immediate`)
	r.step(2, "CREATED", "op-2")
	r.appointment(3, hours("12:00", "13:00"))
	r.step(3, "CANCELLED", "op-3c")
	r.appointment(4, hours("12:30", "13:30"))
	r.step(4, "CREATED", "op-4")
	r.step(4, "REJECTED", "op-4")
	r.conflict(4, "x", "rejected", "server")
	r.appointment(5, hours("12:15", "13:15"))
	r.step(5, "CREATED", "op-5")
	r.step(5, "RESTORED", "op-5r")
	r.conflict(5, "y", "kept", "staff-1")
	r.conflict(5, "z", "vanished", "server")
	r.conflict(5, "u", "", "")
	return r
}

func goodRows() string { return goodSteps().b.String() }

// build gives the rows that a few steps make on top of the good ones.
func build(steps func(*rowsSQL)) string {
	r := goodSteps()
	r.b.Reset()
	steps(r)
	return r.b.String()
}

// free takes constraints away that keep bad rows out, as a server would be without them.
const free = `alter table appointments drop constraint appointments_no_overlap;
alter table appointment_audit drop constraint appointment_audit_appointment_id_seq_key; alter table outbox drop constraint outbox_appointment_id_seq_key;
drop index conflicts_once; alter table conflicts drop constraint conflicts_check;
`

// badRows are changes of the good rows and the invariants that must see them;
// all others must not.
var badRows = []struct {
	name, sql string
	fires     []string
}{
	{"two at one time", free + build(func(r *rowsSQL) { r.appointment(20, hours("12:15", "13:15")) }), []string{"no_overlap", "no_overlap_ever"}},
	{"a minute in common", free + build(func(r *rowsSQL) { r.appointment(20, hours("13:14", "14:00")) }), []string{"no_overlap", "no_overlap_ever"}},
	{"two at one time, one of them over since", free + build(func(r *rowsSQL) {
		r.appointment(20, hours("12:45", "12:50"))
		r.step(20, "CANCELLED", "op-20c")
	}), []string{"no_overlap_ever"}},
	{"moved over another and away again", free + build(func(r *rowsSQL) {
		r.move(1, hours("12:45", "12:50"), "op-m1")
		r.move(1, hours("20:00", "21:00"), "op-m2")
	}), []string{"no_overlap_ever"}},
	{"a swap in two steps", free + build(func(r *rowsSQL) {
		r.move(1, hours("09:00", "10:00"), "op-m1")
		r.move(2, hours("10:00", "11:00"), "op-m2")
	}), []string{"no_overlap_ever"}},
	{"no creation event", `delete from outbox where appointment_id = '` + uid(5) + `' and seq = 1`, []string{"one_creation_event", "event_per_step"}},
	{"two creation events", `insert into outbox (appointment_id, seq, type, payload, created_at, done_at, result) values ('` + uid(5) + `', 9, 'appointment.booked', '{}', '2031-01-01', '2031-01-01', 'created')`, []string{"one_creation_event", "event_per_step"}},
	{"a creation event of somebody who lost", `insert into outbox (appointment_id, seq, type, payload, created_at, done_at, result) values ('` + uid(99) + `', 1, 'appointment.booked', '{}', '2031-01-01', '2031-01-01', 'created')`, []string{"one_creation_event", "event_per_step"}},
	{"an event of another type", `update outbox set type = 'appointment.moved' where appointment_id = '` + uid(3) + `' and seq = 2`, []string{"event_per_step"}},
	{"no event of a cancellation", `delete from outbox where appointment_id = '` + uid(3) + `' and seq = 2`, []string{"event_per_step"}},
	{"no history", `delete from appointment_audit where appointment_id = '` + uid(5) + `'; delete from outbox where appointment_id = '` + uid(5) + `' and seq > 1`, []string{"history_replays", "event_per_step"}},
	{"a version ahead of the history", `update appointments set version = 9 where appointment_id = '` + uid(5) + `'`, []string{"history_replays"}},
	{"a time that the history does not know", `update appointments set during = ` + hours("20:00", "21:00") + ` where appointment_id = '` + uid(5) + `'`, []string{"history_replays"}},
	{"a state that the history does not know", `update appointments set state = 'CANCELLED', ended_at = '2031-01-01' where appointment_id = '` + uid(1) + `'`, []string{"history_replays"}},
	{"alive again", build(func(r *rowsSQL) {
		r.step(3, "RESTORED", "op-3r") // where somebody else is by now
	}), []string{"no_overlap_ever", "steps_follow_arrows"}},
	{"created twice", build(func(r *rowsSQL) { r.step(5, "CREATED", "op-5") }), []string{"steps_follow_arrows"}},
	{"booked twice", build(func(r *rowsSQL) { r.step(1, "BOOKED", "op-1"); r.step(1, "CREATED", "op-1") }), []string{"steps_follow_arrows", "one_creation_event"}},
	{"moved without a move", build(func(r *rowsSQL) {
		r.during[1] = hours("20:00", "21:00")
		r.step(1, "RESTORED", "op-1r")
	}), []string{"steps_follow_arrows"}},
	{"rejected, and not", build(func(r *rowsSQL) { r.conflict(1, "x", "rejected", "server") }), []string{"conflicts_resolved"}},
	{"kept by nobody", build(func(r *rowsSQL) { r.conflict(1, "x", "kept", "server") }), []string{"conflicts_resolved"}},
	{"ended, and not", build(func(r *rowsSQL) { r.conflict(1, "x", "ended", "member-1") }), []string{"conflicts_resolved"}},
	{"left open of what is over", build(func(r *rowsSQL) { r.conflict(3, "x", "", "") }), []string{"conflicts_resolved"}},
	{"resolved without a word", free + build(func(r *rowsSQL) {
		r.add(`insert into conflicts values (gen_random_uuid(), 1, '%s', 'overlap', 'w', '2031-01-01', 'look', '2031-01-02', null, null)`, uid(1))
	}), []string{"conflicts_resolved"}},
	{"of another resource", `update conflicts set resource_id = 2 where external_event = 'u'`, []string{"conflicts_resolved"}},
	{"found twice", free + build(func(r *rowsSQL) { r.conflict(5, "u", "", "") }), []string{"conflicts_once"}},
	{"forgotten", `update outbox set done_at = null, result = null where appointment_id = '` + uid(5) + `' and seq = 1`, []string{"work_is_remembered"}},
	{"forgotten without a trace", `update outbox set done_at = null, result = null where appointment_id = '` + uid(5) + `' and seq = 1; delete from syncs where appointment_id = '` + uid(5) + `'`, []string{"work_is_remembered"}},
}

// TestInvariants asks every invariant about good rows and about bad ones.
func TestInvariants(t *testing.T) {
	conn := openRows(t)
	seen := map[string]bool{}
	ask := func(t *testing.T, sql string) []string {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if _, err := tx.Exec(t.Context(), goodRows()); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		return firing(t, tx)
	}
	if fires := ask(t, "select 1"); len(fires) > 0 {
		t.Fatalf("good rows violate %v", fires)
	}
	for _, bad := range badRows {
		t.Run(bad.name, func(t *testing.T) {
			got := ask(t, bad.sql)
			slices.Sort(bad.fires)
			if !slices.Equal(got, bad.fires) {
				t.Errorf("seen by %v, want %v", got, bad.fires)
			}
			for _, name := range got {
				seen[name] = true
			}
		})
	}
	for _, name := range invariantNames(t) {
		if !seen[name] {
			t.Errorf("no bad rows show that %s can fail", name)
		}
	}
}

// TestSettle asks what counts as open.
func TestSettle(t *testing.T) {
	conn := openRows(t)
	booked := build(func(r *rowsSQL) {
		r.appointment(20, hours("20:00", "21:00"))
		r.add(`update outbox set done_at = null, result = null where appointment_id = '%s'`, uid(20))
		r.add(`update syncs set due_at = '2031-01-01' where appointment_id = '%s'`, uid(20))
	})
	sync := `update syncs set %s where appointment_id = '` + uid(20) + `'`
	for name, tt := range map[string]struct {
		sql  string
		open int
	}{
		"nothing":               {"select 1", 0},
		"due":                   {booked, 1},
		"due much later":        {booked + fmt.Sprintf(sync, "due_at = '2099-01-01'"), 1},
		"claimed, nothing left": {`update syncs set claim = gen_random_uuid(), claimed_until = '2031-01-01' where appointment_id = '` + uid(1) + `'`, 1},
		"parked":                {booked + fmt.Sprintf(sync, "parked_at = '2031-01-01'"), 0},
		"no authorisation":      {booked + `update accounts set state = 'FAILED_AUTH'`, 0},
		"quiet":                 {booked + `update accounts set quiet_until = '2099-01-01'`, 0},
		"quiet no more":         {booked + `update accounts set quiet_until = '2020-01-01'`, 1},
		"paused":                {booked + `update resources set conflict_limit = 0`, 0},
		"paused, of a deletion": {booked + build(func(r *rowsSQL) {
			r.last[20], r.during[20] = 1, hours("20:00", "21:00")
			r.step(20, "CANCELLED", "op-20c")
		}) + `update resources set conflict_limit = 0`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(t.Context(), goodRows()+tt.sql); err != nil {
				t.Fatal(err)
			}
			if got := documentsOf(t, tx, workable); len(got) != tt.open {
				t.Errorf("open: %s, want %d", got, tt.open)
			}
		})
	}
}

// invariantNames are those of the checks that hold always.
func invariantNames(t *testing.T) (names []string) {
	t.Helper()
	for _, c := range always(nil) {
		if c.SQL != "" {
			names = append(names, strings.TrimSuffix(path.Base(c.Rule), ".sql"))
		}
	}
	if len(names) < 9 {
		t.Fatalf("only %d invariants", len(names))
	}
	slices.Sort(names)
	return names
}

// documentsOf are the rows of a query, asked as the conductor asks.
func documentsOf(t *testing.T, tx pgx.Tx, sql string) [][]byte {
	t.Helper()
	rows, err := tx.Query(t.Context(), "select to_jsonb(r) from (\n"+strings.TrimSpace(sql)+"\n) r")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// firing gives the invariants that return a row.
func firing(t *testing.T, tx pgx.Tx) (names []string) {
	t.Helper()
	for _, name := range invariantNames(t) {
		text, err := invariants.ReadFile("invariants/" + name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		if documents := documentsOf(t, tx, string(text)); len(documents) > 0 {
			if !json.Valid(documents[0]) {
				t.Errorf("%s: %s", name, documents[0])
			}
			names = append(names, name)
		}
	}
	return names
}
