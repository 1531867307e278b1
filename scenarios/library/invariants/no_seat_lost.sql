-- nobody loses the race for a seat that nobody got (only an attempt that was won closes a seat)
select i.seat, count(*) as lost, min(i.failure) as reason
from library_reservation_intents i
where i.state = 'FAILED_RACE' and i.kind = 'immediate'
  and not exists (select 1 from library_reservation_intents w where w.seat = i.seat and w.state = 'SUCCEEDED')
group by i.seat
