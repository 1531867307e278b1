-- every confirmed action has exactly one intent, is consumed once, and nothing unconfirmed has one
select a.action_id, a.kind, a.state, count(distinct i.intent_id) as intents, count(distinct u.audit_id) as confirmations,
       string_agg(distinct i.overbook_op, ',') as ops
from library_actions a
left join library_reservation_intents i on i.action_id = a.action_id
left join action_audit u on u.action_id = a.action_id and u.event = 'CONFIRMED'
group by a.action_id, a.kind, a.state
having (a.state = 'CONFIRMED' and (count(distinct i.intent_id) <> 1 or count(distinct u.audit_id) <> 1))
    or (a.state <> 'CONFIRMED' and (count(distinct i.intent_id) <> 0 or count(distinct u.audit_id) <> 0))
