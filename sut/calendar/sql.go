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

// Bookings and moves.
const (
	// sqlInsert: the range is half-open. Who follows back to back does not overlap.
	sqlInsert = `
insert into appointments (appointment_id, resource_id, member, during, time_zone, state, event_id, series_id, series_no, overbook_op, created_at)
values ($1, $2, $3, tstzrange($4, $5, '[)'), $6, 'BOOKED', $7, $8, $9, $10, $11)`

	// sqlDeferOverlap has the rule judge at sqlJudgeOverlap, or at the commit,
	// instead of after each statement.
	sqlDeferOverlap = `set constraints appointments_no_overlap deferred`
	sqlJudgeOverlap = `set constraints appointments_no_overlap immediate`

	sqlMove = `
update appointments set during = tstzrange($2, $3, '[)'), time_zone = $4 where appointment_id = $1 and state in ('BOOKED', 'CREATED')`

	sqlResourcesOf = `select distinct resource_id from appointments where appointment_id = any($1::uuid[]) order by resource_id`

	sqlSeries = `select appointment_id from appointments where series_id = $1 and member = $2 order by series_no`
)

// Resources.
const (
	sqlAddResource = `
insert into resources (resource_id, calendar, state, overbook_op, created_at) values ($1, $2, 'INACTIVE', $3, $4) on conflict do nothing`

	sqlAddAccount = `
insert into accounts (resource_id, state, refresh_token, changed_at) values ($1, 'OK', $2, $3)`

	sqlResource = `
select r.resource_id, r.state, r.provider_contract, r.conflict_policy, r.conflict_limit, a.state,
  (select count(*) from conflicts c where c.resource_id = r.resource_id and c.resolved_at is null),
  (select count(*) from syncs y join appointments p using (appointment_id) where y.due_at is not null and p.resource_id = r.resource_id)
from resources r join accounts a using (resource_id) where r.resource_id = $1`
)

// Conflicts, and what waits for staff.
const (
	sqlConflict = `
select conflict_id, resource_id, appointment_id, kind, resolved_at is not null from conflicts where conflict_id = $1`

	sqlLockConflict = sqlConflict + ` for no key update`

	sqlKeep = `
update conflicts set resolved_at = $2, resolution = 'kept', resolved_by = $3 where conflict_id = $1 and resolved_at is null`

	// sqlUnpark says whether there was something to be tried again; nothing when
	// there is no such appointment.
	sqlUnpark = `
with again as (update syncs set parked_at = null, attempts = 0, due_at = $3
  where appointment_id = $1 and $2::text is not null and parked_at is not null returning appointment_id)
select exists (select from again) from appointments where appointment_id = $1`
)

// Reads, each as of one instant.
const (
	sqlAppointment = `
select a.appointment_id::text, a.resource_id, lower(a.during), upper(a.during), a.time_zone, a.state, a.event_id, a.member,
  case when y.parked_at is not null then 'PARKED' when y.due_at is not null then 'PENDING' else 'DONE' end,
  (select coalesce(json_agg(json_build_object('conflict_id', c.conflict_id, 'resource_id', c.resource_id, 'appointment_id', c.appointment_id,
      'kind', c.kind, 'external_event', c.external_event, 'found_at', c.found_at, 'found_by', c.found_by) order by c.found_at, c.conflict_id), '[]')
    from conflicts c where c.appointment_id = a.appointment_id and c.resolved_at is null)
from appointments a left join syncs y using (appointment_id) where a.appointment_id = $1`

	// sqlBusy is of what takes the resource's time in a range, cut to it: our
	// active appointments and, as of the last look, what others have.
	sqlBusy = `
select l.looked_at, lower(b.during), upper(b.during)
from resources r left join looks l using (resource_id) left join lateral (
    select p.during * tstzrange($2, $3, '[)') from appointments p
    where p.resource_id = r.resource_id and p.state in ('BOOKED', 'CREATED') and p.during && tstzrange($2, $3, '[)')
    union all
    select e.during * tstzrange($2, $3, '[)') from external_events e
    where e.resource_id = r.resource_id and e.during && tstzrange($2, $3, '[)')
  ) as b(during) on true
where r.resource_id = $1 order by lower(b.during)`
)

// sqlBarrier makes the commit behind it wait for the synchronous standby, where
// there is one. A row may be seen that the standby does not have: its own
// commit gave up waiting. Who is told of it must not lose it in a failover.
const sqlBarrier = `
select case when current_setting('synchronous_standby_names') <> '' then pg_logical_emit_message(true, 'overbook', '') end`

// statements are all of them.
var statements = []string{
	sqlLockResource, sqlLockAppointments, sqlNote, sqlTell, sqlDue, sqlEnd, sqlCreated, sqlBarrier,
	sqlInsert, sqlDeferOverlap, sqlJudgeOverlap, sqlMove, sqlResourcesOf, sqlSeries,
	sqlAddResource, sqlAddAccount, sqlResource, sqlConflict, sqlLockConflict, sqlKeep, sqlUnpark, sqlAppointment, sqlBusy,
}
