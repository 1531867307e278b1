-- the public schedule, at rest, shows each slot as it is
select coalesce(s.slot_id, p.slot_id) as slot_id, p.state as shown,
       case when s.slot_id is null then 'none' when s.state = 'closed' then 'closed' when r.slot_id is not null then 'taken' else 'free' end as true_state,
       p.starts_at as shown_start, s.starts_at,
       (select string_agg(a.overbook_op, ',' order by a.seq desc) from audit_history a where a.slot_id = s.slot_id) as ops
from observing_slots s
left join active_reservations r on r.slot_id = s.slot_id
full join slot_schedule p on p.slot_id = s.slot_id
where p.slot_id is null or s.slot_id is null or p.starts_at <> s.starts_at
   or p.state <> case when s.state = 'closed' then 'closed' when r.slot_id is not null then 'taken' else 'free' end
