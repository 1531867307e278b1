package library

// Every statement that changes an intent's state ends in the same two inserts:
// its transition and its event, from the rows that it changed. $1 is server
// time and $2 the replica's name in all of them.
const recordChanges = `, moved as (
  insert into library_transitions (intent_id, seq, from_state, to_state, replica, reason, at)
  select intent_id, seq, from_state, state, $2, reason, $1 from changed
), event as (
  insert into library_reservation_outbox (intent_id, seq, type, payload, created_at)
  select intent_id, seq, 'library.intent.' || lower(state),
         jsonb_build_object('intent_id', intent_id, 'action_id', action_id, 'student', student, 'seat', seat,
                            'from', from_state, 'state', state, 'reason', reason), $1
  from changed
)`

const sqlPrepare = `
with action as (
  insert into library_actions (action_id, student, kind, seat, state, prepared_at, expires_at)
  values ($2, $3, 'reserve', $4, 'PREPARED', $1, $5)
  returning action_id, student, seat
)
insert into action_audit (action_id, student, event, detail, at)
select action_id, student, 'PREPARED', jsonb_build_object('seat', seat), $1 from action`

// consumeAction locks the action's row, marks it and writes down the consent.
// A second confirm waits for the row and then finds it consumed: no row, and
// nothing else of the statement happens.
const consumeAction = `
with action as (
  update library_actions set state = 'CONFIRMED', confirmed_at = $1
  where action_id = $3 and student = $4 and kind = 'reserve' and state = 'PREPARED' and expires_at > $1
  returning action_id, student, seat
), audit as (
  insert into action_audit (action_id, student, event, detail, at)
  select action_id, student, 'CONFIRMED', jsonb_build_object('seat', seat, 'intent_id', $5::uuid), $1 from action
)`

const sqlConfirmIntent = consumeAction + `, intent as (
  insert into library_reservation_intents
    (intent_id, action_id, path, kind, student, seat, state, seq, traceparent, overbook_op, created_at, updated_at)
  select $5, action_id, 'intent', 'immediate', student, seat, 'REQUESTED', 1, $6, $7, $1, $1 from action
  returning intent_id, action_id, student, seat, seq, state
), changed as (
  select intent_id, action_id, student, seat, seq, null::text as from_state, state, 'confirmed'::text as reason from intent
)` + recordChanges + `
select intent_id, action_id, student, seat, state, 'immediate' from changed`

// The direct path's intent is born RESERVING, with both transitions on record.
const sqlConfirmDirect = consumeAction + `, intent as (
  insert into library_reservation_intents
    (intent_id, action_id, path, kind, student, seat, state, seq, attempts, fence, locked_by, locked_until,
     traceparent, overbook_op, created_at, updated_at)
  select $5, action_id, 'direct', 'immediate', student, seat, 'RESERVING', 2, 1, 1, $2, $8, $6, $7, $1, $1 from action
  returning intent_id, action_id, student, seat
), changed as (
  select intent_id, action_id, student, seat, 1 as seq, null::text as from_state, 'REQUESTED'::text as state, 'confirmed'::text as reason from intent
  union all
  select intent_id, action_id, student, seat, 2, 'REQUESTED', 'RESERVING', 'direct path' from intent
)` + recordChanges + `
select intent_id, action_id, student, seat, 'RESERVING', 'immediate' from intent`

const sqlRegisterWait = `
with action as (
  insert into library_actions (action_id, student, kind, state, prepared_at, expires_at, confirmed_at)
  values ($3, $4, 'wait', 'CONFIRMED', $1, $8, $1)
  returning action_id, student
), audit as (
  insert into action_audit (action_id, student, event, detail, at)
  select action_id, student, 'CONFIRMED', jsonb_build_object('wanted', $9::text[], 'intent_id', $5::uuid), $1 from action
), intent as (
  insert into library_reservation_intents
    (intent_id, action_id, path, kind, student, wanted, state, seq, next_attempt_at, traceparent, overbook_op, created_at, updated_at)
  select $5, action_id, 'intent', 'wait', student, $9, 'REQUESTED', 1, $1, $6, $7, $1, $1 from action
  returning intent_id, action_id, student, seat, seq, state
), changed as (
  select intent_id, action_id, student, seat, seq, null::text as from_state, state, 'registered'::text as reason from intent
)` + recordChanges + `
select 1`

const sqlLookUpAction = `
select a.student, a.state, a.expires_at,
       coalesce(i.intent_id::text, ''), coalesce(i.seat, ''), coalesce(i.state, ''), coalesce(i.kind, '')
from library_actions a left join library_reservation_intents i using (action_id)
where a.action_id = $1`

const recordColumns = `intent_id, action_id, student, coalesce(seat, ''), state, kind`

const sqlLookUpIntent = `select ` + recordColumns + ` from library_reservation_intents where intent_id = $1`

const sqlEndedAmong = `select ` + recordColumns + ` from library_reservation_intents
where intent_id = any($1::text[]::uuid[]) and terminal_at is not null`

// Claims and endings on one seat take turns on its row. The statements after
// these two have snapshots of their own (READ COMMITTED), so they see whatever
// the holder before committed.
const (
	sqlCreateSeat = `insert into library_seats (seat) values ($1) on conflict (seat) do nothing`
	sqlLockSeat   = `select 1 from library_seats where seat = $1 for update`
)

// seatDecided: somebody was found to hold the seat after $4.
const seatDecided = `exists (
    select 1 from library_seats s
    where s.seat = $3 and s.last_outcome in ('SUCCEEDED', 'FAILED_RACE') and s.last_attempt_at > $4)`

const sqlSuppress = `
with changed as (
  update library_reservation_intents i
  set state = 'FAILED_RACE', seq = i.seq + 1, failure = 'seat-taken', updated_at = $1, terminal_at = $1
  where i.seat = $3 and i.path = 'intent' and i.kind = 'immediate' and i.state = 'REQUESTED' and i.created_at <= $5 and ` + seatDecided + `
  returning i.intent_id, i.action_id, i.student, i.seat, i.seq, 'REQUESTED'::text as from_state, i.state, 'suppressed: the seat was decided a moment ago'::text as reason
)` + recordChanges + `
select intent_id, action_id, student, seat, state, 'immediate' from changed`

const nobodyReserving = `not exists (
    select 1 from library_reservation_intents r
    where r.seat = $3 and r.path = 'intent' and r.state = 'RESERVING')`

const takeCandidate = `, taken as (
  update library_reservation_intents i
  set state = 'RESERVING', seat = $3, seq = i.seq + 1, attempts = i.attempts + 1, fence = i.fence + 1,
      locked_by = $2, locked_until = $5, updated_at = $1
  from candidate c where i.intent_id = c.intent_id
  returning i.*, c.was
), changed as (
  select intent_id, action_id, student, seat, seq, was as from_state, state, 'claimed'::text as reason from taken
)` + recordChanges + `
select ` + intentColumns + ` from taken`

const intentColumns = recordColumns + `, path, fence, coalesce(locked_until, created_at), traceparent, overbook_op, looks`

// One winner goes upstream, the oldest; the others stay REQUESTED meanwhile.
const sqlClaim = `
with candidate as (
  select i.intent_id, i.state as was from library_reservation_intents i
  where i.seat = $3 and i.path = 'intent' and i.kind = 'immediate' and i.state = 'REQUESTED'
    and ` + nobodyReserving + `
    and not ` + seatDecided + `
  order by i.created_at, i.intent_id limit 1
  for update of i skip locked
)` + takeCandidate

// A wait takes a seat that was free at $4, unless we have learnt since that
// somebody holds it. The suppression window does not concern waits.
const sqlClaimWait = `
with candidate as (
  select i.intent_id, i.state as was from library_reservation_intents i
  where i.intent_id = $6 and i.kind = 'wait' and i.state = 'WAITING_FOR_SEAT' and i.next_attempt_at <= $1
    and ` + nobodyReserving + `
    and not ` + seatDecided + `
  for update of i skip locked
)` + takeCandidate

// The attempt ends: its intent, the seat's memory, and, when it is now known
// that somebody holds the seat, everybody who is waiting for an immediate
// answer on that seat. All of it only if the intent is still ours.
const sqlFinish = `
with done as (
  update library_reservation_intents i
  set state = $5::text, seq = i.seq + 1, charge_id = nullif($6, ''), failure = nullif($7, ''), updated_at = $1,
      terminal_at = case when $5 = 'WAITING_FOR_SEAT' then null else $1::timestamptz end,
      next_attempt_at = $12, looks = i.looks + 1, locked_by = null, locked_until = null
  where i.intent_id = $3 and i.fence = $4 and i.state = 'RESERVING'
  returning i.intent_id, i.action_id, i.student, i.seat, i.seq, i.kind, 'RESERVING'::text as from_state, i.state, $8::text as reason
), seat as (
  update library_seats s set last_outcome = $10, last_intent_id = done.intent_id, last_attempt_at = $1
  from done
  where s.seat = done.seat
    and ($9 or not coalesce(s.last_outcome in ('SUCCEEDED', 'FAILED_RACE') and s.last_attempt_at > $11, false))
), lost as (
  update library_reservation_intents i
  set state = 'FAILED_RACE', seq = i.seq + 1, failure = 'seat-taken', updated_at = $1, terminal_at = $1
  from done
  where $9 and i.seat = done.seat and i.path = 'intent' and i.kind = 'immediate' and i.state = 'REQUESTED'
  returning i.intent_id, i.action_id, i.student, i.seat, i.seq, i.kind, 'REQUESTED'::text as from_state, i.state, 'lost to ' || done.intent_id as reason
), changed as (
  select * from done union all select * from lost
)` + recordChanges + `
select ` + recordColumns + ` from changed`

// The direct path ends its own intent and nobody else's.
const sqlFinishDirect = `
with changed as (
  update library_reservation_intents i
  set state = $5::text, seq = i.seq + 1, charge_id = nullif($6, ''), failure = nullif($7, ''), updated_at = $1, terminal_at = $1,
      locked_by = null, locked_until = null
  where i.intent_id = $3 and i.fence = $4 and i.state = 'RESERVING'
  returning i.intent_id, i.action_id, i.student, i.seat, i.seq, i.kind, 'RESERVING'::text as from_state, i.state, $8::text as reason
)` + recordChanges + `
select ` + recordColumns + ` from changed`

// A lease that ran out is taken over under a new fence, so that one reaper
// decides and the holder before can store nothing any more.
const sqlTakeOver = `
update library_reservation_intents i
set fence = i.fence + 1, locked_by = $2, locked_until = $3, updated_at = $1
where i.intent_id in (
  select intent_id from library_reservation_intents
  where state = 'RESERVING' and coalesce(locked_until, '-infinity') < $1
  order by locked_until limit $4 for update skip locked)
returning ` + intentColumns

// A reaper that could not read comes back sooner than its lease would end.
const sqlComeBack = `
update library_reservation_intents set locked_until = $1, updated_at = $2
where intent_id = $3 and fence = $4 and state = 'RESERVING'`

const sqlSeatsWithWork = `
select distinct i.seat from library_reservation_intents i
where i.path = 'intent' and i.kind = 'immediate' and i.state = 'REQUESTED'
  and not exists (select 1 from library_reservation_intents r where r.seat = i.seat and r.path = 'intent' and r.state = 'RESERVING')
limit $1`

const sqlBeginWaiting = `
with changed as (
  update library_reservation_intents i set state = 'WAITING_FOR_SEAT', seq = i.seq + 1, updated_at = $1
  where i.intent_id in (
    select intent_id from library_reservation_intents where kind = 'wait' and state = 'REQUESTED'
    order by created_at limit $3 for update skip locked)
  returning i.intent_id, i.action_id, i.student, i.seat, i.seq, 'REQUESTED'::text as from_state, i.state, 'waiting'::text as reason
)` + recordChanges + `
select count(*) from changed`

const sqlDueWaits = `
select ` + intentColumns + `, wanted from library_reservation_intents
where kind = 'wait' and state = 'WAITING_FOR_SEAT' and next_attempt_at <= $1
order by next_attempt_at, created_at limit $2`

const sqlPostpone = `
update library_reservation_intents
set next_attempt_at = $2, looks = looks + 1, updated_at = $1
where intent_id = $3 and state = 'WAITING_FOR_SEAT' and looks = $4`

// statements are prepared on every connection before the server is ready.
var statements = []string{
	"begin", "commit", sqlPrepare, sqlConfirmIntent, sqlConfirmDirect, sqlLookUpAction, sqlLookUpIntent,
	sqlEndedAmong, sqlCreateSeat, sqlLockSeat, sqlSuppress, sqlClaim, sqlFinish, sqlFinishDirect, sqlNotify,
}

const sqlNotify = `select pg_notify('library_seats', $1)`
