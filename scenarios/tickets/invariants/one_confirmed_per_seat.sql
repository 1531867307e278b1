-- a seat has at most one confirmed hold, and a show has no more of them than seats
select h.show_id, h.seat, count(*) as confirmed, string_agg(h.hold_id::text, ' ') as holds, string_agg(h.overbook_op, ',') as ops
from holds h
where h.state = 'CONFIRMED'
group by h.show_id, h.seat
having count(*) > 1
union all
select h.show_id, 'of ' || (select count(*) from seats s where s.show_id = h.show_id) || ' seats', count(*), null, null
from holds h
where h.state = 'CONFIRMED'
group by h.show_id
having count(*) > (select count(*) from seats s where s.show_id = h.show_id)
