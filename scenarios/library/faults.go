package library

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// lease is what the fault scenarios give the server; long enough that nothing
// but moving the clock ends it.
const lease = time.Minute

// afterLease is how far the clock is moved so that a lease has run out.
const afterLease = lease + time.Second

// patience bounds each wait for something that takes milliseconds.
const patience = 15 * time.Second

// reserve is a fault on the first reserve call.
func reserve(name string, at harness.Moment) harness.UpstreamFault {
	return harness.UpstreamFault{Name: name, Method: "POST", Path: "/reserve", Nth: 1, At: at}
}

// struck is a fault's own report that it took place.
type struck struct {
	hits chan hit // one, the n-th
}

// A hit is the call that a fault struck, and why the fault could not do to it
// what it was meant to do.
type hit struct {
	call harness.UpstreamCall
	err  error
}

func newStruck() struck { return struck{make(chan hit, 1)} }

// note is a fault's Do: it never blocks, the fault strikes once.
func (s struck) note(c harness.UpstreamCall, err error) {
	select {
	case s.hits <- hit{c, err}:
	default:
	}
}

// wait waits until the fault has struck. The error may also be the fault's own.
func (s struck) wait(ctx context.Context, what string) (harness.UpstreamCall, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case h := <-s.hits:
		return h.call, h.err
	case <-timer.C:
		return harness.UpstreamCall{}, fmt.Errorf("%s: did not happen within %s", what, patience)
	case <-ctx.Done():
		return harness.UpstreamCall{}, fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}

// awaitNone waits until the query returns no row.
func awaitNone(ctx context.Context, env harness.Env, what, sql string) error {
	return env.Await(ctx, what, patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, sql)
		if err != nil || len(rows) == 0 {
			return err == nil, "", err
		}
		return false, fmt.Sprintf("%d rows, such as %v", len(rows), rows[0]), nil
	})
}

// awaitIntents waits until so many intents are in one of the states.
func awaitIntents(ctx context.Context, env harness.Env, n int, what, condition string) error {
	return env.Await(ctx, what, patience, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, "select count(*) as n from library_reservation_intents where "+condition)
		if err != nil {
			return false, "", err
		}
		got, _ := rows[0]["n"].(float64)
		return int(got) >= n, fmt.Sprintf("%d of %d", int(got), n), nil
	})
}

// serverByName finds a replica.
func serverByName(env harness.Env, name string) harness.Server {
	for _, s := range env.Servers() {
		if s.Name() == name {
			return s
		}
	}
	panic("no server " + name)
}

// faultParams are those of the fault scenarios: always the intent path of one
// server, unless a scenario fixes its own replicas.
func faultParams(users string) []harness.Param {
	return []harness.Param{with(paramUsers, users), with(paramLatency, "40ms"), paramSigma, paramWindow}
}

// faultScenario fills in what the fault scenarios share.
func faultScenario(s harness.Scenario, env map[string]string) harness.Scenario {
	if s.Params == nil {
		s.Params = faultParams("20")
	}
	server := map[string]string{"LIBRARY_LEASE": lease.String(), "LIBRARY_REAPER_INTERVAL": "50ms", "LIBRARY_ACTION_TTL": "30m"}
	maps.Copy(server, env)
	if s.Topology == nil {
		s.Topology = func(p harness.Params) harness.Topology { return topology(p, server) }
	}
	s.Choose = chooseOne
	s.Settle, s.Tables, s.Outcomes, s.Latency = settle, tables, intentStates, "confirm"
	s.Tags = append(s.Tags, "race", "fault")
	return s
}

func crashAfterAccept() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "library/crash-after-accept",
		Title: "the server is killed when the upstream has accepted and before it hears of it",
		Doc: `At the moment "upstream accepted, answer not forwarded yet" the calling server is killed with SIGKILL. It is started
again, its lease runs out, and the reaper must find out by reading that the seat is taken: SUCCEEDED, without a second
reserve POST. The clients then confirm again and get the stored answers.`,
		Sources: []string{"L-I3", "L-I4", "L-I5", "L-M4", "L-M6", "L-M7", "L-M20"},
		Drive: func(ctx context.Context, env harness.Env) error {
			return driveCrash(ctx, env, harness.MomentAccepted, false)
		},
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			return append(always(), eachSeat(check.Exactly(1)), sqlCheck("L-I8", "no_seat_lost.sql"),
				tally("asked again, one is told 201, all others 409", map[string]map[string]int{"again": {"201": 1, "409": n - 1}}),
				states("the accepted one succeeded, nobody else", map[string]int{"SUCCEEDED": 1, "FAILED_RACE": n - 1}))
		},
	}, nil)
}

func crashBeforeCall() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "library/crash-before-call",
		Title: "the server is killed after the claim and before the upstream got the call",
		Doc: `The first reserve call is swallowed on the wire, and the calling server is killed with SIGKILL. Nothing was reserved. After
the restart the reaper reads that there is no charge: that one intent is FAILED_UPSTREAM and is not tried again; the seat
goes to the next of the group, with one POST of its own.`,
		Sources: []string{"L-I2", "L-I5", "L-I8", "L-M4", "L-M7"},
		Drive: func(ctx context.Context, env harness.Env) error {
			return driveCrash(ctx, env, harness.MomentReceived, true)
		},
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			return append(always(), eachSeat(check.Exactly(2)), sqlCheck("L-I8", "no_seat_lost.sql"),
				tally("asked again, one is told 502, one 201, all others 409", map[string]map[string]int{"again": {"502": 1, "201": 1, "409": n - 2}}),
				states("one failed upstream, the next one succeeded", map[string]int{"FAILED_UPSTREAM": 1, "SUCCEEDED": 1, "FAILED_RACE": n - 2}))
		},
	}, nil)
}

// driveCrash kills the server that makes the first reserve call at the given
// moment, starts it again, lets the lease run out and asks everybody's answer.
func driveCrash(ctx context.Context, env harness.Env, at harness.Moment, swallow bool) error {
	people, actions, err := rivals(ctx, env, nil)
	if err != nil {
		return err
	}
	// The kill waits until every confirmation is stored, so that the group is
	// the same in each run.
	killed := newStruck()
	fault := reserve("SIGKILL the caller", at)
	fault.Drop = swallow
	fault.Do = func(_ context.Context, call harness.UpstreamCall) {
		killed.note(call, errors.Join(
			awaitIntents(ctx, env, len(people), "all confirmations are stored", "true"),
			serverByName(env, call.Caller).Kill(ctx)))
	}
	heal := env.Upstream("pyxis").Inject(fault)
	if _, _, err := release(ctx, env, "burst", people, actions); err != nil {
		return err
	}
	call, err := killed.wait(ctx, "the server is killed in its first reserve call")
	if err != nil {
		return err
	}
	heal()
	asMeant := call.Status == http.StatusCreated && !swallow || call.Forwarded == 0 && swallow
	seen := "which pyxis never saw"
	if call.Forwarded != 0 {
		seen = fmt.Sprintf("which pyxis had answered %d", call.Status)
	}
	env.Witness("killed_at_moment", 1, count(asMeant), fmt.Sprintf("%s killed at %s of call %d, %s", call.Caller, at, call.Seq, seen))
	if err := serverByName(env, call.Caller).Start(ctx); err != nil {
		return err
	}
	if err := env.Advance(ctx, afterLease); err != nil {
		return err
	}
	if err := awaitNone(ctx, env, "the reaper and the worker have decided every intent", settle.SQL); err != nil {
		return err
	}
	_, _, err = release(ctx, env, "again", people, actions)
	return err
}

func uncertainResponse() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "library/uncertain-response",
		Title: "the upstream accepts and the connection is reset before its answer",
		Doc: `The first reserve call is accepted, then its connection is reset. The server cannot know what happened and must read the
current charge instead of writing again or reporting a failure.`,
		Sources: []string{"L-I3", "L-I5", "L-M20"},
		Params:  faultParams("100"),
		Drive: func(ctx context.Context, env harness.Env) error {
			c, err := chosen(ctx, env, nil)
			if err != nil {
				return err
			}
			lost := newStruck()
			fault := reserve("reset instead of the answer", harness.MomentAccepted)
			fault.Drop = true
			fault.Do = func(_ context.Context, call harness.UpstreamCall) { lost.note(call, nil) }
			heal := env.Upstream("pyxis").Inject(fault)
			defer heal()
			people := students(env.Params().Int("users"))
			report, err := burst(ctx, env, "burst", people, same(len(people), c.Seats[0]))
			if err != nil {
				return err
			}
			witnessOverlap(env, report)
			call, err := lost.wait(ctx, "the first reserve call loses its answer")
			if err != nil {
				return err
			}
			env.Witness("answer_lost", 1, count(call.Status == http.StatusCreated), fmt.Sprintf("call %d was answered %d, and its connection reset", call.Seq, call.Status))
			return nil
		},
		Checks: func(p harness.Params) []harness.Check {
			return oneWinnerOnce(p)
		},
	}, nil)
}

func slowUpstream() harness.Scenario {
	return faultScenario(harness.Scenario{
		Name:  "library/slow-upstream",
		Title: "the upstream accepts, and answers only after the lease ran out and the reaper decided",
		Doc: `The answer of the first reserve call is held back. The lease runs out, the reaper reads the charge and stores SUCCEEDED;
only then is the late answer let go to the worker that is still waiting for it. The stored state must not change again,
and no event may be doubled.`,
		Sources: []string{"L-I5", "L-I7", "L-M16", "L-M19"},
		Drive:   driveSlow,
		Checks: func(p harness.Params) []harness.Check {
			return oneWinnerOnce(p)
		},
	}, map[string]string{"LIBRARY_UPSTREAM_TIMEOUT": "45s", "LIBRARY_CONFIRM_WAIT": "25s"})
}

func driveSlow(ctx context.Context, env harness.Env) error {
	people, actions, err := rivals(ctx, env, nil)
	if err != nil {
		return err
	}
	held := newStruck()
	letGo := make(chan struct{})
	fault := reserve("hold the answer back", harness.MomentAccepted)
	fault.Hold = letGo
	fault.Do = func(_ context.Context, call harness.UpstreamCall) { held.note(call, nil) }
	heal := env.Upstream("pyxis").Inject(fault)
	defer heal()
	done := make(chan error, 1)
	go func() {
		_, _, err := release(ctx, env, "burst", people, actions)
		done <- err
	}()
	outlive := func() error {
		if _, err := held.wait(ctx, "the first reserve call is accepted"); err != nil {
			return err
		}
		if err := env.Advance(ctx, afterLease); err != nil {
			return err
		}
		return awaitIntents(ctx, env, 1, "the reaper decides while the call is unanswered", "state = 'SUCCEEDED'")
	}
	err = outlive()
	decided := env.Now()
	close(letGo)
	if err = errors.Join(err, <-done); err != nil {
		return err
	}
	if err := flush(ctx, env, env.Servers()[0]); err != nil {
		return err
	}
	witnessLate(env, decided)
	return nil
}

// witnessLate records that the answer which was held back reached its caller,
// after the intent had been decided: a caller that had given the call up
// before has not been tried.
func witnessLate(env harness.Env, decided time.Duration) {
	late := 0
	for _, c := range env.Upstream("pyxis").Calls() {
		if c.Method == "POST" && c.Path == "/reserve" && c.Status == http.StatusCreated && c.Answered > decided {
			late++
		}
	}
	env.Witness("late_answers", 1, float64(late), "reserve calls whose 201 reached its caller after a terminal state was stored")
}

// count is the witness of something that took place once or not at all.
func count(tookPlace bool) float64 {
	if tookPlace {
		return 1
	}
	return 0
}

// flush makes sure that a server has worked on everything it had been
// answered: it stops it gracefully, which finishes what is in flight, and
// starts it again, so that events which this left behind are delivered.
func flush(ctx context.Context, env harness.Env, server harness.Server) error {
	answered := func(context.Context) (bool, string, error) {
		for _, call := range env.Upstream("pyxis").Calls() {
			if call.Answered == 0 && call.Err == "" {
				return false, fmt.Sprintf("call %d %s is still on its way", call.Seq, call.Path), nil
			}
		}
		return true, "", nil
	}
	if err := env.Await(ctx, "every upstream call is answered", patience, answered); err != nil {
		return err
	}
	if err := server.Terminate(ctx); err != nil {
		return err
	}
	return server.Start(ctx)
}
