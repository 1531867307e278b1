package run

import (
	"context"
	"fmt"
	"sync"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/provision"
)

// upDatabase makes the run's database with the schema in it: a clone on the
// cluster that all runs share, or a database on a pair of clusters of its own.
func (s *session) upDatabase(ctx context.Context) error {
	var err error
	if s.topology.Clusters == harness.SharedCluster {
		var template string
		if template, err = s.c.template(ctx, s.topology.Design, s.command, s.plan.Mutant); err != nil {
			return err
		}
		var clone *provision.Database
		if clone, err = s.c.parts.Postgres.Clone(ctx, template, "run_"+s.id); err != nil {
			return fmt.Errorf("clone the database: %w", err)
		}
		s.undo = append(s.undo, clone.Drop)
		s.database = clone.URL
	} else if err = s.upPair(ctx); err != nil {
		return fmt.Errorf("bring up a pair of clusters: %w", err)
	}
	if s.db, err = openDatabase(ctx, s.database); err != nil {
		return err
	}
	s.undo = append(s.undo, func(context.Context) error { s.db.close(); return nil })
	return nil
}

func (s *session) upPair(ctx context.Context) error {
	clusters, err := provision.UpPair(ctx, s.c.config.Parts, s.topology.Clusters == harness.SyncPair)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, clusters.Close)
	s.pair = &pair{s: s, clusters: clusters, name: "run_" + s.id}
	s.rec.event(harness.Event{Kind: harness.EventProcess, Subject: "postgres", Text: "ready: " + clusters.Describe()})
	if err := clusters.Database(ctx, s.pair.name); err != nil {
		return err
	}
	if s.database, err = clusters.PrimaryURL(s.pair.name); err != nil {
		return err
	}
	return s.c.migrate(ctx, append(append([]string{}, s.command...), "migrate", "--design", s.topology.Design), s.database)
}

// pair is two clusters of one run. It implements [harness.Pair].
type pair struct {
	s        *session
	clusters *provision.Pair
	name     string // of the database

	mu  sync.Mutex
	old *database // the former primary, once it was started again
}

func (e *env) Pair() harness.Pair {
	if e.s.pair == nil {
		panic(fmt.Sprintf("scenario %s asks for a pair of clusters, which its topology does not have", e.s.scenario.Name))
	}
	return e.s.pair
}

// KillPrimary is of [harness.Pair].
func (p *pair) KillPrimary(ctx context.Context) error {
	p.s.rec.event(harness.Event{Kind: harness.EventFault, Subject: "postgres", Text: "SIGKILL to every process of the primary"})
	return p.clusters.KillPrimary(ctx)
}

// Promote is of [harness.Pair]. From the moment that the standby takes writes,
// new connections of the servers lead to it; those to the dead one are reset.
func (p *pair) Promote(ctx context.Context) error {
	from := p.s.rec.clock.Now()
	if err := p.clusters.Promote(ctx); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	url, err := p.clusters.StandbyURL(p.name)
	if err != nil {
		return err
	}
	if err := p.s.db.reopen(ctx, url); err != nil {
		return err
	}
	if err := p.s.wire().Retarget(url); err != nil {
		return fmt.Errorf("lead the servers to the promoted standby: %w", err)
	}
	p.s.rec.event(harness.Event{At: from, Until: p.s.rec.clock.Now(), Kind: harness.EventFault, Subject: "postgres", Text: "the standby is promoted, the servers are led to it"})
	return nil
}

// StartOld is of [harness.Pair].
func (p *pair) StartOld(ctx context.Context) (harness.Database, error) {
	if err := p.clusters.StartOldFenced(ctx); err != nil {
		return nil, fmt.Errorf("start the former primary again: %w", err)
	}
	url, err := p.clusters.PrimaryURL(p.name)
	if err != nil {
		return nil, err
	}
	p.s.rec.event(harness.Event{Kind: harness.EventProcess, Subject: "postgres", Text: "ready: the former primary, as a standby"})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.old == nil {
		if p.old, err = openDatabase(ctx, url); err != nil {
			return nil, err
		}
		p.s.undo = append(p.s.undo, func(context.Context) error { p.old.close(); return nil })
	}
	return p.old, nil
}

// died tells of a cluster of the pair that ended although nobody ended it.
func (p *pair) died() error {
	select {
	case <-p.clusters.Done():
		return p.clusters.Died()
	default:
		return nil
	}
}
