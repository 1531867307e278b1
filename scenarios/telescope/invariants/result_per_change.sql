-- each CANCELLED, CLOSED and REOPENED was made by an operation that has its 200, and each 200 made its change (results older than seven days may be gone)
with results as (
  select type, principal, key, coalesce(slot_id, (convert_from(body, 'UTF8')::jsonb ->> 'slot_id')::bigint) as slot_id,
         coalesce(booking_id, (convert_from(body, 'UTF8')::jsonb ->> 'booking_id')::uuid) as booking_id, overbook_op
  from booking_operations
  where status = 200 and type in ('cancel', 'close', 'reopen')
), changes as (
  select slot_id, seq, event, booking_id, actor, overbook_op, at,
         at > coalesce((select max(refreshed_at) from schedule_refreshes), '-infinity'::timestamptz) - interval '7 days' as kept
  from audit_history
)
select c.slot_id, c.seq, c.event, c.booking_id, c.actor, null as key, c.overbook_op as ops, 'a change without the result of its operation' as problem
from changes c
where c.kept and c.event in ('CANCELLED', 'CLOSED', 'REOPENED')
  and not exists (
    select from results r
    where r.principal = c.actor
      and ((c.event = 'CANCELLED' and r.type = 'cancel' and r.booking_id = c.booking_id)
        or (c.event = 'CLOSED' and r.type = 'close' and r.slot_id = c.slot_id)
        or (c.event = 'REOPENED' and r.type = 'reopen' and r.slot_id = c.slot_id)))
  and not exists (
    select from booking_operations o
    where o.principal = c.actor and o.type in ('import', 'resolve') and o.status = 200 and o.overbook_op = c.overbook_op)
union all
select r.slot_id, null, r.type, r.booking_id, r.principal, r.key, r.overbook_op, 'a result without the change that it tells of'
from results r
where not exists (
  select from changes c
  where c.actor = r.principal
    and ((r.type = 'cancel' and c.event = 'CANCELLED' and c.booking_id = r.booking_id)
      or (r.type = 'close' and c.event = 'CLOSED' and c.slot_id = r.slot_id)
      or (r.type = 'reopen' and c.event = 'REOPENED' and c.slot_id = r.slot_id)))
