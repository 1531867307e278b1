// Package library holds the scenarios of design L, library seats: a hundred
// people, one seat, and an upstream that should be written to once.
//
// Each scenario is a Go value in its own file with what it tries, its checks
// and its witness; the SQL invariants stand in invariants/. It must not know
// how the server is built: it uses the HTTP contract, the tables and the
// upstream's words of docs/reference-server.md.
package library

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/pyxis"
)

//go:embed invariants/*.sql
var invariants embed.FS

// All gives the scenarios of this design, in the order in which they run.
func All() []harness.Scenario {
	return []harness.Scenario{
		oneSeat(), oneSeatDirect(), oneSeatReplicas(),
		tickBoundary(), tickBoundaryReplicas(), manySeats(), doubleConfirm(), doubleConfirmDirect(),
		crashAfterAccept(), crashBeforeCall(), crashBeforeCommit(), crashBeforeConfirm(), uncertainResponse(), slowUpstream(),
		credentialRejected(), pausedLockHolder(), redisDown(), waitForSeat(), freedSeat(), drain(),
	}
}

// tables are dumped into each record.
var tables = []string{
	"library_actions", "action_audit", "library_reservation_intents", "library_transitions",
	"library_reservation_outbox", "library_notifications",
}

// settle: nothing is on its way any more. A wait intent may wait for ever.
var settle = harness.Settle{
	Doc: "every intent is terminal or waiting, and every event is delivered or parked",
	SQL: `select 'intent' as what, intent_id::text as id, state from library_reservation_intents
where state not in ('SUCCEEDED', 'FAILED_RACE', 'FAILED_AUTH', 'FAILED_UPSTREAM', 'WAITING_FOR_SEAT')
union all
select 'event', event_id::text, type from library_reservation_outbox where delivered_at is null and parked_at is null`,
	Deadline: 15 * time.Second,
}

// The parameters that several scenarios share.
var (
	paramUsers = harness.Param{
		Name: "users", Kind: harness.IntParam, Default: "100", Min: 2, Max: 1000,
		Doc: "people who confirm at the same moment",
	}
	paramReplicas = harness.Param{
		Name: "replicas", Kind: harness.IntParam, Default: "1", Min: 1, Max: 8,
		Doc: "server processes behind the same database",
	}
	paramPath = harness.Param{
		Name: "path", Kind: harness.ChoiceParam, Default: "intent", Values: []string{"intent", "direct"},
		Doc: "intent: a worker writes upstream; direct: each request does",
	}
	paramRounds = harness.Param{
		Name: "rounds", Kind: harness.IntParam, Default: "1", Min: 1, Max: 500,
		Doc: "bursts, each on a seat of its own",
	}
	paramLatency = harness.Param{
		Name: "latency", Kind: harness.DurationParam, Default: "150ms",
		Doc: "median of the upstream's latency (lognormal); 0 for none",
	}
	paramSigma = harness.Param{
		Name: "sigma_percent", Kind: harness.IntParam, Default: "40", Max: 200,
		Doc: "sigma of the lognormal latency, in hundredths",
	}
	paramSkip = harness.Param{
		Name: "latency_skip", Kind: harness.IntParam, Default: "0", Max: 1_000_000,
		Doc: "latencies of the seed's sequence to leave out, for going on where another run stopped",
	}
	paramWire = harness.Param{
		Name: "postgres_wire", Kind: harness.ChoiceParam, Default: "on", Values: []string{"on", "off"},
		Doc: "stand on the wire to Postgres, and hold each upstream call until transactions that were open have ended; off leaves latencies alone",
	}
	paramWindow = harness.Param{
		Name: "window", Kind: harness.DurationParam, Default: "0s",
		Doc: "the upstream's check-then-act window; 0 makes it atomic",
	}
)

// with gives the parameter another default.
func with(p harness.Param, value string) harness.Param {
	p.Default = value
	return p
}

// commonParams are those of a burst on the library, on either path.
func commonParams(more ...harness.Param) []harness.Param {
	return append([]harness.Param{paramUsers, paramReplicas, paramPath, paramLatency, paramSigma, paramWindow}, more...)
}

// intentParams are those of a burst whose checks are about the intent path.
func intentParams(more ...harness.Param) []harness.Param {
	return append([]harness.Param{paramUsers, paramReplicas, paramLatency, paramSigma, paramWindow}, more...)
}

// topology is the usual one: replicas of the library server and the pyxis double.
func topology(p harness.Params, server map[string]string) harness.Topology {
	replicas, path := 1, "intent" // of scenarios that have no such parameter
	if _, ok := p["replicas"]; ok {
		replicas = p.Int("replicas")
	}
	if _, ok := p["path"]; ok {
		path = p.Text("path")
	}
	t := harness.Topology{
		Design: "library", Replicas: replicas, Redis: replicas > 1, Doubles: []harness.Double{pyxis.Double()},
		Server: map[string]string{"LIBRARY_PATH": path, "POOL_SIZE": strconv.Itoa(max(4, 16/replicas))},
	}
	maps.Copy(t.Server, server)
	t.PostgresWire = onWire(p)
	return t
}

// latencyConfig is the double's word for the parameters' latency.
func latencyConfig(p harness.Params) map[string]any {
	median := p.Duration("latency")
	if median == 0 {
		return map[string]any{"model": "none"}
	}
	skip := 0
	if _, ok := p[paramSkip.Name]; ok {
		skip = p.Int(paramSkip.Name)
	}
	return map[string]any{
		"skip": skip, "model": "lognormal", "median_ms": float64(median) / float64(time.Millisecond), "sigma": float64(p.Int("sigma_percent")) / 100,
	}
}

// onWire says whether the plan wants the Postgres wire in the path.
func onWire(p harness.Params) bool { return p[paramWire.Name] == "on" }

// configure sets the double up with the seats and the latency of the plan.
func configure(ctx context.Context, env harness.Env, seats []string, more map[string]any) error {
	p := env.Params()
	config := map[string]any{
		"seats": seats, "latency": latencyConfig(p), "window_ms": float64(p.Duration("window")) / float64(time.Millisecond),
	}
	maps.Copy(config, more)
	return env.Upstream("pyxis").Configure(ctx, config)
}

// chosen gives what the plan chose, and sets the double up with it.
func chosen(ctx context.Context, env harness.Env, more map[string]any) (choices, error) {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return c, err
	}
	return c, configure(ctx, env, c.Seats, more)
}

// rivals sets the double up and prepares one action per student, all for the
// one seat that the plan chose.
func rivals(ctx context.Context, env harness.Env, more map[string]any) (people, actions []string, err error) {
	c, err := chosen(ctx, env, more)
	if err != nil {
		return nil, nil, err
	}
	people = students(env.Params().Int("users"))
	actions, err = prepare(ctx, env, people, same(len(people), c.Seats[0]))
	return people, actions, err
}

// student names the student who is client n of round r.
func student(round, n int) string { return fmt.Sprintf("student-%d", round*1000+n+1) }

func bearer(name string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + name}
}

// prepare makes one action per student, each for its seat, and gives the ids
// in the same order. Preparing is not part of the race.
func prepare(ctx context.Context, env harness.Env, students, seats []string) ([]string, error) {
	requests := make([]harness.Request, len(students))
	for i, s := range students {
		requests[i] = harness.Request{
			Kind: "prepare", Process: i, Method: http.MethodPost, Path: "/library/actions", Header: bearer(s),
			Body: json.RawMessage(fmt.Sprintf(`{"seat":%q}`, seats[i])),
		}
	}
	ids := make([]string, len(students))
	for i, op := range env.DoAll(ctx, requests, 16) {
		var answer struct {
			ActionID string `json:"action_id"`
		}
		if op.Status != http.StatusCreated {
			return nil, fmt.Errorf("prepare for %s: got %d %s %s, want 201", students[i], op.Status, op.Err, op.Output)
		}
		if err := op.Decode(&answer); err != nil {
			return nil, err
		}
		ids[i] = answer.ActionID
	}
	return ids, nil
}

// confirm is the request that the races are about.
func confirm(process int, student, action string) harness.Request {
	return harness.Request{
		Kind: "confirm", Process: process, Method: http.MethodPost, Path: "/library/actions/" + action + "/confirm", Header: bearer(student),
	}
}

// burst prepares the students' actions and confirms them all at one barrier.
func burst(ctx context.Context, env harness.Env, name string, students, seats []string) (harness.BurstReport, error) {
	actions, err := prepare(ctx, env, students, seats)
	if err != nil {
		return harness.BurstReport{}, err
	}
	report, _, err := release(ctx, env, name, students, actions)
	return report, err
}

// release confirms prepared actions at one barrier.
func release(ctx context.Context, env harness.Env, name string, students, actions []string) (harness.BurstReport, []harness.Operation, error) {
	b := harness.Burst{Name: name}
	for i := range students {
		b.Requests = append(b.Requests, confirm(i, students[i], actions[i]))
	}
	return env.Burst(ctx, b)
}

// witnessOverlap records how many were in flight at once; half of the burst
// must have been for it to be a race.
func witnessOverlap(env harness.Env, r harness.BurstReport) {
	env.Witness("max_in_flight", float64(max(2, r.Requests/2)), float64(r.MaxInFlight), "requests of "+r.Name+" sent and unanswered at one instant")
}

// same gives n times the same text.
func same(n int, text string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = text
	}
	return list
}

// students gives the n students of the first round, in the order that the plan chose.
func students(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = student(0, i)
	}
	return list
}
