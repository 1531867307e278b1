-- each BOOKED has the stored 201 of its member, and each stored 201 its BOOKED (results older than seven days may be gone)
with results as (
  select principal, key, slot_id, booking_id, overbook_op, convert_from(body, 'UTF8')::jsonb as answer
  from booking_operations
  where type = 'book' and status = 201
), booked as (
  select slot_id, seq, booking_id, member, overbook_op
  from audit_history
  where event = 'BOOKED'
    and at > coalesce((select max(refreshed_at) from schedule_refreshes), '-infinity'::timestamptz) - interval '7 days'
)
select coalesce(b.slot_id, r.slot_id) as slot_id, b.booking_id as booked, r.booking_id as result, b.member, r.principal, r.key, r.answer,
       concat_ws(',', b.overbook_op, r.overbook_op) as ops,
       case when r.principal is null then 'a booking that no key leads to'
            when b.member is null then 'an answer about a booking that was never made'
            else 'a result that tells of another booking' end as problem
from booked b
full join results r on r.booking_id = b.booking_id
where r.principal is null
   or (b.member is null and not exists (select from audit_history a where a.event = 'BOOKED' and a.booking_id = r.booking_id))
   or (b.member is not null and ((r.principal, r.slot_id) is distinct from (b.member, b.slot_id)
       or r.answer ->> 'booking_id' is distinct from b.booking_id::text
       or (r.answer ->> 'slot_id')::bigint is distinct from b.slot_id
       or r.answer ->> 'member' is distinct from b.member))
