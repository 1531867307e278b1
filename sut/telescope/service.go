package telescope

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A Service is one replica of the telescope server, without its HTTP listener.
type Service struct {
	cfg        Config
	log        *slog.Logger
	meters     *meters
	store      *store
	background *pgxpool.Pool // never queued behind a burst of clients
	mailer     *mailer
	projection *projection
	schedule   *projection // the same for reading: readers are clients

	giveUp context.CancelFunc // ends everything under way
	halt   context.CancelFunc // ends the background work
	loops  sync.WaitGroup
}

// Start opens every connection, prepares every statement, starts the
// background work and gives a service that is ready to serve. Close it.
func Start(ctx context.Context, cfg Config) (*Service, error) {
	if err := checkSchema(ctx, cfg.DatabaseURL); err != nil {
		return nil, err
	}
	cfg.Log = cfg.Log.With("replica", cfg.Replica)
	s := &Service{cfg: cfg, log: cfg.Log, meters: newMeters()}
	// How long starting takes is not how long the service lives.
	hard, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	s.giveUp = giveUp
	share := backgroundShare(cfg.PoolSize)
	var err error
	if s.store, err = newStore(ctx, hard, cfg, cfg.PoolSize-share, s.meters.retries.Inc); err != nil {
		giveUp()
		return nil, err
	}
	if s.background, err = openPool(ctx, cfg, share, nil); err != nil {
		giveUp()
		s.store.pool.Close()
		return nil, err
	}
	s.mailer = newMailer(s.background, cfg, s.meters)
	s.projection = newProjection(s.background, cfg, s.meters)
	s.schedule = newProjection(s.store.pool, cfg, s.meters)
	purger := newPurger(s.background, cfg)
	s.gauges()
	soft, halt := context.WithCancel(hard)
	s.halt = halt
	for _, run := range []func(context.Context){s.mailer.run, s.projection.run, purger.run} {
		s.loops.Go(func() { run(soft) })
	}
	return s, nil
}

func (s *Service) gauges() {
	s.meters.gauge("overbook_telescope_outbox_oldest_pending_seconds", func() float64 { return s.mailer.oldestPending().Seconds() })
	s.meters.gauge("overbook_telescope_outbox_parked_total", func() float64 { return float64(s.mailer.parked()) })
	s.meters.gauge("overbook_telescope_schedule_age_seconds", func() float64 { return s.projection.age().Seconds() })
	s.meters.gauge("overbook_telescope_clock_offset_seconds", func() float64 { return s.cfg.Clock.Offset().Seconds() })
	for name, pool := range map[string]*pgxpool.Pool{"requests": s.store.pool, "background": s.background} {
		s.meters.gauge(fmt.Sprintf("overbook_telescope_database_connections{pool=%q,state=\"acquired\"}", name), func() float64 {
			return float64(pool.Stat().AcquiredConns())
		})
	}
}

// Drain ends the background work. What it leaves undone, an event that was
// sent but not noted included, the next replica does. Clients' calls end by
// themselves, within the deadlines of the database.
func (s *Service) Drain(ctx context.Context) error {
	s.halt()
	ended := make(chan struct{})
	go func() { s.loops.Wait(); close(ended) }() // ends with the loops, for which Close waits, too
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the background work: %w", context.Cause(ctx))
	}
}

// Close stops everything at once, gives up what is under way, and closes all
// connections. For a graceful end, Drain first.
func (s *Service) Close() {
	s.halt()
	s.giveUp()
	s.loops.Wait()
	s.background.Close()
	s.store.pool.Close()
}
