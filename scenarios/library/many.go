package library

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

func manySeats() harness.Scenario {
	seats := harness.Param{Name: "seats", Kind: harness.IntParam, Default: "10", Min: 1, Max: 26, Doc: "seats that the users are dealt to"}
	return harness.Scenario{
		Name:     "library/many-seats",
		Title:    "a hundred people on ten seats: exactly ten winners",
		Doc:      `The users are dealt evenly to the seats and confirm at one barrier. What happens on one seat must not touch another: each seat gets one reserve POST and one winner.`,
		Sources:  []string{"L-I3", "L-I5", "L-I8"},
		Tags:     []string{"race"},
		Params:   intentParams(seats, paramWire),
		Topology: func(p harness.Params) harness.Topology { return topology(p, nil) },
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			if p.Int("users") < p.Int("seats") {
				return nil, fmt.Errorf("users=%d: want at least as many as seats=%d, so that each seat is wanted", p.Int("users"), p.Int("seats"))
			}
			return choices{Seats: seatNames(rng, p.Int("seats")), Orders: [][]int{rng.Perm(p.Int("users"))}}, nil
		},
		Drive: func(ctx context.Context, env harness.Env) error {
			c, err := chosen(ctx, env, nil)
			if err != nil {
				return err
			}
			if onWire(env.Params()) {
				defer check.AwaitQuiet(env, "pyxis")()
			}
			var people, wanted []string
			for _, n := range c.Orders[0] {
				people, wanted = append(people, student(0, n)), append(wanted, c.Seats[n%len(c.Seats)])
			}
			report, err := burst(ctx, env, "burst", people, wanted)
			witnessOverlap(env, report)
			return err
		},
		Settle: settle, Tables: tables, Outcomes: intentStates, Latency: "confirm",
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("seats")
			return append(always(), eachSeat(check.Exactly(1)), sqlCheck("L-I8", "no_seat_lost.sql"), noOpenTransaction(p),
				tally("one 201 per seat, all others 409", map[string]map[string]int{"burst": {"201": n, "409": p.Int("users") - n}}))
		},
	}
}

func doubleConfirm() harness.Scenario {
	return harness.Scenario{
		Name:     "library/double-confirm",
		Title:    "one action is confirmed twenty times at once",
		Doc:      `One student prepared one action; twenty copies of the confirmation arrive at one barrier. There must be one intent and one reserve POST, and every copy must get the same intent's answer. Another student tried it before: an action is nobody else's to confirm.`,
		Sources:  []string{"L-I1", "L-I5", "L-M17"},
		Tags:     []string{"race"},
		Params:   []harness.Param{with(paramUsers, "20"), paramReplicas, paramPath, paramLatency, paramSigma, paramWindow},
		Topology: func(p harness.Params) harness.Topology { return topology(p, nil) },
		Choose:   func(rng *rand.Rand, _ harness.Params) (any, error) { return choices{Seats: seatNames(rng, 1)}, nil },
		Drive: func(ctx context.Context, env harness.Env) error {
			c, err := chosen(ctx, env, nil)
			if err != nil {
				return err
			}
			me := student(0, 0)
			actions, err := prepare(ctx, env, []string{me}, c.Seats)
			if err != nil {
				return err
			}
			stranger := confirm(1, student(0, 1), actions[0])
			stranger.Kind = "stranger"
			env.Do(ctx, stranger)
			n := env.Params().Int("users")
			report, _, err := release(ctx, env, "copies", same(n, me), same(n, actions[0]))
			witnessOverlap(env, report)
			return err
		},
		Settle: settle, Tables: tables, Outcomes: intentStates, Latency: "confirm",
		Checks: func(p harness.Params) []harness.Check {
			return append(always(), eachSeat(check.Exactly(1)), oneAnswer(),
				tally("every copy is answered 201", map[string]map[string]int{"copies": {"201": p.Int("users")}}),
				told("stranger", "404", "another student's action is unknown to everybody else"))
		},
	}
}

func doubleConfirmDirect() harness.Scenario {
	return variant(doubleConfirm(), "direct", "one action is confirmed twenty times at once, on the direct path", map[string]string{"path": "direct"})
}

// told: the one request of this kind got this answer.
func told(kind, status, doc string) harness.Check {
	return check.Tally(check.TallyRule{
		ID: "answers." + kind, Doc: doc, Rule: "scenarios/library/many.go",
		Group: func(op harness.Operation) string {
			if op.Kind == kind {
				return kind
			}
			return ""
		},
		Want: func(harness.Record) map[string]map[string]int { return map[string]map[string]int{kind: {status: 1}} },
	})
}

// oneAnswer: all copies are told about the same intent.
func oneAnswer() harness.Check {
	const doc = "every copy is told of the same intent"
	return check.Func(check.Rule{ID: "L-I1.answers", Doc: doc, Rule: "scenarios/library/many.go", Judge: func(rec harness.Record) harness.Verdict {
		seen := map[string]string{}
		answered := 0
		for _, op := range rec.History.OfKind("confirm") {
			if op.Answered == 0 || (op.Status >= 500 && check.Broken(rec)) {
				continue
			}
			answered++
			var a struct {
				IntentID string `json:"intent_id"`
			}
			_ = json.Unmarshal([]byte(op.Output), &a) // an answer without an intent counts as the intent ""
			seen[a.IntentID] = check.Line(op)
		}
		if answered == 0 {
			return harness.Undecided(harness.ReasonUndelivered, "no copy was answered")
		}
		if _, nameless := seen[""]; len(seen) != 1 || nameless {
			var e []harness.Evidence
			for _, line := range seen {
				e = append(e, harness.Evidence{Text: line})
			}
			return harness.Violated(e, "%d different intents in %d answers", len(seen), answered)
		}
		return harness.Passed("%s: %s", doc, fmt.Sprintf("%d answers, one intent", answered))
	}})
}
