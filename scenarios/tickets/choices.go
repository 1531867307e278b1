package tickets

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

// choices are what the seed decides in most scenarios of this design.
type choices struct {
	Show   show    `json:"show"`
	Orders [][]int `json:"orders,omitempty"` // of the clients, per round
}

// chosen gives what the plan chose, with the show on sale.
func chosen(ctx context.Context, env harness.Env) (choices, error) {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return c, err
	}
	return c, onSale(ctx, env, c.Show)
}

// chooseShow draws a show with so many seats, under the policy of the
// parameters, if they have one.
func chooseShow(rng *rand.Rand, p harness.Params, seats int) show {
	s := show{
		ID: 1000 + int64(rng.IntN(9_000_000)), Policy: policyQuarantine,
		Price: 101 + 2*int64(rng.IntN(50_000)), Currency: []string{"EUR", "USD", "JPY"}[rng.IntN(3)], // odd: no halves without a rest
	}
	if policy, ok := p[paramPolicy.Name]; ok {
		s.Policy = policy
	}
	for i := range seats {
		s.Seats = append(s.Seats, fmt.Sprintf("%c-%d", 'A'+i/20, i%20+1))
	}
	return s
}

// chooseOrders draws a show with a seat for each of the rounds, and an order
// of the clients for each.
func chooseOrders(clients func(harness.Params) int, seatsPerRound int) func(*rand.Rand, harness.Params) (any, error) {
	return func(rng *rand.Rand, p harness.Params) (any, error) {
		c := choices{Show: chooseShow(rng, p, seatsPerRound*rounds(p))}
		for range rounds(p) {
			c.Orders = append(c.Orders, rng.Perm(clients(p)))
		}
		return c, nil
	}
}

func roundName(i int) string { return fmt.Sprintf("round-%d", i+1) }

// roundMember is client n of round r: everybody acts in one round only.
func roundMember(round, n int) string { return member(round*10_000 + n) }

// roundCard is a card of a round.
func roundCard(round int) string { return fmt.Sprintf("card-%d", round+1) }

// configure changes what the provider does.
func configure(ctx context.Context, env harness.Env, c payments.Config) error {
	return env.Upstream(payments.Name).Configure(ctx, c)
}

// undecided is a card whose payments stay pending until the provider is told
// to decide.
func undecided() payments.Behaviour {
	return payments.Behaviour{Answer: payments.Pending, Decide: payments.Held}
}

// fields are words of an answer, for checks that compare single ones.
func fields(op harness.Operation) map[string]any {
	var doc map[string]any
	if json.Unmarshal([]byte(op.Output), &doc) != nil {
		return nil
	}
	return doc
}

// inputOf are words of a request's body.
func inputOf(op harness.Operation) map[string]any {
	var doc map[string]any
	if json.Unmarshal(op.Input, &doc) != nil {
		return nil
	}
	return doc
}

// tallied compares how many rows of a table are in each state.
func tallied(id, doc, table string, want map[string]int) harness.Check {
	return funcCheck(id, doc, "choices.go", true, func(rec harness.Record) harness.Verdict {
		rows, ok := rec.Find("table:" + table)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "%s could not be read", table)
		}
		got := map[string]int{}
		for _, r := range rows.Rows {
			got[text(r, "state")]++
		}
		switch {
		case len(rows.Rows) == 0 && len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonVacuous, "nobody did anything")
		case !maps.Equal(got, answers.Positive(want)):
			return harness.Violated([]harness.Evidence{{Text: "got " + answers.Text(got) + "; want " + answers.Text(want)}}, "%s: got %s", doc, answers.Text(got))
		}
		return harness.Passed("%s: %s", doc, answers.Text(got))
	})
}

// holdStates and seatStates compare how the holds and the seats ended.
func holdStates(doc string, want map[string]int) harness.Check {
	return tallied("states.holds", doc, "holds", want)
}

func seatStates(doc string, want map[string]int) harness.Check {
	return tallied("states.seats", doc, "seats", want)
}

// awaitHold waits until the hold is in a state, by its row.
func awaitHold(ctx context.Context, env harness.Env, holdID string, states ...string) error {
	return env.Await(ctx, "hold "+holdID+" is "+strings.Join(states, " or "), patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, `select state from holds where hold_id = $1::text::uuid and state = any($2)`, holdID, states)
		return len(rows) == 1, "it is not", err
	})
}
