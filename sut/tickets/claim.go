package tickets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// errAnew has a claim look at the offer again: what it was told has changed.
var errAnew = errors.New("the offer has changed since it was looked at")

// A wish is what somebody wants to hold.
type wish struct {
	show  int64
	seat  string // "" for the best that is free
	login string
	by    cause
}

func (s *Service) postHold(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	var in struct {
		Seat *string `json:"seat"`
		Best bool    `json:"best_available"`
	}
	show, err := showID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	if err := asked(r, &in); err != nil {
		return httpapi.Answer{}, err
	}
	w := wish{show: show, login: who.Name, by: causeOf(httpapi.CauseOf(r), who.Name)}
	if in.Seat != nil {
		w.seat = *in.Seat
	}
	if in.Best == (in.Seat != nil) || in.Seat != nil && !plainName.MatchString(w.seat) {
		return httpapi.Answer{}, httpapi.BadRequest.With(`send either "seat", 1 to 64 visible ASCII characters, or "best_available": true`).Err()
	}
	h, err := s.claim(r.Context(), w)
	if err != nil {
		return httpapi.Answer{}, err
	}
	answer := httpapi.JSON(http.StatusCreated, map[string]any{
		"hold_id": h.id, "show_id": h.show, "seat": h.seat, "state": h.state, "expires_at": stamp(h.expiresAt), "amount": h.amount, "currency": h.currency,
	})
	answer.Header = http.Header{"Location": {"/tickets/orders/" + h.id.String()}}
	return answer, nil
}

// claim makes a free seat the login's. Most who come are refused by one read;
// the rest try, and look again when somebody was faster, or was at every seat
// that is free: then they wait for one. There is a deadline for it all.
func (s *Service) claim(ctx context.Context, w wish) (hold, error) {
	ctx, end := s.store.Bounded(ctx)
	defer end()
	for patient := false; ctx.Err() == nil; {
		terms, err := s.offer(ctx, w)
		if errors.Is(err, errAnew) {
			continue
		}
		if err != nil {
			return hold{}, err
		}
		h, err := s.take(ctx, w, terms, patient)
		if !errors.Is(err, errAnew) {
			return h, err
		}
		patient = !patient
	}
	return hold{}, fmt.Errorf("claim a seat of show %d: others were faster each time: %w", w.show, ctx.Err())
}

// An offer is what a claim may be refused by.
type offer struct {
	onSaleAt         time.Time
	price            int64
	currency, policy string
	named            *string // state of the named seat
	anyFree          bool
	active           *uuid.UUID // the login's own hold
	activeSeat       *string
	activeUntil      *time.Time
}

// offer looks at the show as of one instant and refuses what is to be refused.
func (s *Service) offer(ctx context.Context, w wish) (offer, error) {
	found, err := database.Read(ctx, s.store.Store, func(row pgx.CollectableRow) (o offer, err error) {
		err = row.Scan(&o.onSaleAt, &o.price, &o.currency, &o.policy, &o.named, &o.anyFree, &o.active, &o.activeSeat, &o.activeUntil)
		return o, err
	}, sqlOffer, w.show, w.seat, w.login)
	if err != nil {
		return offer{}, err
	}
	if len(found) == 0 {
		return offer{}, unknownShow.Err()
	}
	o, now := found[0], s.cfg.Clock.Now()
	switch best := w.seat == ""; {
	case !best && o.named == nil:
		return o, unknownSeat.Err()
	case now.Before(o.onSaleAt):
		return o, notYet(o.onSaleAt.Sub(now)).Err()
	case o.active != nil:
		return o, s.endOwn(ctx, w, o, now)
	case !best && *o.named != seatFree:
		return o, seatTaken.WithMembers(map[string]any{"seat": w.seat}).Err()
	case best && !o.anyFree:
		return o, soldOut.Err()
	}
	return o, nil
}

// notYet says when to come back, in whole seconds.
func notYet(left time.Duration) *httpapi.Problem {
	p := *notOnSale
	p.Header = http.Header{"Retry-After": {strconv.FormatInt(int64((left+time.Second-1)/time.Second), 10)}}
	return &p
}

// endOwn ends the login's own hold if it has run out; otherwise that is the
// one checkout that it may have.
func (s *Service) endOwn(ctx context.Context, w wish, o offer, now time.Time) error {
	refused := checkoutActive.WithMembers(map[string]any{"hold_id": o.active, "seat": o.activeSeat}).Err()
	if now.Before(*o.activeUntil) {
		return refused
	}
	err := s.store.changeOrder(ctx, *o.active, w.by, func(ctx context.Context, own *order) (bool, error) {
		if own.hold.state != holdReserved { // somebody else ended it
			return false, nil
		}
		ended, err := own.expire(ctx, s.cfg.Clock.Now())
		if err == nil && !ended { // a payment keeps it
			err = refused
		}
		return ended, err
	})
	if err != nil {
		return err
	}
	return errAnew
}

// take makes the seat HELD by a new hold, in one transaction. It gives errAnew
// when the seat or the login's checkout went to another claim.
func (s *Service) take(ctx context.Context, w wish, terms offer, patient bool) (h hold, err error) {
	err = s.store.Transact(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		name, err := lockFree(ctx, tx, w, patient)
		if err != nil {
			return false, err
		}
		now := s.cfg.Clock.Now()
		h = hold{
			id: uuid.New(), show: w.show, seat: name, login: w.login, state: holdReserved, amount: terms.price, currency: terms.currency,
			policy: terms.policy, createdAt: now, expiresAt: now.Add(s.cfg.Hold),
		}
		tag, err := tx.Exec(ctx, sqlReserve, h.id, h.show, h.seat, h.login, h.amount, h.currency, h.policy, w.by.op, h.createdAt, h.expiresAt)
		if err != nil {
			return false, fmt.Errorf("reserve seat %s of show %d: %w", h.seat, h.show, err)
		}
		if tag.RowsAffected() == 0 { // the other tab
			return false, errAnew
		}
		tag, err = tx.Exec(ctx, sqlTakeSeat, h.show, h.seat, h.id, now)
		if err != nil {
			return false, fmt.Errorf("take seat %s of show %d: %w", h.seat, h.show, err)
		}
		if tag.RowsAffected() == 0 { // this is the rule; the lock only saves work
			return false, errAnew
		}
		o := &order{tx: tx, by: w.by, cfg: s.cfg, hold: h, seat: seat{state: seatHeld}}
		o.note(subjectHold, h.id.String(), "", holdReserved, "claimed", w.by)
		return true, o.writeHistory(ctx)
	})
	return h, err
}

// lockFree locks the seat that is wished for while it is free. The best one is
// the best that nobody is at, or, for the patient, the best after those who are
// at it are done: their claims may fail. errAnew: there is none. A transaction
// that looked in vain must not go on: Postgres leaves it locks on seats that
// were taken while it looked, and to wait for others with those is a deadlock.
func lockFree(ctx context.Context, tx pgx.Tx, w wish, patient bool) (string, error) {
	sql, args := sqlLockSeat, []any{w.show, w.by.op, w.seat}
	if w.seat == "" {
		sql, args = sqlPickSeat, args[:2]
		if patient {
			sql = sqlAwaitSeat
		}
	}
	found, err := database.Rows(ctx, tx, pgx.RowTo[string], sql, args...)
	if err != nil {
		return "", fmt.Errorf("lock a free seat of show %d: %w", w.show, err)
	}
	if len(found) == 0 {
		return "", errAnew
	}
	return found[0], nil
}
