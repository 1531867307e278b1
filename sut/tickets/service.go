package tickets

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/database"
)

// A Service is one replica of the ticket shop, without its HTTP listener.
type Service struct {
	cfg        Config
	log        *slog.Logger
	meters     *meters
	store      *store
	background *store // never queued behind a burst of clients
	provider   *provider

	hard   context.Context    // ends when everything under way must be given up
	giveUp context.CancelFunc // ends it
	halt   context.CancelFunc // ends the background work
	loops  sync.WaitGroup
}

// Start opens every connection, prepares every statement, starts the
// background work and gives a service that is ready to serve. Close it.
func Start(ctx context.Context, cfg Config) (*Service, error) {
	if err := schema().Check(ctx, cfg.DatabaseURL); err != nil {
		return nil, err
	}
	cfg.Log = cfg.Log.With("replica", cfg.Replica)
	s := &Service{cfg: cfg, log: cfg.Log, meters: newMeters()}
	// How long starting takes is not how long the service lives.
	hard, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	s.hard, s.giveUp = hard, giveUp
	share := database.BackgroundShare(cfg.PoolSize)
	var err error
	if s.store, err = newStore(ctx, hard, cfg, cfg.PoolSize-share, s.meters.retries.Inc); err != nil {
		giveUp()
		return nil, err
	}
	if s.background, err = newStore(ctx, hard, cfg, share, s.meters.retries.Inc); err != nil {
		giveUp()
		s.store.Close()
		return nil, err
	}
	s.provider = newProvider(cfg, s.meters)
	soft, halt := context.WithCancel(hard)
	s.halt = halt
	for _, run := range s.backgroundWork() {
		s.loops.Go(func() { run(soft) })
	}
	return s, nil
}

// backgroundWork is what runs beside the clients' calls, and its figures.
func (s *Service) backgroundWork() []func(context.Context) {
	s.meters.gauge("overbook_tickets_clock_offset_seconds", func() float64 { return s.cfg.Clock.Offset().Seconds() })
	for name, pool := range map[string]*pgxpool.Pool{"requests": s.store.Pool(), "background": s.background.Pool()} {
		s.meters.gauge(fmt.Sprintf("overbook_tickets_database_connections{pool=%q,state=\"acquired\"}", name), func() float64 {
			return float64(pool.Stat().AcquiredConns())
		})
	}
	return []func(context.Context){
		newExpiry(s.background, s.cfg).run,
		newReconciler(s.background, s.provider, s.cfg, s.meters).run,
		newRefunder(s.background, s.provider, s.cfg, s.meters).run,
		newNotices(s.background, s.cfg, s.meters).run,
	}
}

// Drain ends the background work. What it leaves undone the next replica does.
// Clients' calls end by themselves, within the deadlines of the database and
// of the provider.
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
	s.store.Close()
	s.provider.close()
}
