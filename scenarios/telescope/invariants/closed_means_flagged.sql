-- a reservation is flagged exactly as long as its slot is closed
select s.slot_id, s.state, r.booking_id, r.member, r.flag_state,
       (select string_agg(a.overbook_op, ',' order by a.seq desc) from audit_history a
        where a.slot_id = s.slot_id and a.event in ('BOOKED', 'CLOSED', 'REOPENED')) as ops
from observing_slots s
join active_reservations r on r.slot_id = s.slot_id
where (s.state = 'closed') <> (r.flag_state is not null)
