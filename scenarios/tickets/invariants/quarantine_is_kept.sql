-- under the policy quarantine no hold begins on a seat while a charge of an earlier hold on it is in flight
select b.show_id, b.seat, a.hold_id as earlier, c.charge_id, c.state as charge_state, b.hold_id as later, concat_ws(',', c.overbook_op, b.overbook_op) as ops
from holds a
join charges c on c.hold_id = a.hold_id
join ticket_audit sent on sent.hold_id = a.hold_id and sent.subject = 'charge' and sent.subject_id = c.charge_id::text and sent.to_state = 'CHARGING'
left join ticket_audit over on over.hold_id = a.hold_id and over.subject = 'charge' and over.subject_id = c.charge_id::text and over.from_state = 'CHARGING'
join holds b on b.show_id = a.show_id and b.seat = a.seat and b.hold_id <> a.hold_id
join ticket_audit begun on begun.hold_id = b.hold_id and begun.subject = 'hold' and begun.from_state is null
where a.policy = 'quarantine' and begun.audit_id > sent.audit_id and begun.audit_id < coalesce(over.audit_id, 9223372036854775807)
