package tickets

import (
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// isWithoutSeat holds for a charge c of a hold h, with its refund r if it has
// one, whose money was taken, pays for no seat and has not gone back.
const isWithoutSeat = `(
  c.captured_amount is not null and c.charge_id is distinct from h.winning_charge and r.state is distinct from 'DONE')`

// isUnresolved holds for a charge c of which the provider has yet to tell, and
// about which it is still asked.
const isUnresolved = `(
  c.state = 'CHARGING' or c.state = 'REFUND_RESOLVED' and c.settled_at is null and c.next_ask_at is not null)`

const sqlDesync = `
select ` + isWithoutSeat + `, c.charge_id, coalesce(c.payment_id, ''), c.hold_id, h.show_id, h.seat, h.login,
  coalesce(c.captured_amount, 0), coalesce(c.captured_currency, ''), c.state,
  case when c.captured_amount is null then c.sent_at else coalesce(c.settled_at, c.resolved_at) end as since, c.asked,
  r.refund_id, coalesce(r.state, ''), coalesce(r.attempts, 0), coalesce(r.last_error, ''), r.parked_at is not null
from charges c join holds h using (hold_id) left join refunds r using (charge_id)
where ` + isWithoutSeat + ` or ` + isUnresolved + `
order by since, c.charge_id`

// A desyncedCharge is money that was taken and pays for no seat.
type desyncedCharge struct {
	Charge   uuid.UUID     `json:"charge_id"`
	Payment  string        `json:"payment_id"`
	Hold     uuid.UUID     `json:"hold_id"`
	Show     int64         `json:"show_id"`
	Seat     string        `json:"seat"`
	Login    string        `json:"login"`
	Amount   int64         `json:"amount"`
	Currency string        `json:"currency"`
	State    string        `json:"state"`
	Since    time.Time     `json:"since"`
	Refund   *desyncRefund `json:"refund"` // null: it has none, which should not be
}

// A desyncRefund is how far the money's way back is.
type desyncRefund struct {
	Refund    uuid.UUID `json:"refund_id"`
	State     string    `json:"state"`
	Attempts  int       `json:"attempts"`
	LastError string    `json:"last_error"`
	Parked    bool      `json:"parked"`
}

// An unresolvedCharge is one of which nobody knows what became of it.
type unresolvedCharge struct {
	Charge uuid.UUID `json:"charge_id"`
	Hold   uuid.UUID `json:"hold_id"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	Asked  int       `json:"asked"`
}

// desync serves GET /tickets/ops/desync: what we have and the provider has may
// not be the same of, as of one moment.
func (s *Service) desync(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	type line struct {
		without bool
		asked   int
		charge  desyncedCharge
	}
	found, err := database.Read(r.Context(), s.store.Store, func(row pgx.CollectableRow) (l line, err error) {
		var refund *uuid.UUID
		var f desyncRefund
		c := &l.charge
		err = row.Scan(&l.without, &c.Charge, &c.Payment, &c.Hold, &c.Show, &c.Seat, &c.Login, &c.Amount, &c.Currency, &c.State, &c.Since, &l.asked,
			&refund, &f.State, &f.Attempts, &f.LastError, &f.Parked)
		if refund != nil {
			f.Refund, c.Refund = *refund, &f
		}
		return l, err
	}, sqlDesync)
	if err != nil {
		return httpapi.Answer{}, err
	}
	without, unresolved := []desyncedCharge{}, []unresolvedCharge{}
	for _, l := range found {
		if l.without {
			without = append(without, l.charge)
			continue
		}
		unresolved = append(unresolved, unresolvedCharge{l.charge.Charge, l.charge.Hold, l.charge.State, l.charge.Since, l.asked})
	}
	return httpapi.JSON(http.StatusOK, map[string]any{"captured_without_seat": without, "unresolved": unresolved}), nil
}
