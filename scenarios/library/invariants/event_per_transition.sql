-- each transition has exactly one outbox event that says what it was, in order, and each event was delivered and consumed once
with numbered as (
  select intent_id, seq, to_state, row_number() over (partition by intent_id order by seq) as place
  from library_transitions
)
select coalesce(t.intent_id, o.intent_id) as intent_id, coalesce(t.seq, o.seq) as seq, t.to_state, o.event_id, o.type,
       o.delivered_at, o.parked_at,
       case when o.event_id is null then 'a transition without its event'
            when t.intent_id is null then 'an event without its transition'
            when t.place <> t.seq then 'a gap in the sequence of transitions'
            when o.type <> 'library.intent.' || lower(t.to_state) then 'an event that tells of another state'
            when o.delivered_at is null then 'an event that was never delivered'
            when n.event_id is null then 'an event that the consumer does not have'
            else 'an event that the consumer has as another one' end as problem
from numbered t
full join library_reservation_outbox o on o.intent_id = t.intent_id and o.seq = t.seq
left join library_notifications n on n.event_id = o.event_id
where o.event_id is null or t.intent_id is null or t.place <> t.seq or o.delivered_at is null or n.event_id is null
   or o.type <> 'library.intent.' || lower(t.to_state)
   or (n.intent_id, n.seq, n.type) is distinct from (o.intent_id, o.seq, o.type)
