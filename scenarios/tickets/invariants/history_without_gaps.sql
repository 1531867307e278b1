-- the history of each order is numbered from 1 to its version without a gap, and begins with the hold
select h.hold_id, h.version, count(a.audit_id) as rows, min(a.seq) as first, max(a.seq) as last, h.overbook_op as ops
from holds h
left join ticket_audit a on a.hold_id = h.hold_id
group by h.hold_id
having count(a.audit_id) <> h.version or count(distinct a.seq) <> h.version or min(a.seq) is distinct from 1 or max(a.seq) is distinct from h.version
    or bool_or(a.seq = 1 and (a.subject, a.subject_id, a.from_state, a.to_state) is distinct from ('hold', h.hold_id::text, null, 'RESERVED'))
