-- a terminal state never changes: it is the last transition, there is one, and the row still shows it
select i.intent_id, i.seat, i.student, i.state, string_agg(t.to_state || ' by ' || t.replica, ' -> ' order by t.seq) as history,
       min(i.overbook_op) as ops
from library_reservation_intents i
join library_transitions t on t.intent_id = i.intent_id
group by i.intent_id, i.seat, i.student, i.state
having count(*) filter (where t.to_state in ('SUCCEEDED', 'FAILED_RACE', 'FAILED_AUTH', 'FAILED_UPSTREAM')) > 1
    or (array_agg(t.to_state order by t.seq desc))[1] <> i.state
    or bool_or(t.from_state in ('SUCCEEDED', 'FAILED_RACE', 'FAILED_AUTH', 'FAILED_UPSTREAM'))
