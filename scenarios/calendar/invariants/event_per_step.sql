-- each step of an appointment's history that the provider has to hear of has exactly one event with its number and of its type, and no event is without a step
select coalesce(a.appointment_id, o.appointment_id) as appointment_id, coalesce(a.seq, o.seq) as seq, a.event as step, o.type, a.overbook_op as ops
from (select * from appointment_audit where event <> 'CREATED') a
full join outbox o on o.appointment_id = a.appointment_id and o.seq = a.seq
where o.type is distinct from 'appointment.' || lower(a.event)
