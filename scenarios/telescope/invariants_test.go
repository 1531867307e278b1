package telescope

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
const migrations = "../../sut/telescope/migrations"

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
	db, err := env.Postgres.Clone(t.Context(), "", "telescope_rows")
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

// uid is the n-th booking's id.
func uid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// rowsSQL builds rows as the server would write them.
type rowsSQL struct{ b strings.Builder }

func (r *rowsSQL) add(format string, args ...any) { fmt.Fprintf(&r.b, format+";\n", args...) }

// slot is a slot's row; half hours are counted from midnight at the observatory.
func (r *rowsSQL) slot(id int, state string, version, halfHours int) {
	r.add(`insert into observing_slots values (%d, timestamptz '2031-03-05 00:00-10' + %d * interval '30 minutes', '%s', %d, '2031-01-01')`, id, halfHours, state, version)
}

// event is a row of the history with its outbox event. booking 0 is none.
func (r *rowsSQL) event(slot, seq int, event string, n int, who, actor string) {
	r.audit(slot, seq, event, n, who, actor)
	r.outbox(slot, seq, "telescope."+strings.ToLower(event), event, n, who)
}

func quoted(n int, who string) (string, string) {
	if n == 0 {
		return "null", "null"
	}
	return "'" + uid(n) + "'", "'" + who + "'"
}

func (r *rowsSQL) audit(slot, seq int, event string, n int, who, actor string) {
	id, name := quoted(n, who)
	r.add(`insert into audit_history (slot_id, seq, event, booking_id, member, actor, overbook_op, at) values (%d, %d, '%s', %s, %s, '%s', 'op-%d%d', '2031-01-01')`,
		slot, seq, event, id, name, actor, slot, seq)
}

func (r *rowsSQL) outbox(slot, seq int, kind, event string, n int, who string) {
	id, name := quoted(n, who)
	r.add(`insert into outbox (slot_id, seq, type, payload, created_at) values (%d, %d, '%s',
jsonb_build_object('event', '%s', 'slot_id', %d, 'booking_id', %s::text, 'member', %s::text), '2031-01-01')`, slot, seq, kind, event, slot, id, name)
}

// result is the stored answer of an operation.
func (r *rowsSQL) result(principal, kind, key string, status, slot, n int, op, body string) {
	id, _ := quoted(n, "")
	r.add(`insert into booking_operations values ('%s', '%s', '%s', 'f', %d, 'application/json', convert_to('%s', 'UTF8'), %d, %s, '%s', '2031-01-01', '2031-01-01')`,
		principal, kind, key, status, body, slot, id, op)
}

// book is all rows of a booking.
func (r *rowsSQL) book(slot, seq, n int, who, key string) {
	r.event(slot, seq, "BOOKED", n, who, who)
	r.result(who, "book", key, 201, slot, n, fmt.Sprintf("op-%d%d", slot, seq), bookedBody(slot, n, who))
}

func bookedBody(slot, n int, who string) string {
	return fmt.Sprintf(`{"booking_id":"%s","slot_id":%d,"member":"%s","starts_at":"","state":"active"}`, uid(n), slot, who)
}

func (r *rowsSQL) closed(slot, seq int, key string) {
	r.event(slot, seq, "CLOSED", 0, "", "staff-1")
	r.result("staff-1", "close", key, 200, slot, 0, fmt.Sprintf("op-%d%d", slot, seq), fmt.Sprintf(`{"slot_id":%d,"state":"closed"}`, slot))
}

func (r *rowsSQL) reopened(slot, seq int, key string) {
	r.event(slot, seq, "REOPENED", 0, "", "staff-1")
	r.result("staff-1", "reopen", key, 200, slot, 0, fmt.Sprintf("op-%d%d", slot, seq), fmt.Sprintf(`{"slot_id":%d,"state":"open"}`, slot))
}

// active is a row of a reservation; flag is "" for none.
func (r *rowsSQL) active(slot, n int, who, flag string) {
	at := "null, null"
	if flag != "" {
		at = "'2031-01-01', '" + flag + "'"
	}
	r.add(`insert into active_reservations values (%d, '%s', '%s', '2031-03', '2031-01-01', %s)`, slot, uid(n), who, at)
}

// goodRows is a world in which everything has happened once and nothing is wrong.
func goodRows() string {
	r := &rowsSQL{}
	for slot, s := range map[int]struct {
		state   string
		version int
	}{1: {"closed", 4}, 2: {"open", 4}, 3: {"open", 3}, 4: {"closed", 5}, 5: {"open", 7}, 6: {"open", 5}, 7: {"closed", 2}, 8: {"open", 1}} {
		r.slot(slot, s.state, s.version, slot)
	}
	for slot := 1; slot <= 8; slot++ {
		r.event(slot, 1, "CREATED", 0, "", "staff-1")
	}
	r.book(1, 2, 1, "member-1", "a") // booked, closed, flagged
	r.closed(1, 3, "a")
	r.event(1, 4, "FLAGGED", 1, "member-1", "staff-1")
	r.active(1, 1, "member-1", "open")
	r.book(2, 2, 2, "member-1", "b") // cancelled, and booked by somebody else
	r.event(2, 3, "CANCELLED", 2, "member-1", "member-1")
	r.result("member-1", "cancel", "c", 200, 2, 2, "op-23", fmt.Sprintf(`{"booking_id":"%s","slot_id":2,"state":"cancelled"}`, uid(2)))
	r.book(2, 4, 3, "member-2", "a")
	r.active(2, 3, "member-2", "")
	r.closed(3, 2, "b") // closed and reopened
	r.reopened(3, 3, "a")
	r.book(4, 2, 4, "member-3", "a") // kept by staff
	r.closed(4, 3, "c")
	r.event(4, 4, "FLAGGED", 4, "member-3", "staff-1")
	r.event(4, 5, "KEPT", 4, "member-3", "staff-1")
	r.active(4, 4, "member-3", "kept")
	r.book(5, 2, 5, "member-3", "b") // released by staff, reopened, booked again
	r.closed(5, 3, "d")
	r.event(5, 4, "FLAGGED", 5, "member-3", "staff-1")
	r.event(5, 5, "CANCELLED", 5, "member-3", "staff-1")
	r.result("staff-1", "resolve", "a", 200, 5, 5, "op-55", "{}")
	r.reopened(5, 6, "b")
	r.book(5, 7, 6, "member-1", "c")
	r.active(5, 6, "member-1", "")
	r.book(6, 2, 7, "member-2", "b") // flagged, and stands again
	r.closed(6, 3, "e")
	r.event(6, 4, "FLAGGED", 7, "member-2", "staff-1")
	r.reopened(6, 5, "c")
	r.active(6, 7, "member-2", "")
	r.event(7, 2, "CLOSED", 0, "", "staff-1") // by an import
	r.result("staff-1", "import", "a", 200, 0, 0, "op-72", "{}")
	r.result("member-9", "book", "lost", 409, 1, 0, "op-99", "{}")
	r.add(`insert into slot_schedule select slot_id, starts_at, case slot_id when 1 then 'closed' when 4 then 'closed' when 7 then 'closed' when 3 then 'free' when 8 then 'free' else 'taken' end from observing_slots`)
	r.add(`insert into schedule_refreshes values (true, '2031-01-01 00:00:01')`)
	return r.b.String()
}

// build gives the rows that a few steps make.
func build(steps func(*rowsSQL)) string {
	r := &rowsSQL{}
	steps(r)
	return r.b.String()
}

// free takes constraints away that keep bad rows out, as a server would be
// without them.
const free = `alter table active_reservations drop constraint active_reservations_pkey, drop constraint active_reservations_booking_id_key;
alter table audit_history drop constraint audit_history_slot_id_seq_key;
drop trigger append_only on audit_history; drop trigger guard on booking_operations; drop trigger guard on outbox; drop trigger kept on outbox;
`

// badRows are changes of the good rows and the invariants that must see them;
// all others must not.
var badRows = []struct {
	name, sql string
	fires     []string
}{
	{"booked twice by history", build(func(r *rowsSQL) {
		r.book(2, 5, 20, "member-4", "x")
		r.add(`update observing_slots set version = 5 where slot_id = 2; update active_reservations set booking_id = '%s', member = 'member-4' where slot_id = 2`, uid(20))
	}), []string{"one_active_per_slot"}},
	{"cancelled twice", build(func(r *rowsSQL) {
		r.event(2, 5, "CANCELLED", 3, "member-2", "member-2")
		r.event(2, 6, "CANCELLED", 3, "member-2", "member-2")
		r.result("member-2", "cancel", "x", 200, 2, 3, "op-25", "{}")
		r.add(`update observing_slots set version = 6 where slot_id = 2; delete from active_reservations where slot_id = 2; update slot_schedule set state = 'free' where slot_id = 2`)
	}), []string{"one_active_per_slot", "history_steps"}},
	{"two rows of one slot", free + build(func(r *rowsSQL) { r.active(2, 20, "member-4", "") }), []string{"one_row_per_slot", "history_replays_to_reservation"}},
	{
		"one booking under two slots", free + build(func(r *rowsSQL) { r.active(8, 3, "member-2", "") }),
		[]string{"one_row_per_slot", "history_replays_to_reservation", "schedule_is_true", "two_a_month"},
	},
	{"closed over a reservation, and nobody told", build(func(r *rowsSQL) {
		r.closed(2, 5, "x")
		r.add(`update observing_slots set state = 'closed', version = 5 where slot_id = 2; update slot_schedule set state = 'closed' where slot_id = 2`)
	}), []string{"closed_means_flagged", "closure_flags_booking"}},
	{
		"still flagged on an open slot", `update active_reservations set flagged_at = '2031-01-01', flag_state = 'open' where slot_id = 6`,
		[]string{"closed_means_flagged", "history_replays_to_reservation"},
	},
	{"booked while closed", build(func(r *rowsSQL) {
		r.book(7, 3, 20, "member-4", "x")
		r.active(7, 20, "member-4", "open")
		r.add(`update observing_slots set version = 3 where slot_id = 7`)
	}), []string{"no_booking_while_closed", "history_replays_to_reservation"}},
	{"flagged out of nowhere", build(func(r *rowsSQL) {
		r.event(2, 5, "FLAGGED", 3, "member-2", "staff-1")
		r.add(`update observing_slots set version = 5 where slot_id = 2; update active_reservations set flagged_at = '2031-01-01', flag_state = 'open' where slot_id = 2`)
	}), []string{"closure_flags_booking", "closed_means_flagged"}},
	{
		"another booking flagged", free + `update audit_history set booking_id = '` + uid(3) + `', member = 'member-2' where slot_id = 1 and seq = 4;
update outbox set payload = payload || '{"booking_id": "` + uid(3) + `", "member": "member-2"}' where slot_id = 1 and seq = 4`,
		[]string{"closure_flags_booking", "history_steps"},
	},
	{"three in a month", build(func(r *rowsSQL) {
		r.book(8, 2, 20, "member-1", "x")
		r.active(8, 20, "member-1", "")
		r.add(`update observing_slots set version = 2 where slot_id = 8; update slot_schedule set state = 'taken' where slot_id = 8`)
	}), []string{"two_a_month", "two_a_month_ever"}},
	{"three in a month, one cancelled since", build(func(r *rowsSQL) {
		r.book(8, 2, 20, "member-1", "x")
		r.event(8, 3, "CANCELLED", 20, "member-1", "member-1")
		r.result("member-1", "cancel", "x", 200, 8, 20, "op-83", "{}")
		r.add(`update observing_slots set version = 3 where slot_id = 8`)
	}), []string{"two_a_month_ever"}},
	{"the month of another time zone", `update active_reservations set month = '2031-04' where slot_id = 2`, []string{"month_of_slot"}},
	{"no event", free + `delete from outbox where slot_id = 3 and seq = 3`, []string{"event_per_audit_row"}},
	{
		"no history", free + `delete from audit_history where slot_id = 3 and seq = 3`,
		[]string{"event_per_audit_row", "history_without_gaps", "history_replays_to_slot", "result_per_change"},
	},
	{"an event that tells of somebody else", free + `update outbox set payload = payload || '{"member": "member-8"}' where slot_id = 2 and seq = 4`, []string{"event_per_audit_row"}},
	{"an event of another type", free + `update outbox set type = 'telescope.reopened' where slot_id = 3 and seq = 2`, []string{"event_per_audit_row"}},
	{"a booking without its result", `delete from booking_operations where principal = 'member-2' and key = 'a'`, []string{"result_per_booking"}},
	{"a result without its booking", build(func(r *rowsSQL) {
		r.result("member-4", "book", "x", 201, 8, 20, "op-x", bookedBody(8, 20, "member-4"))
	}), []string{"result_per_booking"}},
	{"a result of another member", free + `update booking_operations set principal = 'member-8' where principal = 'member-2' and key = 'a'`, []string{"result_per_booking"}},
	{
		"a result that answers something else", free + `update booking_operations set body = convert_to('` + bookedBody(2, 9, "member-2") + `', 'UTF8') where principal = 'member-2' and key = 'a'`,
		[]string{"result_per_booking"},
	},
	{"one booking as the result of two keys", build(func(r *rowsSQL) {
		r.result("member-2", "book", "x", 201, 2, 3, "op-x", bookedBody(2, 3, "member-2"))
	}), []string{"booked_once_per_result"}},
	{"a change without its result", `delete from booking_operations where type = 'cancel'`, []string{"result_per_change"}},
	{"a closure without its result", `delete from booking_operations where type = 'close' and key = 'b'`, []string{"result_per_change"}},
	{"an import without its result", `delete from booking_operations where type = 'import'`, []string{"result_per_change"}},
	{"a result without its change", build(func(r *rowsSQL) {
		r.result("staff-2", "close", "x", 200, 8, 0, "op-x", `{"slot_id":8,"state":"closed"}`)
	}), []string{"result_per_change"}},
	{"booked by somebody else", free + `update audit_history set actor = 'member-8' where slot_id = 2 and seq = 4`, []string{"own_hands"}},
	{
		"cancelled by somebody else", free + `update audit_history set actor = 'member-8' where slot_id = 2 and seq = 3; update booking_operations set principal = 'member-8' where type = 'cancel'`,
		[]string{"own_hands"},
	},
	{
		"closed by a member", free + `update audit_history set actor = 'member-8' where slot_id = 3 and seq = 2; update booking_operations set principal = 'member-8' where type = 'close' and key = 'b'`,
		[]string{"own_hands"},
	},
	{"the schedule shows a taken slot as free", `update slot_schedule set state = 'free' where slot_id = 2`, []string{"schedule_is_true"}},
	{"the schedule shows a closed slot as taken", `update slot_schedule set state = 'taken' where slot_id = 1`, []string{"schedule_is_true"}},
	{"the schedule lacks a slot", `delete from slot_schedule where slot_id = 8`, []string{"schedule_is_true"}},
	{"the schedule has one too many", `insert into slot_schedule values (99, '2031-01-01', 'free')`, []string{"schedule_is_true"}},
	{"the schedule shows another start", `update slot_schedule set starts_at = '2031-01-01' where slot_id = 8`, []string{"schedule_is_true"}},
	{"a version ahead of the history", `update observing_slots set version = 9 where slot_id = 8`, []string{"history_without_gaps"}},
	{"a slot that was never created", build(func(r *rowsSQL) {
		r.slot(9, "open", 1, 9)
		r.add(`insert into slot_schedule select slot_id, starts_at, 'free' from observing_slots where slot_id = 9`)
	}), []string{"history_without_gaps"}},
	{"an open slot that was closed", `update observing_slots set state = 'open' where slot_id = 7; update slot_schedule set state = 'free' where slot_id = 7`, []string{"history_replays_to_slot"}},
	{"closed twice", build(func(r *rowsSQL) {
		r.closed(7, 3, "x")
		r.add(`update observing_slots set version = 3 where slot_id = 7`)
	}), []string{"history_steps"}},
	{"reopened while open", build(func(r *rowsSQL) {
		r.reopened(8, 2, "x")
		r.add(`update observing_slots set version = 2 where slot_id = 8`)
	}), []string{"history_steps"}},
	{"a reservation that was cancelled is still there", build(func(r *rowsSQL) {
		r.event(2, 5, "CANCELLED", 3, "member-2", "member-2")
		r.result("member-2", "cancel", "x", 200, 2, 3, "op-25", "{}")
		r.add(`update observing_slots set version = 5 where slot_id = 2`)
	}), []string{"history_replays_to_reservation"}},
	{"a reservation is gone", `delete from active_reservations where slot_id = 2; update slot_schedule set state = 'free' where slot_id = 2`, []string{"history_replays_to_reservation"}},
	{"a reservation of somebody else", `update active_reservations set member = 'member-8' where slot_id = 2`, []string{"history_replays_to_reservation"}},
	{"a flag that the history does not know", `update active_reservations set flag_state = 'kept' where slot_id = 1`, []string{"history_replays_to_reservation"}},
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
		if _, err := tx.Exec(t.Context(), goodRows()+sql); err != nil {
			t.Fatal(err)
		}
		return firing(t, tx)
	}
	if fires := ask(t, ""); len(fires) > 0 {
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

// Results may be gone after seven days of the server's time, and no earlier.
func TestResultsMayBePurged(t *testing.T) {
	conn := openRows(t)
	for refreshed, want := range map[string][]string{
		"2031-01-07 23:00": {"result_per_booking", "result_per_change"},
		"2031-01-08 01:00": nil,
	} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), goodRows()+`delete from booking_operations; update schedule_refreshes set refreshed_at = '`+refreshed+`'`)
		if err != nil {
			t.Fatal(err)
		}
		if got := firing(t, tx); !slices.Equal(got, want) {
			t.Errorf("at %s: %v, want %v", refreshed, got, want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// invariantNames are those of the checks that hold always.
func invariantNames(t *testing.T) (names []string) {
	t.Helper()
	for _, c := range always() {
		if c.SQL != "" {
			names = append(names, strings.TrimSuffix(path.Base(c.Rule), ".sql"))
		}
	}
	if len(names) < 15 {
		t.Fatalf("only %d invariants", len(names))
	}
	slices.Sort(names)
	return names
}

// firing gives the invariants that return a row, asked as the conductor asks.
func firing(t *testing.T, tx pgx.Tx) (names []string) {
	t.Helper()
	for _, name := range invariantNames(t) {
		text, err := invariants.ReadFile("invariants/" + name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		rows, err := tx.Query(t.Context(), "select to_jsonb(r) from (\n"+strings.TrimSpace(string(text))+"\n) r")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		documents, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(documents) > 0 {
			if !json.Valid(documents[0]) {
				t.Errorf("%s: %s", name, documents[0])
			}
			names = append(names, name)
		}
	}
	return names
}
