-- each step of the history has exactly one outbox event with its number and of its type, and no event is without a step
select coalesce(a.hold_id, o.hold_id) as hold_id, coalesce(a.seq, o.seq) as seq, a.subject, a.to_state, o.type, count(o.event_id) as events, max(a.overbook_op) as ops
from ticket_audit a
full join outbox o on o.hold_id = a.hold_id and o.seq = a.seq
group by coalesce(a.hold_id, o.hold_id), coalesce(a.seq, o.seq), a.subject, a.to_state, o.type, a.audit_id
having count(o.event_id) <> 1 or count(a.audit_id) <> 1 or o.type is distinct from a.subject || '.' || lower(a.to_state)
