-- a login has at most one active checkout, now and at every step of the history
select login, count(*) as active, string_agg(hold_id::text, ' ') as holds, string_agg(overbook_op, ',') as ops
from holds
where state = 'RESERVED'
group by login
having count(*) > 1
union all
select b.login, 2, a.hold_id || ' ' || b.hold_id, concat_ws(',', a.overbook_op, b.overbook_op)
from holds a
join ticket_audit begun_a on begun_a.hold_id = a.hold_id and begun_a.subject = 'hold' and begun_a.from_state is null
left join ticket_audit ended_a on ended_a.hold_id = a.hold_id and ended_a.subject = 'hold' and ended_a.from_state = 'RESERVED'
join holds b on b.login = a.login and b.hold_id <> a.hold_id
join ticket_audit begun_b on begun_b.hold_id = b.hold_id and begun_b.subject = 'hold' and begun_b.from_state is null
where begun_b.audit_id > begun_a.audit_id and begun_b.audit_id < coalesce(ended_a.audit_id, 9223372036854775807)
