-- each step in the history of a hold, a charge, a refund or a quarantine begins where the one before ended, and follows an arrow: nothing leaves a terminal state
with step as (
  select a.*, lag(a.to_state) over (partition by a.hold_id, a.subject, a.subject_id order by a.seq) as before
  from ticket_audit a
)
select hold_id, seq, subject, subject_id, before, from_state, to_state, reason, overbook_op as ops
from step
where (subject <> 'seat' and from_state is distinct from before)
   or (subject, coalesce(from_state, '-'), to_state) not in (
  ('hold', '-', 'RESERVED'), ('hold', 'RESERVED', 'CONFIRMED'), ('hold', 'RESERVED', 'EXPIRED'), ('hold', 'RESERVED', 'RELEASED'),
  ('charge', '-', 'CHARGING'), ('charge', '-', 'CAPTURED'), ('charge', '-', 'DECLINED'),
  ('charge', 'CHARGING', 'CAPTURED'), ('charge', 'CHARGING', 'DECLINED'), ('charge', 'CHARGING', 'FAILED'), ('charge', 'CHARGING', 'REFUND_RESOLVED'),
  ('charge', 'CAPTURED', 'REFUNDING'), ('charge', 'REFUNDING', 'REFUNDED'),
  ('refund', '-', 'PENDING'), ('refund', 'PENDING', 'DONE'),
  ('seat', 'HELD', 'QUARANTINED'), ('seat', 'QUARANTINED', 'SOLD'), ('seat', 'QUARANTINED', 'FREE'))
