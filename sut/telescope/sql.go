package telescope

// Statements that run for clients. They are prepared on every connection, and
// each is a round trip of its own: what a statement sees is what was committed
// before it began, locks of those before it included.

// sqlStart needs no lock: a slot stays where it is.
const sqlStart = `select starts_at from observing_slots where slot_id = $1`

// sqlLockQuota makes the member's row of the month, or finds it, and locks it
// either way.
const sqlLockQuota = `
insert into member_quotas (member, month) values ($1, $2)
on conflict (member, month) do update set month = excluded.month`

const sqlCountBookings = `select count(*) from active_reservations where member = $1 and month = $2`

// sqlLockSlots locks in ascending order, whatever the order of the ids: the
// rows are sorted before they are locked.
const sqlLockSlots = `
select slot_id, starts_at, state from observing_slots where slot_id = any($1::bigint[]) order by slot_id for update`

const sqlReserve = `
insert into active_reservations (slot_id, booking_id, member, month, created_at) values ($1, $2, $3, $4, $5)
on conflict (slot_id) do nothing returning true`

// sqlBooking finds the booking whatever became of it.
const sqlBooking = `select slot_id, member from audit_history where booking_id = $1 and event = 'BOOKED'`

const sqlRelease = `delete from active_reservations where booking_id = $1 returning true`

const sqlFlagState = `select coalesce(flag_state, '') from active_reservations where booking_id = $1`

const sqlKeep = `update active_reservations set flag_state = 'kept' where booking_id = $1`

const sqlSetState = `update observing_slots set state = $2, updated_at = $3 where slot_id = any($1::bigint[])`

const sqlFlag = `
update active_reservations set flagged_at = $2, flag_state = 'open' where slot_id = any($1::bigint[])
returning slot_id, booking_id::text, member`

const sqlUnflag = `update active_reservations set flagged_at = null, flag_state = null where slot_id = any($1::bigint[])`

const sqlStarts = `select slot_id, starts_at from observing_slots where slot_id = any($1::bigint[])`

const sqlCreateSlots = `
insert into observing_slots (slot_id, starts_at, state, version, updated_at)
select n.slot_id, n.starts_at, 'open', 1, $3 from unnest($1::bigint[], $2::timestamptz[]) as n(slot_id, starts_at)
order by n.slot_id
on conflict (slot_id) do nothing returning slot_id`

// sqlAdvance gives each slot the number of its next history row.
const sqlAdvance = `
update observing_slots set version = version + 1, updated_at = $2 where slot_id = any($1::bigint[])
returning slot_id, version`

const sqlAudit = `
insert into audit_history (slot_id, seq, booking_id, member, event, actor, overbook_op, at)
select c.slot_id, c.seq, c.booking::uuid, c.member, $5, $6, $7, $8
from unnest($1::bigint[], $2::int[], $3::text[], $4::text[]) as c(slot_id, seq, booking, member)
order by c.slot_id`

const sqlEvents = `
insert into outbox (slot_id, seq, payload, type, created_at)
select c.slot_id, c.seq, c.payload::jsonb, $4, $5
from unnest($1::bigint[], $2::int[], $3::text[]) as c(slot_id, seq, payload)
order by c.slot_id`

// sqlBarrier makes the commit behind it wait for the synchronous standby, where
// there is one. A row may be seen that the standby does not have: its own
// commit gave up waiting. Who is told of it must not lose it in a failover.
const sqlBarrier = `
select case when current_setting('synchronous_standby_names') <> '' then pg_logical_emit_message(true, 'overbook', '') end`

// Reads, each authoritative.
const (
	sqlSlot = `
select s.slot_id, s.starts_at, s.state, a.booking_id::text, a.member
from observing_slots s left join active_reservations a using (slot_id) where s.slot_id = $1`

	sqlAccountReservations = `
select a.booking_id::text, a.slot_id, s.starts_at, a.month, a.flagged_at is not null
from active_reservations a join observing_slots s using (slot_id) where a.member = $1 order by s.starts_at, a.slot_id`

	sqlAccountHistory = `
select event, slot_id, booking_id::text, at from audit_history where member = $1 order by audit_id`

	sqlFlagged = `
select a.booking_id::text, a.slot_id, a.member, s.starts_at, a.flagged_at, a.flag_state
from active_reservations a join observing_slots s using (slot_id) where a.flagged_at is not null order by a.flagged_at, a.slot_id`
)

// statements are all of them.
var statements = []string{
	sqlStart, sqlLockQuota, sqlCountBookings, sqlLockSlots, sqlReserve, sqlBooking, sqlRelease, sqlFlagState, sqlKeep,
	sqlSetState, sqlFlag, sqlUnflag, sqlStarts, sqlCreateSlots, sqlAdvance, sqlAudit, sqlEvents, sqlBarrier,
	sqlSlot, sqlAccountReservations, sqlAccountHistory, sqlFlagged,
}
