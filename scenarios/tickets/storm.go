package tickets

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// Cards of the storm.
const (
	goodCard = "card-good"
	badCard  = "card-bad" // is declined
)

// A step is one action of a client in a storm, on the n-th seat of the plan.
// Turn claims the seat, or gives up what the client has.
type step struct {
	Do   string `json:"do"` // turn, pay, decline, again, read
	Seat int    `json:"seat"`
}

// stormChoices are each client's steps.
type stormChoices struct {
	Show    show     `json:"show"`
	Clients [][]step `json:"clients"`
}

func seatStorm() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "tickets/seat-storm",
		Title: "many clients claim, give up, pay for and look at the same few seats",
		Doc: `Clients go through steps that the seed chose, each without a pause between its own: they claim a seat, give up what they have, pay with a card that is good or
one that is declined, act on a hold that is over, and look at all seats. Nothing runs out, and the provider decides at once; its callbacks come twice each, beside it all.
What the clients were told must be explainable by one order of all calls on each seat. A storm in which too little succeeded shows nothing.`,
		Sources: []string{"S-I1", "S-I4", "S-I9", "S-I11", "S-M2", "S-M14"},
		Params: []harness.Param{
			with(paramUsers, "16"), paramReplicas, with(paramSeats, "8"),
			{Name: "steps", Kind: harness.IntParam, Default: "24", Min: 2, Max: 200, Doc: "requests of each client, one after the other"},
		},
		Choose: chooseStorm,
		Drive:  driveStorm,
		Checks: func(p harness.Params) []harness.Check {
			return append(standing(p, allowance{secondAttempts: true}), noServerErrors(), linearizable(), answers.Among(answers.AmongRule{
				ID: "answers", Doc: "what is refused is refused for the seat's, the hold's or the card's sake", Rule: where + "/storm.go", Group: answers.ByKind,
				Allowed: map[string][]string{
					kindClaim: {"201", "409 seat-taken"}, kindRelease: {"200", "409 hold-over"}, kindCharge: {"201", "402 payment-declined", "409 hold-over"}, kindSeats: {"200"},
				},
			}))
		},
	}, nil)
}

func chooseStorm(rng *rand.Rand, p harness.Params) (any, error) {
	c := stormChoices{Show: chooseShow(rng, p, p.Int(paramSeats.Name))}
	for range users(p) {
		steps := make([]step, p.Int("steps"))
		for i := range steps {
			do := []string{"turn", "turn", "turn", "turn", "turn", "decline", "decline", "decline", "again", "read"}[rng.IntN(10)]
			if rng.IntN(40) == 0 { // what is sold stays sold: a storm with many of them is soon over
				do = "pay"
			}
			steps[i] = step{do, rng.IntN(len(c.Show.Seats))}
		}
		c.Clients = append(c.Clients, steps)
	}
	return c, nil
}

func driveStorm(ctx context.Context, env harness.Env) error {
	var c stormChoices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	if err := onSale(ctx, env, c.Show); err != nil {
		return err
	}
	twice := payments.Behaviour{Copies: 2}
	if err := configure(ctx, env, payments.Config{Default: &twice, Cards: map[string]payments.Behaviour{badCard: {Attempts: []string{payments.Declined}, Copies: 2}}}); err != nil {
		return err
	}
	post := newCourier(env)
	stop := post.run(ctx)
	each := make([][]harness.Operation, len(c.Clients))
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() { each[i] = stormSteps(ctx, env, i, c) })
	}
	wg.Wait()
	if err := stop(); err != nil {
		return err
	}
	var all []harness.Operation
	for _, ops := range each {
		all = append(all, ops...)
	}
	env.Witness("max_in_flight", float64(max(2, len(each)/4)), float64(answers.Overlapping(all)), "requests of the storm sent and unanswered at one instant")
	for _, w := range []struct {
		kind, word string
		least      int
	}{{kindClaim, "201", len(c.Show.Seats)}, {kindClaim, "409 seat-taken", 5}, {kindRelease, "200", len(c.Show.Seats) / 2}, {kindCharge, "402 payment-declined", 1}} {
		n := 0
		for _, op := range all {
			if op.Kind == w.kind && answers.Word(op) == w.word {
				n++
			}
		}
		env.Witness(w.kind+" "+w.word, float64(w.least), float64(n), "requests of the storm, "+w.kind+", that were answered "+w.word)
	}
	return finish(ctx, env, post)
}

// stormSteps goes through one client's steps. Who is to pay and has nothing
// claims the seat; who is to act again does so on a hold that is over.
func stormSteps(ctx context.Context, env harness.Env, n int, c stormChoices) (ops []harness.Operation) {
	who, held, over := member(n), "", ""
	for _, s := range c.Clients[n] {
		r := claim(n, who, c.Show.ID, c.Show.Seats[s.Seat])
		switch {
		case s.Do == "read":
			r = seats(n, who, c.Show.ID)
		case s.Do == "again" && over != "" && s.Seat%2 == 0:
			r = release(n, who, over)
		case s.Do == "again" && over != "":
			r = charge(n, who, over, goodCard)
		case held == "": // claims
		case s.Do == "pay":
			r = charge(n, who, held, goodCard)
		case s.Do == "decline": // and tries again with the next call
			ops = append(ops, env.Do(ctx, charge(n, who, held, badCard)))
			r = charge(n, who, held, badCard)
		default:
			r = release(n, who, held)
		}
		op := env.Do(ctx, r)
		switch h, err := holdOf(op); {
		case err == nil && isClaim(op):
			held = h.HoldID
		case op.Status == 201 && op.Kind == kindCharge, op.Status == 200 && op.Kind == kindRelease:
			held, over = "", held
		}
		ops = append(ops, op)
	}
	return ops
}
