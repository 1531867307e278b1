-- a conflict that is resolved says when, how and by whom, and its appointment is as that says; one of an appointment that is over is resolved once the provider has deleted it
select c.conflict_id, c.appointment_id, a.state, c.kind, c.external_event, c.found_at, c.resolved_at, c.resolution, c.resolved_by, a.overbook_op as ops
from conflicts c
join appointments a using (appointment_id)
where c.resource_id <> a.resource_id
   or (c.resolved_at is null) <> (c.resolution is null) or (c.resolved_at is null) <> (coalesce(c.resolved_by, '') = '')
   or c.resolved_at < c.found_at
   or (c.resolution = 'rejected' and a.state <> 'REJECTED')
   or (c.resolution in ('cancelled', 'ended') and a.state not in ('CANCELLED', 'REJECTED'))
   or (c.resolution in ('rejected', 'cancelled', 'ended')
       and not exists (select from outbox o where o.appointment_id = c.appointment_id and o.type in ('appointment.rejected', 'appointment.cancelled') and o.done_at <= c.resolved_at))
   or (c.resolution in ('kept', 'cancelled') and c.resolved_by not like 'staff%')
   or (c.resolved_at is null and a.state in ('CANCELLED', 'REJECTED')
       and not exists (select from outbox o where o.appointment_id = c.appointment_id and o.done_at is null))
