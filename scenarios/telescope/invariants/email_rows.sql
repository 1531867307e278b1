-- each event that owes a mail and counts as delivered has its row of what the provider took, and no other event has one
select coalesce(o.event_id, d.event_id) as event_id, o.slot_id, o.seq, o.type, o.delivered_at, o.parked_at, d.message_id, o.payload ->> 'op' as ops,
       case when o.event_id is null then 'a mail without its event'
            when d.event_id is null then 'delivered, and nothing was sent'
            else 'a mail that nobody is owed' end as problem
from outbox o
full join email_deliveries d on d.event_id = o.event_id
where o.event_id is null
   or (d.event_id is null and o.delivered_at is not null and o.type in ('telescope.booked', 'telescope.cancelled', 'telescope.flagged'))
   or (d.event_id is not null and o.type not in ('telescope.booked', 'telescope.cancelled', 'telescope.flagged'))
