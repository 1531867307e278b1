-- the history of each slot is numbered from 1 to its version without a gap, and begins with CREATED
select s.slot_id, s.version, count(a.audit_id) as rows, min(a.seq) as first, max(a.seq) as last, (array_agg(a.event order by a.seq))[1] as begins
from observing_slots s
left join audit_history a on a.slot_id = s.slot_id
group by s.slot_id, s.version
having count(a.audit_id) <> s.version or count(distinct a.seq) <> s.version or min(a.seq) is distinct from 1 or max(a.seq) is distinct from s.version
    or (array_agg(a.event order by a.seq))[1] is distinct from 'CREATED'
    or count(*) filter (where a.event = 'CREATED') <> 1
