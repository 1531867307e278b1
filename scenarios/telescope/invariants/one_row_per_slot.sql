-- at most one active reservation is stored for a slot, and none under two slots
select 'slot' as twice, slot_id::text as id, count(*) as reservations, string_agg(r.member, ', ' order by r.member) as members,
       (select string_agg(a.overbook_op, ',' order by a.seq) from audit_history a where a.slot_id = r.slot_id and a.event = 'BOOKED') as ops
from active_reservations r
group by slot_id
having count(*) > 1
union all
select 'booking', booking_id::text, count(*), string_agg(r.member, ', ' order by r.member), null
from active_reservations r
group by booking_id
having count(*) > 1
