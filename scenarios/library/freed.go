package library

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// memory is how long the server of freed-seat remembers that a seat is taken.
const memory = 2 * time.Minute

func freedSeat() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "library/freed-seat",
		Title: "a seat that somebody else held becomes free; it is remembered as taken for one TTL, no longer",
		Doc: `An outsider holds the seat: the first burst loses it with one reserve POST. The outsider leaves. A second burst within the action
TTL is closed from memory, without another POST. Then the clock is moved past the TTL: the third burst must not be closed
by what was true once, its first goes upstream and wins. An action that was prepared before that has expired, too.`,
		Sources: []string{"L-I5", "L-I8", "L-M2", "L-M14"},
		Drive:   driveFreed,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			return append(always(), eachSeat(check.Exactly(2)), sqlCheck("L-I8", "no_seat_lost.sql"),
				tally("all lose the seat that is held, and the remembered one; one wins the free one", map[string]map[string]int{
					"held": {"409": n}, "remembered": {"409": n}, "free": {"201": 1, "409": n - 1},
				}),
				told("expired", "410", "an action can't be confirmed past its TTL"),
				states("one winner when the seat was free, everybody else lost", map[string]int{"SUCCEEDED": 1, "FAILED_RACE": 3*n - 1}))
		},
	}, map[string]string{"LIBRARY_ACTION_TTL": memory.String()})
}

func driveFreed(ctx context.Context, env harness.Env) error {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	seat, n := c.Seats[0], env.Params().Int("users")
	if err := configure(ctx, env, c.Seats, map[string]any{"taken": []map[string]string{{"seat": seat, "student": outsider + "-1"}}}); err != nil {
		return err
	}
	latecomer := []string{student(3, 0)}
	old, err := prepare(ctx, env, latecomer, []string{seat})
	if err != nil {
		return err
	}
	for round, name := range []string{"held", "remembered", "free"} {
		switch name {
		case "remembered":
			if err := env.Upstream("pyxis").Configure(ctx, map[string]any{"free": []string{seat}}); err != nil {
				return err
			}
		case "free":
			if err := env.Advance(ctx, memory+time.Second); err != nil {
				return err
			}
			expired := confirm(0, latecomer[0], old[0])
			expired.Kind = "expired"
			env.Do(ctx, expired)
		}
		people := make([]string, n)
		for i := range people {
			people[i] = student(round, i)
		}
		report, err := burst(ctx, env, name, people, same(n, seat))
		if err != nil {
			return err
		}
		witnessOverlap(env, report)
	}
	refused := 0
	for _, call := range env.Upstream("pyxis").Calls() {
		if call.Method == "POST" && call.Path == "/reserve" && call.Status == http.StatusConflict {
			refused++
		}
	}
	env.Witness("refused_by_upstream", 1, float64(refused), fmt.Sprintf("reserve calls for %s answered 409 while it was held", seat))
	return nil
}
