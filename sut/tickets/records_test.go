package tickets

// soundly checks what must hold of the records after any run.
func (s *shop) soundly() {
	s.t.Helper()
	for what, sql := range unsound {
		if n := scan[int](s, sql); n != 0 {
			s.t.Errorf("%d %s", n, what)
		}
	}
}

// unsound counts what must not be there.
var unsound = map[string]string{
	"seats that belong to a hold that does not say so": `
		select count(*) from seats s join holds h using (hold_id) where (s.show_id, s.seat) <> (h.show_id, h.seat)
		or (s.state = 'SOLD') <> (h.state = 'CONFIRMED') or s.state = 'HELD' and h.state <> 'RESERVED'
		or s.state = 'QUARANTINED' and not exists (select from charges c where c.hold_id = h.hold_id and c.state = 'CHARGING')`,
	"holds without the seat that is theirs": `
		select count(*) from holds h where state in ('RESERVED', 'CONFIRMED') and not exists (select from seats s where s.hold_id = h.hold_id)`,
	"seats with two sold holds": `
		select count(*) from (select 1 from holds where state = 'CONFIRMED' group by show_id, seat having count(*) > 1) x`,
	"sold seats without a captured winning charge of their amount": `
		select count(*) from holds h left join charges c on c.charge_id = h.winning_charge
		where h.state = 'CONFIRMED' and (c.state, c.hold_id, c.captured_amount, c.captured_currency) is distinct from ('CAPTURED', h.hold_id, h.amount, h.currency)`,
	"captures that neither pay for a seat nor go back, or both": `
		select count(*) from charges c join holds h using (hold_id) left join refunds r using (charge_id)
		where c.captured_amount is not null and (h.winning_charge is not distinct from c.charge_id) = (r.refund_id is not null)`,
	"refunds of another amount or payment than was captured": `
		select count(*) from refunds r join charges c using (charge_id)
		where (r.payment_id, r.amount, r.currency) is distinct from (c.payment_id, c.captured_amount, c.captured_currency)`,
	"logins with two checkouts": `select count(*) from (select 1 from holds where state = 'RESERVED' group by login having count(*) > 1) x`,
	"holds whose version is not the number of their last audit row": `
		select count(*) from holds h where version is distinct from (select max(seq) from ticket_audit a where a.hold_id = h.hold_id)`,
	"holds whose history has gaps": `
		select count(*) from (select 1 from ticket_audit group by hold_id having count(*) <> max(seq) or min(seq) <> 1) x`,
	"states that the history does not tell": `
		select count(*) from (
		  select 'hold' subject, hold_id::text id, state, hold_id from holds
		  union all select 'charge', charge_id::text, state, hold_id from charges
		  union all select 'refund', refund_id::text, r.state, hold_id from refunds r join charges using (charge_id)) x
		where state is distinct from (select to_state from ticket_audit a where a.hold_id = x.hold_id and a.subject = x.subject and subject_id = id order by seq desc limit 1)`,
	"transitions that do not begin where the last one ended": `
		select count(*) from (select from_state, subject, lag(to_state) over (partition by hold_id, subject, subject_id order by seq) before from ticket_audit) x
		where from_state is distinct from before and subject <> 'seat'`,
	"quarantines that the history does not tell": `
		select count(*) from seats s join holds h using (hold_id) where (s.state = 'QUARANTINED') <> coalesce((
		  select to_state = 'QUARANTINED' from ticket_audit a where a.hold_id = h.hold_id and subject = 'seat' order by seq desc limit 1), false)`,
	"audit rows without their event, or events without their row": `
		select count(*) from ticket_audit a full join outbox o using (hold_id, seq)
		where a.hold_id is null or o.hold_id is null or o.type <> a.subject || '.' || lower(a.to_state)`,
}
