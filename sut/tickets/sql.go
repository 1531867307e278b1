package tickets

// Statements that run for clients, and those by which an order changes. They
// are prepared on every connection, and each is a round trip of its own.
//
// The first statement of a request's transaction has the request's
// X-Overbook-Op as a parameter, so that whoever watches the wire knows whose it
// is. Where nothing is stored of it, it is only looked at.

// sqlOffer is what a claim is refused by, as of one instant: the show, the
// named seat, whether any seat is free, and the caller's active hold.
const sqlOffer = `
select w.on_sale_at, w.price, w.currency, w.policy,
  (select t.state from seats t where t.show_id = w.show_id and t.seat = $2),
  exists (select from seats t where t.show_id = w.show_id and t.state = 'FREE'),
  h.hold_id, h.seat, h.expires_at
from shows w left join holds h on h.login = $3 and h.state = 'RESERVED'
where w.show_id = $1`

// The claim. Whoever claims locks the free seat first and puts its hold behind
// it: to wait for another tab's hold is then the last wait of all.
const (
	sqlLockSeat = `
select seat from seats where show_id = $1 and $2::text is not null and seat = $3 and state = 'FREE' for update`

	sqlPickSeat = `
select seat from seats where show_id = $1 and $2::text is not null and state = 'FREE' order by rank limit 1 for update skip locked`

	// sqlAwaitSeat waits for those who have locked free seats, one after the other,
	// until one is still free.
	sqlAwaitSeat = `
select seat from seats where show_id = $1 and $2::text is not null and state = 'FREE' order by rank limit 1 for update`

	sqlReserve = `
insert into holds (hold_id, show_id, seat, login, state, amount, currency, policy, overbook_op, created_at, expires_at)
values ($1, $2, $3, $4, 'RESERVED', $5, $6, $7, $8, $9, $10) on conflict do nothing`

	sqlTakeSeat = `
update seats set state = 'HELD', hold_id = $3, changed_at = $4 where show_id = $1 and seat = $2 and state = 'FREE'`
)

// An order, under its hold's lock.
const (
	sqlLockHold = `
select hold_id, show_id, seat, login, state, amount, currency, policy, winning_charge, version, created_at, expires_at
from holds where hold_id = $1 and $2::text is not null for update`

	sqlCharges = `
select charge_id, hold_id, intent, payment_id, amount, currency, card, state, origin, captured_amount, captured_currency,
  sent_at, resolved_at, settled_at, next_ask_at, asked, overbook_op, traceparent
from charges where hold_id = $1 order by sent_at, charge_id`

	sqlRefunds = `
select refund_id, charge_id, r.payment_id, r.amount, r.currency, reason, r.state, attempts, next_attempt_at, last_error, parked_at
from refunds r join charges using (charge_id) where hold_id = $1 order by r.created_at, refund_id`

	sqlSeat = `select state from seats where show_id = $1 and seat = $2 and hold_id = $3`

	sqlEndHold = `
update holds set state = $2, winning_charge = $3, ended_at = $4 where hold_id = $1 and state = 'RESERVED'`

	sqlFreeSeat = `
update seats set state = 'FREE', hold_id = null, changed_at = $4
where show_id = $1 and seat = $2 and hold_id = $3 and state in ('HELD', 'QUARANTINED')`

	sqlSellSeat = `
update seats set state = 'SOLD', changed_at = $4
where show_id = $1 and seat = $2 and hold_id = $3 and state in ('HELD', 'QUARANTINED')`

	sqlQuarantineSeat = `
update seats set state = 'QUARANTINED', changed_at = $4
where show_id = $1 and seat = $2 and hold_id = $3 and state = 'HELD'`
)

// Charges and refunds.
const (
	sqlCharge = `
insert into charges (charge_id, hold_id, intent, amount, currency, card, state, origin, sent_at, next_ask_at, overbook_op, traceparent)
values ($1, $2, $3, $4, $5, $6, 'CHARGING', 'request', $7, $8, $9, $10) on conflict do nothing`

	sqlOwnAttempt = `
insert into charges (charge_id, hold_id, intent, payment_id, amount, currency, card, state, origin,
  captured_amount, captured_currency, sent_at, resolved_at, resolved_by)
values ($1, $2, $3, $4, $5, $6, '', $7, 'provider', $8, $9, $10, $10, $11)`

	sqlResolveCharge = `
update charges set state = $2, payment_id = coalesce(payment_id, $3), captured_amount = $4, captured_currency = $5,
  resolved_at = $6, resolved_by = $7, next_ask_at = $8
where charge_id = $1 and state = 'CHARGING'`

	// sqlSettleCharge is of a charge that is over: the provider has decided after all.
	sqlSettleCharge = `
update charges set payment_id = coalesce(payment_id, $2), captured_amount = $3, captured_currency = $4,
  settled_at = $5, next_ask_at = null
where charge_id = $1 and captured_amount is null`

	sqlBindPayment = `update charges set payment_id = $2 where charge_id = $1 and payment_id is null`

	sqlMoveCharge = `update charges set state = $3 where charge_id = $1 and state = $2`

	sqlRefund = `
insert into refunds (refund_id, charge_id, payment_id, amount, currency, reason, state, next_attempt_at, created_at)
values ($1, $2, $3, $4, $5, $6, 'PENDING', $7, $7)`

	sqlRefundDone = `
update refunds set state = 'DONE', done_at = $2, parked_at = null where refund_id = $1 and state = 'PENDING'`
)

// History.
const (
	sqlVersion = `update holds set version = $2 where hold_id = $1`

	sqlAudit = `
insert into ticket_audit (hold_id, seq, subject, subject_id, from_state, to_state, reason, actor, overbook_op, at)
select $1, c.seq, c.subject, c.subject_id, nullif(c.from_state, ''), c.to_state, c.reason, c.actor, c.op, $2
from unnest($3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])
  as c(seq, subject, subject_id, from_state, to_state, reason, actor, op)
order by c.seq`

	sqlEvents = `
insert into outbox (hold_id, seq, type, payload, created_at)
select $1, c.seq, c.type, c.payload::jsonb, $2
from unnest($3::int[], $4::text[], $5::text[]) as c(seq, type, payload)
order by c.seq`
)

// Callbacks.
const (
	sqlSeen = `select true from provider_events where event_id = $1`

	sqlEvent = `
insert into provider_events (event_id, type, payment_id, intent, result, received_at) values ($1, $2, $3, $4, $5, $6)`
)

// Shows.
const (
	sqlShow = `
insert into shows (show_id, on_sale_at, price, currency, policy, created_at)
select $1, $2, $3, $4, $5, $6 where $7::text is not null on conflict do nothing`

	sqlSeats = `
insert into seats (show_id, seat, rank, state, changed_at)
select $1, n.seat, n.rank, 'FREE', $3 from unnest($2::text[]) with ordinality as n(seat, rank)`
)

// Reads, each of one instant.
const (
	sqlHall = `select seat, state from seats where show_id = $1 order by rank`

	sqlOrder = `
select json_build_object(
  'hold_id', h.hold_id, 'show_id', h.show_id, 'seat', h.seat, 'login', h.login, 'state', h.state,
  'created_at', h.created_at, 'expires_at', h.expires_at, 'amount', h.amount, 'currency', h.currency, 'winning_charge', h.winning_charge,
  'charges', coalesce((
    select json_agg(json_build_object('charge_id', c.charge_id, 'payment_id', c.payment_id, 'state', c.state, 'amount', c.amount,
      'captured', c.captured_amount, 'sent_at', c.sent_at, 'resolved_at', c.resolved_at) order by c.sent_at, c.charge_id)
    from charges c where c.hold_id = h.hold_id), '[]'),
  'refunds', coalesce((
    select json_agg(json_build_object('refund_id', r.refund_id, 'charge_id', r.charge_id, 'payment_id', r.payment_id,
      'amount', r.amount, 'state', r.state) order by r.created_at, r.refund_id)
    from refunds r join charges c using (charge_id) where c.hold_id = h.hold_id), '[]'),
  'notices', coalesce((
    select json_agg(n.type order by n.seq) from notices n where n.hold_id = h.hold_id), '[]'))
from holds h where h.hold_id = $1`
)

// statements are all of them.
var statements = []string{
	sqlOffer, sqlLockSeat, sqlPickSeat, sqlAwaitSeat, sqlReserve, sqlTakeSeat,
	sqlLockHold, sqlCharges, sqlRefunds, sqlSeat, sqlEndHold, sqlFreeSeat, sqlSellSeat, sqlQuarantineSeat,
	sqlCharge, sqlOwnAttempt, sqlResolveCharge, sqlSettleCharge, sqlBindPayment, sqlMoveCharge, sqlRefund, sqlRefundDone,
	sqlVersion, sqlAudit, sqlEvents, sqlSeen, sqlEvent, sqlShow, sqlSeats, sqlHall, sqlOrder,
}
