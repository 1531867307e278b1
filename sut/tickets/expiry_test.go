package tickets

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
)

func (b *backstage) expiry() *expiry {
	b.t.Helper()
	return newExpiry(b.store(), b.cfg)
}

// tick makes one pass.
func (b *backstage) tick(e *expiry) {
	b.t.Helper()
	if err := e.pass(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func TestHoldsRunOut(t *testing.T) {
	b := newBackstage(t)
	young, old := b.hold(7*time.Minute+50*time.Second, policyQuarantine), b.hold(8*time.Minute, policyQuarantine)
	e := b.expiry()
	b.tick(e)
	b.is(young, "RESERVED HELD")
	b.is(old, "EXPIRED -")
	b.later(11 * time.Second)
	b.tick(e)
	b.is(young, "EXPIRED -")
	if n := row[int](b, `select count(*) from seats where state = 'FREE'`); n != 2 {
		t.Errorf("%d seats are free, want both", n)
	}
	if who := row[string](b, `select string_agg(subject || ' ' || to_state || ' by ' || actor, ', ') from ticket_audit where hold_id = $1`, young); who != "hold EXPIRED by server" {
		t.Errorf("history is %q", who)
	}
}

// What becomes of a seat whose payment is in flight when its hold runs out is
// the show's policy.
func TestRunningOutWithAChargeInFlight(t *testing.T) {
	b := newBackstage(t)
	kept, let := b.hold(8*time.Minute, policyQuarantine), b.hold(8*time.Minute, policyRelease)
	b.sent(let, 10*time.Second)
	charge := b.sent(kept, 10*time.Second)
	e := b.expiry()
	b.tick(e)
	b.is(kept, "RESERVED QUARANTINED CHARGING")
	b.is(let, "EXPIRED - CHARGING")
	b.tick(e)
	if n := row[int](b, `select version from holds where hold_id = $1`, kept); n != 1 {
		t.Errorf("the quarantine has %d transitions, want 1", n)
	}
	if waits := b.lookup(e, sqlRunningOut, b.now()); waits != 0 {
		t.Errorf("%d orders are looked up again at each tick while their seats wait for a payment", waits)
	}
	// When the charge ends without our doing, the next tick ends the rest.
	b.over(charge, "DECLINED", byCallback, b.now())
	b.tick(e)
	b.is(kept, "EXPIRED - DECLINED")
}

// lookup gives how many orders a query of the expiry finds.
func (b *backstage) lookup(e *expiry, sql string, until time.Time) (n int) {
	b.t.Helper()
	rows, err := e.st.Pool().Query(b.t.Context(), sql, until, time.Time{}, uuid.Nil, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n
}

func TestHardTimeout(t *testing.T) {
	b := newBackstage(t)
	now := []uuid.UUID{b.hold(16*time.Minute, policyQuarantine), b.hold(16*time.Minute, policyRelease)}
	soon := b.hold(16*time.Minute, policyQuarantine)
	lively := b.hold(time.Minute, policyQuarantine) // its member came back with another card after a quarter of an hour: not with these settings
	for _, hold := range now {
		b.sent(hold, 15*time.Minute)
	}
	b.sent(soon, 14*time.Minute+50*time.Second)
	b.sent(lively, 15*time.Minute)
	e := b.expiry()
	b.tick(e)
	b.is(now[0], "EXPIRED - REFUND_RESOLVED")
	b.is(now[1], "EXPIRED - REFUND_RESOLVED")
	b.is(soon, "RESERVED QUARANTINED CHARGING")
	b.is(lively, "RESERVED HELD REFUND_RESOLVED")
	b.later(11 * time.Second)
	b.tick(e)
	b.is(soon, "EXPIRED - REFUND_RESOLVED")
	if n := row[int](b, `select count(*) from charges where resolved_by = 'hard-timeout' and next_ask_at is not null`); n != 4 {
		t.Errorf("%d are still asked about, want all 4", n)
	}
}

// Two replicas end the same things, in pages, and an order that can't be ended
// is in nobody's way.
func TestExpiryByTwoReplicas(t *testing.T) {
	b := newBackstage(t)
	const n = expiryPage + 10
	b.exec(`with h as (
		insert into holds (hold_id, show_id, seat, login, state, amount, currency, policy, created_at, expires_at)
		select gen_random_uuid(), 1, 'B-' || i, 'crowd-' || i, 'RESERVED', 4500, 'EUR', 'quarantine', $1, $2 from generate_series(1, $3) i returning hold_id, seat)
		insert into seats (show_id, seat, rank, state, hold_id, changed_at) select 1, seat, 1, 'HELD', hold_id, $1 from h`, b.now().Add(-9*time.Minute), b.now().Add(-time.Minute), n)
	broken := b.hold(20*time.Minute, policyQuarantine) // the very first
	b.exec(`update seats set state = 'SOLD' where hold_id = $1`, broken)
	one := b.expiry()
	err := one.pass(t.Context())
	if _, ok := errors.AsType[*brokenOrder](err); !ok {
		t.Errorf("the pass says %v, want which order is broken", err)
	}
	if left := row[int](b, `select count(*) from holds where state = 'RESERVED'`); left != 1 {
		t.Errorf("%d are left, want the broken one", left)
	}
	held := make([]uuid.UUID, 20)
	for i := range held {
		held[i] = b.hold(0, policyQuarantine)
	}
	running(t, one.run, b.expiry().run)
	b.later(8 * time.Minute)
	for _, hold := range held {
		b.becomes(hold, "EXPIRED -")
	}
	if got := row[int](b, `select count(*) from ticket_audit where subject = 'hold'`); got != n+len(held) {
		t.Errorf("%d transitions of holds, want %d", got, n+len(held))
	}
}

// A clock that is turned on wakes the tick, whatever its length.
func TestTickWakesWithTheClock(t *testing.T) {
	b := newBackstage(t)
	b.cfg.Tick = 8 * time.Minute
	hold := b.hold(time.Second, policyQuarantine)
	running(t, b.expiry().run)
	b.becomes(hold, "RESERVED HELD")
	b.later(8 * time.Minute)
	b.becomes(hold, "EXPIRED -")
}

// Holds run out while their captures come in: each order is decided one way or
// the other, whole.
func TestExpiryMeetsCaptures(t *testing.T) {
	b := newBackstage(t)
	b.cfg.Tick = time.Millisecond
	type sale struct {
		hold    uuid.UUID
		payment string
	}
	sales := make([]sale, 40)
	for i := range sales {
		ago := 8*time.Minute - time.Minute/2 // some are far from it
		if i%4 != 0 {
			ago = 8*time.Minute - time.Duration(i)*5*time.Millisecond
		}
		hold := b.hold(ago, policyRelease)
		sales[i] = sale{hold, b.bank.captures(b.sent(hold, 10*time.Second), hold)}
	}
	running(t, b.expiry().run, b.expiry().run)
	for _, s := range sales {
		b.callback(s.hold, func(ctx context.Context, o *order) (string, error) {
			return o.outcome(ctx, b.now(), b.bank.told(s.payment), byCallback)
		})
	}
	seen := map[string]int{}
	for _, s := range sales {
		seen[b.states(s.hold)]++
	}
	if seen["CONFIRMED SOLD CAPTURED"] < 10 || seen["EXPIRED - REFUNDING PENDING"] == 0 || len(seen) != 2 {
		t.Errorf("orders are %v", seen)
	}
}
