package library

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

func tickBoundary() harness.Scenario {
	waves := harness.Param{Name: "waves", Kind: harness.IntParam, Default: "5", Min: 2, Max: 50, Doc: "bursts that the users are spread over"}
	return harness.Scenario{
		Name:  "library/tick-boundary",
		Title: "the burst on one seat is spread over several worker ticks",
		Doc: `The worker is woken by its tick alone. The users come in waves: the second wave is released while the first wave's
reserve call is still unanswered, each further wave after the one before was answered. Grouping inside a tick cannot
see the later waves; the suppression across ticks must close them without another POST.`,
		Sources: []string{"L-I5", "L-I8", "L-M2"},
		Tags:    []string{"race"},
		Params:  intentParams(waves, harness.Param{Name: "tick", Kind: harness.DurationParam, Default: "20ms", Doc: "the worker's tick"}),
		Topology: func(p harness.Params) harness.Topology {
			return topology(p, map[string]string{"LIBRARY_WAKE": "tick", "LIBRARY_TICK": p.Text("tick")})
		},
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			if p.Int("users") < p.Int("waves") {
				return nil, fmt.Errorf("users=%d: want at least as many as waves=%d, so that no wave is empty", p.Int("users"), p.Int("waves"))
			}
			return choices{Seats: seatNames(rng, 1)}, nil
		},
		Drive: driveTicks, Settle: settle, Tables: tables, Outcomes: intentStates, Latency: "confirm",
		Checks: func(p harness.Params) []harness.Check {
			return append(always(), eachSeat(check.Exactly(1)), sqlCheck("L-I8", "no_seat_lost.sql"),
				states("one winner, everybody else lost the race", map[string]int{"SUCCEEDED": 1, "FAILED_RACE": p.Int("users") - 1}))
		},
	}
}

func tickBoundaryReplicas() harness.Scenario {
	return variant(tickBoundary(), "3-replicas", "waves over several worker ticks of three replicas", map[string]string{"replicas": "3"})
}

func driveTicks(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env, nil)
	if err != nil {
		return err
	}
	p := env.Params()
	waves := split(students(p.Int("users")), p.Int("waves"))
	actions := make([][]string, len(waves))
	for i, people := range waves {
		var err error
		if actions[i], err = prepare(ctx, env, people, same(len(people), c.Seats[0])); err != nil {
			return err
		}
	}
	onWay := newStruck()
	heal := env.Upstream("pyxis").Inject(harness.UpstreamFault{
		Name: "notice the first reserve call", Method: "POST", Path: "/reserve", Nth: 1, At: harness.MomentReceived,
		Do: func(_ context.Context, call harness.UpstreamCall) { onWay.note(call, nil) },
	})
	defer heal()
	first := make(chan error, 1)
	go func() {
		_, _, err := release(ctx, env, waveName(0), waves[0], actions[0])
		first <- err
	}()
	_, err = onWay.wait(ctx, "the first wave's reserve call is on its way")
	during, after := 0, 0
	for i := 1; i < len(waves) && err == nil; i++ {
		var report harness.BurstReport
		if report, _, err = release(ctx, env, waveName(i), waves[i], actions[i]); err != nil {
			break
		}
		call := firstReserve(env)
		switch {
		case i == 1 && call.Received < report.Released && (call.Answered == 0 || report.Released < call.Answered):
			during++
		case call.Answered != 0 && call.Answered < report.Released:
			after++
		}
		if i == 1 {
			err = <-first
			first <- nil // it has been told
		}
	}
	err = errors.Join(err, <-first)
	env.Witness("wave_during_call", 1, float64(during), "waves released while the first reserve call was unanswered")
	if len(waves) > 2 {
		env.Witness("waves_after_call", float64(len(waves)-2), float64(after), "waves released after the first reserve call was answered, in later ticks")
	}
	return err
}

// firstReserve is the first reserve call that came.
func firstReserve(env harness.Env) harness.UpstreamCall {
	for _, c := range env.Upstream("pyxis").Calls() {
		if c.Method == "POST" && c.Path == "/reserve" {
			return c
		}
	}
	return harness.UpstreamCall{}
}

func waveName(i int) string { return fmt.Sprintf("wave-%d", i+1) }

// split deals the people into n parts, as even as can be.
func split(people []string, n int) [][]string {
	parts := make([][]string, n)
	for i, s := range people {
		parts[i%n] = append(parts[i%n], s)
	}
	return parts
}
