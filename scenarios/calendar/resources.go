package calendar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	provider "github.com/overbook/overbook/stubs/calendar"
)

// A resource is chosen by the plan, with the guarantees that it is activated with.
type resource struct {
	ID           int64  `json:"resource_id"`
	Calendar     string `json:"calendar"` // its name at the provider
	RefreshToken string `json:"refresh_token"`
	Contract     string `json:"provider_contract"`
	Policy       string `json:"conflict_policy"`
	Limit        int    `json:"conflict_limit"`
}

// chooseResources draws n resources, under the contract and the policy of the
// parameters where it has them, with a limit that no scenario meets by accident.
func chooseResources(rng *rand.Rand, p harness.Params, n int) []resource {
	first := 1000 + int64(rng.IntN(9_000_000))
	list := make([]resource, n)
	for i := range list {
		id := first + int64(i)
		list[i] = resource{
			ID: id, Calendar: fmt.Sprintf("cal-%d", id), RefreshToken: fmt.Sprintf("refresh-%d", id),
			Contract: contractCheck, Policy: policyReject, Limit: 1000,
		}
		if v, ok := p[paramContract.Name]; ok {
			list[i].Contract = v
		}
		if v, ok := p[paramPolicy.Name]; ok {
			list[i].Policy = v
		}
	}
	return list
}

// setUp has staff create the resources and activate them, one after the other,
// as recorded calls. The provider honours if_free in the calendars of those
// whose contract says so, and in no other. It is not part of the race.
func setUp(ctx context.Context, env harness.Env, resources ...resource) error {
	if err := declare(ctx, env, resources...); err != nil {
		return err
	}
	for _, r := range resources {
		if op := env.Do(ctx, addResource(r)); op.Status != http.StatusCreated {
			return refused(op, "201")
		}
		if op := env.Do(ctx, activate(staffProcess, staff(0), r, "")); op.Status != http.StatusOK {
			return refused(op, "200")
		}
	}
	return nil
}

// behaviour is a provider's that keeps the resource's contract and does nothing odd.
func behaviour(r resource) provider.Behaviour {
	atomic := r.Contract == contractAtomic
	return provider.Behaviour{Atomic: &atomic}
}

// declare has the provider keep to each resource's contract.
func declare(ctx context.Context, env harness.Env, resources ...resource) error {
	c := provider.Config{Calendars: map[string]provider.Behaviour{}}
	for _, r := range resources {
		c.Calendars[r.Calendar] = behaviour(r)
	}
	return configure(ctx, env, c)
}

// configure changes what the provider does.
func configure(ctx context.Context, env harness.Env, c provider.Config) error {
	return env.Upstream(provider.Name).Configure(ctx, c)
}

// begin reads what the plan chose into c, and gives the origin of its times.
func begin(ctx context.Context, env harness.Env, c any) (origin time.Time, err error) {
	if err := env.Plan().Decode(c); err != nil {
		return origin, err
	}
	return originNow(ctx, env)
}

// booked makes an appointment that is not part of the race.
func booked(ctx context.Context, env harness.Env, r harness.Request) (appointmentAnswer, error) {
	op := env.Do(ctx, r)
	if op.Status != http.StatusCreated {
		return appointmentAnswer{}, refused(op, "201")
	}
	return appointmentOf(op)
}

// need makes a call that is not part of the race, and must be answered so.
func need(ctx context.Context, env harness.Env, r harness.Request, status int) error {
	if op := env.Do(ctx, r); op.Status != status {
		return refused(op, strconv.Itoa(status))
	}
	return nil
}
