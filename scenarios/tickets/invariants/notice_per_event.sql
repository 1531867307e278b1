-- each delivered event has exactly one notice, to the login of its order, and no notice is without an event
select coalesce(o.hold_id, n.hold_id) as hold_id, coalesce(o.seq, n.seq) as seq, o.event_id, n.event_id as noticed, n.login, h.login as of_order, o.parked_at
from outbox o
full join notices n on n.event_id = o.event_id
left join holds h on h.hold_id = o.hold_id
where (n.event_id is null and o.parked_at is null) or o.event_id is null or (n.hold_id, n.seq, n.login) is distinct from (o.hold_id, o.seq, h.login) and n.event_id is not null
union all
select hold_id, seq, null, null, null, null, null from notices group by hold_id, seq having count(*) > 1
