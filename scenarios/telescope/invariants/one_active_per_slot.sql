-- a slot is not booked again before it was cancelled: by its history at most one reservation is active at every instant
with held as (
  select slot_id, seq, event, booking_id, member, overbook_op,
         sum(case event when 'BOOKED' then 1 when 'CANCELLED' then -1 else 0 end) over upto as active,
         string_agg(overbook_op, ',') filter (where event = 'BOOKED') over upto as ops
  from audit_history
  window upto as (partition by slot_id order by seq, audit_id)
)
select slot_id, seq, event, booking_id, member, active, ops
from held
where (event = 'BOOKED' and active <> 1) or (event = 'CANCELLED' and active <> 0)
