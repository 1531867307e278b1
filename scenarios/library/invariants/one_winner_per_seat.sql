-- at most one student SUCCEEDED on a seat
select seat, count(*) as winners, string_agg(student, ', ' order by student) as students,
       string_agg(coalesce(charge_id, 'no charge'), ', ' order by student) as charges,
       string_agg(overbook_op, ',' order by student) as ops
from library_reservation_intents
where state = 'SUCCEEDED'
group by seat
having count(*) > 1
