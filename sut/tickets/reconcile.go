package tickets

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	questionHands = 8              // questions at once
	questionsLast = 24 * time.Hour // from when the charge was sent, server time
)

// sqlClaimQuestions takes charges that are to be asked about, whatever their
// state, and has them asked about again later: that pause is also how long
// others leave them alone. An attempt of the provider's own is found under the
// references of the charges that we sent.
const sqlClaimQuestions = `
update charges c set asked = asked + 1, next_ask_at = $2
where charge_id in (
  select charge_id from charges where next_ask_at <= $1
  order by next_ask_at limit $3 for no key update skip locked)
returning charge_id, hold_id, next_ask_at, overbook_op, traceparent, case origin
  when 'request' then array[charge_id]
  else array(select r.charge_id from charges r where r.hold_id = c.hold_id and r.origin = 'request' order by r.sent_at) end`

// sqlAsked decides, after an answer, whether another question is left, unless
// somebody decided that since the claim, until $2. $3 says that the provider
// still works on a payment, $4 is now, $5 the hard timeout, $6 how long
// questions last. One in flight is always asked about again; one given up,
// until it is settled; one that failed, once more at its hard timeout.
const sqlAsked = `
update charges set next_ask_at = case
  when $3::boolean and sent_at + $6::interval > $4 then $2
  when next_ask_at is distinct from $2 or state = 'CHARGING' then next_ask_at
  when sent_at + $6::interval <= $4 then null
  when state = 'REFUND_RESOLVED' and settled_at is null then next_ask_at
  when state in ('DECLINED', 'FAILED') and sent_at + $5::interval > $4 then sent_at + $5::interval
end
where charge_id = $1
returning charge_id`

// reconciler asks the provider what became of charges of which nobody told us,
// and applies what it says as if it had told us itself. No transaction and no
// connection is held while it is waited for.
type reconciler struct {
	st       *store
	provider *provider
	cfg      Config
	figures  *figures // how far behind it is
}

func newReconciler(st *store, p *provider, cfg Config, m *meters) *reconciler {
	return &reconciler{st: st, provider: p, cfg: cfg, figures: newFigures(st, cfg, m)}
}

// run asks what is due until the context ends, and measures how late it is.
func (r *reconciler) run(ctx context.Context) {
	var measuring sync.WaitGroup
	measuring.Go(func() { r.figures.run(ctx) })
	defer measuring.Wait()
	queue[question]{cfg: r.cfg, hands: questionHands, claim: r.claim, do: r.ask, what: "charges to ask about"}.run(ctx)
}

// A question is a charge that is to be asked about.
type question struct {
	charge, hold uuid.UUID
	until        time.Time // others leave it alone until then
	by           cause     // of the request that made the charge
	references   []uuid.UUID
}

func (r *reconciler) claim(ctx context.Context, most int) ([]question, error) {
	now := r.cfg.Clock.Now()
	return alter(ctx, r.st, func(row pgx.CollectableRow) (q question, err error) {
		q.by.actor = actorServer
		err = row.Scan(&q.charge, &q.hold, &q.until, &q.by.op, &q.by.traceparent, &q.references)
		return q, err
	}, sqlClaimQuestions, now, now.Add(r.cfg.ReconcileEvery), most)
}

// ask asks one question and stores what the answer says. What could not be
// asked or stored is asked again.
func (r *reconciler) ask(ctx context.Context, q question) {
	working := false
	for _, reference := range q.references {
		more, err := r.askFor(ctx, q, reference)
		if err != nil {
			r.cfg.Log.Warn("could not find out about a charge, asking again later", "charge", q.charge, "hold", q.hold, "reference", reference, "error", err)
			return
		}
		working = working || more
	}
	if err := r.asked(ctx, q, working); err != nil {
		r.cfg.Log.Warn("could not store that a charge was asked about, asking again later", "charge", q.charge, "error", err)
	}
}

// askFor applies all payments that the provider knows under a reference, oldest
// first, each in a transaction of its own. That it knows none decides nothing:
// the charge may still be on its way. working tells that it has yet
// to decide about one.
func (r *reconciler) askFor(ctx context.Context, q question, reference uuid.UUID) (working bool, err error) {
	found, known, err := r.provider.payments(ctx, reference.String(), q.by)
	if err != nil || !known {
		return false, err
	}
	for _, p := range found {
		working = working || p.Status == pending
		err := r.st.changeOrder(ctx, q.hold, q.by, func(ctx context.Context, o *order) (bool, error) {
			_, err := o.outcome(ctx, r.cfg.Clock.Now(), p, byReconciliation)
			return err == nil, err
		})
		if err != nil {
			return working, fmt.Errorf("apply payment %s, %s: %w", p.ID, p.Status, err)
		}
	}
	return working, nil
}

func (r *reconciler) asked(ctx context.Context, q question, working bool) error {
	_, err := alter(ctx, r.st, rowID, sqlAsked, q.charge, q.until, working, r.cfg.Clock.Now(), r.cfg.HardTimeout, questionsLast)
	return err
}
