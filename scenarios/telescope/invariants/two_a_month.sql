-- nobody has more than two active reservations in a month of the observatory
select r.member, to_char(s.starts_at at time zone 'Pacific/Honolulu', 'YYYY-MM') as month, count(*) as reservations,
       string_agg(r.slot_id::text, ', ' order by r.slot_id) as slots,
       string_agg((select a.overbook_op from audit_history a where a.booking_id = r.booking_id and a.event = 'BOOKED' limit 1), ',') as ops
from active_reservations r
join observing_slots s on s.slot_id = r.slot_id
group by 1, 2
having count(*) > 2
