-- the history of each slot replays to exactly the reservation that is active on it, with its flag
with last_booked as (
  select distinct on (slot_id) slot_id, seq, booking_id, member, overbook_op
  from audit_history
  where event in ('BOOKED', 'CANCELLED')
  order by slot_id, seq desc, audit_id desc
), replayed as (
  select b.slot_id, b.booking_id, b.member, b.overbook_op,
         (select case a.event when 'FLAGGED' then 'open' when 'KEPT' then 'kept' end from audit_history a
          where a.slot_id = b.slot_id and a.seq > b.seq and a.event in ('FLAGGED', 'KEPT', 'REOPENED')
          order by a.seq desc limit 1) as flag_state
  from last_booked b
  join audit_history a on a.slot_id = b.slot_id and a.seq = b.seq and a.event = 'BOOKED'
)
select coalesce(p.slot_id, r.slot_id) as slot_id, p.booking_id as by_history, r.booking_id as by_row, p.member as member_by_history, r.member,
       p.flag_state as flag_by_history, r.flag_state, p.overbook_op as ops
from replayed p
full join active_reservations r on r.slot_id = p.slot_id
where (p.booking_id, p.member, p.flag_state) is distinct from (r.booking_id, r.member, r.flag_state)
