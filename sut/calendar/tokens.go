package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/database"
)

// refreshStoring is how long the database may take over a refresh, machine time.
const refreshStoring = 5 * time.Second

// A grant is what lets us call about a calendar. Each refresh makes the next
// generation.
type grant struct {
	access     string
	generation int32
}

// tokens keeps the grants in the accounts' rows, which all replicas share. An
// expired one is refreshed once: here by whoever meets it first, among replicas
// by whoever has the lease in the row.
type tokens struct {
	cfg      Config
	st       *store
	provider *provider
	meters   *meters

	mu      sync.Mutex
	flights map[int64]*flight // refreshes under way here, by resource
}

// A flight is a refresh that is under way in this process.
type flight struct {
	landed chan struct{} // closed when grant and err are there
	grant  grant
	err    error
}

func newTokens(cfg Config, st *store, p *provider, m *meters) *tokens {
	return &tokens{cfg: cfg, st: st, provider: p, meters: m, flights: map[int64]*flight{}}
}

// current is the grant to call with. Without one yet, it is fetched.
func (t *tokens) current(ctx context.Context, res resource) (grant, error) {
	held, quiet, err := t.read(ctx, res)
	if err != nil {
		return grant{}, err
	}
	if quiet != nil && quiet.After(t.cfg.Clock.Now()) {
		return grant{}, &quietError{*quiet}
	}
	if held.access == "" {
		return t.renew(ctx, res, held)
	}
	return held, nil
}

// read gives the grant in the row; [errAuthorisation] when it is over.
func (t *tokens) read(ctx context.Context, res resource) (held grant, quiet *time.Time, err error) {
	var state string
	_, err = database.Read(ctx, t.st.Store, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, row.Scan(&state, &held.access, &held.generation, &quiet)
	}, sqlAccount, res.id)
	switch {
	case err != nil:
		return grant{}, nil, fmt.Errorf("read the token of resource %d: %w", res.id, err)
	case state != accountOK: // also when there is none
		return grant{}, nil, errAuthorisation
	}
	return held, quiet, nil
}

// renew gives a grant that is later than the one that the provider refused.
// Several callers wait for one refresh.
func (t *tokens) renew(ctx context.Context, res resource, old grant) (grant, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*t.cfg.RefreshLease+t.cfg.CalendarTimeout+refreshStoring)
	defer cancel()
	for {
		t.mu.Lock()
		f, flying := t.flights[res.id]
		if !flying {
			f = &flight{landed: make(chan struct{})}
			t.flights[res.id] = f
		}
		t.mu.Unlock()
		if !flying {
			f.grant, f.err = t.refresh(context.WithoutCancel(ctx), res, old)
			t.mu.Lock()
			delete(t.flights, res.id)
			t.mu.Unlock()
			close(f.landed)
		}
		select {
		case <-f.landed:
		case <-ctx.Done():
			return grant{}, fmt.Errorf("%w: wait for the refresh of its token: %w", errPassing, context.Cause(ctx))
		}
		if f.err != nil || f.grant.generation > old.generation {
			return f.grant, f.err
		}
	}
}

// refresh has the grant refreshed, by this replica or by the one that has the
// lease. Whoever waits does so for RefreshLease at most.
func (t *tokens) refresh(ctx context.Context, res resource, old grant) (grant, error) {
	until := clock.Mono() + t.cfg.RefreshLease
	for try := 1; ; try++ {
		now := t.cfg.Clock.Now()
		taken, err := alter(ctx, t.st, scanRefresh, sqlTakeRefresh, res.id, old.generation, uuid.New(), now, now.Add(t.cfg.RefreshLease))
		if err != nil {
			return grant{}, fmt.Errorf("take the refresh of resource %d: %w", res.id, err)
		}
		if len(taken) > 0 {
			if err := t.ask(ctx, res, old, taken[0]); err != nil {
				return grant{}, err
			}
		}
		held, _, err := t.read(ctx, res)
		if err != nil {
			return grant{}, err
		}
		if held.generation > old.generation {
			if held.access != "" {
				return held, nil
			}
			old = held // staff have given another refresh token meanwhile
			continue
		}
		if clock.Mono() >= until {
			return grant{}, fmt.Errorf("%w: another replica has been refreshing its token for %v", errPassing, t.cfg.RefreshLease)
		}
		if err := clock.Pause(ctx, t.st.Backoff(try)); err != nil {
			return grant{}, err
		}
	}
}

// A refresh is one that this process may ask for.
type refresh struct {
	key   uuid.UUID // the same for whoever takes it over: the provider rotates once
	token string
}

func scanRefresh(row pgx.CollectableRow) (r refresh, err error) {
	err = row.Scan(&r.key, &r.token)
	return r, err
}

// ask asks the provider for the next grant and stores it, unless the row has
// moved on meanwhile. After any other answer somebody else may ask at once.
func (t *tokens) ask(ctx context.Context, res resource, old grant, r refresh) error {
	rq := request{what: "token", method: http.MethodPost, path: "/token", doc: map[string]string{"calendar": res.calendar, "refresh_token": r.token}}
	told, err := t.provider.send(ctx, rq, "", r.key.String())
	var doc struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
		Error   string `json:"error"`
	}
	read := err == nil && json.Unmarshal(told.body, &doc) == nil
	now := t.cfg.Clock.Now()
	switch {
	case read && told.status == http.StatusOK && doc.Access != "" && doc.Refresh != "":
		t.meters.refreshed("done")
		_, err = alter(ctx, t.st, scanResourceID, sqlRefreshed, res.id, old.generation, r.key, doc.Access, doc.Refresh, now)
		return wrapped(err, "store the token of resource %d", res.id)
	case read && told.status == http.StatusBadRequest && doc.Error == "invalid_grant":
		t.meters.refreshed("invalid_grant")
		_, err = alter(ctx, t.st, scanResourceID, sqlAuthorisationOver, res.id, old.generation, r.key, now)
		return wrapped(err, "store that the authorisation of resource %d is over", res.id)
	}
	t.meters.refreshed("failed")
	if err == nil {
		err = told.notTaken(rq)
	}
	if _, storing := alter(ctx, t.st, scanResourceID, sqlLeaveRefresh, res.id, old.generation, r.key, now); storing != nil {
		t.cfg.Log.Warn("could not give up the refresh of a token, others wait for it to run out", "resource", res.id, "error", storing)
	}
	if told.status == http.StatusTooManyRequests {
		return t.provider.quiet(ctx, res, told)
	}
	return err
}

// quiet has nobody call about the calendar before an instant.
func (t *tokens) quiet(ctx context.Context, res resource, until time.Time) error {
	_, err := alter(ctx, t.st, scanResourceID, sqlQuiet, res.id, until)
	return wrapped(err, "store that resource %d is quiet", res.id)
}

func scanResourceID(row pgx.CollectableRow) (id int64, err error) {
	err = row.Scan(&id)
	return id, err
}
