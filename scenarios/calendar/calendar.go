package calendar

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// What the servers of all scenarios count in server time, said here so that the
// clock can be moved by it.
const (
	syncInterval      = 5 * time.Millisecond
	syncBackoff       = 100 * time.Millisecond
	syncClaim         = 30 * time.Second
	reconcileInterval = 40 * time.Millisecond
	parkAfter         = 50
	horizon           = 17520 * time.Hour
)

// patience bounds each wait for something that takes milliseconds.
const patience = 20 * time.Second

// tables are dumped into each record.
var tables = []string{
	"resources", "accounts", "appointments", "appointment_audit", "outbox", "syncs", "conflicts", "external_events", "looks", "appointment_operations",
}

// workable are the appointments with pending events that some server could work
// on: not what is parked, not what a resource that is paused, has lost its
// authorisation or was asked to be quiet keeps waiting. A claim counts as long
// as nobody has given it back. Rows do not know server time, which scenarios
// move; it is at least what the server has written last.
const workable = `with now as (
  select greatest(clock_timestamp(), (select max(at) from appointment_audit), (select max(looked_at) from looks)) as at
), paused as (
  select r.resource_id from resources r
  where (select count(*) from conflicts c where c.resource_id = r.resource_id and c.resolved_at is null) > r.conflict_limit
)
select 'synchronisation' as what, s.appointment_id::text as id,
       a.state || ', ' || s.attempts || ' failed attempts, due ' || coalesce(s.due_at::text, 'never') || coalesce(', claimed until ' || s.claimed_until::text, '') || coalesce(', ' || left(s.last_error, 80), '') as state
from syncs s
join appointments a using (appointment_id)
join accounts ac using (resource_id)
cross join now
where s.claim is not null
   or (exists (select from outbox o where o.appointment_id = s.appointment_id and o.done_at is null)
       and s.parked_at is null and ac.state = 'OK' and coalesce(ac.quiet_until, now.at) <= now.at
       and not (a.state = 'BOOKED' and a.resource_id in (select resource_id from paused)))`

// settle: whatever a request, the provider or a synchroniser began is over.
var settle = harness.Settle{
	Doc: "no server session is in a transaction, and no appointment is claimed, or has events that it could be synchronised by (parked, paused, quiet, without authorisation: they don't count)",
	SQL: workable + `
union all
select 'session', pid::text, left(query, 80) from pg_stat_activity
where datname = current_database() and application_name <> 'overbook' and backend_type = 'client backend' and xact_start is not null`,
	Deadline: patience,
}

// The parameters that several scenarios share.
var (
	paramUsers = harness.Param{
		Name: "users", Kind: harness.IntParam, Default: "50", Min: 2, Max: 1000,
		Doc: "members who act at the same moment",
	}
	paramReplicas = harness.Param{
		Name: "replicas", Kind: harness.IntParam, Default: "1", Min: 1, Max: 8,
		Doc: "server processes behind the same database",
	}
	paramRounds = harness.Param{
		Name: "rounds", Kind: harness.IntParam, Default: "1", Min: 1, Max: 500,
		Doc: "bursts, each on times of its own",
	}
	paramCopies = harness.Param{
		Name: "copies", Kind: harness.IntParam, Default: "20", Min: 2, Max: 200,
		Doc: "copies of one request, with one key",
	}
	paramContract = harness.Param{
		Name: "contract", Kind: harness.ChoiceParam, Default: contractCheck, Values: []string{contractCheck, contractAtomic},
		Doc: "what the provider guarantees: a create that is refused when somebody else is there, or not even that",
	}
	paramPolicy = harness.Param{
		Name: "policy", Kind: harness.ChoiceParam, Default: policyReject, Values: []string{policyReject, policyKeep},
		Doc: "what becomes of an appointment over which somebody else's event is found",
	}
)

// with gives the parameter another default.
func with(p harness.Param, value string) harness.Param {
	p.Default = value
	return p
}

// upTo bounds the parameter where its default bound would leave the horizon.
func upTo(p harness.Param, most int) harness.Param {
	p.Max = most
	return p
}

func users(p harness.Params) int { return p.Int(paramUsers.Name) }

// rounds says how many rounds the parameters ask for.
func rounds(p harness.Params) int { return p.Int(paramRounds.Name) }

func roundName(i int) string { return fmt.Sprintf("round-%d", i+1) }

// topology is the usual one: replicas of the calendar server that look so often
// at what is to be done that no scenario has to wait for it, and with deadlines
// that no queue of a burst meets, however busy the machine is: those that are
// about the deadlines set their own. server is added to the environment.
func topology(p harness.Params, server map[string]string) harness.Topology {
	replicas := 1 // of scenarios that have no such parameter
	if _, ok := p[paramReplicas.Name]; ok {
		replicas = p.Int(paramReplicas.Name)
	}
	t := harness.Topology{
		Design: "calendar", Replicas: replicas, Doubles: []harness.Double{countable()},
		PostgresWire: true, // so that a red run shows its statements in their order
		Server: map[string]string{
			"POOL_SIZE": strconv.Itoa(poolOf(p, replicas)), "CALENDAR_LOCK_TIMEOUT": "10s", "CALENDAR_STATEMENT_TIMEOUT": "15s",
			"CALENDAR_SYNC_INTERVAL": syncInterval.String(), "CALENDAR_SYNC_BACKOFF": syncBackoff.String(), "CALENDAR_SYNC_CLAIM": syncClaim.String(),
			"CALENDAR_RECONCILE_INTERVAL": reconcileInterval.String(), "CALENDAR_PARK_AFTER": strconv.Itoa(parkAfter), "CALENDAR_HORIZON": horizon.String(),
		},
	}
	maps.Copy(t.Server, server)
	return t
}

// poolOf is how many connections a replica opens: enough for a burst, and where
// a few members act at once no more than those need, as opening them is a good
// part of such a run.
func poolOf(p harness.Params, replicas int) int {
	const few = hands + 2
	if _, ok := p[paramEach.Name]; ok {
		return few
	}
	return max(few, 24/replicas)
}

// countable is the provider, of whose calls both observers count those that end
// when everything is synchronised. Reconciliation goes on looking at GET /events
// as long as there are servers, so that no two counts of it are of one instant.
func countable() harness.Double {
	d := provider.Double()
	d.Count = slices.DeleteFunc(slices.Clone(d.Count), func(call string) bool { return call == "GET /events" })
	return d
}

// scenario fills in what all scenarios of this package share. A drive ends with
// [finish]. A scenario that has a topology keeps it; server is the further
// environment else.
func scenario(s harness.Scenario, server map[string]string) harness.Scenario {
	if s.Topology == nil {
		s.Topology = func(p harness.Params) harness.Topology { return topology(p, server) }
	}
	if s.Latency == "" {
		s.Latency = kindBook
	}
	s.Settle, s.Tables, s.Outcomes = settle, tables, outcomes
	s.Tags = append(s.Tags, "race")
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

// onReplicas is the same scenario on three replicas, which take as many rounds
// as one does.
func onReplicas(s harness.Scenario, title string) harness.Scenario {
	return variant(s, "3-replicas", title, map[string]string{paramReplicas.Name: "3"})
}

// halfOnReplicas is the same on three replicas with half the rounds. It is for
// scenarios whose planted bugs are found on one replica, in all the rounds.
func halfOnReplicas(s harness.Scenario, title string) harness.Scenario {
	defaults := map[string]string{paramReplicas.Name: "3"}
	for _, p := range s.Params {
		if n, err := strconv.Atoi(p.Default); err == nil && p.Name == paramRounds.Name {
			defaults[p.Name] = strconv.Itoa((n + 1) / 2)
		}
	}
	return variant(s, "3-replicas", title, defaults)
}

// outcomes tallies the appointments of a record by state.
func outcomes(rec harness.Record) map[string]int {
	n := map[string]int{}
	rows, _ := rec.Find("table:appointments")
	for _, r := range rows.Rows {
		n[text(r, "state")]++
	}
	return n
}
