package calendar

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

const (
	conflictsMost = 1_000_000
	oneActivation = "resources_one_activation" // the index that allows one at a time
	activateTries = 3                          // against activations that end meanwhile
)

// errActivating is of an activation while there is another one.
var errActivating = errors.New("another resource is being activated")

// guarantees are what staff name when a resource goes live, and a new refresh
// token if they have one.
type guarantees struct {
	Contract string `json:"provider_contract"`
	Policy   string `json:"conflict_policy"`
	Limit    *int32 `json:"conflict_limit"`
	Token    string `json:"refresh_token"`
}

func readGuarantees(r *http.Request) (g guarantees, err error) {
	if err := read(r, &g); err != nil {
		return g, err
	}
	switch {
	case !slices.Contains([]string{contractAtomic, contractCheck}, g.Contract):
		err = unknownWord.With(fmt.Sprintf(`"provider_contract" must be %s or %s`, contractAtomic, contractCheck)).Err()
	case !slices.Contains([]string{policyReject, policyKeep}, g.Policy):
		err = unknownWord.With(fmt.Sprintf(`"conflict_policy" must be %s or %s`, policyReject, policyKeep)).Err()
	case g.Limit == nil || *g.Limit < 0 || *g.Limit > conflictsMost:
		err = httpapi.BadRequest.With(fmt.Sprintf(`"conflict_limit" must be a whole number from 0 to %d`, conflictsMost)).Err()
	case g.Token != "" && !plainWord.MatchString(g.Token):
		err = httpapi.BadRequest.With(`"refresh_token" must be 1 to 512 visible ASCII characters, or left out`).Err()
	}
	return g, err
}

// An activation is one that has begun. Others wait for it, for SyncClaim.
type activation struct {
	id       uuid.UUID
	resource resource
	renewal  bool // the resource is active, and gets a new authorisation
}

// postActivation has a resource go live: one at a time, and only if its
// calendar can be read now. A client that leaves changes nothing of it.
func (s *Service) postActivation(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	id, err := resourceID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	g, err := readGuarantees(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	ctx, by := context.WithoutCancel(r.Context()), causeOf(httpapi.CauseOf(r), who.Name)
	act, err := s.beginActivation(ctx, id, g, by)
	if err != nil {
		return httpapi.Answer{}, err
	}
	began := s.cfg.Clock.Now()
	saw, err := s.provider.events(ctx, act.resource, period{began, began.Add(s.cfg.Horizon)}, by)
	if err == nil {
		err = s.endActivation(ctx, act, g, began, calendarOf(saw).others)
	}
	if err != nil {
		s.abandon(ctx, act)
		return httpapi.Answer{}, s.activationProblem(act, err)
	}
	return s.showResource(ctx, id)
}

// beginActivation keeps others from activating. Not from this resource alone:
// one goes live at a time, on all replicas.
func (s *Service) beginActivation(ctx context.Context, id int64, g guarantees, by cause) (activation, error) {
	for range activateTries {
		now := s.cfg.Clock.Now()
		if _, err := alter(ctx, s.store, scanResourceID, sqlActivationsOver, now, by.op); err != nil {
			return activation{}, fmt.Errorf("end activations that nobody works on any more: %w", err)
		}
		var act activation
		err := s.store.Transact(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
			var err error
			act, err = s.activating(ctx, tx, id, g, by)
			return err == nil, err
		})
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if another := ok && pg.ConstraintName == oneActivation || errors.Is(err, errActivating); !another {
			return act, err
		}
		busy, err := database.Read(ctx, s.store.Store, scanResourceID, sqlActivatingNow, s.cfg.Clock.Now())
		if err != nil {
			return activation{}, fmt.Errorf("find out who is being activated: %w", err)
		}
		if len(busy) > 0 {
			return activation{}, activationBusy.WithMembers(map[string]any{"resource_id": busy[0]}).Err()
		}
	}
	return activation{}, httpapi.Busy.Err() // they come and go faster than we look
}

// activating begins an activation in its transaction, or gives a new
// authorisation to a resource that lost it.
func (s *Service) activating(ctx context.Context, tx pgx.Tx, id int64, g guarantees, by cause) (activation, error) {
	act := activation{id: uuid.New(), resource: resource{id: id}}
	account := ""
	found, err := database.Rows(ctx, tx, func(row pgx.CollectableRow) (string, error) {
		return act.resource.state, row.Scan(&act.resource.calendar, &act.resource.state, &account)
	}, sqlLockActivation, id, by.op)
	switch {
	case err != nil:
		return act, fmt.Errorf("lock resource %d: %w", id, err)
	case len(found) == 0:
		return act, unknownResource.Err()
	}
	act.renewal = act.resource.state == resourceActive
	switch {
	case act.renewal && (account == accountOK || g.Token == ""):
		return act, alreadyActive.Err()
	case act.resource.state == resourceActivating:
		return act, errActivating
	}
	now := s.cfg.Clock.Now()
	if g.Token != "" {
		if _, err := tx.Exec(ctx, sqlNewToken, id, g.Token, now); err != nil {
			return act, fmt.Errorf("store the new token of resource %d: %w", id, err)
		}
	}
	if act.renewal {
		_, err = tx.Exec(ctx, sqlGuarantees, id, g.Contract, g.Policy, *g.Limit)
	} else {
		_, err = tx.Exec(ctx, sqlActivating, id, act.id, now.Add(s.cfg.SyncClaim))
	}
	return act, wrapped(err, "begin to activate resource %d", id)
}

// endActivation has the resource go live, unless the activation took so long
// that others may be at it. What the calendar had is a first look.
func (s *Service) endActivation(ctx context.Context, act activation, g guarantees, began time.Time, saw []event) error {
	if act.renewal {
		return nil
	}
	id := act.resource.id
	return s.store.Transact(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		now := s.cfg.Clock.Now()
		mine, err := database.Rows(ctx, tx, scanResourceID, sqlActivated, id, act.id, g.Contract, g.Policy, *g.Limit, now)
		if err == nil && len(mine) == 0 {
			return false, fmt.Errorf("%w: activating took longer than %v", errPassing, s.cfg.SyncClaim)
		}
		if err != nil {
			return false, fmt.Errorf("activate resource %d: %w", id, err)
		}
		first, err := database.Rows(ctx, tx, scanResourceID, sqlFirstLook, id, began.Add(s.cfg.ReconcileInterval), began)
		if err != nil {
			return false, fmt.Errorf("have resource %d looked at: %w", id, err)
		}
		if len(first) == 0 { // it was active before, and is looked at all the time
			return true, nil
		}
		return true, storeSeen(ctx, tx, id, began, saw)
	})
}

// abandon ends an activation that failed. If even that fails, it runs out.
func (s *Service) abandon(ctx context.Context, act activation) {
	if act.renewal {
		return
	}
	if _, err := alter(ctx, s.store, scanResourceID, sqlAbandon, act.resource.id, act.id); err != nil {
		s.log.Warn("could not end an activation that failed, others wait for it to run out", "resource", act.resource.id, "error", err)
	}
}

// activationProblem is what staff are told of a calendar that can't be read.
func (s *Service) activationProblem(act activation, err error) error {
	quiet := (*quietError)(nil)
	switch {
	case errors.Is(err, errAuthorisation):
		return authorisationFailed.Err()
	case errors.As(err, &quiet):
		p := providerUnavailable.With("the calendar provider wants no calls for a while; the resource stays as it was, try again after Retry-After")
		wait := math.Ceil(quiet.until.Sub(s.cfg.Clock.Now()).Seconds())
		p.Header = http.Header{"Retry-After": {strconv.Itoa(max(int(wait), 1))}}
		return p.Err()
	case errors.Is(err, errPassing), errors.Is(err, errUnclear), errors.Is(err, errStrange):
		s.log.Warn("could not activate a resource", "resource", act.resource.id, "error", err)
		return providerUnavailable.Err()
	}
	return err
}

// deleteActivation ends new bookings. What is booked goes on being
// synchronised, and the calendar being looked at.
func (s *Service) deleteActivation(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	id, err := resourceID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	ctx := r.Context()
	ended, err := alter(ctx, s.store, scanResourceID, sqlDeactivate, id, httpapi.CauseOf(r).Op)
	if err != nil {
		return httpapi.Answer{}, fmt.Errorf("end the activation of resource %d: %w", id, err)
	}
	answer, err := s.showResource(ctx, id)
	if err == nil && len(ended) == 0 {
		err = notActive.Err()
	}
	if err != nil {
		return httpapi.Answer{}, err
	}
	return answer, nil
}
