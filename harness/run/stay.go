package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/overbook/overbook/harness"
)

// An Address is something that is up and where.
type Address struct {
	Name, URL, Note string
}

// Stay brings a scenario's topology up, tells where everything is, and keeps
// it up until ctx or the interruption ends, which is no error once everything
// was up. The death of a shared part is one. Nothing is driven or judged.
func (c *Conductor) Stay(ctx context.Context, s harness.Scenario, plan harness.Plan, server Server, ready func([]Address)) error {
	run, err := c.session(s, plan, server)
	if err != nil {
		return err
	}
	ctx, cancel := c.untilInterrupted(ctx)
	defer cancel(nil)
	if err = run.up(ctx); err == nil {
		ready(run.addresses())
		err = c.stay(ctx)
	}
	return errors.Join(err, run.down(ctx), run.dir.Discard())
}

// stay waits for the end of ctx, or for a death.
func (c *Conductor) stay(ctx context.Context) error {
	watched, end := context.WithCancelCause(ctx)
	defer end(nil)
	var wg sync.WaitGroup
	wg.Go(func() { c.watchParts(watched, end) })
	<-watched.Done()
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(watched)
}

func (s *session) addresses() []Address {
	var list []Address
	for _, r := range s.servers {
		list = append(list, Address{r.name, r.URL(), "server under test"})
	}
	for _, name := range slices.Sorted(maps.Keys(s.upstreams)) {
		u := s.upstreams[name]
		list = append(list,
			Address{name, u.wire.URL(s.servers[0].name), "upstream wire of " + s.servers[0].name + ", with the ledger"},
			Address{name + " double", u.base, "the stateful double; POST /__double/config, GET /__double/ledger"})
	}
	list = append(list, Address{"postgres", s.database, s.c.parts.Postgres.Describe()})
	if w := s.c.parts.WireMock; w != nil {
		list = append(list, Address{"wiremock", w.URL() + "/__admin/", w.Describe()})
	}
	if s.redis != nil {
		list = append(list, Address{"redis", s.redis.URL(), fmt.Sprintf("through the Redis wire; %s", s.c.parts.Redis.Describe())})
	}
	return list
}
