-- a seat passes from one hold to the next only after the first is over, and never once it is sold
select b.show_id, b.seat, a.hold_id as earlier, ended.to_state as earlier_ended, b.hold_id as later, concat_ws(',', a.overbook_op, ended.overbook_op, b.overbook_op) as ops
from holds a
join ticket_audit begun_a on begun_a.hold_id = a.hold_id and begun_a.subject = 'hold' and begun_a.from_state is null
left join ticket_audit ended on ended.hold_id = a.hold_id and ended.subject = 'hold' and ended.from_state = 'RESERVED'
join holds b on b.show_id = a.show_id and b.seat = a.seat and b.hold_id <> a.hold_id
join ticket_audit begun_b on begun_b.hold_id = b.hold_id and begun_b.subject = 'hold' and begun_b.from_state is null
where begun_b.audit_id > begun_a.audit_id
  and (begun_b.audit_id < coalesce(ended.audit_id, 9223372036854775807) or ended.to_state is not distinct from 'CONFIRMED')
