-- an appointment has at most one unresolved conflict of a kind with one event
select appointment_id, kind, external_event, count(*) as unresolved, string_agg(conflict_id::text, ' ') as conflicts
from conflicts
where resolved_at is null
group by appointment_id, kind, external_event
having count(*) > 1
