-- nobody books a slot that is closed: no BOOKED stands between CLOSED and REOPENED
with last_door as (
  select slot_id, seq, event, booking_id, member, overbook_op,
         (select d.event from audit_history d where d.slot_id = a.slot_id and d.seq < a.seq and d.event in ('CLOSED', 'REOPENED')
          order by d.seq desc limit 1) as door,
         (select d.overbook_op from audit_history d where d.slot_id = a.slot_id and d.seq < a.seq and d.event in ('CLOSED', 'REOPENED')
          order by d.seq desc limit 1) as by
  from audit_history a
)
select slot_id, seq, booking_id, member, door, overbook_op || coalesce(',' || by, '') as ops
from last_door
where event = 'BOOKED' and door = 'CLOSED'
