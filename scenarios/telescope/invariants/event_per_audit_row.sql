-- each audit row has exactly one outbox event with its number, which says the same, and each event its audit row
select coalesce(a.slot_id, o.slot_id) as slot_id, coalesce(a.seq, o.seq) as seq, a.event, o.type, a.booking_id, o.payload, a.overbook_op as ops,
       case when o.event_id is null then 'an audit row without its event'
            when a.audit_id is null then 'an event without its audit row'
            else 'an event that says something else' end as problem
from audit_history a
full join outbox o on o.slot_id = a.slot_id and o.seq = a.seq
where o.event_id is null or a.audit_id is null or o.type <> 'telescope.' || lower(a.event)
   or o.payload ->> 'event' is distinct from a.event
   or (o.payload ->> 'slot_id')::bigint is distinct from a.slot_id
   or nullif(o.payload ->> 'booking_id', '')::uuid is distinct from a.booking_id
   or nullif(o.payload ->> 'member', '') is distinct from a.member
