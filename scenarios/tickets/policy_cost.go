package tickets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// What becomes of the payments of the first wave, beside partPrompt.
const (
	partLateCaptured = "late-captured" // after expiry, told by a callback
	partLateDeclined = "late-declined" // after expiry, told by a callback
	partReconciled   = "reconciled"    // captured after expiry; the callback is lost
	partNever        = "never"         // not decided at all
	partBeyond       = "beyond"        // captured after the hard timeout
)

// costDeck is how the payments of twelve members go; shows get as many as they
// have seats.
var costDeck = []string{
	partPrompt, partLateCaptured, partLateDeclined, partReconciled, partNever, partBeyond,
	partPrompt, partLateCaptured, partLateDeclined, partReconciled, partPrompt, partPrompt,
}

// The second wave, and what is asked of the server itself.
const (
	kindSecondWave    = "second-wave"
	kindPaySecondWave = "pay-second-wave"
	kindMetrics       = "metrics"
)

// A costPlan is a cast of two shows with the same seats, prices and traffic:
// the first half of its orders is the show's under the policy quarantine, the
// other half, in the same order, the one's under release. Parts are named
// "prompt@quarantine".
type costPlan struct {
	cast
	Release show  `json:"release"`
	Wave    []int `json:"wave"` // the seats that the second wave wants, in its order; of both shows
}

func chooseCost(rng *rand.Rand, p harness.Params) (any, error) {
	n := p.Int(paramSeats.Name)
	c := costPlan{cast: cast{Show: chooseShow(rng, p, n)}}
	c.Release = c.Show
	c.Show.Policy, c.Release.Policy, c.Release.ID = policyQuarantine, policyRelease, c.Show.ID+1
	deck := make([]string, n)
	for i := range deck {
		deck[i] = costDeck[i%len(costDeck)]
	}
	rng.Shuffle(n, func(i, k int) { deck[i], deck[k] = deck[k], deck[i] })
	for _, policy := range policies {
		for _, part := range deck {
			c.Parts = append(c.Parts, part+"@"+policy)
		}
	}
	for _, i := range rng.Perm(n) {
		if deck[i] != partPrompt {
			c.Wave = append(c.Wave, i)
		}
	}
	return c, nil
}

// seatsOfCost: each show has every kind of payment.
var seatsOfCost = harness.Param{
	Name: paramSeats.Name, Kind: harness.IntParam, Default: "24", Min: len(costDeck), Max: 2000, Doc: "seats of each show",
}

var policies = []string{policyQuarantine, policyRelease}

func policyCost() harness.Scenario {
	s := scenario(harness.Scenario{
		Name:  "tickets/policy-cost",
		Title: "what the two policies cost on the same traffic: refunds against lost sales",
		Doc: `Two shows with the same seats and prices, one under each policy, get the same traffic at the same time. Every seat is held and charged; some payments are captured at
once, others after the holds have run out, told by callbacks or found by reconciliation, some are declined then, some captured after the hard timeout, some never decided. When the
holds have run out a second wave wants the seats whose payment is in flight, and would pay at once. Measured for each policy: refunds (number and minor units); lost sales: seats that
were unsold at the end although a member who would have paid had been told seat-taken; the server time that seats spent in quarantine, by the history; seats sold; how many of the
second wave were refused; and the reconciliation lag, which /metrics must tell, too. Release can't refund less, and quarantine can't lose less sales.`,
		Sources: []string{"S-I2", "S-I4", "S-I6", "S-I8"},
		Params:  []harness.Param{seatsOfCost, paramReplicas},
		Choose:  chooseCost,
		Drive:   driveCost,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int(paramSeats.Name)
			prompt := promptOf(n)
			return append(served(p),
				words("answers", "the second wave is refused under quarantine and gets every seat under release", answers.ByKind, answers.Fixed(answers.Tallies{
					kindClaim: {"201": 2 * n}, kindCharge: {"201": 2 * prompt, "202": 2 * (n - prompt)},
					kindSecondWave: {"201": n - prompt, "409 seat-taken": n - prompt}, kindPaySecondWave: {"201": n - prompt},
				})),
				ends("each order ends as its policy says", costEnds()),
				figuresAreStored(), eachCostsItsOwn(), lagAgrees())
		},
	}, nil)
	s.Latencies = []string{kindCharge, kindSecondWave}
	return s
}

// promptOf is how many of a show's orders are captured at once.
func promptOf(seats int) (n int) {
	for i := range seats {
		if costDeck[i%len(costDeck)] == partPrompt {
			n++
		}
	}
	return n
}

func costEnds() map[string]string {
	const paid = "CONFIRMED: CAPTURED"
	want := map[string]string{others: paid}
	for _, policy := range policies {
		late := "EXPIRED: REFUNDED"
		if policy == policyQuarantine {
			late = paid
		}
		for part, end := range map[string]string{
			partPrompt: paid, partLateCaptured: late, partReconciled: late, partLateDeclined: "EXPIRED: DECLINED",
			partNever: "EXPIRED: REFUND_RESOLVED", partBeyond: "EXPIRED: REFUND_RESOLVED+DONE",
		} {
			want[part+"@"+policy] = end
		}
	}
	return want
}

// ofBoth gives the orders of some payments, of both shows.
func ofBoth(buyers []buyer, parts ...string) []buyer {
	var both []string
	for _, part := range parts {
		for _, policy := range policies {
			both = append(both, part+"@"+policy)
		}
	}
	return playing(buyers, both...)
}

func driveCost(ctx context.Context, env harness.Env) error {
	c, buyers, err := costSeated(ctx, env)
	if err != nil {
		return err
	}
	how := map[string]payments.Behaviour{}
	for _, policy := range policies {
		for _, part := range []string{partLateCaptured, partLateDeclined, partNever, partBeyond} {
			how[part+"@"+policy] = undecided()
		}
		how[partReconciled+"@"+policy] = payments.Behaviour{Answer: payments.Pending, Decide: payments.Held, Callbacks: payments.Lost}
	}
	if err := behave(ctx, env, buyers, how); err != nil {
		return err
	}
	each(ctx, env, buyers, buyer.pays)
	post := newCourier(env)
	claims, err := costExpiry(ctx, env, c, buyers)
	if err != nil {
		return err
	}
	if err := costDecisions(ctx, env, post, buyers); err != nil {
		return err
	}
	if err := finish(ctx, env, post); err != nil {
		return err
	}
	return measureCosts(ctx, env, c, claims)
}

// costSeated gives every member of the first wave a hold, in both shows in turn.
func costSeated(ctx context.Context, env harness.Env) (c costPlan, buyers []buyer, err error) {
	if err := env.Plan().Decode(&c); err != nil {
		return c, nil, err
	}
	if err := onSale(ctx, env, c.Show, c.Release); err != nil {
		return c, nil, err
	}
	n := len(c.Show.Seats)
	requests := make([]harness.Request, 0, 2*n)
	for i, seat := range c.Show.Seats {
		requests = append(requests, claim(i, member(i), c.Show.ID, seat), claim(n+i, member(n+i), c.Release.ID, seat))
	}
	for _, op := range env.DoAll(ctx, requests, hands) {
		h, err := holdOf(op)
		if err != nil {
			return c, nil, err
		}
		buyers = append(buyers, buyer{op.Process, c.Parts[op.Process], h})
	}
	return c, buyers, ctx.Err()
}

// costExpiry lets the holds run out, and the second wave come, whose claims it
// gives.
func costExpiry(ctx context.Context, env harness.Env, c costPlan, buyers []buyer) ([]harness.Operation, error) {
	if err := pastExpiry(ctx, env, lastHold(buyers)); err != nil {
		return nil, err
	}
	const countWaiting = `select count(*) as n from seats where state = case (select policy from shows where shows.show_id = seats.show_id) when 'release' then 'FREE' else 'QUARANTINED' end`
	waiting, err := awaitCount(ctx, env, "every seat whose payment is in flight is what its policy makes of it", 2*len(c.Wave), countWaiting)
	if err != nil {
		return nil, err
	}
	env.Witness("in_flight_at_expiry", float64(2*len(c.Wave)), float64(waiting), "seats of both shows whose hold ran out with its payment in flight")
	var claims, pays []harness.Request
	for k, i := range c.Wave {
		for show, s := range []show{c.Show, c.Release} {
			n := 10_000 + 2*k + show
			claims = append(claims, answers.As(kindSecondWave, claim(n, member(n), s.ID, s.Seats[i])))
		}
	}
	ops := env.DoAll(ctx, claims, hands)
	for _, op := range ops {
		if h, err := holdOf(op); err == nil {
			pays = append(pays, answers.As(kindPaySecondWave, charge(op.Process, op.Caller, h.HoldID, "card-of-"+op.Caller)))
		}
	}
	env.DoAll(ctx, pays, hands)
	return ops, ctx.Err()
}

// costDecisions has the provider decide, one kind of payment after the other.
func costDecisions(ctx context.Context, env harness.Env, post *courier, buyers []buyer) error {
	if err := env.Advance(ctx, 20*time.Second); err != nil { // so that it costs quarantined time
		return err
	}
	if err := decide(ctx, env, payments.Captured, ofBoth(buyers, partLateCaptured, partReconciled)); err != nil {
		return err
	}
	if err := decide(ctx, env, payments.Declined, ofBoth(buyers, partLateDeclined)); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	if err := calm(ctx, env); err != nil {
		return err
	}
	if err := env.Advance(ctx, reconcileEvery+time.Second); err != nil {
		return err
	}
	undecided := len(ofBoth(buyers, partNever, partBeyond))
	if _, err := awaitCount(ctx, env, "reconciliation has found what the provider decided", undecided, countCharging); err != nil {
		return err
	}
	if err := calm(ctx, env); err != nil {
		return err
	}
	if err := toHardTimeout(ctx, env); err != nil {
		return err
	}
	if _, err := awaitCount(ctx, env, "what was never decided is given up", undecided, countGivenUp); err != nil {
		return err
	}
	if err := decide(ctx, env, payments.Captured, ofBoth(buyers, partBeyond)); err != nil {
		return err
	}
	if _, err := post.deliver(ctx); err != nil {
		return err
	}
	return calm(ctx, env)
}

// toHardTimeout moves the clock to the hard timeout of the charge that was sent
// last, and no further: lags are measured.
func toHardTimeout(ctx context.Context, env harness.Env) error {
	rows, err := env.Database().Query(ctx, `select max(sent_at) as sent_at from charges where state = 'CHARGING'`)
	if err != nil {
		return fmt.Errorf("look for the last charge: %w", err)
	}
	return advanceTo(ctx, env, instant(rows[0], "sent_at").Add(hardTimeout))
}

// measureCosts measures what each policy has cost, once the server's own
// figures tell of everything that took place, or it is clear that they won't.
func measureCosts(ctx context.Context, env harness.Env, c costPlan, claims []harness.Operation) error {
	books := costBooks{claims: claims}
	for table, rows := range books.tables() {
		var err error
		if *rows, err = env.Database().Query(ctx, "select * from "+table); err != nil {
			return fmt.Errorf("read %s to measure: %w", table, err)
		}
	}
	for name, v := range books.figures(c) {
		env.Measure(name, v)
	}
	if err := env.Advance(ctx, time.Millisecond); err != nil { // then they are counted anew
		return err
	}
	_, most := lagsOf(books.lags(""))
	late := env.Await(ctx, "the metrics tell the lag", 5*time.Second, func(ctx context.Context) (bool, string, error) {
		op := env.Do(ctx, harness.Request{Kind: kindMetrics, Process: clockProcess, Method: http.MethodGet, Path: "/metrics"})
		_, told, ok := lagTold(op)
		return ok && near(told, most), fmt.Sprintf("they tell %g s", told), nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if late != nil { // the check says so
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "did not come", Text: late.Error()})
	}
	return nil
}
