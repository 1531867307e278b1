-- at most one student SUCCEEDED on a seat
select seat, count(*) as winners, string_agg(student, ', ' order by student) as students,
       string_agg(coalesce(charge_id, 'no charge'), ', ' order by student) as charges
from library_reservation_intents
where state = 'SUCCEEDED'
group by seat
having count(*) > 1
