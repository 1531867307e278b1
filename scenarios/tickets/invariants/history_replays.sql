-- the history of each order replays to exactly the states that its hold, its charges, its refunds and its quarantine are in
with last as (
  select distinct on (hold_id, subject, subject_id) hold_id, subject, subject_id, to_state, overbook_op
  from ticket_audit
  order by hold_id, subject, subject_id, seq desc
), stored as (
  select hold_id, 'hold' as subject, hold_id::text as subject_id, state from holds
  union all
  select hold_id, 'charge', charge_id::text, state from charges
  union all
  select c.hold_id, 'refund', r.refund_id::text, r.state from refunds r join charges c using (charge_id)
)
select coalesce(l.hold_id, s.hold_id) as hold_id, coalesce(l.subject, s.subject) as subject, coalesce(l.subject_id, s.subject_id) as id,
       l.to_state as by_history, s.state as by_row, l.overbook_op as ops
from (select * from last where subject <> 'seat') l
full join stored s on s.hold_id = l.hold_id and s.subject = l.subject and s.subject_id = l.subject_id
where l.to_state is distinct from s.state
union all
select l.hold_id, 'quarantine', l.subject_id, l.to_state, s.state, l.overbook_op
from last l
join holds h on h.hold_id = l.hold_id
left join seats s on s.show_id = h.show_id and s.seat = h.seat and s.hold_id = h.hold_id
where l.subject = 'seat' and (l.to_state = 'QUARANTINED') is distinct from (coalesce(s.state, '') = 'QUARANTINED')
union all
select s.hold_id, 'quarantine', s.seat, null, s.state, null
from seats s
where s.state = 'QUARANTINED' and not exists (select from last l where l.hold_id = s.hold_id and l.subject = 'seat')
