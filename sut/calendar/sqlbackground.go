package calendar

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/database"
)

// States of an account.
const (
	accountOK     = "OK"
	accountFailed = "FAILED_AUTH"
)

// Tokens. Who refreshes has the row's key; what was found out under a key is
// stored only while the row still has it, and the generation that it is of.
const (
	sqlAccount = `select state, access_token, generation, quiet_until from accounts where resource_id = $1`

	// sqlTakeRefresh takes the lease when nobody has it. The key of a refresh that
	// somebody began stays: the provider may have rotated the token under it.
	sqlTakeRefresh = `
update accounts set refresh_key = coalesce(refresh_key, $3), refreshing_until = $5
where resource_id = $1 and generation = $2 and state = 'OK' and (refreshing_until is null or refreshing_until <= $4)
returning refresh_key, refresh_token`

	sqlRefreshed = `
update accounts set access_token = $4, refresh_token = $5, generation = generation + 1, refresh_key = null, refreshing_until = null, changed_at = $6
where resource_id = $1 and generation = $2 and refresh_key = $3 returning resource_id`

	sqlAuthorisationOver = `
update accounts set state = 'FAILED_AUTH', refresh_key = null, refreshing_until = null, changed_at = $4
where resource_id = $1 and generation = $2 and refresh_key = $3 returning resource_id`

	// sqlLeaveRefresh ends the lease, not the refresh: its key stays.
	sqlLeaveRefresh = `
update accounts set refreshing_until = $4 where resource_id = $1 and generation = $2 and refresh_key = $3 returning resource_id`

	sqlQuiet = `
update accounts set quiet_until = greatest(quiet_until, $2) where resource_id = $1 returning resource_id`
)

// Activations. The first statement that a request sends has its X-Overbook-Op.
const (
	sqlActivationsOver = `
update resources set state = 'INACTIVE', activation = null, activating_until = null
where state = 'ACTIVATING' and activating_until <= $1 and $2::text is not null returning resource_id`

	sqlActivatingNow = `select resource_id from resources where state = 'ACTIVATING' and activating_until > $1`

	sqlLockActivation = `
select r.calendar, r.state, a.state from resources r join accounts a using (resource_id)
where r.resource_id = $1 and $2::text is not null for no key update`

	// sqlNewToken begins a generation without an access token: the next call
	// fetches one. What a refresh of the old token still brings is of no use.
	sqlNewToken = `
update accounts set state = 'OK', refresh_token = $2, access_token = '', generation = generation + 1, refresh_key = null, refreshing_until = null, changed_at = $3
where resource_id = $1`

	sqlGuarantees = `update resources set provider_contract = $2, conflict_policy = $3, conflict_limit = $4 where resource_id = $1`

	sqlActivating = `
update resources set state = 'ACTIVATING', activation = $2, activating_until = $3 where resource_id = $1 and state = 'INACTIVE'`

	sqlActivated = `
update resources set state = 'ACTIVE', activation = null, activating_until = null,
  provider_contract = $3, conflict_policy = $4, conflict_limit = $5, activated_at = $6
where resource_id = $1 and activation = $2 returning resource_id`

	sqlAbandon = `
update resources set state = 'INACTIVE', activation = null, activating_until = null where resource_id = $1 and activation = $2 returning resource_id`

	sqlFirstLook = `
insert into looks (resource_id, due_at, looked_at) values ($1, $2, $3) on conflict (resource_id) do nothing returning resource_id`

	sqlDeactivate = `update resources set state = 'INACTIVE' where resource_id = $1 and state = 'ACTIVE' and $2::text is not null returning resource_id`
)

// sqlClaim takes appointments that are due and that nobody else has, oldest
// first. It leaves alone what has to wait: parked ones; those of a calendar
// whose authorisation is over or that is to be quiet; and those that are still
// to be created while the resource has more unresolved conflicts than its
// limit. From the first claim of an active one on the provider may know of it.
const sqlClaim = `
with due as (
  select s.appointment_id, s.touched_at, a.state in ('BOOKED', 'CREATED') as active
  from syncs s join appointments a using (appointment_id) join resources r using (resource_id) join accounts c using (resource_id)
  where s.due_at <= $1 and s.parked_at is null and (s.claimed_until is null or s.claimed_until <= $1)
    and c.state = 'OK' and (c.quiet_until is null or c.quiet_until <= $1)
    and not (a.state = 'BOOKED' and (select count(*) from conflicts f where f.resource_id = a.resource_id and f.resolved_at is null) > coalesce(r.conflict_limit, 0))
  order by s.due_at limit $3 for no key update of s skip locked)
update syncs s set claim = gen_random_uuid(), claimed_until = $2, touched_at = coalesce(s.touched_at, case when due.active then $1 end)
from due where s.appointment_id = due.appointment_id
returning s.appointment_id, s.claim, due.touched_at is null, s.attempts`

// What somebody with a claim reads and writes.
const (
	sqlTask = `
select a.appointment_id, a.resource_id, a.member, lower(a.during), upper(a.during), a.time_zone, a.state, a.event_id, a.series_id, a.series_no, a.version,
  r.resource_id, r.calendar, r.state, coalesce(r.provider_contract, ''), coalesce(r.conflict_policy, ''), coalesce(r.conflict_limit, 0),
  s.touched_at is not null,
  array(select seq from outbox o where o.appointment_id = a.appointment_id and o.done_at is null order by seq),
  coalesce((select max(seq) from outbox o where o.appointment_id = a.appointment_id and o.type in ('appointment.booked', 'appointment.moved', 'appointment.restored')), 0),
  coalesce(last.payload ->> 'op', ''), coalesce(last.payload ->> 'traceparent', '')
from appointments a join resources r using (resource_id) join syncs s using (appointment_id)
left join lateral (select payload from outbox o where o.appointment_id = a.appointment_id and o.done_at is null order by seq desc limit 1) last on true
where a.appointment_id = $1`

	sqlHoldClaim = `select true from syncs where appointment_id = $1 and claim = $2 for no key update`

	// sqlEventsDone: the last one brought the provider to where it is, it stands
	// for those before it.
	sqlEventsDone = `
update outbox set done_at = $4, result = case when seq = (select max(n) from unnest($2::int[]) n) then $3 else 'not-needed' end
where appointment_id = $1 and seq = any($2::int[]) and done_at is null`

	// sqlSynced leaves it due when there are events that were not known of.
	sqlSynced = `
update syncs s set claim = null, claimed_until = null, attempts = 0, last_error = null, synced_at = $3::timestamptz,
  due_at = case when exists (select from outbox o where o.appointment_id = s.appointment_id and o.done_at is null) then $3::timestamptz end
where appointment_id = $1 and claim = $2`

	sqlFailed = `
update syncs set claim = null, claimed_until = null, attempts = attempts + 1, last_error = $3, due_at = $4,
  parked_at = case when attempts + 1 >= $5 then $6::timestamptz end
where appointment_id = $1 and claim = $2 returning parked_at is not null`

	sqlUnclaim = `update syncs set claim = null, claimed_until = null where appointment_id = $1 and claim = $2 returning true`
)

// Conflicts. What was kept is none again while the other event stays where it
// was when it was last seen.
const (
	sqlKept = `
select k.external_event, lower(e.during), upper(e.during)
from conflicts k join external_events e on e.resource_id = k.resource_id and e.event_id = k.external_event
where k.appointment_id = $1 and k.kind = 'overlap' and k.resolution = 'kept'`

	sqlRecord = `
insert into conflicts (conflict_id, resource_id, appointment_id, kind, external_event, found_at, found_by)
select $1, $2, $3, $4, $5, $6, $7
where $4 <> 'overlap' or not exists (
  select from conflicts k join external_events e on e.resource_id = k.resource_id and e.event_id = k.external_event
  where k.appointment_id = $3 and k.kind = 'overlap' and k.external_event = $5 and k.resolution = 'kept' and e.during = tstzrange($8, $9))
on conflict (appointment_id, kind, external_event) where resolved_at is null do nothing
returning conflict_id`

	// sqlSeen leaves what the last look saw: the next one is to see that it moved.
	sqlSeen = `
insert into external_events (resource_id, event_id, during) values ($1, $2, tstzrange($3, $4)) on conflict do nothing`

	// sqlResolveEnded says why the appointment is over: it gave way, staff
	// cancelled it over a conflict ($3), or its member cancelled it.
	sqlResolveEnded = `
update conflicts f set resolved_at = $2,
  resolution = case when a.event = 'REJECTED' then 'rejected' when a.reason = $3 then 'cancelled' else 'ended' end, resolved_by = a.actor
from appointment_audit a
where f.appointment_id = $1 and f.resolved_at is null and a.appointment_id = $1 and a.event in ('REJECTED', 'CANCELLED')`

	sqlConflicts = `
select conflict_id::text, resource_id, appointment_id::text, kind, external_event, found_at, found_by
from conflicts where resolved_at is null order by found_at, conflict_id`
)

// Looks at calendars.
const (
	// sqlClaimLooks takes calendars that are due, until $2. Conflicts of
	// appointments that are past are looked at, too.
	sqlClaimLooks = `
with due as (
  select l.resource_id from looks l join accounts c using (resource_id)
  where l.due_at <= $1 and c.state = 'OK' and (c.quiet_until is null or c.quiet_until <= $1)
  order by l.due_at limit $3 for no key update of l skip locked)
update looks l set due_at = $2
from due join resources r using (resource_id)
where l.resource_id = due.resource_id
returning r.resource_id, r.calendar, r.state, coalesce(r.provider_contract, ''), coalesce(r.conflict_policy, ''), coalesce(r.conflict_limit, 0),
  least($1, (select min(lower(a.during)) from conflicts f join appointments a using (appointment_id) where f.resource_id = r.resource_id and f.resolved_at is null))`

	sqlJudged = `
select a.appointment_id, lower(a.during), upper(a.during), a.event_id, coalesce(` + settled + ` and s.synced_at < $4, false)
from appointments a join syncs s using (appointment_id)
where a.resource_id = $1 and a.state = 'CREATED' and a.during && tstzrange($2, $3)
order by lower(a.during)`

	// settled is of a sync row on which there is nothing to do.
	settled = `s.due_at is null and s.claim is null`

	sqlSettled = `select true from syncs s where appointment_id = $1 and ` + settled + ` and s.synced_at < $2 for no key update`

	// sqlFresh are the appointments of which an overlap is neither known nor kept.
	sqlFresh = `
select distinct n.id
from unnest($2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[]) as n(id, event_id, starts, ends)
left join external_events e on e.resource_id = $1 and e.event_id = n.event_id and e.during = tstzrange(n.starts, n.ends)
where not exists (
  select from conflicts f
  where f.appointment_id = n.id and f.kind = 'overlap' and f.external_event = n.event_id
    and (f.resolved_at is null or f.resolution = 'kept' and e.event_id is not null))`

	sqlOpenConflicts = `
select f.conflict_id, f.appointment_id, f.kind, f.external_event
from conflicts f join appointments a using (appointment_id)
where f.resource_id = $1 and f.resolved_at is null and f.found_at < $2 and a.state in ('BOOKED', 'CREATED') and a.during <@ tstzrange($3, $4)
order by f.found_at, f.conflict_id`

	sqlVanished = `
update conflicts set resolved_at = $2, resolution = 'vanished', resolved_by = 'server' where conflict_id = $1 and resolved_at is null`

	sqlUnknown = `select n.id from unnest($1::text[]) as n(id) where not exists (select from appointments a where a.event_id = n.id) order by n.id`

	sqlLooked = `update looks set due_at = $3, looked_at = $4 where resource_id = $1 and due_at = $2 returning resource_id`

	sqlLookAgain = `update looks set due_at = $3 where resource_id = $1 and due_at = $2 returning resource_id`

	// sqlForget leaves what somebody has found since the look began, who knows better.
	sqlForget = `
delete from external_events e where resource_id = $1 and not event_id = any($2::text[])
  and not exists (select from conflicts f where f.resource_id = $1 and f.external_event = e.event_id and f.kind = 'overlap' and f.found_at >= $3)`

	sqlSaw = `
insert into external_events (resource_id, event_id, during)
select distinct on (n.id) $1::bigint, n.id, tstzrange(n.starts, n.ends)
from unnest($2::text[], $3::timestamptz[], $4::timestamptz[]) as n(id, starts, ends)
on conflict (resource_id, event_id) do update set during = excluded.during where external_events.during <> excluded.during`
)

// alter runs one statement that changes rows, as a transaction of its own, and
// gives what it returns of them.
func alter[T any](ctx context.Context, st *store, scan pgx.RowToFunc[T], sql string, args ...any) (out []T, err error) {
	ctx, end := st.Bounded(ctx)
	defer end()
	err = st.WithConn(ctx, func(conn *pgxpool.Conn) error {
		out, err = database.Rows(ctx, conn, scan, sql, args...)
		return err
	})
	return out, err
}
