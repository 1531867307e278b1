-- each charge that was captured has won its hold or has one refund of what was captured, never both, and nothing else is refunded
select c.charge_id, c.hold_id, c.payment_id, c.state, c.captured_amount, c.captured_currency, h.hold_id as won, r.refund_id, r.amount as refund_amount,
       r.currency as refund_currency, r.state as refund_state, c.overbook_op as ops
from charges c
left join holds h on h.winning_charge = c.charge_id
left join refunds r on r.charge_id = c.charge_id
where (c.captured_amount is not null and (h.hold_id is null) = (r.refund_id is null))
   or (c.captured_amount is null and (h.hold_id is not null or r.refund_id is not null))
   or (r.refund_id is not null and (r.payment_id, r.amount, r.currency) is distinct from (c.payment_id, c.captured_amount, c.captured_currency))
   or c.state = 'REFUNDED' and r.state is distinct from 'DONE'
   or c.state = 'REFUNDING' and r.state is distinct from 'PENDING'
   or c.state = 'CAPTURED' and h.hold_id is null
   or (select count(*) from refunds o where o.charge_id = c.charge_id) > 1
