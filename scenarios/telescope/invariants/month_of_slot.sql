-- the month that a reservation counts for is that of its slot's start, in the observatory's time zone
select r.slot_id, r.booking_id, r.member, r.month, s.starts_at, to_char(s.starts_at at time zone 'Pacific/Honolulu', 'YYYY-MM') as expected
from active_reservations r
join observing_slots s on s.slot_id = r.slot_id
where r.month <> to_char(s.starts_at at time zone 'Pacific/Honolulu', 'YYYY-MM')
