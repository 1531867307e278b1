-- a seat is sold if and only if its hold is confirmed, by a captured charge of that hold and of the hold's own amount and currency
select coalesce(s.show_id, h.show_id) as show_id, coalesce(s.seat, h.seat) as seat, s.state as seat_state, h.hold_id, h.state as hold_state,
       c.charge_id, c.state as charge_state, h.amount, c.captured_amount, h.currency, c.captured_currency, concat_ws(',', h.overbook_op, c.overbook_op) as ops
from (select * from seats where state = 'SOLD') s
full join (select * from holds where state = 'CONFIRMED') h on h.hold_id = s.hold_id
left join charges c on c.charge_id = h.winning_charge and c.hold_id = h.hold_id
where s.seat is null or h.hold_id is null or (s.show_id, s.seat) is distinct from (h.show_id, h.seat)
   or (c.state, c.captured_amount, c.captured_currency) is distinct from ('CAPTURED', h.amount, h.currency)
