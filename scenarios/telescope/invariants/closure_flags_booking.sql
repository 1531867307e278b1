-- who closes a reserved slot flags its reservation in the next row, and nothing else is flagged
with numbered as (
  select slot_id, seq, event, booking_id, member, overbook_op,
         lag(event) over w as before, lead(event) over w as next, lead(booking_id) over w as next_booking,
         sum(case event when 'BOOKED' then 1 when 'CANCELLED' then -1 else 0 end) over w as active,
         (array_agg(booking_id) filter (where event = 'BOOKED') over w) as booked
  from audit_history
  window w as (partition by slot_id order by seq, audit_id)
)
select slot_id, seq, event, active, next, next_booking, overbook_op as ops,
       case when event = 'FLAGGED' then 'flagged without a closure'
            when active > 0 then 'a reservation that nobody was told of'
            else 'a reservation is flagged that is none' end as problem
from numbered
where (event = 'CLOSED' and active > 0 and (next, next_booking) is distinct from ('FLAGGED', booked[cardinality(booked)]))
   or (event = 'CLOSED' and active <= 0 and next = 'FLAGGED')
   or (event = 'FLAGGED' and before is distinct from 'CLOSED')
