package tickets

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// States of the automata; the schema has their arrows.
const (
	holdReserved  = "RESERVED"
	holdConfirmed = "CONFIRMED"
	holdExpired   = "EXPIRED"
	holdReleased  = "RELEASED"

	seatFree        = "FREE"
	seatHeld        = "HELD"
	seatQuarantined = "QUARANTINED"
	seatSold        = "SOLD"

	chargeCharging       = "CHARGING"
	chargeCaptured       = "CAPTURED"
	chargeDeclined       = "DECLINED"
	chargeFailed         = "FAILED"
	chargeRefunding      = "REFUNDING"
	chargeRefunded       = "REFUNDED"
	chargeRefundResolved = "REFUND_RESOLVED"

	refundPending = "PENDING"
	refundDone    = "DONE"
)

// A hold owns the seat.
type hold struct {
	id                   uuid.UUID
	show                 int64
	seat, login, state   string
	amount               int64 // minor units
	currency, policy     string
	winner               *uuid.UUID // the charge that pays for the seat
	version              int32      // number of the last audit row
	createdAt, expiresAt time.Time
}

// A charge owns the money of one attempt.
type charge struct {
	id, hold         uuid.UUID
	intent           string
	payment          *string // the provider's id of the attempt
	amount           int64
	currency, card   string
	state, origin    string
	captured         *int64 // what the provider says it took
	capturedCurrency *string
	sentAt           time.Time
	resolvedAt       *time.Time
	settledAt        *time.Time // of a given-up one: the provider has decided after all
	nextAskAt        *time.Time
	asked            int
	op, traceparent  string
}

// A refund is money that goes back.
type refund struct {
	id, charge    uuid.UUID
	payment       string
	amount        int64
	currency      string
	reason, state string
	attempts      int
	nextAttemptAt time.Time
	lastError     *string
	parkedAt      *time.Time
}

// A seat is the seat of the hold; no state when the hold does not have it.
type seat struct{ state string }

// An order is a hold with all that belongs to it, under the hold's row lock, in
// a transaction. What changes it writes the state at once, and the history when
// the transaction ends.
type order struct {
	tx  pgx.Tx
	by  cause
	cfg Config

	hold    hold
	charges []charge
	refunds []refund
	seat    seat

	changes []change
}

// inFlight is the charge of which nobody knows what became, nil when there is none.
func (o *order) inFlight() *charge {
	for i := range o.charges {
		if o.charges[i].state == chargeCharging {
			return &o.charges[i]
		}
	}
	return nil
}

func (o *order) chargeByID(id uuid.UUID) *charge {
	for i := range o.charges {
		if o.charges[i].id == id {
			return &o.charges[i]
		}
	}
	return nil
}

// runsOut reports a hold whose time is over though it has not ended.
func (o *order) runsOut(now time.Time) bool {
	return o.hold.state == holdReserved && !now.Before(o.hold.expiresAt)
}

// kept reports that the seat must wait for a payment.
func (o *order) kept() bool { return o.hold.policy == policyQuarantine && o.inFlight() != nil }

// expire ends a hold that has run out and that nothing keeps. The rule does
// that, whoever comes by: it is written down as the server's.
func (o *order) expire(ctx context.Context, now time.Time) (bool, error) {
	if !o.runsOut(now) || o.kept() {
		return false, nil
	}
	if err := o.endHold(ctx, now, holdExpired, nil, "ran out", cause{actor: actorServer}); err != nil {
		return false, err
	}
	return true, o.freeSeat(ctx, now, "hold ran out")
}

// runOut applies the rule of a hold that has run out: it is EXPIRED and its
// seat FREE, or its seat is QUARANTINED while a payment keeps it. Nothing of
// that when the hold has time left, or it was done before.
func (o *order) runOut(ctx context.Context, now time.Time) (changed bool, err error) {
	if !o.runsOut(now) {
		return false, nil
	}
	if !o.kept() {
		return o.expire(ctx, now)
	}
	if o.seat.state != seatHeld {
		return false, nil
	}
	return true, o.quarantine(ctx, now, "hold ran out with a payment in flight")
}

// release ends a RESERVED hold by its member's wish.
func (o *order) release(ctx context.Context, now time.Time) error {
	keep := o.kept()
	if err := o.endHold(ctx, now, holdReleased, nil, "released by its member", o.by); err != nil {
		return err
	}
	if !keep {
		return o.freeSeat(ctx, now, "hold released")
	}
	if o.seat.state == seatQuarantined {
		return nil
	}
	return o.quarantine(ctx, now, "hold released with a payment in flight")
}

// afterwards is what a charge that resolved without paying for the seat leaves
// to do: a quarantine that waited for it ends.
func (o *order) afterwards(ctx context.Context, now time.Time) error {
	if _, err := o.expire(ctx, now); err != nil {
		return err
	}
	if o.seat.state != seatQuarantined || o.hold.state == holdReserved || o.inFlight() != nil {
		return nil
	}
	return o.freeSeat(ctx, now, "the payment resolved")
}

// giveUp ends a charge at the hard timeout. The provider is still asked about
// it: a capture that comes late goes back.
func (o *order) giveUp(ctx context.Context, now time.Time, c *charge) error {
	if c.state != chargeCharging {
		return nil
	}
	ask := now
	if c.nextAskAt != nil && c.nextAskAt.After(now) {
		ask = *c.nextAskAt
	}
	if err := o.resolve(ctx, now, c, chargeRefundResolved, payment{}, "hard-timeout", &ask); err != nil {
		return err
	}
	return o.afterwards(ctx, now)
}

// failed ends a charge that surely was not taken. It is asked about once, late:
// the provider may know better.
func (o *order) failed(ctx context.Context, now time.Time, c *charge) error {
	if c.state != chargeCharging {
		return nil
	}
	ask := c.sentAt.Add(o.cfg.HardTimeout)
	if err := o.resolve(ctx, now, c, chargeFailed, payment{}, byAnswer, &ask); err != nil {
		return err
	}
	return o.afterwards(ctx, now)
}

// endHold moves the hold to where it ends.
func (o *order) endHold(ctx context.Context, now time.Time, to string, winner *uuid.UUID, reason string, by cause) error {
	if err := o.one(ctx, "end the hold as "+to, sqlEndHold, o.hold.id, to, winner, now); err != nil {
		return err
	}
	o.note(subjectHold, o.hold.id.String(), o.hold.state, to, reason, by)
	o.hold.state, o.hold.winner = to, winner
	return nil
}

func (o *order) freeSeat(ctx context.Context, now time.Time, reason string) error {
	return o.moveSeat(ctx, now, sqlFreeSeat, seatFree, reason)
}

func (o *order) sellSeat(ctx context.Context, now time.Time, reason string) error {
	return o.moveSeat(ctx, now, sqlSellSeat, seatSold, reason)
}

func (o *order) quarantine(ctx context.Context, now time.Time, reason string) error {
	return o.moveSeat(ctx, now, sqlQuarantineSeat, seatQuarantined, reason)
}

// moveSeat changes the seat, which must be the hold's. What happens to a seat
// with its hold the hold's history tells; a quarantine has its own.
func (o *order) moveSeat(ctx context.Context, now time.Time, sql, to, reason string) error {
	if err := o.one(ctx, "make the seat "+to, sql, o.hold.show, o.hold.seat, o.hold.id, now); err != nil {
		return err
	}
	if o.seat.state == seatQuarantined || to == seatQuarantined {
		o.note(subjectSeat, o.hold.seat, o.seat.state, to, reason, o.by)
	}
	o.seat.state = to
	if to == seatFree {
		o.seat = seat{}
	}
	return nil
}

// one runs a statement that must change exactly one row: under the hold's lock
// it does, or the order is not what was read.
func (o *order) one(ctx context.Context, what, sql string, args ...any) error {
	tag, err := o.tx.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("order %s: %s: %w", o.hold.id, what, err)
	}
	if n := tag.RowsAffected(); n != 1 {
		return &brokenOrder{fmt.Sprintf("order %s: %s: %d rows, want 1; its hold, its seat or its charge is not what the hold's lock promises", o.hold.id, what, n)}
	}
	return nil
}

// A brokenOrder is a fault of ours, which no retry cures.
type brokenOrder struct{ what string } //nolint:errname // what it is, not what it is of

func (e *brokenOrder) Error() string { return e.what }
