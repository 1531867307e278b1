package tickets

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// soundly checks what must hold of the records after any run.
func (s *shop) soundly() {
	s.t.Helper()
	for what, sql := range unsound {
		if n := scan[int](s, sql); n != 0 {
			s.t.Errorf("%d %s", n, what)
		}
	}
}

// unsound counts what must not be there.
var unsound = map[string]string{
	"seats that belong to a hold that does not say so": `
		select count(*) from seats s join holds h using (hold_id) where (s.show_id, s.seat) <> (h.show_id, h.seat)
		or (s.state = 'SOLD') <> (h.state = 'CONFIRMED') or s.state = 'HELD' and h.state <> 'RESERVED'
		or s.state = 'QUARANTINED' and not exists (select from charges c where c.hold_id = h.hold_id and c.state = 'CHARGING')`,
	"holds without the seat that is theirs": `
		select count(*) from holds h where state in ('RESERVED', 'CONFIRMED') and not exists (select from seats s where s.hold_id = h.hold_id)`,
	"seats with two sold holds": `
		select count(*) from (select 1 from holds where state = 'CONFIRMED' group by show_id, seat having count(*) > 1) x`,
	"sold seats without a captured winning charge of their amount": `
		select count(*) from holds h left join charges c on c.charge_id = h.winning_charge
		where h.state = 'CONFIRMED' and (c.state, c.hold_id, c.captured_amount, c.captured_currency) is distinct from ('CAPTURED', h.hold_id, h.amount, h.currency)`,
	"captures that neither pay for a seat nor go back, or both": `
		select count(*) from charges c join holds h using (hold_id) left join refunds r using (charge_id)
		where c.captured_amount is not null and (h.winning_charge is not distinct from c.charge_id) = (r.refund_id is not null)`,
	"refunds of another amount or payment than was captured": `
		select count(*) from refunds r join charges c using (charge_id)
		where (r.payment_id, r.amount, r.currency) is distinct from (c.payment_id, c.captured_amount, c.captured_currency)`,
	"logins with two checkouts": `select count(*) from (select 1 from holds where state = 'RESERVED' group by login having count(*) > 1) x`,
	"holds whose version is not the number of their last audit row": `
		select count(*) from holds h where version is distinct from (select max(seq) from ticket_audit a where a.hold_id = h.hold_id)`,
	"holds whose history has gaps": `
		select count(*) from (select 1 from ticket_audit group by hold_id having count(*) <> max(seq) or min(seq) <> 1) x`,
	"states that the history does not tell": `
		select count(*) from (
		  select 'hold' subject, hold_id::text id, state, hold_id from holds
		  union all select 'charge', charge_id::text, state, hold_id from charges
		  union all select 'refund', refund_id::text, r.state, hold_id from refunds r join charges using (charge_id)) x
		where state is distinct from (select to_state from ticket_audit a where a.hold_id = x.hold_id and a.subject = x.subject and subject_id = id order by seq desc limit 1)`,
	"transitions that do not begin where the last one ended": `
		select count(*) from (select from_state, subject, lag(to_state) over (partition by hold_id, subject, subject_id order by seq) before from ticket_audit) x
		where from_state is distinct from before and subject <> 'seat'`,
	"quarantines that the history does not tell": `
		select count(*) from seats s join holds h using (hold_id) where (s.state = 'QUARANTINED') <> coalesce((
		  select to_state = 'QUARANTINED' from ticket_audit a where a.hold_id = h.hold_id and subject = 'seat' order by seq desc limit 1), false)`,
	"audit rows without their event, or events without their row": `
		select count(*) from ticket_audit a full join outbox o using (hold_id, seq)
		where a.hold_id is null or o.hold_id is null or o.type <> a.subject || '.' || lower(a.to_state)`,
}

// scan reads one value from the database.
func scan[T any](s *shop, sql string, args ...any) (v T) {
	s.t.Helper()
	if err := s.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// rows counts everything that calls may have written.
func (s *shop) rows() string {
	s.t.Helper()
	return scan[string](s, `select concat_ws(' ', (select count(*) from shows), (select string_agg(state || coalesce(hold_id::text, ''), ',' order by show_id, rank) from seats),
		(select string_agg(state || version, ',' order by hold_id) from holds), (select string_agg(state || coalesce(payment_id, '-'), ',' order by charge_id) from charges),
		(select string_agg(state || attempts, ',' order by refund_id) from refunds), (select count(*) from provider_events),
		(select count(*) from ticket_audit), (select count(*) from outbox))`)
}

// lock runs a statement in a transaction of the test and keeps its locks until
// the function is called.
func (s *shop) lock(sql string, args ...any) (release func()) {
	s.t.Helper()
	commit := s.lockOnly(sql, args...)
	return func() { commit("rollback") }
}

// lockOnly is lock, and has the transaction run another statement and commit.
func (s *shop) lockOnly(sql string, args ...any) (commit func(last string)) {
	s.t.Helper()
	tx, err := s.db.Begin(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // a second end does nothing
	if _, err := tx.Exec(context.Background(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return func(last string) {
		if last != "rollback" {
			if _, err := tx.Exec(context.Background(), last); err != nil {
				s.t.Errorf("%s: %v", last, err)
			}
			if err := tx.Commit(context.Background()); err != nil {
				s.t.Errorf("commit: %v", err)
			}
		}
		_ = tx.Rollback(context.Background())
	}
}

// awaitWaiting waits until n sessions of the replica wait for a lock.
func (s *shop) awaitWaiting(n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d sessions that wait for a lock", n), func() (string, bool) {
		got := scan[int](s, "select count(*) from pg_stat_activity where application_name = 'sut-1' and wait_event_type = 'Lock' and datname = current_database()")
		return strconv.Itoa(got), got == n
	})
}

// eventually asks until the answer will do.
func eventually(t *testing.T, what string, ask func() (string, bool)) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	again := time.NewTicker(3 * time.Millisecond)
	defer again.Stop()
	for {
		seen, ok := ask()
		if ok {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s, last saw %q", what, seen)
		}
	}
}

// lines reads one column of text.
func (s *shop) lines(sql string, args ...any) []string {
	s.t.Helper()
	rows, err := s.db.Query(context.Background(), sql, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return out
}
