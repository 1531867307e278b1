-- each hold that is active or confirmed has its seat, and no seat is with a hold that is over, but for a quarantine whose charge is in flight
select h.show_id, h.seat, s.state as seat_state, s.hold_id as seat_has, h.hold_id, h.state as hold_state, h.overbook_op as ops
from holds h
left join seats s on s.show_id = h.show_id and s.seat = h.seat
where h.state in ('RESERVED', 'CONFIRMED') and s.hold_id is distinct from h.hold_id
union all
select s.show_id, s.seat, s.state, s.hold_id, h.hold_id, h.state, h.overbook_op
from seats s
left join holds h on h.hold_id = s.hold_id
where s.state <> 'FREE' and (h.show_id, h.seat) is distinct from (s.show_id, s.seat)
   or s.state = 'HELD' and h.state is distinct from 'RESERVED'
   or s.state = 'QUARANTINED' and not exists (select from charges c where c.hold_id = s.hold_id and c.state = 'CHARGING')
