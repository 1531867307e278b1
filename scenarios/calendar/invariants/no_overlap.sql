-- no two active appointments of a resource have an instant in common; half-open times that touch have none
select a.resource_id, a.appointment_id as one, a.state as one_state, a.during as one_during, b.appointment_id as other, b.state as other_state, b.during as other_during,
       concat_ws(',', nullif(a.overbook_op, ''), nullif(b.overbook_op, '')) as ops
from appointments a
join appointments b on b.resource_id = a.resource_id and b.appointment_id > a.appointment_id
where a.state in ('BOOKED', 'CREATED') and b.state in ('BOOKED', 'CREATED')
  and lower(a.during) < upper(b.during) and lower(b.during) < upper(a.during)
