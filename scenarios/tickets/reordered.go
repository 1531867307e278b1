package tickets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

const (
	partOwnAttempts      = "own-attempts"      // the member's: declined, then captured; the decline is told last
	partProviderAttempts = "provider-attempts" // the provider's: declined, then captured; told the other way round
	partEarly            = "early"             // captured, told before the answer is passed on
	partEarlyRefund      = "early-refund"      // refunded, told before the answer is passed on
	partReverse          = "reverse"           // captured and refunded, told the other way round when both are over
)

const kindSecondCharge = "second-charge"

func reorderedCallbacks() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/reordered-callbacks",
		Title: "callbacks come in another order than what they tell of, and before the answers to the calls that caused them",
		Doc: `The decline of a first attempt is told after the capture of a second one, which the member or the provider has made. A capture is told while the answer to the charge is
still under way, a refund while the answer to the refund is. A refund is told before the capture that it gave back. Nothing that comes late changes what is decided.`,
		Sources: []string{"S-I4", "S-I2", "S-I5", "S-I9", "S-M15", "S-M17"},
		Params:  []harness.Param{with(paramOrders, "2"), paramReplicas},
		Choose:  chooseCast(partOwnAttempts, partProviderAttempts, partEarly, partEarlyRefund, partReverse),
		Drive:   driveReordered,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			return append(served(p),
				words("answers", "clients are told what is decided by then", answers.ByKind, answers.Fixed(answers.Tallies{
					kindCharge: {"201": n, "202": 3 * n, "402 payment-declined": n}, kindSecondCharge: {"201": n}, kindRelease: {"200": 2 * n},
				})),
				oneEffectEach(),
				ends("whatever the order of the news, an order ends as its payments did", map[string]string{
					partOwnAttempts: "CONFIRMED: CAPTURED DECLINED", partProviderAttempts: "CONFIRMED: CAPTURED DECLINED", partEarly: "CONFIRMED: CAPTURED",
					partEarlyRefund: "RELEASED: REFUNDED", partReverse: "RELEASED: REFUNDED",
				}))
		},
	}, nil)
}

// oneEffectEach: the provider's callbacks are all taken.
func oneEffectEach() harness.Check {
	return words("answers.callbacks", "every callback is answered 200", answers.ByKind, func(rec harness.Record) answers.Tallies {
		return answers.Tallies{kindCallback: {"200": len(rec.History.OfKind(kindCallback))}}
	})
}

func driveReordered(ctx context.Context, env harness.Env) error {
	_, buyers, err := seated(ctx, env)
	if err != nil {
		return err
	}
	twice := []string{payments.Declined, payments.Captured}
	err = behave(ctx, env, buyers, map[string]payments.Behaviour{
		partOwnAttempts:      {Attempts: twice[:1], Callbacks: payments.Held},
		partProviderAttempts: {Answer: payments.Pending, Decide: payments.Held, Callbacks: payments.Held, Attempts: twice, AttemptsAtOnce: true, Reversed: true},
		partEarlyRefund:      undecided(),
		partReverse:          {Answer: payments.Pending, Decide: payments.Held, Callbacks: payments.Held, Reversed: true},
	})
	if err != nil {
		return err
	}
	post := newCourier(env)
	if err := tellEarly(ctx, env, post, buyers); err != nil {
		return err
	}
	late := playing(buyers, partOwnAttempts, partProviderAttempts, partReverse)
	each(ctx, env, late, buyer.pays)
	each(ctx, env, playing(buyers, partOwnAttempts), func(b buyer) harness.Request { return answers.As(kindSecondCharge, b.second()) })
	reverse := playing(buyers, partReverse)
	each(ctx, env, reverse, buyer.drops)
	if err := decide(ctx, env, payments.Captured, reverse); err != nil {
		return err
	}
	// Nobody tells these captures, so that they are asked about.
	if err := env.Advance(ctx, reconcileAfter+reconcileEvery); err != nil {
		return err
	}
	if _, err := awaitCount(ctx, env, "what was captured for dropped holds went back", 2*len(reverse), countReturned); err != nil {
		return err
	}
	if err := letGo(ctx, env, late); err != nil {
		return err
	}
	return finish(ctx, env, post)
}

// tellEarly has callbacks delivered while the answers to the calls that caused
// them are on their way.
func tellEarly(ctx context.Context, env harness.Env, post *courier, buyers []buyer) error {
	early, refunded := playing(buyers, partEarly), playing(buyers, partEarlyRefund)
	each(ctx, env, refunded, buyer.pays)
	each(ctx, env, refunded, buyer.drops)
	i := &interruption{post: post}
	stop := i.at(env, "/charges")
	each(ctx, env, early, buyer.pays)
	stop()
	told, err := i.result()
	if err != nil {
		return err
	}
	env.Witness("captured_early", float64(len(early)), float64(told), "captures that were told while the answer to their charge was held back")
	i = &interruption{post: post}
	stop = i.at(env, "/refunds")
	defer stop()
	if err := decide(ctx, env, payments.Captured, refunded); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	if _, err := awaitCount(ctx, env, "what was captured for dropped holds went back", len(refunded), countReturned); err != nil {
		return err
	}
	told, err = i.awaitTold(ctx, env, len(refunded))
	env.Witness("refunded_early", float64(len(refunded)), float64(told), "refunds that were told while the answer to their call was held back")
	return err
}

// An interruption has the courier deliver while answers of the provider are
// held back.
type interruption struct {
	post *courier

	mu   sync.Mutex
	told int
	err  error
}

// at interrupts every POST to a path, until stop.
func (i *interruption) at(env harness.Env, path string) (stop func()) {
	return env.Upstream(payments.Name).Inject(harness.UpstreamFault{
		Name: "tell what happened before the answer is passed on", Method: http.MethodPost, Path: path, At: harness.MomentAccepted,
		Do: func(ctx context.Context, _ harness.UpstreamCall) {
			n, err := i.post.deliver(ctx)
			i.mu.Lock()
			defer i.mu.Unlock()
			i.told += n
			i.err = errors.Join(i.err, err)
		},
	})
}

// awaitTold waits until so many were told, which is later than that they have
// had their effect, and gives how many were.
func (i *interruption) awaitTold(ctx context.Context, env harness.Env, want int) (told int, err error) {
	late := env.Await(ctx, "whoever tells has counted it", patience, func(context.Context) (bool, string, error) {
		told, err = i.result()
		return told >= want || err != nil, fmt.Sprintf("%d of %d", told, want), err
	})
	if ctx.Err() != nil {
		return told, context.Cause(ctx)
	}
	if late != nil && err == nil { // the witness says so
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "did not come", Text: late.Error()})
	}
	return told, err
}

func (i *interruption) result() (told int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.told, i.err
}
