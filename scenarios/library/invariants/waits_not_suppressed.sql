-- a wait intent is never closed as a lost race; it goes on waiting
select intent_id, student, seat, state, failure, attempts
from library_reservation_intents
where kind = 'wait' and state = 'FAILED_RACE'
