-- when settled, every intent is terminal or WAITING_FOR_SEAT
select intent_id, action_id, student, seat, state, attempts, locked_by, locked_until, overbook_op as ops
from library_reservation_intents
where state not in ('SUCCEEDED', 'FAILED_RACE', 'FAILED_AUTH', 'FAILED_UPSTREAM', 'WAITING_FOR_SEAT')
