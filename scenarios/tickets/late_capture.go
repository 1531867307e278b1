package tickets

import (
	"context"
	"fmt"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// Kinds of what the others do who want the same seats.
const (
	kindMeanwhile    = "claim-meanwhile" // while the payments are in flight
	kindPayMeanwhile = "pay-meanwhile"
	kindAfter        = "claim-after" // when they are over
	kindPayAfter     = "pay-after"
)

// What becomes of payments that are in flight at expiry.
const (
	thenCaptured = "captured"
	thenDeclined = "declined"
	thenSold     = "captured-when-sold" // to somebody else, who came meanwhile
)

var paramThen = harness.Param{
	Name: "then", Kind: harness.ChoiceParam, Default: thenCaptured, Values: []string{thenCaptured, thenDeclined, thenSold},
	Doc: "what becomes of the payments after the holds have run out",
}

const partHolder = "holder"

// A lateEnd is what must come of late payments: what others are told who claim
// the seats while they are in flight and when they are over ("" when they don't
// claim), and how the holders' orders end.
type lateEnd struct{ meanwhile, after, holders string }

func lateEndOf(p harness.Params) lateEnd {
	const taken, paid, back = "409 seat-taken", "CONFIRMED: CAPTURED", "EXPIRED: REFUNDED"
	switch then := p[paramThen.Name]; {
	case p[paramPolicy.Name] == policyRelease && then == thenSold:
		return lateEnd{"201", taken, back}
	case p[paramPolicy.Name] == policyRelease && then == thenCaptured:
		return lateEnd{"", "201", back}
	case p[paramPolicy.Name] == policyRelease:
		return lateEnd{"", "201", "EXPIRED: DECLINED"}
	case then == thenDeclined:
		return lateEnd{taken, "201", "EXPIRED: DECLINED"}
	default: // in quarantine nobody else buys meanwhile
		return lateEnd{taken, taken, paid}
	}
}

func lateCapture() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/late-capture",
		Title: "a hold runs out while its payment is in flight, and the payment is captured after that",
		Doc: `Members hold seats and pay; the provider takes the payments on and decides nothing. The holds run out. Under the policy quarantine each seat is QUARANTINED until its
payment resolves: others are told seat-taken meanwhile, then the capture sells it to the member who held it; a decline makes it FREE, and the next one gets it. Under the policy
release it is on sale again within a tick, and a late capture goes back, whether or not somebody else has bought the seat meanwhile: that one keeps it.`,
		Sources: []string{"S-I2", "S-I4", "S-I5", "S-I6", "S-M1", "S-M6", "S-M8"},
		Params:  []harness.Param{with(paramOrders, "8"), paramPolicy, paramThen, paramReplicas},
		Choose:  chooseCast(partHolder),
		Drive:   driveLate,
		Checks: func(p harness.Params) []harness.Check {
			n, end := p.Int(paramOrders.Name), lateEndOf(p)
			want := answers.Tallies{kindCharge: {"202": n}, kindAfter: {end.after: n}}
			wantEnds := map[string]string{partHolder: end.holders}
			if end.meanwhile != "" {
				want[kindMeanwhile] = map[string]int{end.meanwhile: n}
			}
			if end.meanwhile == "201" || end.after == "201" {
				wantEnds[others] = "CONFIRMED: CAPTURED"
			}
			list := append(served(p),
				words("answers", "who else wants a seat is refused or gets it, as the policy says", answers.ByKind, answers.Fixed(want)),
				ends("each order ends as the policy says", wantEnds),
				seatStates("each seat is sold once", map[string]int{"SOLD": n}))
			if p[paramPolicy.Name] == policyRelease {
				list = append(list, endedInTime())
			}
			return list
		},
	}, nil)
}

func driveLate(ctx context.Context, env harness.Env) error {
	c, holders, err := seated(ctx, env)
	if err != nil {
		return err
	}
	n, end, post := len(holders), lateEndOf(env.Params()), newCourier(env)
	if err := behave(ctx, env, holders, map[string]payments.Behaviour{partHolder: undecided()}); err != nil {
		return err
	}
	each(ctx, env, holders, buyer.pays)
	if err := pastExpiry(ctx, env, lastHold(holders)); err != nil {
		return err
	}
	waits := countQuarantined
	if env.Params()[paramPolicy.Name] == policyRelease {
		waits = countFree
	}
	if _, err := awaitCount(ctx, env, "every seat is what the policy makes of it", n, waits); err != nil {
		return err
	}
	if err := witnessInFlight(ctx, env, n); err != nil {
		return err
	}
	if end.meanwhile != "" {
		wave(ctx, env, c.Show, kindMeanwhile, kindPayMeanwhile)
	}
	outcome := payments.Captured
	if env.Params()[paramThen.Name] == thenDeclined {
		outcome = payments.Declined
	}
	if err := decide(ctx, env, outcome, holders); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	wave(ctx, env, c.Show, kindAfter, kindPayAfter)
	return finish(ctx, env, post)
}

// witnessInFlight is that the holds were over with their charges in flight.
func witnessInFlight(ctx context.Context, env harness.Env, n int) error {
	now, err := serverNow(ctx, env)
	if err != nil {
		return err
	}
	rows, err := env.Database().Query(ctx, `select count(*) as n from charges c join holds h using (hold_id) where c.state = 'CHARGING' and h.expires_at <= $1`, now)
	if err != nil {
		return fmt.Errorf("count charges in flight: %w", err)
	}
	env.Witness("in_flight_at_expiry", float64(n), float64(whole(rows[0], "n")), "orders whose time was over while their payment was in flight")
	return nil
}

// wave has other members claim every seat of the show, and pay for what they
// got with cards that are captured at once. Each wave has members of its own.
func wave(ctx context.Context, env harness.Env, s show, claims, pays string) {
	first := 10_000
	if claims == kindAfter {
		first = 20_000
	}
	requests := make([]harness.Request, len(s.Seats))
	for i, seat := range s.Seats {
		requests[i] = answers.As(claims, claim(first+i, member(first+i), s.ID, seat))
	}
	ops := env.DoAll(ctx, requests, hands)
	requests = nil
	for _, op := range ops {
		if h, err := holdOf(op); err == nil {
			requests = append(requests, answers.As(pays, charge(op.Process, op.Caller, h.HoldID, "card-of-"+op.Caller)))
		}
	}
	env.DoAll(ctx, requests, hands)
}

// How the news of a capture after the hard timeout comes.
const (
	toldByCallback = "callback"
	toldByAsking   = "reconciliation" // every callback is lost
	toldTenTimes   = "ten-callbacks"  // at one barrier
)

var paramTold = harness.Param{
	Name: "told", Kind: harness.ChoiceParam, Default: toldByCallback, Values: []string{toldByCallback, toldByAsking, toldTenTimes},
	Doc: "how the server hears of the capture",
}

func hardTimeoutCapture() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/late-capture-after-hard-timeout",
		Title: "a payment is captured after it was given up at the hard timeout",
		Doc: `Payments stay undecided until the hard timeout: each is REFUND_RESOLVED, its hold EXPIRED, its seat FREE again, and others buy the seats. Then the provider captures
after all, and tells it by a callback, ten times at one barrier, or not at all, so that reconciliation has to ask about charges that were given up. Neither hold nor seat
comes back to life; what was captured goes back once.`,
		Sources: []string{"S-I2", "S-I4", "S-I5", "S-I8", "S-M7", "S-M12", "S-M13"},
		Params:  []harness.Param{with(paramOrders, "6"), paramPolicy, paramTold, paramReplicas},
		Choose:  chooseCast(partHolder),
		Drive:   driveHardTimeout,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramOrders.Name)
			list := append(served(p),
				words("answers", "every seat is sold to somebody else after the hard timeout", answers.ByKind,
					answers.Fixed(answers.Tallies{kindCharge: {"202": n}, kindAfter: {"201": n}, kindPayAfter: {"201": n}})),
				ends("what was given up stays given up, and goes back when it was captured", map[string]string{
					partHolder: "EXPIRED: REFUND_RESOLVED+DONE", others: "CONFIRMED: CAPTURED",
				}),
				seatStates("each seat is sold once", map[string]int{"SOLD": n}))
			if p[paramTold.Name] == toldTenTimes {
				list = append(list, oneEffectPerEvent())
			}
			return list
		},
	}, nil)
}

func driveHardTimeout(ctx context.Context, env harness.Env) error {
	c, holders, err := seated(ctx, env)
	if err != nil {
		return err
	}
	how := undecided()
	switch env.Params()[paramTold.Name] {
	case toldByAsking:
		how.Callbacks = payments.Lost
	case toldTenTimes:
		how.Copies = 10
	}
	if err := behave(ctx, env, holders, map[string]payments.Behaviour{partHolder: how}); err != nil {
		return err
	}
	each(ctx, env, holders, buyer.pays)
	if err := pastHardTimeout(ctx, env); err != nil {
		return err
	}
	given, err := awaitCount(ctx, env, "every charge is given up", len(holders), countGivenUp)
	if err != nil {
		return err
	}
	if _, err := awaitCount(ctx, env, "every seat is free", len(holders), countFree); err != nil {
		return err
	}
	env.Witness("given_up", float64(len(holders)), float64(given), "charges that were given up before they were captured")
	wave(ctx, env, c.Show, kindAfter, kindPayAfter)
	if err := decide(ctx, env, payments.Captured, holders); err != nil {
		return err
	}
	post := newCourier(env)
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	if env.Params()[paramTold.Name] == toldByAsking {
		if err := env.Advance(ctx, reconcileEvery+reconcileEvery/2); err != nil {
			return err
		}
	}
	if _, err := awaitCount(ctx, env, "every capture went back", len(holders), countReturned); err != nil {
		return err
	}
	return finish(ctx, env, post)
}
