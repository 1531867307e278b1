-- whatever the provider has to hear of yet is due, claimed, or parked for staff, so that nothing is forgotten
select o.appointment_id, a.state, o.seq, o.type, s.due_at, s.claim, s.parked_at, s.attempts, s.last_error, a.overbook_op as ops
from outbox o
join appointments a using (appointment_id)
left join syncs s using (appointment_id)
where o.done_at is null and (s.appointment_id is null or (s.due_at is null and s.claim is null and s.parked_at is null))
