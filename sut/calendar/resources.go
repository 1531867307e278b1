package calendar

import (
	"context"
	"fmt"
	"net/http"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// plainWord is what names of calendars and refresh tokens look like.
var plainWord = regexp.MustCompile(`^[\x21-\x7e]{1,512}$`)

// Whether appointments of a resource are created at the provider.
const (
	creationRunning = "RUNNING"
	creationPaused  = "PAUSED"      // more unresolved conflicts than the limit
	creationFailed  = "FAILED_AUTH" // until it is activated with a new refresh token
)

func (s *Service) postResource(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	var in struct {
		Resource int64  `json:"resource_id"`
		Calendar string `json:"calendar"`
		Token    string `json:"refresh_token"`
	}
	if err := read(r, &in); err != nil {
		return httpapi.Answer{}, err
	}
	if in.Resource < 1 || !plainWord.MatchString(in.Calendar) || !plainWord.MatchString(in.Token) {
		return httpapi.Answer{}, httpapi.BadRequest.
			With(`"resource_id" must be a whole number above zero, "calendar" and "refresh_token" 1 to 512 visible ASCII characters`).Err()
	}
	err := s.store.Transact(r.Context(), func(ctx context.Context, tx pgx.Tx) (bool, error) {
		now := s.cfg.Clock.Now()
		tag, err := tx.Exec(ctx, sqlAddResource, in.Resource, in.Calendar, httpapi.CauseOf(r).Op, now)
		if err != nil {
			return false, fmt.Errorf("add resource %d: %w", in.Resource, err)
		}
		if tag.RowsAffected() == 0 {
			return false, resourceExists.Err()
		}
		_, err = tx.Exec(ctx, sqlAddAccount, in.Resource, in.Token, now)
		return true, wrapped(err, "add the account of resource %d", in.Resource)
	})
	if err != nil {
		return httpapi.Answer{}, err
	}
	answer := httpapi.JSON(http.StatusCreated, map[string]any{"resource_id": in.Resource, "state": resourceInactive})
	answer.Header = http.Header{"Location": {fmt.Sprint("/calendar/resources/", in.Resource)}}
	return answer, nil
}

func (s *Service) getResource(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	id, err := resourceID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.showResource(r.Context(), id)
}

// A resourceView is a resource as staff see it. What it was never activated
// with is null.
type resourceView struct {
	Resource   int64   `json:"resource_id"`
	State      string  `json:"state"`
	Contract   *string `json:"provider_contract"`
	Policy     *string `json:"conflict_policy"`
	Limit      *int32  `json:"conflict_limit"`
	Creation   string  `json:"creation"`
	Unresolved int64   `json:"unresolved"`
	Pending    int64   `json:"pending"`
}

// showResource is the answer of GET /calendar/resources/{id}, as of one
// instant; also what an activation and its end are answered with.
func (s *Service) showResource(ctx context.Context, id int64) (httpapi.Answer, error) {
	found, err := database.Read(ctx, s.store.Store, func(row pgx.CollectableRow) (v resourceView, err error) {
		var account string
		err = row.Scan(&v.Resource, &v.State, &v.Contract, &v.Policy, &v.Limit, &account, &v.Unresolved, &v.Pending)
		v.Creation = v.creation(account)
		return v, err
	}, sqlResource, id)
	if err != nil {
		return httpapi.Answer{}, err
	}
	if len(found) == 0 {
		return httpapi.Answer{}, unknownResource.Err()
	}
	return httpapi.JSON(http.StatusOK, found[0]), nil
}

func (v resourceView) creation(account string) string {
	switch {
	case account == accountFailed:
		return creationFailed
	case v.Limit != nil && v.Unresolved > int64(*v.Limit):
		return creationPaused
	}
	return creationRunning
}
