-- nobody ever had more than two active reservations in a month of the observatory, also when one was cancelled since
with held as (
  select a.member, to_char(s.starts_at at time zone 'Pacific/Honolulu', 'YYYY-MM') as month, a.audit_id, a.slot_id, a.event, a.overbook_op,
         sum(case a.event when 'BOOKED' then 1 else -1 end)
           over (partition by a.member, to_char(s.starts_at at time zone 'Pacific/Honolulu', 'YYYY-MM') order by a.audit_id) as active
  from audit_history a
  join observing_slots s on s.slot_id = a.slot_id
  where a.event in ('BOOKED', 'CANCELLED')
)
select member, month, slot_id, active, overbook_op as ops
from held
where event = 'BOOKED' and active > 2
