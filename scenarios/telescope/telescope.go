package telescope

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/email"
)

// tables are dumped into each record.
var tables = []string{
	"observing_slots", "active_reservations", "member_quotas", "booking_operations", "audit_history", "outbox",
	"email_deliveries", "slot_schedule", // schedule_refreshes has a row as soon as a server runs
}

// settle: whatever a request or a worker began is over. That the schedule has
// caught up is not waited for here but at the end of the drive (caughtUp):
// one that never does is a violation, not a run that did not settle.
var settle = harness.Settle{
	Doc: "no server session is in a transaction, and every event is delivered or parked",
	SQL: `select 'session' as what, pid::text as id, left(query, 80) as state from pg_stat_activity
where datname = current_database() and application_name <> 'overbook' and backend_type = 'client backend' and xact_start is not null
union all
select 'event', event_id::text, type from outbox where delivered_at is null and parked_at is null`,
	Deadline: 15 * time.Second,
}

// patience bounds each wait for something that takes milliseconds.
const patience = 15 * time.Second

// freshness is how old the public schedule may be in healthy operation.
const freshness = 5 * time.Second

// The parameters that several scenarios share.
var (
	paramUsers = harness.Param{
		Name: "users", Kind: harness.IntParam, Default: "100", Min: 2, Max: 1000,
		Doc: "members who act at the same moment",
	}
	paramReplicas = harness.Param{
		Name: "replicas", Kind: harness.IntParam, Default: "1", Min: 1, Max: 8,
		Doc: "server processes behind the same database",
	}
	paramRounds = harness.Param{
		Name: "rounds", Kind: harness.IntParam, Default: "1", Min: 1, Max: 500,
		Doc: "bursts, each on a slot of its own",
	}
	paramSlots = harness.Param{
		Name: "slots", Kind: harness.IntParam, Default: "20", Min: 2, Max: 400,
		Doc: "slots that are acted on",
	}
	paramCopies = harness.Param{
		Name: "copies", Kind: harness.IntParam, Default: "20", Min: 2, Max: 500,
		Doc: "identical copies of one request",
	}
)

// with gives the parameter another default.
func with(p harness.Param, value string) harness.Param {
	p.Default = value
	return p
}

// atLeast gives the parameter another least value.
func atLeast(n int, p harness.Param) harness.Param {
	p.Min = n
	return p
}

// topology is the usual one: replicas of the telescope server, with a schedule
// that is refreshed so often that no scenario has to wait for it, and with
// deadlines that no queue of a burst meets, however busy the machine is: those
// that are about the deadlines set their own.
func topology(p harness.Params, server map[string]string) harness.Topology {
	replicas := 1 // of scenarios that have no such parameter
	if _, ok := p[paramReplicas.Name]; ok {
		replicas = p.Int(paramReplicas.Name)
	}
	t := harness.Topology{
		Design: "telescope", Replicas: replicas, Doubles: []harness.Double{email.Double()},
		PostgresWire: true, // so that a red run shows its statements in their order
		Server: map[string]string{
			"POOL_SIZE": strconv.Itoa(max(8, 24/replicas)), "TELESCOPE_PROJECTION_INTERVAL": "100ms",
			"TELESCOPE_LOCK_TIMEOUT": "10s", "TELESCOPE_STATEMENT_TIMEOUT": "15s",
		},
	}
	maps.Copy(t.Server, server)
	return t
}

// scenario fills in what all scenarios of this package share, and waits at the
// end of the drive until the public schedule has caught up.
func scenario(s harness.Scenario, server map[string]string) harness.Scenario {
	if s.Topology == nil {
		s.Topology = func(p harness.Params) harness.Topology { return topology(p, server) }
	}
	if s.Latency == "" {
		s.Latency = kindBook
	}
	s.Settle, s.Tables, s.Outcomes = settle, tables, events
	s.Tags = append(s.Tags, "race")
	drive := s.Drive
	s.Drive = func(ctx context.Context, env harness.Env) error {
		if err := drive(ctx, env); err != nil {
			return err
		}
		return caughtUp(ctx, env)
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

// rounds says how many rounds the parameters ask for.
func rounds(p harness.Params) int { return p.Int("rounds") }

// caughtUp waits until the schedule shows what is true, for as long as a
// healthy server may take. It is no error when it does not: T-I9 then fails on
// the rows.
func caughtUp(ctx context.Context, env harness.Env) error {
	query, err := invariants.ReadFile("invariants/schedule_is_true.sql")
	if err != nil {
		return err
	}
	var broken error
	from := env.Now()
	late := env.Await(ctx, "the public schedule shows what is true", freshness, func(ctx context.Context) (bool, string, error) {
		rows, err := env.Database().Query(ctx, string(query))
		if err != nil {
			if ctx.Err() == nil { // a query that the deadline cut short is no trouble
				broken = err
			}
			return false, "", err
		}
		return len(rows) == 0, strconv.Itoa(len(rows)) + " slots differ", nil
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case late != nil && broken != nil:
		return late
	case late != nil:
		env.Record(harness.Event{Kind: harness.EventNote, Subject: "schedule", Text: late.Error()})
	}
	env.Measure("schedule_catch_up_ms", float64(env.Now()-from)/float64(time.Millisecond))
	return nil
}
