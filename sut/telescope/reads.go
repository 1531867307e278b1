package telescope

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
	"github.com/overbook/overbook/sut/idempotency"
)

// stamp is how instants are told.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// A slotView is a slot as a caller may see it.
type slotView struct {
	Slot     int64   `json:"slot_id"`
	Starts   string  `json:"starts_at"`
	State    string  `json:"state"`
	Reserved bool    `json:"reserved"`
	Mine     bool    `json:"mine"`
	Booking  *string `json:"booking_id"` // for its member and staff alone
}

func (s *Service) slot(ctx context.Context, id int64, who httpapi.Principal) (httpapi.Answer, error) {
	found, err := database.Read(ctx, s.store, func(row pgx.CollectableRow) (v slotView, err error) {
		var starts time.Time
		var booking, member *string
		err = row.Scan(&v.Slot, &starts, &v.State, &booking, &member)
		v.Starts, v.Reserved = stamp(starts), booking != nil
		v.Mine = member != nil && *member == who.Name
		if v.Mine || who.Role == httpapi.RoleStaff {
			v.Booking = booking
		}
		return v, err
	}, sqlSlot, id)
	if err != nil {
		return httpapi.Answer{}, err
	}
	if len(found) == 0 {
		return httpapi.Answer{}, unknownSlot.Err()
	}
	return httpapi.JSON(http.StatusOK, found[0]), nil
}

// An account is a member's reservations and what ever happened to them, both
// as of one moment.
type account struct {
	Reservations []accountReservation `json:"reservations"`
	History      []accountEvent       `json:"history"`
}

type accountReservation struct {
	Booking string `json:"booking_id"`
	Slot    int64  `json:"slot_id"`
	Starts  string `json:"starts_at"`
	Month   string `json:"month"`
	State   string `json:"state"` // active, or flagged: the slot was closed under it
}

type accountEvent struct {
	Event   string `json:"event"`
	Slot    int64  `json:"slot_id"`
	Booking string `json:"booking_id"`
	At      string `json:"at"`
}

func (s *Service) account(ctx context.Context, member string) (httpapi.Answer, error) {
	ctx, end := s.store.Bounded(ctx)
	defer end()
	var a account
	err := s.store.WithConn(ctx, func(conn *pgxpool.Conn) error {
		snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		return pgx.BeginTxFunc(ctx, conn, snapshot, func(tx pgx.Tx) (err error) {
			if a.Reservations, err = database.Rows(ctx, tx, scanAccountReservation, sqlAccountReservations, member); err != nil {
				return err
			}
			a.History, err = database.Rows(ctx, tx, scanAccountEvent, sqlAccountHistory, member)
			return err
		})
	})
	if err != nil {
		return httpapi.Answer{}, err
	}
	return httpapi.JSON(http.StatusOK, a), nil
}

func scanAccountReservation(row pgx.CollectableRow) (r accountReservation, err error) {
	var starts time.Time
	var flagged bool
	err = row.Scan(&r.Booking, &r.Slot, &starts, &r.Month, &flagged)
	r.Starts, r.State = stamp(starts), "active"
	if flagged {
		r.State = "flagged"
	}
	return r, err
}

func scanAccountEvent(row pgx.CollectableRow) (e accountEvent, err error) {
	var at time.Time
	err = row.Scan(&e.Event, &e.Slot, &e.Booking, &at)
	e.At = stamp(at)
	return e, err
}

// A flaggedView is a reservation whose slot was closed under it. Its state is
// open until staff have decided, then kept.
type flaggedView struct {
	Booking   string `json:"booking_id"`
	Slot      int64  `json:"slot_id"`
	Member    string `json:"member"`
	Starts    string `json:"starts_at"`
	FlaggedAt string `json:"flagged_at"`
	State     string `json:"flag_state"`
}

func (s *Service) flagged(ctx context.Context) (httpapi.Answer, error) {
	list, err := database.Read(ctx, s.store, func(row pgx.CollectableRow) (f flaggedView, err error) {
		var starts, at time.Time
		err = row.Scan(&f.Booking, &f.Slot, &f.Member, &starts, &at, &f.State)
		f.Starts, f.FlaggedAt = stamp(starts), stamp(at)
		return f, err
	}, sqlFlagged)
	if err != nil {
		return httpapi.Answer{}, err
	}
	return httpapi.JSON(http.StatusOK, map[string]any{"flagged": list}), nil
}

// lookUp tells what an operation of the caller's was answered.
func (s *Service) lookUp(ctx context.Context, scope idempotency.Scope) (httpapi.Answer, error) {
	var stored idempotency.Stored
	var known bool
	err := s.store.Transact(ctx, func(ctx context.Context, tx pgx.Tx) (_ bool, err error) {
		if stored, known, err = s.keys.Look(ctx, tx, scope, s.cfg.Clock.Now()); err != nil || !known {
			return false, err
		}
		_, err = tx.Exec(ctx, sqlBarrier) // who is told of it must not lose it in a failover
		return true, err
	})
	if err != nil {
		return httpapi.Answer{}, err
	}
	if !known {
		return httpapi.Answer{}, unknownOperation.Err()
	}
	return httpapi.JSON(http.StatusOK, map[string]any{
		"key": scope.Key, "type": scope.Type, "status": stored.Status,
		"completed_at": stamp(stored.CompletedAt), "body": json.RawMessage(stored.Body),
	}), nil
}
