-- after no step of the history did two active appointments of a resource have an instant in common; moves that were made together are one step
with step as (
  select appointment_id, audit_id, during, event not in ('REJECTED', 'CANCELLED') as active, overbook_op,
         max(audit_id) over (partition by case when event = 'MOVED' and overbook_op <> '' then 'together ' || overbook_op else audit_id::text end) as since
  from appointment_audit
), lasting as (
  select s.*, a.resource_id, coalesce(lead(s.since) over (partition by s.appointment_id order by s.audit_id), 9223372036854775807) as until
  from step s
  join appointments a using (appointment_id)
)
select a.resource_id, a.appointment_id as one, a.during as one_during, a.since as one_since, b.appointment_id as other, b.during as other_during, b.since as other_since,
       concat_ws(',', nullif(a.overbook_op, ''), nullif(b.overbook_op, '')) as ops
from lasting a
join lasting b on b.resource_id = a.resource_id and b.appointment_id > a.appointment_id and a.since < b.until and b.since < a.until
where a.active and b.active
  and lower(a.during) < upper(b.during) and lower(b.during) < upper(a.during)
