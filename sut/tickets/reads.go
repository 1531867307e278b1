package tickets

import (
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// A hall is the seats of a show, as of one instant.
type hall struct {
	Show        int64      `json:"show_id"`
	Seats       []hallSeat `json:"seats"` // best first
	Free        int        `json:"free"`
	Held        int        `json:"held"`
	Quarantined int        `json:"quarantined"`
	Sold        int        `json:"sold"`
}

type hallSeat struct {
	Seat  string `json:"seat"`
	State string `json:"state"`
}

func (s *Service) getSeats(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	show, err := showID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	seats, err := database.Read(r.Context(), s.store.Store, pgx.RowToStructByPos[hallSeat], sqlHall, show)
	if err != nil {
		return httpapi.Answer{}, err
	}
	if len(seats) == 0 { // a show has at least one
		return httpapi.Answer{}, unknownShow.Err()
	}
	h := hall{Show: show, Seats: seats}
	counts := map[string]*int{seatFree: &h.Free, seatHeld: &h.Held, seatQuarantined: &h.Quarantined, seatSold: &h.Sold}
	for _, seat := range seats {
		*counts[seat.State]++
	}
	return httpapi.JSON(http.StatusOK, h), nil
}

// An orderView is an order as its member and staff see it.
type orderView struct {
	Hold      string       `json:"hold_id"`
	Show      int64        `json:"show_id"`
	Seat      string       `json:"seat"`
	Login     string       `json:"login"`
	State     string       `json:"state"`
	CreatedAt time.Time    `json:"created_at"`
	ExpiresAt time.Time    `json:"expires_at"`
	Amount    int64        `json:"amount"`
	Currency  string       `json:"currency"`
	Winner    *string      `json:"winning_charge"`
	Charges   []chargeView `json:"charges"`
	Refunds   []refundView `json:"refunds"`
	Notices   []string     `json:"notices"`
}

type chargeView struct {
	Charge     string     `json:"charge_id"`
	Payment    *string    `json:"payment_id"`
	State      string     `json:"state"`
	Amount     int64      `json:"amount"`
	Captured   *int64     `json:"captured"` // what the provider took
	SentAt     time.Time  `json:"sent_at"`
	ResolvedAt *time.Time `json:"resolved_at"`
}

type refundView struct {
	Refund  string `json:"refund_id"`
	Charge  string `json:"charge_id"`
	Payment string `json:"payment_id"`
	Amount  int64  `json:"amount"`
	State   string `json:"state"`
}

func (s *Service) getOrder(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	id, err := holdID(r, unknownOrder)
	if err != nil {
		return httpapi.Answer{}, err
	}
	found, err := database.Read(r.Context(), s.store.Store, pgx.RowTo[orderView], sqlOrder, id)
	if err != nil {
		return httpapi.Answer{}, err
	}
	if len(found) == 0 || who.Role != httpapi.RoleStaff && found[0].Login != who.Name {
		return httpapi.Answer{}, unknownOrder.Err()
	}
	return httpapi.JSON(http.StatusOK, found[0]), nil
}
