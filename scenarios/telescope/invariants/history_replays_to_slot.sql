-- the history of each slot replays to the state that the slot is in
select s.slot_id, s.state, s.version, d.event as last_door, d.seq, d.overbook_op as ops
from observing_slots s
left join lateral (
  select event, seq, overbook_op from audit_history a
  where a.slot_id = s.slot_id and a.event in ('CLOSED', 'REOPENED')
  order by seq desc limit 1
) d on true
where s.state is distinct from case d.event when 'CLOSED' then 'closed' else 'open' end
