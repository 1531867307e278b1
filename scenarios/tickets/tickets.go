package tickets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/payments"
)

// What the servers of all scenarios count in server time: the defaults of the
// contract, said here so that the clock can be moved by them.
const (
	holdLife       = 8 * time.Minute
	hardTimeout    = 15 * time.Minute // from when a charge was sent
	reconcileAfter = time.Minute
	reconcileEvery = 30 * time.Second
	callbackWindow = 5 * time.Minute
)

// secret is what the servers and the provider share.
const secret = "callbacks-of-the-ticket-shop"

// tick is how often a server looks at what has run out.
const tick = 25 * time.Millisecond

// patience bounds each wait for something that takes milliseconds.
const patience = 15 * time.Second

// The policies of a show.
const (
	policyQuarantine = "quarantine"
	policyRelease    = "release"
)

// tables are dumped into each record.
var tables = []string{"shows", "seats", "holds", "charges", "refunds", "provider_events", "ticket_audit", "outbox", "notices"}

// settle: whatever a request, the provider or a worker began is over. Rows do
// not know server time, which scenarios move; it is at least what the server
// has written last.
var settle = harness.Settle{
	Doc: "no server session is in a transaction, no charge in flight, no refund due, no hold past its time, no question due, and every event is delivered or parked",
	SQL: `with now as (select greatest(clock_timestamp(), (select max(at) from ticket_audit), (select max(received_at) from provider_events)) as at)
select 'session' as what, pid::text as id, left(query, 80) as state from pg_stat_activity
where datname = current_database() and application_name <> 'overbook' and backend_type = 'client backend' and xact_start is not null
union all
select 'charge', charge_id::text, state from charges where state = 'CHARGING'
union all
select 'refund', refund_id::text, state || ', ' || attempts || ' attempts' from refunds where state = 'PENDING' and parked_at is null
union all
select 'hold past its time', hold_id::text, state from holds, now where state = 'RESERVED' and expires_at <= now.at
union all
select 'question', charge_id::text, state from charges, now where next_ask_at <= now.at
union all
select 'event', event_id::text, type from outbox where delivered_at is null and parked_at is null`,
	Deadline: patience,
}

// The parameters that several scenarios share.
var (
	paramUsers = harness.Param{
		Name: "users", Kind: harness.IntParam, Default: "100", Min: 2, Max: 2000,
		Doc: "members who act at the same moment",
	}
	paramReplicas = harness.Param{
		Name: "replicas", Kind: harness.IntParam, Default: "1", Min: 1, Max: 8,
		Doc: "server processes behind the same database",
	}
	paramRounds = harness.Param{
		Name: "rounds", Kind: harness.IntParam, Default: "1", Min: 1, Max: 500,
		Doc: "bursts, each on a seat of its own",
	}
	paramSeats = harness.Param{
		Name: "seats", Kind: harness.IntParam, Default: "80", Min: 1, Max: 2000,
		Doc: "seats of the show",
	}
	paramPolicy = harness.Param{
		Name: "policy", Kind: harness.ChoiceParam, Default: policyQuarantine, Values: []string{policyQuarantine, policyRelease},
		Doc: "what becomes of a seat whose hold ends while a payment is in flight",
	}
)

// with gives the parameter another default.
func with(p harness.Param, value string) harness.Param {
	p.Default = value
	return p
}

// topology is the usual one: replicas of the ticket server that look at what
// has run out so often that no scenario has to wait for it, and with deadlines
// that no queue of a burst meets, however busy the machine is: those that are
// about the deadlines set their own. server is added to the environment.
func topology(p harness.Params, server map[string]string) harness.Topology {
	replicas := 1 // of scenarios that have no such parameter
	if _, ok := p[paramReplicas.Name]; ok {
		replicas = p.Int(paramReplicas.Name)
	}
	t := harness.Topology{
		Design: "tickets", Replicas: replicas, Doubles: []harness.Double{payments.Double()},
		PostgresWire: true, // so that a red run shows its statements in their order
		Server: map[string]string{
			"POOL_SIZE": strconv.Itoa(max(8, 24/replicas)), "TICKETS_CALLBACK_SECRET": secret, "TICKETS_TICK": tick.String(),
			"TICKETS_LOCK_TIMEOUT": "10s", "TICKETS_STATEMENT_TIMEOUT": "15s", "TICKETS_HOLD": holdLife.String(),
			"TICKETS_HARD_TIMEOUT": hardTimeout.String(), "TICKETS_RECONCILE_AFTER": reconcileAfter.String(),
			"TICKETS_RECONCILE_EVERY": reconcileEvery.String(), "TICKETS_CALLBACK_WINDOW": callbackWindow.String(),
		},
	}
	maps.Copy(t.Server, server)
	return t
}

// scenario fills in what all scenarios of this package share. While it is
// driven the seats are sampled (S-I11). A drive ends with [finish]. A scenario
// that has a topology keeps it; server is the further environment else.
func scenario(s harness.Scenario, server map[string]string) harness.Scenario {
	if s.Topology == nil {
		s.Topology = func(p harness.Params) harness.Topology { return topology(p, server) }
	}
	if s.Latency == "" {
		s.Latency = kindClaim
	}
	s.Settle, s.Tables, s.Outcomes = settle, tables, outcomes
	s.Tags = append(s.Tags, "race")
	drive := s.Drive
	s.Drive = func(ctx context.Context, env harness.Env) error {
		stop := sampleSeats(ctx, env)
		err := drive(ctx, env)
		return errors.Join(err, stop())
	}
	return s
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

// onReplicas is the same scenario on three replicas.
func onReplicas(s harness.Scenario, title string) harness.Scenario {
	return variant(s, "3-replicas", title, map[string]string{"replicas": "3"})
}

// released is the same scenario under the policy release.
func released(s harness.Scenario, title string) harness.Scenario {
	return variant(s, "release", title, map[string]string{"policy": policyRelease})
}

// rounds says how many rounds the parameters ask for.
func rounds(p harness.Params) int { return p.Int(paramRounds.Name) }

// outcomes tallies the holds of a record by state.
func outcomes(rec harness.Record) map[string]int {
	n := map[string]int{}
	rows, _ := rec.Find("table:holds")
	for _, r := range rows.Rows {
		n[fmt.Sprint(r["state"])]++
	}
	return n
}

// openAt is what is not over yet at a given server time, as of one instant:
// what [settle] asks, with the time known, and without sessions.
const openAt = `select 'charge' as what, charge_id::text as id, state from charges where state = 'CHARGING'
union all
select 'refund', refund_id::text, state from refunds where state = 'PENDING' and parked_at is null
union all
select 'hold past its time', hold_id::text, state from holds where state = 'RESERVED' and expires_at <= $1
union all
select 'question', charge_id::text, state from charges where next_ask_at <= $1
union all
select 'event', event_id::text, type from outbox where delivered_at is null and parked_at is null`

// finish ends a drive: the courier delivers what is due, the clock is moved past
// the hard timeout when a charge is left that the provider will be asked about,
// and then it waits until nothing is open and nothing due, delivering on. That
// something stays open is no error here: what a server should have done by
// then is judged (S-I6.due), the rest shows as a run that did not settle.
func finish(ctx context.Context, env harness.Env, c *courier) error {
	if _, err := c.deliver(ctx); err != nil {
		return err
	}
	left, err := env.Database().Query(ctx, `select 1 from charges where next_ask_at is not null limit 1`)
	if err != nil {
		return fmt.Errorf("look for charges that will be asked about: %w", err)
	}
	if len(left) > 0 {
		if err := env.Advance(ctx, hardTimeout+time.Second); err != nil {
			return err
		}
	}
	var failed, broken error // broken: twice in a row, as the deadline may cut the last question short
	late := env.Await(ctx, "everything is over and every callback delivered", patience, func(ctx context.Context) (bool, string, error) {
		state, err := stillOpen(ctx, env, c)
		if err != nil && failed == nil {
			failed = err
			return false, state, nil
		}
		failed, broken = err, err
		return state == "" && err == nil, state, err
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case late != nil && broken != nil:
		return late
	case late != nil:
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "open at the end", Text: late.Error()})
	}
	if err := readAllSeats(ctx, env); err != nil {
		return err
	}
	return noteServerTime(ctx, env)
}

// readAllSeats asks for the seats of every show, as anybody may.
func readAllSeats(ctx context.Context, env harness.Env) error {
	shows, err := env.Database().Query(ctx, `select show_id from shows order by show_id`)
	if err != nil {
		return fmt.Errorf("look for the shows: %w", err)
	}
	for _, s := range shows {
		env.Do(ctx, seats(staffProcess, staff(0), whole(s, "show_id")))
	}
	return ctx.Err()
}

// stillOpen delivers what is due and says what is open, "" for nothing.
func stillOpen(ctx context.Context, env harness.Env, c *courier) (string, error) {
	n, err := c.deliver(ctx)
	if left := c.left(); err != nil || n > 0 || left > 0 {
		return fmt.Sprintf("%d callbacks were due, %d wait for another try", n, left), err
	}
	now, err := serverNow(ctx, env)
	if err != nil {
		return "", err
	}
	rows, err := env.Database().Query(ctx, openAt, now)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return fmt.Sprintf("%d are open, such as %v %v, %v", len(rows), rows[0]["what"], rows[0]["id"], rows[0]["state"]), nil
}
