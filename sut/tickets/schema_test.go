package tickets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// refusal is the code of an error of Postgres, "" when there is none.
func (s *shop) refusal(sql string, args ...any) string {
	s.t.Helper()
	_, err := s.db.Exec(context.Background(), sql, args...)
	if err == nil {
		return ""
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return pg.Code
}

// refused fails the test unless the statement is refused with the code, and by
// the rule that is meant.
func (s *shop) refused(code, sql string, args ...any) {
	s.t.Helper()
	if got := s.refusal(sql, args...); got != code {
		s.t.Errorf("%s: code %q, want %s", sql, got, code)
	}
}

// exec runs a statement that must do.
func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	if code := s.refusal(sql, args...); code != "" {
		s.t.Fatalf("%s: code %s", sql, code)
	}
}

// What the database says when it refuses.
const (
	notUnique = "23505"
	noCheck   = "23514"
	history   = "23001" // restrict_violation: arrows, guards, what is kept
)

// The contract's arrows, again, as the database must have them.
var arrows = map[string][]string{
	"holds":   {"RESERVED CONFIRMED", "RESERVED EXPIRED", "RESERVED RELEASED"},
	"seats":   {"FREE HELD", "HELD SOLD", "HELD FREE", "HELD QUARANTINED", "QUARANTINED SOLD", "QUARANTINED FREE"},
	"charges": {"CHARGING CAPTURED", "CHARGING DECLINED", "CHARGING FAILED", "CHARGING REFUND_RESOLVED", "CAPTURED REFUNDING", "REFUNDING REFUNDED"},
	"refunds": {"PENDING DONE"},
}

var states = map[string][]string{
	"holds": {"RESERVED", "CONFIRMED", "EXPIRED", "RELEASED"}, "seats": {"FREE", "HELD", "QUARANTINED", "SOLD"},
	"charges": {"CHARGING", "CAPTURED", "DECLINED", "FAILED", "REFUNDING", "REFUNDED", "REFUND_RESOLVED"}, "refunds": {"PENDING", "DONE"},
}

// inState makes the only row of a table be in a state, however it got there.
var inState = map[string]string{
	"holds": `update holds set state = $1, ended_at = case when $1 <> 'RESERVED' then now() end,
		winning_charge = case when $1 = 'CONFIRMED' then (select charge_id from charges) end`,
	"seats":   `update seats set state = $1, hold_id = case when $1 <> 'FREE' then (select hold_id from holds) end`,
	"charges": `update charges set state = $1, resolved_at = case when $1 <> 'CHARGING' then now() end, resolved_by = case when $1 <> 'CHARGING' then 'callback' end`,
	"refunds": `update refunds set state = $1, done_at = case when $1 = 'DONE' then now() end`,
}

// withRow gives a shop with one row of each kind: a charge that was captured
// too late, and its refund.
func withRow(t *testing.T) *shop {
	t.Helper()
	s := newShop(t, 1, releasing)
	hold, charge := s.inFlight("member-1", "A-1")
	s.later(s.cfg.Hold)
	s.told(event("e1", eventCaptured, "pay_1", charge, hold, 4500), "applied")
	return s
}

func TestArrows(t *testing.T) {
	s := withRow(t)
	for table, all := range states {
		for _, from := range all {
			s.exec("set session_replication_role = replica; " + fill(inState[table], from) + "; set session_replication_role = origin")
			for _, to := range all {
				if to == from {
					continue
				}
				code := s.refusal("begin; " + fill(inState[table], to) + "; rollback")
				if code != "" {
					s.exec("rollback")
				}
				if allowed := slices.Contains(arrows[table], from+" "+to); allowed != (code == "") || !allowed && code != history {
					t.Errorf("%s from %s to %s: code %q, allowed is %v", table, from, to, code, allowed)
				}
			}
		}
	}
}

// fill puts a word into a statement, so that several can go in one message.
func fill(sql, word string) string { return strings.ReplaceAll(sql, "$1", "'"+word+"'") }

func TestHistoryStays(t *testing.T) {
	s := withRow(t)
	before := s.rows()
	for _, table := range []string{"ticket_audit", "provider_events"} {
		s.refused(history, "delete from "+table)
	}
	s.refused(history, "truncate ticket_audit")
	s.refused(history, "update ticket_audit set reason = 'another'")
	s.refused(history, "update provider_events set result = 'noted'")
	for _, table := range []string{"outbox", "holds", "charges", "refunds", "seats"} {
		s.refused(history, "delete from "+table)
	}
	for _, change := range []string{
		"holds set seat = 'A-2'", "holds set login = 'member-2'", "holds set amount = 1", "holds set currency = 'USD'", "holds set policy = 'quarantine'",
		"holds set expires_at = expires_at + '1 hour'",
		"charges set amount = 1", "charges set card = 'x'", "charges set intent = 'x'", "charges set payment_id = 'pay_2'", "charges set payment_id = null",
		"charges set captured_amount = 1", "charges set captured_amount = null, captured_currency = null", "charges set sent_at = now()",
		"refunds set amount = 1", "refunds set payment_id = 'x'",
		"outbox set payload = '{}'", "outbox set seq = 99", "outbox set type = 'x'",
	} {
		s.refused(history, "update "+change)
	}
	if after := s.rows(); after != before {
		t.Errorf("rows changed:\n%s\n%s", before, after)
	}
}

func TestWinnerStays(t *testing.T) {
	s := newShop(t, 1)
	hold := s.held("member-1", "A-1")
	charge := wants(t, s.charge("member-1", hold), "201").str("charge_id")
	s.told(event("e1", eventCaptured, "pay_9", charge, hold, 4500), "applied") // a second payment
	s.refused(history, "update holds set winning_charge = (select charge_id from charges where state = 'REFUNDING')")
	s.refused(history, "update holds set winning_charge = null, state = 'EXPIRED'")
}

func TestOneOfEach(t *testing.T) {
	s := newShop(t, 3)
	hold, charge := s.inFlight("member-1", "A-1")
	other := s.held("member-2", "A-2")
	wants(t, s.charge("member-2", other), "201") // pay_2
	s.refused(notUnique, `insert into holds (hold_id, show_id, seat, login, state, amount, currency, policy, created_at, expires_at)
		values (gen_random_uuid(), 1, 'A-3', 'member-1', 'RESERVED', 1, 'EUR', 'release', now(), now())`)
	s.refused(notUnique, fmt.Sprintf(`insert into charges (charge_id, hold_id, intent, amount, currency, card, state, origin, sent_at)
		values (gen_random_uuid(), '%s', 'x', 1, 'EUR', '', 'CHARGING', 'request', now())`, hold))
	s.refused(notUnique, "update charges set payment_id = 'pay_2' where charge_id = $1::text::uuid", charge)
	s.refused(noCheck, "update seats set hold_id = null where seat = 'A-1'")
	s.refused(noCheck, "update holds set state = 'CONFIRMED', ended_at = now() where hold_id = $1::text::uuid", hold) // who won?
	s.refused(noCheck, "update charges set state = 'CAPTURED', resolved_at = now(), resolved_by = 'callback' where charge_id = $1::text::uuid", charge)
	s.told(event("e1", eventCaptured, "pay_9", charge, hold, 1), "applied")
	refund := `insert into refunds (refund_id, charge_id, payment_id, amount, currency, reason, state, next_attempt_at, created_at)
		values (gen_random_uuid(), $1::text::uuid, $2, 1, 'EUR', '', 'PENDING', now(), now())`
	s.refused(notUnique, refund, charge, "pay_10")
	s.refused(notUnique, refund, s.order(other).Charges[0].Charge, "pay_9")
}
