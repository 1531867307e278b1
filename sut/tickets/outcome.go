package tickets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// A payment is one attempt as the provider tells of it.
type payment struct {
	ID        string `json:"payment_id"`
	Reference string `json:"reference"` // the charge that it was made for
	Intent    string `json:"intent"`    // the order; several attempts share it
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Status    string `json:"status"` // captured, declined or pending
}

const (
	paymentCaptured = "captured"
	declined        = "declined"
	pending         = "pending"
)

// Who brought an outcome.
const (
	byAnswer         = "answer"
	byCallback       = "callback"
	byReconciliation = "reconciliation"
)

// What an outcome came to.
const (
	resultApplied   = "applied"
	resultNoted     = "noted" // nothing was left to do
	resultDuplicate = "duplicate"
)

// outcome applies what the provider says of one payment of the order, whoever
// brought the news. It gives "applied", or "noted" when nothing was left to do.
func (o *order) outcome(ctx context.Context, now time.Time, p payment, by string) (string, error) {
	if _, err := o.expire(ctx, now); err != nil {
		return "", err
	}
	c := o.chargeOf(p)
	switch p.Status {
	case paymentCaptured:
		return o.captured(ctx, now, c, p, by)
	case declined:
		return o.declined(ctx, now, c, p, by)
	}
	if c == nil || c.payment != nil {
		return resultNoted, nil
	}
	if err := payments(o.one(ctx, "note its payment", sqlBindPayment, c.id, p.ID)); err != nil {
		return "", err
	}
	c.payment = &p.ID
	return resultNoted, nil
}

// chargeOf is the charge that a payment is of: the one with its id, else the
// one that it was made for and that has no payment yet. nil is an attempt of
// the provider's own; so is one for a charge that surely was not taken.
func (o *order) chargeOf(p payment) *charge {
	for i := range o.charges {
		if c := &o.charges[i]; c.payment != nil && *c.payment == p.ID {
			return c
		}
	}
	for i := range o.charges {
		if c := &o.charges[i]; c.payment == nil && c.state != chargeFailed && c.id.String() == p.Reference {
			return c
		}
	}
	return nil
}

// captured: the first payment of the right amount for a hold that still waits
// buys the seat; every other one goes back.
func (o *order) captured(ctx context.Context, now time.Time, c *charge, p payment, by string) (string, error) {
	switch {
	case c == nil:
		var err error
		if c, err = o.ownAttempt(ctx, now, chargeCaptured, p, by); err != nil {
			return "", err
		}
	case c.captured != nil:
		return resultNoted, nil
	case c.state != chargeCharging: // given up, or told to be declined: it stays over
		if err := o.settle(ctx, now, c, p); err != nil {
			return "", err
		}
		return resultApplied, o.refund(ctx, now, c, "captured after it was "+c.state)
	default:
		if err := o.resolve(ctx, now, c, chargeCaptured, p, by, nil); err != nil {
			return "", err
		}
	}
	if o.hold.state != holdReserved || p.Amount != o.hold.amount || p.Currency != o.hold.currency {
		return resultApplied, o.sendBack(ctx, now, c)
	}
	if err := o.endHold(ctx, now, holdConfirmed, &c.id, "paid", o.by); err != nil {
		return "", err
	}
	return resultApplied, o.sellSeat(ctx, now, "paid")
}

// sendBack is of a capture that does not pay for the seat.
func (o *order) sendBack(ctx context.Context, now time.Time, c *charge) error {
	reason := "the amount is not the order's"
	switch {
	case o.hold.state == holdConfirmed:
		reason = "another charge had won"
	case o.hold.state != holdReserved:
		reason = "the hold was " + o.hold.state
	}
	if err := o.refund(ctx, now, c, reason); err != nil {
		return err
	}
	if err := o.moveCharge(ctx, c, chargeRefunding, reason); err != nil {
		return err
	}
	return o.afterwards(ctx, now)
}

// declined ends a charge that is in flight; it never overrides a capture.
func (o *order) declined(ctx context.Context, now time.Time, c *charge, p payment, by string) (string, error) {
	switch {
	case c == nil:
		_, err := o.ownAttempt(ctx, now, chargeDeclined, p, by)
		return resultApplied, err
	case c.state == chargeCharging:
		ask := c.sentAt.Add(o.cfg.HardTimeout) // the provider may make another attempt
		if err := o.resolve(ctx, now, c, chargeDeclined, p, by, &ask); err != nil {
			return "", err
		}
		return resultApplied, o.afterwards(ctx, now)
	case c.state == chargeRefundResolved && c.settledAt == nil:
		return resultApplied, o.settle(ctx, now, c, p)
	}
	return resultNoted, nil
}

// refundDone notes that the provider has given the money of a payment back.
func (o *order) refundDone(ctx context.Context, now time.Time, paymentID string) (string, error) {
	for i := range o.refunds {
		r := &o.refunds[i]
		if r.payment != paymentID {
			continue
		}
		if r.state == refundDone {
			return resultNoted, nil
		}
		if err := o.one(ctx, "note the refund", sqlRefundDone, r.id, now); err != nil {
			return "", err
		}
		o.note(subjectRefund, r.id.String(), r.state, refundDone, "the provider says so", o.by)
		r.state = refundDone
		if c := o.chargeByID(r.charge); c != nil && c.state == chargeRefunding {
			return resultApplied, o.moveCharge(ctx, c, chargeRefunded, "refunded")
		}
		return resultApplied, nil
	}
	if o.chargeOf(payment{ID: paymentID}) == nil {
		return "", unknownPayment.Err()
	}
	return "", notRefundable.Err()
}

// ownAttempt stores a payment that the provider made by itself.
func (o *order) ownAttempt(ctx context.Context, now time.Time, state string, p payment, by string) (*charge, error) {
	c := charge{
		id: uuid.New(), hold: o.hold.id, intent: o.hold.id.String(), payment: &p.ID, amount: p.Amount, currency: p.Currency,
		state: state, origin: actorProvider, sentAt: now, resolvedAt: &now,
	}
	if state == chargeCaptured {
		c.captured, c.capturedCurrency = &p.Amount, &p.Currency
	}
	err := payments(o.one(ctx, "store the provider's own attempt", sqlOwnAttempt, c.id, c.hold, c.intent, p.ID, c.amount, c.currency,
		state, c.captured, c.capturedCurrency, now, by))
	if err != nil {
		return nil, err
	}
	o.note(subjectCharge, c.id.String(), "", state, "the provider's own attempt, told by "+by, o.by)
	o.charges = append(o.charges, c)
	return &o.charges[len(o.charges)-1], nil
}

// resolve ends a charge's flight. No payment is known of one that is given up.
func (o *order) resolve(ctx context.Context, now time.Time, c *charge, to string, p payment, by string, ask *time.Time) error {
	var id *string
	if p.ID != "" {
		id = &p.ID
	}
	if to == chargeCaptured {
		c.captured, c.capturedCurrency = &p.Amount, &p.Currency
	}
	if err := payments(o.one(ctx, "make the charge "+to, sqlResolveCharge, c.id, to, id, c.captured, c.capturedCurrency, now, by, ask)); err != nil {
		return err
	}
	o.note(subjectCharge, c.id.String(), c.state, to, by, o.by)
	c.state, c.resolvedAt, c.nextAskAt = to, &now, ask
	if c.payment == nil {
		c.payment = id
	}
	return nil
}

// settle notes on a charge that is over what the provider decided after all.
func (o *order) settle(ctx context.Context, now time.Time, c *charge, p payment) error {
	if p.Status == paymentCaptured {
		c.captured, c.capturedCurrency = &p.Amount, &p.Currency
	}
	if err := payments(o.one(ctx, "settle the charge", sqlSettleCharge, c.id, p.ID, c.captured, c.capturedCurrency, now)); err != nil {
		return err
	}
	if c.payment == nil {
		c.payment = &p.ID
	}
	c.settledAt, c.nextAskAt = &now, nil
	return nil
}

func (o *order) moveCharge(ctx context.Context, c *charge, to, reason string) error {
	if err := o.one(ctx, "make the charge "+to, sqlMoveCharge, c.id, c.state, to); err != nil {
		return err
	}
	o.note(subjectCharge, c.id.String(), c.state, to, reason, o.by)
	c.state = to
	return nil
}

// refund has what was captured go back: once a charge and once a payment.
func (o *order) refund(ctx context.Context, now time.Time, c *charge, reason string) error {
	r := refund{
		id: uuid.New(), charge: c.id, payment: *c.payment, amount: *c.captured, currency: *c.capturedCurrency,
		reason: reason, state: refundPending, nextAttemptAt: now,
	}
	if err := o.one(ctx, "enqueue the refund", sqlRefund, r.id, r.charge, r.payment, r.amount, r.currency, reason, now); err != nil {
		return err
	}
	o.note(subjectRefund, r.id.String(), "", refundPending, reason, o.by)
	o.refunds = append(o.refunds, r)
	return nil
}

// payments makes a payment that another order has already a problem of the
// caller: one payment never pays for two.
func payments(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == "23505" && pg.ConstraintName == "charges_payment_id_key" {
		return fmt.Errorf("%w: %w", unknownPayment.With("this payment is of another order").Err(), err)
	}
	return err
}
