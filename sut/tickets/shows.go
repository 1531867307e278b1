package tickets

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/httpapi"
)

const (
	seatsMost = 2000
	priceMost = 100_000_000 // minor units
)

var (
	plainName     = regexp.MustCompile(`^[\x21-\x7e]{1,64}$`)
	plainCurrency = regexp.MustCompile(`^[A-Z]{3}$`)
)

// A showing is a show as staff put it on sale.
type showing struct {
	Show     int64     `json:"show_id"`
	OnSaleAt time.Time `json:"on_sale_at"`
	Price    int64     `json:"price"` // of each seat, in minor units
	Currency string    `json:"currency"`
	Policy   string    `json:"policy"`
	Seats    []string  `json:"seats"` // best first
}

func (w showing) check() error {
	bad := func(what string) error { return httpapi.BadRequest.With(what).Err() }
	switch {
	case w.Show < 1:
		return bad(`"show_id" must be a whole number above zero`)
	case w.OnSaleAt.IsZero():
		return bad(`"on_sale_at" must say when the sale begins, e.g. 2026-12-24T08:00:00Z`)
	case w.Price < 1 || w.Price > priceMost:
		return bad(fmt.Sprintf(`"price" must be from 1 to %d minor units`, priceMost))
	case !plainCurrency.MatchString(w.Currency):
		return bad(`"currency" must be three capital letters, e.g. EUR`)
	case w.Policy != policyQuarantine && w.Policy != policyRelease:
		return bad(`"policy" must be quarantine or release, or left out`)
	case len(w.Seats) < 1 || len(w.Seats) > seatsMost:
		return bad(fmt.Sprintf(`"seats" must name 1 to %d seats`, seatsMost))
	}
	seen := make(map[string]bool, len(w.Seats))
	for _, name := range w.Seats {
		if !plainName.MatchString(name) || seen[name] {
			return bad(fmt.Sprintf(`seat %q must be named once, by 1 to 64 visible ASCII characters`, name))
		}
		seen[name] = true
	}
	return nil
}

func (s *Service) postShow(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	var w showing
	if err := asked(r, &w); err != nil {
		return httpapi.Answer{}, err
	}
	if w.Policy == "" {
		w.Policy = s.cfg.Policy
	}
	if err := w.check(); err != nil {
		return httpapi.Answer{}, err
	}
	err := s.store.Transact(r.Context(), func(ctx context.Context, tx pgx.Tx) (bool, error) {
		now := s.cfg.Clock.Now()
		tag, err := tx.Exec(ctx, sqlShow, w.Show, w.OnSaleAt, w.Price, w.Currency, w.Policy, now, httpapi.CauseOf(r).Op)
		if err != nil {
			return false, fmt.Errorf("make show %d: %w", w.Show, err)
		}
		if tag.RowsAffected() == 0 {
			return false, showExists.Err()
		}
		if _, err := tx.Exec(ctx, sqlSeats, w.Show, w.Seats, now); err != nil {
			return false, fmt.Errorf("make the seats of show %d: %w", w.Show, err)
		}
		return true, nil
	})
	if err != nil {
		return httpapi.Answer{}, err
	}
	return httpapi.JSON(http.StatusCreated, map[string]any{"show_id": w.Show, "seats": len(w.Seats), "policy": w.Policy}), nil
}
