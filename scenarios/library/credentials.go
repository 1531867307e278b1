package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

func credentialRejected() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "library/credential-rejected",
		Title: "the upstream rejects the credential of the one who goes first",
		Doc: `One student, whose credential the upstream rejects, confirms first; while that reserve call is on its way everybody else
confirms the same seat. The rejected one must end as FAILED_AUTH and must not take the seat away from the others: the
next of the group goes upstream and wins.`,
		Sources: []string{"L-I5", "L-I8", "L-M8"},
		Params:  atLeast(3, faultParams("20")), // one is rejected, and one alone is no race
		Drive:   driveRejected,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			return append(always(), eachSeat(check.Exactly(2)), sqlCheck("L-I8", "no_seat_lost.sql"),
				oneWinner(map[string]int{"burst": n - 1}), firstIsTold(),
				states("the rejected one failed as such, the next one won", map[string]int{"FAILED_AUTH": 1, "SUCCEEDED": 1, "FAILED_RACE": n - 2}))
		},
	}, nil)
}

// atLeast raises the least number of users that makes sense.
func atLeast(users int, params []harness.Param) []harness.Param {
	for i := range params {
		if params[i].Name == paramUsers.Name {
			params[i].Min = users
		}
	}
	return params
}

// firstIsTold: the one whose credential was rejected hears so.
func firstIsTold() harness.Check {
	return check.Tally(check.TallyRule{
		ID: "answers.first", Doc: "the one with the rejected credential is told 403", Rule: "scenarios/library/credentials.go",
		Group: func(op harness.Operation) string {
			if op.Kind == "confirm" && op.Burst == "" {
				return "first"
			}
			return ""
		},
		Want: func(harness.Record) map[string]map[string]int { return map[string]map[string]int{"first": {"403": 1}} },
	})
}

func driveRejected(ctx context.Context, env harness.Env) error {
	people, actions, err := rivals(ctx, env, map[string]any{"reject_students": students(1)})
	if err != nil {
		return err
	}
	onWay := newStruck()
	letGo := make(chan struct{})
	fault := reserve("hold the first call until everybody has confirmed", harness.MomentReceived)
	fault.Hold = letGo
	fault.Do = func(_ context.Context, call harness.UpstreamCall) { onWay.note(call, nil) }
	heal := env.Upstream("pyxis").Inject(fault)
	defer heal()
	led := make(chan harness.Operation, 1)
	go func() { led <- env.Do(ctx, confirm(0, people[0], actions[0])) }()
	_, err = onWay.wait(ctx, "the first reserve call is on its way")
	done := make(chan error, 1)
	if err == nil {
		go func() {
			report, _, err := release(ctx, env, "burst", people[1:], actions[1:])
			witnessOverlap(env, report)
			done <- err
		}()
		err = awaitIntents(ctx, env, len(people), "all confirmations are stored", "true")
	} else {
		done <- nil
	}
	close(letGo)
	op := <-led
	err = errors.Join(err, <-done)
	rejected := 0
	for _, c := range env.Upstream("pyxis").Calls() {
		if c.Method == "POST" && c.Path == "/reserve" && c.Status == http.StatusUnauthorized {
			rejected++
		}
	}
	env.Witness("rejected_by_upstream", 1, float64(rejected), fmt.Sprintf("reserve calls answered 401; the student was told %d", op.Status))
	return err
}

func waitForSeat() harness.Scenario {
	s := faultScenario(harness.Scenario{
		Name:  "library/wait-for-seat",
		Title: "five students wait for a seat that somebody else holds; then it becomes free",
		Doc: `An outsider holds the seat. Registering a wait is itself the consent. While the seat is held nobody may be written upstream or
closed as a lost race, and the retries back off. When the outsider leaves, one of the waiting students gets the seat and the others go on waiting.`,
		Sources: []string{"L-I2", "L-I5", "L-I8", "L-M15", "L-M18"},
		Params:  []harness.Param{with(paramUsers, "5"), with(paramLatency, "10ms"), paramSigma, paramWindow},
		Drive:   driveWait,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			return append(always(), backsOff(),
				check.Calls(check.CallRule{
					ID: "L-I5", Doc: "reserve POSTs per seat", Rule: "scenarios/library/credentials.go",
					Upstream: "pyxis", Method: "POST", Path: "/reserve", Key: seatOf, Each: check.AtMost(n),
				}),
				states("one waiting student got the seat, the others wait on", map[string]int{"SUCCEEDED": 1, "WAITING_FOR_SEAT": n - 1}))
		},
	}, map[string]string{"LIBRARY_WAIT_BACKOFF": waitBackoff.String(), "LIBRARY_TICK": "20ms", "LIBRARY_CACHE_TTL": "10ms"})
	s.Latency = "wait"
	return s
}

// waitBackoff is far longer than the scenario takes, so that attempts come
// only when the clock is moved.
const waitBackoff = time.Minute

func driveWait(ctx context.Context, env harness.Env) error {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	seat := c.Seats[0]
	if err := configure(ctx, env, c.Seats, map[string]any{"taken": []map[string]string{{"seat": seat, "student": outsider + "-1"}}}); err != nil {
		return err
	}
	people := students(env.Params().Int("users"))
	requests := make([]harness.Request, len(people))
	for i, s := range people {
		requests[i] = harness.Request{
			Kind: "wait", Process: i, Method: http.MethodPost, Path: "/library/waits", Header: bearer(s),
			Body: json.RawMessage(fmt.Sprintf(`{"seats":[%q]}`, seat)),
		}
	}
	report, ops, err := env.Burst(ctx, harness.Burst{Name: "waits", Requests: requests})
	if err != nil {
		return err
	}
	env.Witness("max_in_flight", 2, float64(report.MaxInFlight), "wait requests at once")
	for _, op := range ops {
		if op.Status != http.StatusAccepted {
			return fmt.Errorf("register a wait: got %d %s %s, want 202", op.Status, op.Err, op.Output)
		}
	}
	waiting := func(looks int) string {
		return fmt.Sprintf("state = 'WAITING_FOR_SEAT' and looks >= %d", looks)
	}
	// Two rounds of attempts while the seat is held, the second one only after
	// the backoff of the first.
	for round := 1; round <= 2; round++ {
		if err := awaitIntents(ctx, env, len(people), fmt.Sprintf("look %d of everybody found no seat", round), waiting(round)); err != nil {
			return err
		}
		if round == 1 {
			if err := env.Advance(ctx, 2*waitBackoff); err != nil {
				return err
			}
		}
	}
	held, err := waitingTwice(ctx, env)
	if err != nil {
		return err
	}
	env.Witness("waited", float64(len(people)), held, "students who waited while the seat was held by somebody else, through two looks at it")
	if err := env.Upstream("pyxis").Configure(ctx, map[string]any{"free": []string{seat}}); err != nil {
		return err
	}
	if err := env.Advance(ctx, 10*waitBackoff); err != nil {
		return err
	}
	return awaitIntents(ctx, env, 1, "one of the waiting students gets the seat", "state = 'SUCCEEDED'")
}

// waitingTwice counts who has looked for a seat at least twice and waits on.
func waitingTwice(ctx context.Context, env harness.Env) (float64, error) {
	rows, err := env.Database().Query(ctx, "select count(*) as n from library_reservation_intents where state = 'WAITING_FOR_SEAT' and looks >= 2")
	if err != nil {
		return 0, err
	}
	n, _ := rows[0]["n"].(float64)
	return n, nil
}

// backsOff: a wait intent does not look for a seat more often than its backoff
// allows. The clock was moved twice, so there were at most three looks, one at
// each standing of the clock, and one more that may have been lost to a rival.
func backsOff() harness.Check {
	const most = 4
	return check.Func(check.Rule{
		ID: "L-I8.backoff", Doc: "a waiting intent is not tried before its backoff has passed", NeedsSettled: true,
		Rule: "scenarios/library/credentials.go", Judge: func(rec harness.Record) harness.Verdict {
			rows, ok := rec.Find("table:library_reservation_intents")
			if !ok || len(rows.Rows) == 0 {
				return harness.Undecided(harness.ReasonEnvironment, "the intents could not be read")
			}
			greatest := 0.0
			for _, r := range rows.Rows {
				n, ok := r["looks"].(float64)
				if !ok {
					return harness.Undecided(harness.ReasonEnvironment, "an intent does not say how often it looked for a seat")
				}
				greatest = max(greatest, n)
			}
			if greatest == 0 {
				return harness.Undecided(harness.ReasonVacuous, "no intent ever looked for a seat")
			}
			if greatest > most {
				return harness.Violated([]harness.Evidence{{Text: check.Table(rows.Rows, 5)}}, "an intent looked for a seat %g times, at most %d allowed", greatest, most)
			}
			return harness.Passed("at most %g looks of one intent", greatest)
		},
	})
}
