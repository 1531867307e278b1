package calendar

// Statements that run for clients, and those by which resources and
// appointments change. They are prepared on every connection, and each is a
// round trip of its own.
//
// The first statement of a request's transaction has the request's
// X-Overbook-Op as a parameter, so that whoever watches the wire knows whose it
// is. Where nothing is stored of it, it is only looked at.

// noOverlap is the constraint that is the only rule of overlap.
const noOverlap = "appointments_no_overlap"

// appointmentColumns are what scanAppointment scans.
const appointmentColumns = `appointment_id, resource_id, member, lower(during), upper(during), time_zone, state, event_id, series_id, series_no, version`

// Locks, and what changes under them.
const (
	sqlLockResource = `
select resource_id, calendar, state, coalesce(provider_contract, ''), coalesce(conflict_policy, ''), coalesce(conflict_limit, 0)
from resources where resource_id = $1 for no key update`

	sqlLockAppointments = `
select ` + appointmentColumns + ` from appointments where appointment_id = any($1::uuid[]) order by appointment_id for no key update`

	// sqlNote counts the change and writes it down.
	sqlNote = `
with counted as (update appointments set version = $2 where appointment_id = $1 and version = $2 - 1 returning appointment_id, version, during)
insert into appointment_audit (appointment_id, seq, event, during, reason, actor, overbook_op, at)
select appointment_id, version, $3, during, $4, $5, $6, $7 from counted`

	sqlTell = `
insert into outbox (appointment_id, seq, type, payload, created_at) values ($1, $2, $3, $4::jsonb, $5)`

	sqlDue = `
insert into syncs (appointment_id, due_at) values ($1, $2)
on conflict (appointment_id) do update set due_at = excluded.due_at, parked_at = null, attempts = 0`

	sqlEnd = `
update appointments set state = $2, ended_at = $3 where appointment_id = $1 and state in ('BOOKED', 'CREATED')`

	sqlCreated = `
update appointments set state = 'CREATED' where appointment_id = $1 and state = 'BOOKED'`
)

// sqlBarrier makes the commit behind it wait for the synchronous standby, where
// there is one. A row may be seen that the standby does not have: its own
// commit gave up waiting. Who is told of it must not lose it in a failover.
const sqlBarrier = `
select case when current_setting('synchronous_standby_names') <> '' then pg_logical_emit_message(true, 'overbook', '') end`

// statements are all of them.
var statements = []string{
	sqlLockResource, sqlLockAppointments, sqlNote, sqlTell, sqlDue, sqlEnd, sqlCreated, sqlBarrier,
}
