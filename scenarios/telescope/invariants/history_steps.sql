-- each row of a slot's history is a step that was possible where it stands, about the reservation that it stood on
with replay as (
  select a.slot_id, a.seq, a.audit_id, a.event, a.booking_id, a.member, a.overbook_op,
         (select d.event from audit_history d where d.slot_id = a.slot_id and d.seq < a.seq and d.event in ('CLOSED', 'REOPENED') order by d.seq desc limit 1) as door,
         (select b.event from audit_history b where b.slot_id = a.slot_id and b.seq < a.seq and b.event in ('BOOKED', 'CANCELLED') order by b.seq desc limit 1) as last,
         (select b.booking_id from audit_history b where b.slot_id = a.slot_id and b.seq < a.seq and b.event in ('BOOKED', 'CANCELLED') order by b.seq desc limit 1) as holder,
         (select b.member from audit_history b where b.slot_id = a.slot_id and b.seq < a.seq and b.event in ('BOOKED', 'CANCELLED') order by b.seq desc limit 1) as held_by
  from audit_history a
)
select slot_id, seq, event, booking_id, member, door, last, holder, overbook_op as ops
from replay
where (event = 'CLOSED' and door is not distinct from 'CLOSED')
   or (event = 'REOPENED' and door is distinct from 'CLOSED')
   or (event in ('CANCELLED', 'FLAGGED', 'KEPT') and (last is distinct from 'BOOKED' or (booking_id, member) is distinct from (holder, held_by)))
   or (event = 'KEPT' and door is distinct from 'CLOSED')
