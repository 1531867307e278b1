package tickets

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
const migrations = "../../sut/tickets/migrations"

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
	db, err := env.Postgres.Clone(t.Context(), "", "tickets_rows")
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

// uid is the n-th id of its sort: h for holds, c for charges, r for refunds.
func uid(sort string, n int) string {
	return fmt.Sprintf("00000000-0000-4000-8%03d-%012d", map[string]int{"h": 1, "c": 2, "r": 3}[sort], n)
}

// rowsSQL builds rows as the server would write them, in one show of 4500 EUR.
type rowsSQL struct {
	b    strings.Builder
	last map[int]int // steps of each hold
}

func newRows() *rowsSQL { return &rowsSQL{last: map[int]int{}} }

func (r *rowsSQL) add(format string, args ...any) { fmt.Fprintf(&r.b, format+";\n", args...) }

func null(s string) string {
	if s == "" {
		return "null"
	}
	return "'" + s + "'"
}

// step is a row of the history with its event and its notice.
func (r *rowsSQL) step(hold int, login, subject, id, from, to string) {
	r.last[hold]++
	seq := r.last[hold]
	event := fmt.Sprintf("00000000-0000-4000-9%03d-%012d", hold, seq)
	r.add(`insert into ticket_audit (hold_id, seq, subject, subject_id, from_state, to_state, reason, actor, overbook_op, at) values ('%s', %d, '%s', '%s', %s, '%s', 'r', 'a', 'op-%d%d', '2031-01-01')`,
		uid("h", hold), seq, subject, id, null(from), to, hold, seq)
	r.add(`insert into outbox (event_id, hold_id, seq, type, payload, created_at, delivered_at) values ('%s', '%s', %d, '%s', '{}', '2031-01-01', '2031-01-01')`,
		event, uid("h", hold), seq, subject+"."+strings.ToLower(to))
	r.add(`insert into notices values ('%s', '%s', %d, '%s', '%s', '2031-01-01')`, event, uid("h", hold), seq, login, subject+"."+strings.ToLower(to))
	r.add(`update holds set version = %d where hold_id = '%s'`, seq, uid("h", hold))
}

// hold is the row of hold n on seat S-n or another, with its first step.
func (r *rowsSQL) hold(n int, seat, login, state, policy, winner string) {
	ended := "null"
	if state != "RESERVED" {
		ended = "'2031-01-01'"
	}
	r.add(`insert into holds values ('%s', 1, '%s', '%s', '%s', 4500, 'EUR', '%s', %s, 0, 'op-%d', '2031-01-01', '2031-01-01 00:08', %s)`,
		uid("h", n), seat, login, state, policy, null(winner), n, ended)
	r.step(n, login, "hold", uid("h", n), "", "RESERVED")
}

func (r *rowsSQL) holdEnds(n int, login, state string) {
	r.step(n, login, "hold", uid("h", n), "RESERVED", state)
}

// charge is the row of charge n; captured 0 is none.
func (r *rowsSQL) charge(n, hold int, payment, state string, captured int) {
	amount, currency := "null", "null"
	if captured > 0 {
		amount, currency = fmt.Sprint(captured), "'EUR'"
	}
	resolved, by := "'2031-01-01'", "'callback'"
	if state == "CHARGING" {
		resolved, by = "null", "null"
	}
	r.add(`insert into charges values ('%s', '%s', '%s', %s, 4500, 'EUR', 'card', '%s', 'request', %s, %s, '2031-01-01', %s, %s, null, null, 0, 'op-c%d', '')`,
		uid("c", n), uid("h", hold), uid("h", hold), null(payment), state, amount, currency, resolved, by, n)
}

// steps are those of one charge or refund, from nothing on.
func (r *rowsSQL) steps(hold int, login, subject, id string, states ...string) {
	before := ""
	for _, s := range states {
		r.step(hold, login, subject, id, before, s)
		before = s
	}
}

func (r *rowsSQL) refund(n, charge int, payment, state string, amount int) {
	done := "null"
	if state == "DONE" {
		done = "'2031-01-01'"
	}
	r.add(`insert into refunds values ('%s', '%s', '%s', %d, 'EUR', 'r', '%s', 1, '2031-01-01', null, null, '2031-01-01', %s)`,
		uid("r", n), uid("c", charge), payment, amount, state, done)
}

// seat is the row of a seat; hold 0 is none.
func (r *rowsSQL) seat(n int, state string, hold int) {
	id := ""
	if hold != 0 {
		id = uid("h", hold)
	}
	r.add(`insert into seats values (1, 'S-%d', %d, '%s', %s, '2031-01-01')`, n, n, state, null(id))
}

// bought is all rows of a hold that was paid for.
func (r *rowsSQL) bought(n int, seat, login string) {
	r.hold(n, seat, login, "CONFIRMED", "quarantine", uid("c", n))
	r.charge(n, n, fmt.Sprintf("pay_%d", n), "CAPTURED", 4500)
	r.steps(n, login, "charge", uid("c", n), "CHARGING", "CAPTURED")
	r.holdEnds(n, login, "CONFIRMED")
}

// goodRows is a world in which everything has happened once and nothing is wrong.
func goodRows() string {
	r := newRows()
	r.add(`set local session_replication_role = replica`) // rows stand as they are written
	r.add(`insert into shows values (1, '2031-01-01', 4500, 'EUR', 'quarantine', '2031-01-01')`)
	for i, s := range []struct {
		state string
		hold  int
	}{{"SOLD", 1}, {"HELD", 2}, {"HELD", 4}, {"HELD", 8}, {"FREE", 0}, {"QUARANTINED", 6}, {"SOLD", 7}, {"FREE", 0}} {
		r.seat(i+1, s.state, s.hold)
	}
	r.bought(1, "S-1", "member-1")
	r.hold(2, "S-2", "member-2", "RESERVED", "quarantine", "")
	dropped(r)
	r.hold(4, "S-3", "member-4", "RESERVED", "quarantine", "")
	givenUp(r)
	r.hold(6, "S-6", "member-6", "RESERVED", "quarantine", "") // waits in quarantine
	r.charge(6, 6, "", "CHARGING", 0)
	r.steps(6, "member-6", "charge", uid("c", 6), "CHARGING")
	r.step(6, "member-6", "seat", "S-6", "HELD", "QUARANTINED")
	twice(r)
	r.hold(8, "S-4", "member-1", "RESERVED", "quarantine", "") // another one of the same login
	return r.b.String()
}

// dropped is hold 3: given up with a payment in flight, which went back.
func dropped(r *rowsSQL) {
	const who = "member-3"
	r.hold(3, "S-3", who, "RELEASED", "quarantine", "")
	r.charge(3, 3, "pay_3", "REFUNDED", 4500)
	r.refund(3, 3, "pay_3", "DONE", 4500)
	r.steps(3, who, "charge", uid("c", 3), "CHARGING")
	r.holdEnds(3, who, "RELEASED")
	r.step(3, who, "seat", "S-3", "HELD", "QUARANTINED")
	r.step(3, who, "charge", uid("c", 3), "CHARGING", "CAPTURED")
	r.step(3, who, "refund", uid("r", 3), "", "PENDING")
	r.step(3, who, "charge", uid("c", 3), "CAPTURED", "REFUNDING")
	r.step(3, who, "seat", "S-3", "QUARANTINED", "FREE")
	r.step(3, who, "refund", uid("r", 3), "PENDING", "DONE")
	r.step(3, who, "charge", uid("c", 3), "REFUNDING", "REFUNDED")
}

// givenUp is hold 5: its charge was given up and captured after all.
func givenUp(r *rowsSQL) {
	const who = "member-5"
	r.hold(5, "S-5", who, "EXPIRED", "quarantine", "")
	r.charge(5, 5, "pay_5", "REFUND_RESOLVED", 4500)
	r.refund(5, 5, "pay_5", "PENDING", 4500)
	r.steps(5, who, "charge", uid("c", 5), "CHARGING", "REFUND_RESOLVED")
	r.holdEnds(5, who, "EXPIRED")
	r.steps(5, who, "refund", uid("r", 5), "PENDING")
}

// twice is hold 7: declined, paid for with another card, and charged once more
// by the provider itself.
func twice(r *rowsSQL) {
	const who = "member-7"
	r.hold(7, "S-7", who, "CONFIRMED", "release", uid("c", 71))
	r.charge(70, 7, "pay_70", "DECLINED", 0)
	r.charge(71, 7, "pay_71", "CAPTURED", 4500)
	r.charge(72, 7, "pay_72", "REFUNDING", 9000)
	r.refund(72, 72, "pay_72", "PENDING", 9000)
	r.steps(7, who, "charge", uid("c", 70), "CHARGING", "DECLINED")
	r.steps(7, who, "charge", uid("c", 71), "CHARGING", "CAPTURED")
	r.holdEnds(7, who, "CONFIRMED")
	r.steps(7, who, "charge", uid("c", 72), "CAPTURED")
	r.steps(7, who, "refund", uid("r", 72), "PENDING")
	r.step(7, who, "charge", uid("c", 72), "CAPTURED", "REFUNDING")
}

// build gives the rows that a few steps make on top of the good ones.
func build(steps func(*rowsSQL)) string {
	r := newRows()
	r.last = map[int]int{1: 4, 2: 1, 3: 10, 4: 1, 5: 5, 6: 3, 7: 9, 8: 1} // steps that the good rows have
	steps(r)
	return r.b.String()
}

// free takes constraints away that keep bad rows out, as a server would be
// without them.
const free = `alter table holds drop constraint holds_winning_charge_key, drop constraint holds_check; drop index holds_one_checkout;
alter table charges drop constraint charges_payment_id_key; alter table refunds drop constraint refunds_charge_id_key, drop constraint refunds_payment_id_key;
alter table ticket_audit drop constraint ticket_audit_hold_id_seq_key; alter table outbox drop constraint outbox_hold_id_seq_key;
alter table seats drop constraint seats_check;
`

// badRows are changes of the good rows and the invariants that must see them;
// all others must not.
var badRows = []struct {
	name, sql string
	fires     []string
}{
	{"sold twice", build(func(r *rowsSQL) { r.bought(20, "S-1", "member-20") }), []string{"one_confirmed_per_seat", "sold_is_paid", "own_seat", "seat_changes_hands"}},
	{"sold to nobody", `update seats set state = 'SOLD' where seat = 'S-2'`, []string{"sold_is_paid"}},
	{"confirmed and not sold", `update seats set state = 'HELD' where seat = 'S-1'`, []string{"sold_is_paid", "own_seat"}},
	{"paid for with too little", `update charges set captured_amount = 4499 where payment_id = 'pay_1'`, []string{"sold_is_paid"}},
	{"paid for in another currency", `update charges set captured_currency = 'JPY' where payment_id = 'pay_1'`, []string{"sold_is_paid"}},
	{
		"paid for by a charge of another hold", free + `update holds set winning_charge = '` + uid("c", 71) + `' where hold_id = '` + uid("h", 1) + `'`,
		[]string{"sold_is_paid", "captured_goes_somewhere"},
	},
	{"paid for by nothing", free + `update holds set winning_charge = null where hold_id = '` + uid("h", 1) + `'`, []string{"sold_is_paid", "captured_goes_somewhere"}},
	{"revived", build(func(r *rowsSQL) { // S-I4: an expired hold gets its seat
		r.step(5, "member-5", "hold", uid("h", 5), "EXPIRED", "CONFIRMED")
		r.add(free)
		r.add(`update holds set state = 'CONFIRMED' where hold_id = '%s'; update seats set state = 'SOLD', hold_id = '%s' where seat = 'S-5'`, uid("h", 5), uid("h", 5))
	}), []string{"steps_follow_arrows", "sold_is_paid"}},
	{"declined after it was captured", build(func(r *rowsSQL) {
		r.step(7, "member-7", "charge", uid("c", 71), "CAPTURED", "DECLINED")
		r.add(`update charges set state = 'DECLINED' where payment_id = 'pay_71'`)
	}), []string{"steps_follow_arrows", "sold_is_paid"}},
	{"a step from nowhere", build(func(r *rowsSQL) {
		r.step(5, "member-5", "charge", uid("c", 5), "REFUNDING", "REFUNDED")
		r.add(`update charges set state = 'REFUNDED' where payment_id = 'pay_5'`)
	}), []string{"steps_follow_arrows", "captured_goes_somewhere"}},
	{"taken from who has it", build(func(r *rowsSQL) {
		r.hold(20, "S-2", "member-20", "RESERVED", "quarantine", "")
		r.add(`update seats set hold_id = '%s' where seat = 'S-2'`, uid("h", 20))
	}), []string{"seat_changes_hands", "own_seat"}},
	{"kept by a capture that came too late", `delete from refunds where payment_id = 'pay_5'; delete from ticket_audit where subject = 'refund' and hold_id = '` + uid("h", 5) + `';
delete from outbox where hold_id = '` + uid("h", 5) + `' and seq = 5; delete from notices where hold_id = '` + uid("h", 5) + `' and seq = 5; update holds set version = 4 where hold_id = '` + uid("h", 5) + `'`, []string{"captured_goes_somewhere"}},
	{"a refund of a payment that bought a seat", build(func(r *rowsSQL) {
		r.refund(20, 1, "pay_1", "PENDING", 4500)
		r.steps(1, "member-1", "refund", uid("r", 20), "PENDING")
	}), []string{"captured_goes_somewhere"}},
	{"a refund of less", `update refunds set amount = 8999 where payment_id = 'pay_72'`, []string{"captured_goes_somewhere"}},
	{"two refunds of one payment", free + build(func(r *rowsSQL) {
		r.refund(20, 72, "pay_72", "PENDING", 9000)
		r.steps(7, "member-7", "refund", uid("r", 20), "PENDING")
	}), []string{"captured_goes_somewhere"}},
	{"refunded before it is done", build(func(r *rowsSQL) {
		r.step(7, "member-7", "charge", uid("c", 72), "REFUNDING", "REFUNDED")
		r.add(`update charges set state = 'REFUNDED' where payment_id = 'pay_72'`)
	}), []string{"captured_goes_somewhere"}},
	{"a quarantine that was not kept", build(func(r *rowsSQL) { // expired, and sold on, with a charge in flight
		r.step(6, "member-6", "seat", "S-6", "QUARANTINED", "FREE")
		r.holdEnds(6, "member-6", "EXPIRED")
		r.add(`update holds set state = 'EXPIRED', ended_at = '2031-01-01' where hold_id = '%s'`, uid("h", 6))
		r.hold(20, "S-6", "member-20", "RESERVED", "quarantine", "")
		r.add(`update seats set state = 'HELD', hold_id = '%s' where seat = 'S-6'`, uid("h", 20))
	}), []string{"quarantine_is_kept"}},
	{"two checkouts", free + build(func(r *rowsSQL) {
		r.hold(20, "S-8", "member-2", "RESERVED", "quarantine", "")
		r.add(`update seats set state = 'HELD', hold_id = '%s' where seat = 'S-8'`, uid("h", 20))
	}), []string{"one_checkout_per_login"}},
	{"two checkouts, one of them over since", build(func(r *rowsSQL) {
		r.add(`update holds set state = 'EXPIRED', ended_at = '2031-01-01' where hold_id = '%s'`, uid("h", 2))
		r.hold(20, "S-8", "member-2", "RESERVED", "quarantine", "")
		r.holdEnds(2, "member-2", "EXPIRED")
		r.add(`update seats set state = 'HELD', hold_id = '%s' where seat = 'S-8'; update seats set state = 'FREE', hold_id = null where seat = 'S-2'`, uid("h", 20))
	}), []string{"one_checkout_per_login"}},
	{"expiry of somebody else's seat", `update seats set state = 'FREE', hold_id = null where seat = 'S-2'`, []string{"own_seat"}},
	{"a seat of a hold that is over", `update seats set state = 'HELD', hold_id = '` + uid("h", 5) + `' where seat = 'S-5'`, []string{"own_seat"}},
	{
		"in quarantine for nothing", `update seats set state = 'QUARANTINED' where seat = 'S-2'`,
		[]string{"own_seat", "history_replays"},
	},
	{"no history", `delete from ticket_audit where hold_id = '` + uid("h", 8) + `'`, []string{"history_without_gaps", "history_replays", "event_per_step"}},
	{"a version ahead of the history", `update holds set version = 9 where hold_id = '` + uid("h", 8) + `'`, []string{"history_without_gaps"}},
	{"a refund that the history does not know", `update refunds set state = 'DONE', done_at = '2031-01-01' where payment_id = 'pay_5'`, []string{"history_replays"}},
	{"a quarantine that the history does not know", build(func(r *rowsSQL) {
		r.charge(20, 2, "", "CHARGING", 0)
		r.steps(2, "member-2", "charge", uid("c", 20), "CHARGING")
		r.add(`update seats set state = 'QUARANTINED' where seat = 'S-2'`)
	}), []string{"history_replays"}},
	{"no event", `delete from outbox where hold_id = '` + uid("h", 8) + `'; delete from notices where hold_id = '` + uid("h", 8) + `'`, []string{"event_per_step"}},
	{"an event of another type", `update outbox set type = 'hold.sold' where hold_id = '` + uid("h", 8) + `'`, []string{"event_per_step"}},
	{"an event of nothing", `insert into outbox (hold_id, seq, type, payload, created_at, delivered_at, parked_at) values ('` + uid("h", 8) + `', 9, 'hold.reserved', '{}', '2031-01-01', null, '2031-01-01')`, []string{"event_per_step"}},
	{"no notice", `delete from notices where hold_id = '` + uid("h", 8) + `'`, []string{"notice_per_event"}},
	{"a notice to somebody else", `update notices set login = 'member-9' where hold_id = '` + uid("h", 8) + `'`, []string{"notice_per_event"}},
	{"two notices of one event", `insert into notices select gen_random_uuid(), hold_id, seq, login, type, at from notices where hold_id = '` + uid("h", 8) + `'`, []string{"notice_per_event"}},
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

// TestSnapshotsSeeTornSeats asks the sampler's query about good and bad rows.
func TestSnapshotsSeeTornSeats(t *testing.T) {
	conn := openRows(t)
	for sql, want := range map[string]int{
		"": 0,
		`update seats set state = 'FREE', hold_id = null where seat = 'S-2'`:                                                                  1, // a hold without its seat
		`update seats set state = 'HELD' where seat = 'S-1'`:                                                                                  1, // sold and not
		`update seats set state = 'SOLD' where seat = 'S-2'`:                                                                                  1,
		`update seats set state = 'QUARANTINED' where seat = 'S-2'`:                                                                           1, // with nothing in flight
		`update charges set state = 'REFUNDING' where payment_id = 'pay_1'`:                                                                   1, // sold for money that goes back
		`update seats set hold_id = '` + uid("h", 2) + `' where seat = 'S-3'`:                                                                 2, // of another seat
		`update seats set state = 'HELD', hold_id = '` + uid("h", 5) + `' where seat = 'S-5'`:                                                 1,
		`update seats set state = 'FREE', hold_id = null; update holds set state = 'EXPIRED', ended_at = created_at where state = 'RESERVED'`: 2, // the confirmed ones
	} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), goodRows()+sql); err != nil {
			t.Fatal(err)
		}
		rows, err := tx.Query(t.Context(), "select to_jsonb(r) from (\n"+seatsNow+"\n) r")
		if err != nil {
			t.Fatal(err)
		}
		documents, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			t.Fatal(err)
		}
		if got := len(documents) - 1; got != want {
			t.Errorf("%q: %d rows, want %d: %s", sql, got, want, documents)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
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
	if len(names) < 12 {
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
