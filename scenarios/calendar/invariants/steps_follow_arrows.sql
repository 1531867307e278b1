-- each history begins with the booking, nothing follows a cancellation or a rejection, only what is booked becomes created, only what is created is restored, and only a move changes the time
with step as (
  select *, lag(event) over w as before, lag(during) over w as during_before,
         coalesce(bool_or(event = 'CREATED') over (partition by appointment_id order by seq rows between unbounded preceding and 1 preceding), false) as created
  from appointment_audit
  window w as (partition by appointment_id order by seq)
)
select appointment_id, seq, before, event, created as was_created, during_before, during, reason, actor, overbook_op as ops
from step
where (before is null) <> (event = 'BOOKED')
   or before in ('CANCELLED', 'REJECTED')
   or (event = 'CREATED' and created)
   or (event = 'RESTORED' and not created)
   or (event <> 'MOVED' and before is not null and during is distinct from during_before)
