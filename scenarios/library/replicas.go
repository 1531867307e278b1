package library

import (
	"context"
	"errors"
	"fmt"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// withRedis is the topology of scenarios about the Redis seat lock.
func withRedis(replicas int, server map[string]string) func(harness.Params) harness.Topology {
	return func(p harness.Params) harness.Topology {
		t := topology(p, server)
		t.Replicas, t.Redis = replicas, true
		t.Server["POOL_SIZE"] = "8"
		return t
	}
}

func pausedLockHolder() harness.Scenario {
	server := map[string]string{
		"LIBRARY_LEASE": lease.String(), "LIBRARY_REAPER_INTERVAL": "50ms", "LIBRARY_ACTION_TTL": "30m", "LIBRARY_SEAT_LOCK_TTL": "500ms",
		"LIBRARY_UPSTREAM_TIMEOUT": "45s", "LIBRARY_CONFIRM_WAIT": "25s", "LIBRARY_TICK": "50ms",
	}
	return faultScenario(harness.Scenario{
		Name:  "library/paused-lock-holder",
		Title: "the holder of the seat lock is stopped past its lease; another replica takes over; it wakes up",
		Doc: `sut-1 claims the seat, holds its Redis lock and has written upstream; then it is stopped with SIGSTOP (as a long garbage
collection would). Redis forgets the lock, the lease runs out, sut-2 reads the charge and decides, and closes everybody
else. Then sut-1 goes on with its late answer. No second POST, no state that changes again.`,
		Sources:  []string{"L-I3", "L-I5", "L-I7", "L-M9", "L-M16"},
		Topology: withRedis(2, server),
		Drive:    drivePaused,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			return append(always(), eachSeat(check.Exactly(1)), sqlCheck("L-I8", "no_seat_lost.sql"),
				tally("everybody at the other replica lost the race", map[string]map[string]int{"burst": {"409": n - 1}}),
				states("the paused one succeeded, nobody else", map[string]int{"SUCCEEDED": 1, "FAILED_RACE": n - 1}))
		},
	}, nil)
}

func drivePaused(ctx context.Context, env harness.Env) error {
	people, actions, err := rivals(ctx, env, nil)
	if err != nil {
		return err
	}
	first, second := env.Servers()[0], env.Servers()[1]
	paused := newStruck()
	letGo := make(chan struct{})
	fault := reserve("SIGSTOP the caller", harness.MomentAccepted)
	fault.Hold = letGo
	fault.Do = func(ctx context.Context, call harness.UpstreamCall) {
		paused.note(call, serverByName(env, call.Caller).Signal(ctx, "STOP"))
	}
	heal := env.Upstream("pyxis").Inject(fault)
	defer heal()
	leader := confirm(0, people[0], actions[0])
	leader.Server = first.Name()
	led := make(chan harness.Operation, 1)
	go func() { led <- env.Do(ctx, leader) }()
	takeOver := func() error {
		call, err := paused.wait(ctx, "the first reserve call is accepted")
		if err != nil {
			return err
		}
		if call.Caller != first.Name() {
			return fmt.Errorf("the reserve call came from %s, expected %s, which was asked first", call.Caller, first.Name())
		}
		if err := env.Advance(ctx, afterLease); err != nil {
			return err
		}
		b := harness.Burst{Name: "burst"}
		for i := 1; i < len(people); i++ {
			r := confirm(i, people[i], actions[i])
			r.Server = second.Name()
			b.Requests = append(b.Requests, r)
		}
		_, _, err = env.Burst(ctx, b)
		return err
	}
	err = takeOver()
	undecided := awaitIntents(ctx, env, 1, "the other replica decides", "state = 'SUCCEEDED'")
	decided := env.Now()
	close(letGo)
	err = errors.Join(err, undecided, first.Signal(ctx, "CONT"))
	op := <-led
	if err != nil {
		return err
	}
	if err := flush(ctx, env, first); err != nil {
		return err
	}
	rows, err := env.Database().Query(ctx, "select count(*) as n from library_transitions where to_state = 'SUCCEEDED' and replica = $1", second.Name())
	if err != nil {
		return err
	}
	n, _ := rows[0]["n"].(float64)
	env.Witness("decided_by_other", 1, n, fmt.Sprintf("times that %s decided while %s was stopped, whose client was answered %d in the end", second.Name(), first.Name(), op.Status))
	witnessLate(env, decided)
	return nil
}

func redisDown() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "library/redis-down",
		Title: "Redis is unreachable during the burst on three replicas",
		Doc: `The Redis lock lowers cost; it is not what correctness rests on. Every connection to it is cut and refused before the burst
is released. There must still be one reserve POST for the seat, and nobody may notice.`,
		Sources:  []string{"L-I3", "L-I5", "L-M9"},
		Params:   faultParams("100"),
		Topology: withRedis(3, nil),
		Drive: func(ctx context.Context, env harness.Env) error {
			people, actions, err := rivals(ctx, env, nil)
			if err != nil {
				return err
			}
			mend := env.Redis().Cut()
			defer mend()
			env.Record(harness.Event{Kind: harness.EventFault, Subject: "redis", Text: "every connection cut, new ones refused"})
			report, _, err := release(ctx, env, "burst", people, actions)
			witnessOverlap(env, report)
			env.Witness("redis_refused", 1, float64(env.Redis().Refused()), "connections to Redis that were broken or refused from before the release until the last answer")
			return err
		},
		Checks: func(p harness.Params) []harness.Check {
			return oneWinnerOnce(p)
		},
	}, nil)
}

func drain() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "library/drain",
		Title: "one of two replicas is told to stop (SIGTERM) in the middle of the burst",
		Doc: `When the first reserve call is on its way, the replica that makes it gets SIGTERM. It must finish or hand back what it has:
every client gets an answer, nobody's connection is dropped, the process exits by itself, and whatever is left is done
by the other replica.`,
		Sources:  []string{"L-I2", "L-I4", "L-I5"},
		Params:   faultParams("100"),
		Topology: withRedis(2, map[string]string{"SHUTDOWN_GRACE": "8s", "LIBRARY_TICK": "50ms"}),
		Drive:    driveDrain,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			return append(always(), eachSeat(check.Exactly(1)), sqlCheck("L-I8", "no_seat_lost.sql"), everyAnswer(),
				states("one winner, everybody else lost the race", map[string]int{"SUCCEEDED": 1, "FAILED_RACE": n - 1}))
		},
	}, nil)
}

func driveDrain(ctx context.Context, env harness.Env) error {
	people, actions, err := rivals(ctx, env, nil)
	if err != nil {
		return err
	}
	told := newStruck()
	fault := reserve("SIGTERM the caller", harness.MomentReceived)
	fault.Do = func(ctx context.Context, call harness.UpstreamCall) {
		told.note(call, errors.Join(
			awaitIntents(ctx, env, len(people), "all confirmations are stored", "true"),
			serverByName(env, call.Caller).Signal(ctx, "TERM")))
	}
	heal := env.Upstream("pyxis").Inject(fault)
	defer heal()
	report, _, err := release(ctx, env, "burst", people, actions)
	if err != nil {
		return err
	}
	call, err := told.wait(ctx, "the first reserve call is on its way")
	if err != nil {
		return err
	}
	witnessOverlap(env, report)
	env.Witness("terminated_in_burst", 1, count(call.Forwarded == 0), fmt.Sprintf("%s got SIGTERM at call %d", call.Caller, call.Seq))
	return serverByName(env, call.Caller).Terminate(ctx)
}

// everyAnswer: no client is left without an answer, and none gets a bare 500.
func everyAnswer() harness.Check {
	return answered("every client of the burst is answered: 201, 202, 409, or 503 with Retry-After", func(op harness.Operation) bool {
		return op.Status == 201 || op.Status == 202 || op.Status == 409 || (op.Status == 503 && op.Header["Retry-After"] != "")
	})
}

// answered: every confirmation has one of the answers that are fine.
func answered(doc string, fine func(harness.Operation) bool) harness.Check {
	return check.Func(check.Rule{ID: "answers", Doc: doc, Rule: "scenarios/library/replicas.go", Judge: func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		lost := 0
		ops := rec.History.OfKind("confirm")
		for _, op := range ops {
			if (op.Status == 0 && (op.Sent == 0 || len(rec.Trouble) > 0)) || (op.Status >= 500 && check.Broken(rec)) {
				lost++ // by us, in a run that was cut short, or to an environment that broke
			} else if !fine(op) {
				wrong = append(wrong, harness.Evidence{Text: check.Line(op) + " " + op.Err, Ops: []string{op.ID}})
			}
		}
		switch {
		case len(ops) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody confirmed")
		case len(wrong) > 0:
			return harness.Violated(wrong[:min(5, len(wrong))], "%d of %d clients were not answered as they should", len(wrong), len(ops))
		case lost > 0:
			return harness.Undecided(harness.ReasonUndelivered, "%d of %d confirmations were not sent, given up, or failed in a broken environment", lost, len(ops))
		}
		return harness.Passed("%s: %d", doc, len(ops))
	}})
}
