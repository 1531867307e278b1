package library

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// choices are what the seed decides in the bursts of this design.
type choices struct {
	Seats  []string `json:"seats"`            // one per round
	Orders [][]int  `json:"orders,omitempty"` // of the clients, per round
}

// seatNames draws n different seat names.
func seatNames(rng *rand.Rand, n int) []string {
	names := make([]string, 0, n)
	for i, row := range rng.Perm(max(26, n))[:n] {
		names = append(names, fmt.Sprintf("%c-%03d", 'A'+row%26, i+1))
	}
	return names
}

// chooseRounds decides a seat and an order of clients for each round.
func chooseRounds(rng *rand.Rand, p harness.Params) (any, error) {
	c := choices{Seats: seatNames(rng, p.Int("rounds"))}
	for range c.Seats {
		c.Orders = append(c.Orders, rng.Perm(p.Int("users")))
	}
	return c, nil
}

func roundName(i int) string { return fmt.Sprintf("round-%d", i+1) }

func rounds(p harness.Params) int { return p.Int("rounds") }

func oneSeat() harness.Scenario {
	return harness.Scenario{
		Name:  "library/one-seat",
		Title: "a hundred people confirm one seat at the same moment",
		Doc: `Each of the users has prepared an action of their own for the same seat. All confirm at one barrier.
With path=intent a worker writes upstream for all of them: one reserve POST, one 201, all others 409.
With path=direct each request writes for itself: as many POSTs as users, and who wins is the upstream's business.
Set window=150ms to give the upstream a check-then-act window, as real ones have: the direct path then overbooks
the seat, the intent path does not.`,
		Sources:  []string{"L-I1", "L-I2", "L-I3", "L-I4", "L-I5", "L-I6", "L-M1", "L-M3"},
		Tags:     []string{"race", "demo"},
		Params:   commonParams(paramRounds, paramSkip, paramWire),
		Topology: func(p harness.Params) harness.Topology { return topology(p, nil) },
		Choose:   chooseRounds,
		Drive:    driveOneSeat,
		Settle:   settle,
		Tables:   tables,
		Checks:   checksOneSeat,
		Rounds:   rounds,
		Outcomes: intentStates,
		Latency:  "confirm",
	}
}

func driveOneSeat(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env, nil)
	if err != nil {
		return err
	}
	if onWire(env.Params()) {
		defer check.AwaitQuiet(env, "pyxis")()
	}
	for round, seat := range c.Seats {
		people := make([]string, len(c.Orders[round]))
		for i, n := range c.Orders[round] {
			people[i] = student(round, n)
		}
		report, err := burst(ctx, env, roundName(round), people, same(len(people), seat))
		if err != nil {
			return err
		}
		witnessOverlap(env, report)
	}
	return nil
}

// checksOneSeat knows the seats by their order only: names come from the seed,
// so posts are keyed by the burst that the causing request was part of.
func checksOneSeat(p harness.Params) []harness.Check {
	users := p.Int("users")
	posts := check.Exactly(1)
	if p.Text("path") == "direct" {
		posts = check.Exactly(users)
	}
	bursts := map[string]int{}
	for i := range p.Int("rounds") {
		bursts[roundName(i)] = users
	}
	checks := append(always(), oneWinner(bursts), eachSeat(posts), sqlCheck("L-I8", "no_seat_lost.sql"))
	if onWire(p) || p.Duration("latency") > 0 { // a call without latency can't be sampled
		checks = append(checks, noOpenTransaction(p))
	}
	return checks
}

// eachSeat is the write amplification: how many reserve POSTs each seat of the
// plan cost.
func eachSeat(b check.Bounds) harness.Check {
	return check.Calls(check.CallRule{
		ID: "L-I5", Doc: "reserve POSTs per seat", Rule: "scenarios/library/checks.go",
		Upstream: "pyxis", Method: "POST", Path: "/reserve", Key: seatOf,
		Want: func(rec harness.Record) map[string]check.Bounds {
			var c choices
			if err := rec.Plan.Decode(&c); err != nil {
				panic(err) // reported as checker-error
			}
			if len(c.Seats) == 0 {
				panic("the plan names no seat") // so is this
			}
			want := map[string]check.Bounds{}
			for _, s := range c.Seats {
				want[s] = b
			}
			return want
		},
	})
}

// variant gives the scenario another name and other defaults.
func variant(s harness.Scenario, suffix, title string, defaults map[string]string) harness.Scenario {
	s.Name += "@" + suffix
	s.Title = title
	params := make([]harness.Param, len(s.Params))
	for i, p := range s.Params {
		params[i] = p
		if v, ok := defaults[p.Name]; ok {
			params[i].Default = v
		}
	}
	s.Params = params
	return s
}

func oneSeatDirect() harness.Scenario {
	s := variant(oneSeat(), "direct", "the same burst with every request writing upstream itself", map[string]string{"path": "direct"})
	s.Tags = []string{"race"}
	return s
}

func oneSeatReplicas() harness.Scenario {
	s := variant(oneSeat(), "3-replicas", "the same burst spread over three replicas", map[string]string{"replicas": "3"})
	s.Tags = []string{"race"}
	return s
}
