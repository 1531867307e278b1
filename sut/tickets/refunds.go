package tickets

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

const (
	refundHands    = 8           // refunds tried at once
	refundStoring  = time.Second // what came of an attempt
	refundRestMost = time.Minute
)

// sqlClaimRefunds takes refunds that are due. Their next attempt is put off for
// as long as this one may take: whoever dies over it leaves it to others, who
// try again under the same id.
const sqlClaimRefunds = `
update refunds r set attempts = attempts + 1, next_attempt_at = $2
from charges c
where c.charge_id = r.charge_id and r.refund_id in (
  select refund_id from refunds where state = 'PENDING' and parked_at is null and next_attempt_at <= $1
  order by next_attempt_at limit $3 for no key update skip locked)
returning r.refund_id, r.charge_id, r.payment_id, r.amount, r.currency, r.attempts, c.hold_id, c.overbook_op, c.traceparent`

// sqlRefundFailed stores why an attempt failed, unless the refund is done, by a
// callback, or was taken up by somebody else since.
const sqlRefundFailed = `
update refunds set last_error = $3, next_attempt_at = $4, parked_at = $5
where refund_id = $1 and attempts = $2 and state = 'PENDING'
returning refund_id`

// sqlRefundNow makes a refund due, parked or not. One whose turn comes within
// the length of a claim, until $3, keeps it: it may be under way.
const sqlRefundNow = `
update refunds set parked_at = null,
  next_attempt_at = case when parked_at is null and next_attempt_at <= $3 then next_attempt_at else $2 end
where refund_id = $1 and state = 'PENDING'
returning refund_id`

// sqlRefundable tells of a payment what decides about a refund of it.
const sqlRefundable = `
select c.charge_id is not distinct from h.winning_charge, coalesce(c.captured_amount, 0), r.refund_id, coalesce(r.state, '')
from charges c join holds h using (hold_id) left join refunds r using (charge_id)
where c.payment_id = $1`

// refunder gives money back: a queue in the database, tried until it succeeds.
// A refund has one id for ever, under which the provider takes it once. No
// transaction and no connection is held while the provider is waited for.
type refunder struct {
	st       *store
	provider *provider
	cfg      Config
	meters   *meters
}

func newRefunder(st *store, p *provider, cfg Config, m *meters) *refunder {
	return &refunder{st: st, provider: p, cfg: cfg, meters: m}
}

// run refunds what is due until the context ends.
func (r *refunder) run(ctx context.Context) {
	queue[refundTry]{cfg: r.cfg, hands: refundHands, claim: r.claim, do: r.try, what: "refunds that are due"}.run(ctx)
}

// A refundTry is one attempt of a refund.
type refundTry struct {
	refund refund
	number int
	hold   uuid.UUID
	by     cause // of the request that made the charge
}

func (r *refunder) claim(ctx context.Context, most int) ([]refundTry, error) {
	now := r.cfg.Clock.Now()
	return alter(ctx, r.st, func(row pgx.CollectableRow) (a refundTry, err error) {
		a.by.actor = actorServer
		err = row.Scan(&a.refund.id, &a.refund.charge, &a.refund.payment, &a.refund.amount, &a.refund.currency, &a.number,
			&a.hold, &a.by.op, &a.by.traceparent)
		return a, err
	}, sqlClaimRefunds, now, now.Add(refundClaim(r.cfg)), most)
}

// try asks the provider for the money once and stores what came of it. When
// that can't be stored, the claim runs out and the refund is tried again.
func (r *refunder) try(ctx context.Context, a refundTry) {
	log := r.cfg.Log.With("refund", a.refund.id, "payment", a.refund.payment, "attempt", a.number)
	if err := r.provider.refund(ctx, a.refund, a.by); err != nil {
		r.failed(ctx, a, err)
		return
	}
	err := r.st.changeOrder(ctx, a.hold, a.by, func(ctx context.Context, o *order) (bool, error) {
		_, err := o.refundDone(ctx, r.cfg.Clock.Now(), a.refund.payment)
		return err == nil, err
	})
	if err != nil {
		log.Warn("the provider took a refund, but that could not be stored, so it will be asked again", "error", err)
		return
	}
	r.meters.refundAttempt("done")
}

func (r *refunder) failed(ctx context.Context, a refundTry, why error) {
	log := r.cfg.Log.With("refund", a.refund.id, "payment", a.refund.payment, "attempt", a.number, "error", why)
	now, result := r.cfg.Clock.Now(), "failed"
	var parked *time.Time
	if a.number >= r.cfg.RefundParkAfter {
		parked, result = &now, "parked"
	}
	_, err := alter(ctx, r.st, rowID, sqlRefundFailed, a.refund.id, a.number, why.Error(), now.Add(backoff(r.cfg.RefundBackoff, a.number)), parked)
	switch {
	case err != nil:
		log.Warn("a refund failed, and that could not be stored; it is tried again", "storing", err)
	case parked != nil:
		log.Error("a refund is parked: look at its error, then POST /tickets/ops/refunds to try it again")
	default:
		log.Warn("a refund failed, it is tried again")
	}
	r.meters.refundAttempt(result)
}

// refundClaim is how long one attempt may take, and keeps others away.
func refundClaim(cfg Config) time.Duration { return cfg.PaymentTimeout + refundStoring }

// backoff is how long a refund rests after so many failed attempts: it doubles
// up to a minute, or to the first pause when that is longer.
func backoff(first time.Duration, attempts int) time.Duration {
	pause := first
	for n := 1; n < attempts && pause < refundRestMost; n++ {
		pause *= 2
	}
	return min(pause, max(first, refundRestMost))
}

// refundNow serves POST /tickets/ops/refunds: staff have a waiting or parked
// refund tried at once. What it decides by never changes back, so that it needs
// no lock: a capture and who won are for ever, and so is a refund that is done.
func (s *Service) refundNow(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	var wanted struct {
		Payment string `json:"payment_id"`
		Amount  int64  `json:"amount"`
	}
	if err := asked(r, &wanted); err != nil {
		return httpapi.Answer{}, err
	}
	if wanted.Payment == "" || wanted.Amount < 1 {
		return httpapi.Answer{}, httpapi.BadRequest.With("payment_id must be given, and amount, in minor units, be 1 or more").Err()
	}
	id, err := s.refundable(r.Context(), wanted.Payment, wanted.Amount)
	if err != nil {
		return httpapi.Answer{}, err
	}
	now := s.cfg.Clock.Now()
	found, err := alter(r.Context(), s.store, rowID, sqlRefundNow, id, now, now.Add(refundClaim(s.cfg)))
	if err != nil {
		return httpapi.Answer{}, err
	}
	if len(found) == 0 {
		return httpapi.Answer{}, alreadyRefunded.Err()
	}
	s.log.Info("staff have a refund tried now", "refund", id, "payment", wanted.Payment, "staff", who.Name)
	return httpapi.JSON(http.StatusAccepted, map[string]any{
		"refund_id": id, "payment_id": wanted.Payment, "amount": wanted.Amount, "state": "PENDING",
	}), nil
}

// refundable gives the refund of a payment that may be tried, or the problem
// why not.
func (s *Service) refundable(ctx context.Context, payment string, amount int64) (uuid.UUID, error) {
	type facts struct {
		wins     bool
		captured int64
		refund   *uuid.UUID
		state    string
	}
	found, err := database.Read(ctx, s.store.Store, func(row pgx.CollectableRow) (f facts, err error) {
		err = row.Scan(&f.wins, &f.captured, &f.refund, &f.state)
		return f, err
	}, sqlRefundable, payment)
	switch {
	case err != nil:
		return uuid.Nil, err
	case len(found) == 0:
		return uuid.Nil, unknownPayment.Err()
	}
	switch f := found[0]; {
	case f.captured > 0 && amount > f.captured:
		return uuid.Nil, refundTooLarge.Err()
	case f.captured > 0 && amount < f.captured:
		return uuid.Nil, refundPartial.Err()
	case f.captured == 0 || f.wins || f.refund == nil:
		return uuid.Nil, notRefundable.Err()
	case f.state == "DONE":
		return uuid.Nil, alreadyRefunded.Err()
	default:
		return *f.refund, nil
	}
}
