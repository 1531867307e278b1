-- each booking that won has exactly one creation event, its first, and whoever did not win has none
select coalesce(a.appointment_id, o.appointment_id) as appointment_id, a.state, count(o.event_id) as creations, min(o.seq) as first, max(a.overbook_op) as ops
from appointments a
full join (select * from outbox where type = 'appointment.booked') o on o.appointment_id = a.appointment_id
group by coalesce(a.appointment_id, o.appointment_id), a.state
having count(o.event_id) <> 1 or min(o.seq) <> 1 or a.state is null
