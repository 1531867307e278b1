package tickets

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/explore"
	"github.com/overbook/overbook/stubs/payments"
)

// struck remembers the attempt at the round's refund that nobody works on any
// more: every one when the server was killed, and when a connection was dropped
// after the callback's answer, as then it was the worker's.
func (p *pointDrive) struck(ctx context.Context, round int, at explore.Point) error {
	p.stuck = 0
	if at.Action == harness.ActionDrop && !strings.HasPrefix(at.First, "200") {
		return nil
	}
	n, err := p.attempts(ctx, p.holds[round])
	p.stuck = n
	return err
}

// attempts is how often the refund of a hold has been tried.
func (p *pointDrive) attempts(ctx context.Context, holdID string) (int64, error) {
	rows, err := p.env.Database().Query(ctx, `select r.attempts from refunds r join charges c using (charge_id) where c.hold_id = $1::text::uuid`, holdID)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return whole(rows[0], "attempts"), nil
}

// overStuck moves the clock over the claim of an attempt that nobody works on.
// Never over one of the living: it would be made twice, and the second one's end
// would meet the next point's fault.
func (p *pointDrive) overStuck(ctx context.Context, holdID string) error {
	n, err := p.attempts(ctx, holdID)
	if err != nil || n == 0 || n != p.stuck {
		return err
	}
	return p.env.Advance(ctx, refundClaim)
}

// over brings a round to its end: callbacks, reconciliation, hard timeout, the
// refund, as far as they are needed.
func (p *pointDrive) over(ctx context.Context, round int) error {
	if err := deliverAgain(ctx, p.env, p.post); err != nil {
		return err
	}
	id := p.holds[round]
	if id == "" {
		return nil // a hold alone is not paid for
	}
	o, err := rowsOf(ctx, p.env, id)
	if err == nil && o.charge == "CHARGING" {
		if err = p.reconcile(ctx, id); err == nil {
			o, err = rowsOf(ctx, p.env, id)
		}
	}
	if err == nil && o.refund == "PENDING" {
		if err = p.overStuck(ctx, id); err == nil {
			err = awaitRefund(ctx, p.env, id)
		}
	}
	if err == nil {
		err = deliverAgain(ctx, p.env, p.post)
	}
	return err
}

// reconcile moves the clock to where the server asks about the order's charge,
// and, when the provider knows of no payment, to where it is given up.
func (p *pointDrive) reconcile(ctx context.Context, holdID string) error {
	ledger, err := ledgerNow(ctx, p.env)
	if err != nil {
		return err
	}
	taken := slices.ContainsFunc(ledger.Payments, func(y payments.Payment) bool { return y.Intent == holdID })
	if err := p.env.Advance(ctx, reconcileAfter+time.Second); err != nil {
		return err
	}
	if !taken {
		if err := p.awaitAsked(ctx, holdID); err != nil {
			return err
		}
		if err := pastHardTimeout(ctx, p.env); err != nil {
			return err
		}
	}
	return p.env.Await(ctx, "the charge of hold "+holdID+" is decided", patience, func(ctx context.Context) (bool, string, error) {
		o, err := rowsOf(ctx, p.env, holdID)
		return err == nil && o.charge != "CHARGING" && o.hold != "RESERVED", o.brief(), err
	})
}

// awaitAsked waits until the provider has answered a question about the charge.
func (p *pointDrive) awaitAsked(ctx context.Context, holdID string) error {
	rows, err := p.env.Database().Query(ctx, `select charge_id::text as id from charges where hold_id = $1::text::uuid`, holdID)
	if err != nil || len(rows) == 0 {
		return err
	}
	path := "/charges/" + text(rows[0], "id")
	return p.env.Await(ctx, "the provider is asked about hold "+holdID, patience, func(context.Context) (bool, string, error) {
		asked := slices.ContainsFunc(p.env.Upstream(payments.Name).Calls(), func(c harness.UpstreamCall) bool { return c.Path == path && c.Answered != 0 })
		return asked, "it is not", nil
	})
}
