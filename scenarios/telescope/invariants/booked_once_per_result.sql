-- no booking is the result of two keys, and none is made twice
select 'result' as what, booking_id, count(*) as times, string_agg(key, ', ' order by key) as keys, string_agg(overbook_op, ',') as ops
from booking_operations
where type = 'book' and status = 201
group by booking_id
having count(*) > 1
union all
select 'history', booking_id, count(*), null, string_agg(overbook_op, ',' order by audit_id)
from audit_history
where event = 'BOOKED'
group by booking_id
having count(*) > 1
