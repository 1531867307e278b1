-- the history of each appointment is numbered from 1 to its version without a gap, and ends with the time and the state that the appointment has
with replayed as (
  select appointment_id, count(*) as steps, min(seq) as first, max(seq) as last,
         (array_agg(during order by seq desc))[1] as during,
         case when bool_or(event = 'CANCELLED') then 'CANCELLED' when bool_or(event = 'REJECTED') then 'REJECTED' when bool_or(event = 'CREATED') then 'CREATED' else 'BOOKED' end as state
  from appointment_audit
  group by appointment_id
)
select a.appointment_id, a.version, r.steps, r.first, r.last, a.state, r.state as by_history, a.during, r.during as during_by_history, a.overbook_op as ops
from appointments a
left join replayed r using (appointment_id)
where r.steps is distinct from a.version or r.first is distinct from 1 or r.last is distinct from a.version
   or r.state is distinct from a.state or r.during is distinct from a.during
