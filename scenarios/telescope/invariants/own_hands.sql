-- a reservation is made by its member, and cancelled by its member or by staff
select slot_id, seq, event, booking_id, member, actor, overbook_op as ops
from audit_history
where (event = 'BOOKED' and actor is distinct from member)
   or (event = 'CANCELLED' and actor is distinct from member and actor not like 'staff-%')
   or (event in ('CREATED', 'CLOSED', 'REOPENED', 'FLAGGED', 'KEPT') and actor not like 'staff-%')
