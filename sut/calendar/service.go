package calendar

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/idempotency"
)

// A Service is one replica of the calendar server, without its HTTP listener.
type Service struct {
	cfg        Config
	log        *slog.Logger
	meters     *meters
	store      *store
	keys       *idempotency.Table
	background *store // never queued behind a burst of clients
	provider   *provider

	giveUp context.CancelFunc // ends everything under way
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
	policy := idempotency.Policy{RetryWindow: cfg.RetryWindow, Retention: cfg.Retention}
	s := &Service{cfg: cfg, log: cfg.Log, meters: newMeters(), keys: idempotency.NewTable("appointment_operations", policy)}
	// How long starting takes is not how long the service lives.
	hard, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	s.giveUp = giveUp
	if err := s.open(ctx, hard); err != nil {
		giveUp()
		return nil, err
	}
	s.provider = newProvider(cfg, s.background, s.meters)
	soft, halt := context.WithCancel(hard)
	s.halt = halt
	for _, run := range s.backgroundWork() {
		s.loops.Go(func() { run(soft) })
	}
	return s, nil
}

// open opens every connection and prepares every statement on them.
func (s *Service) open(ctx, hard context.Context) (err error) {
	share := database.BackgroundShare(s.cfg.PoolSize)
	prepared := slices.Concat(s.keys.Statements(), statements)
	if s.store, err = newStore(ctx, hard, s.cfg, s.cfg.PoolSize-share, prepared, s.meters.retries.Inc); err != nil {
		return err
	}
	if s.background, err = newStore(ctx, hard, s.cfg, share, nil, s.meters.retries.Inc); err != nil {
		s.store.Close()
	}
	return err
}

// backgroundWork is what runs beside the clients' calls, and its figures.
func (s *Service) backgroundWork() []func(context.Context) {
	s.meters.gauge("overbook_calendar_clock_offset_seconds", func() float64 { return s.cfg.Clock.Offset().Seconds() })
	for name, pool := range map[string]*pgxpool.Pool{"requests": s.store.Pool(), "background": s.background.Pool()} {
		s.meters.gauge(fmt.Sprintf("overbook_calendar_database_connections{pool=%q,state=\"acquired\"}", name), func() float64 {
			return float64(pool.Stat().AcquiredConns())
		})
	}
	return []func(context.Context){
		newSynchroniser(s.background, s.provider, s.cfg, s.meters).run,
		newReconciler(s.background, s.provider, s.cfg, s.meters).run,
		newPurger(s.background.Pool(), s.cfg).run,
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
