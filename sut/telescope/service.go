package telescope

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

// A Service is one replica of the telescope server, without its HTTP listener.
type Service struct {
	cfg        Config
	log        *slog.Logger
	meters     *meters
	store      *database.Store
	keys       *idempotency.Table
	background *database.Store // never queued behind a burst of clients
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
	if err := schema().Check(ctx, cfg.DatabaseURL); err != nil {
		return nil, err
	}
	cfg.Log = cfg.Log.With("replica", cfg.Replica)
	policy := idempotency.Policy{RetryWindow: cfg.RetryWindow, Retention: cfg.Retention}
	s := &Service{cfg: cfg, log: cfg.Log, meters: newMeters(), keys: idempotency.NewTable("booking_operations", policy, "slot_id", "booking_id")}
	// How long starting takes is not how long the service lives.
	hard, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	s.giveUp = giveUp
	if err := s.open(ctx, hard); err != nil {
		giveUp()
		return nil, err
	}
	background := s.background.Pool()
	s.mailer = newMailer(background, cfg, s.meters)
	s.projection = newProjection(background, cfg, s.meters)
	s.schedule = newProjection(s.store.Pool(), cfg, s.meters)
	purger := newPurger(background, cfg)
	s.gauges()
	soft, halt := context.WithCancel(hard)
	s.halt = halt
	for _, run := range []func(context.Context){s.mailer.run, s.projection.run, purger.run} {
		s.loops.Go(func() { run(soft) })
	}
	return s, nil
}

// open opens every connection and prepares every statement on those of clients.
func (s *Service) open(ctx, hard context.Context) (err error) {
	cfg := database.Config{
		URL: s.cfg.DatabaseURL, Replica: s.cfg.Replica,
		LockTimeout: s.cfg.LockTimeout, StatementTimeout: s.cfg.StatementTimeout, Tries: s.cfg.Tries,
	}
	share := database.BackgroundShare(s.cfg.PoolSize)
	prepared := slices.Concat(s.keys.Statements(), statements)
	if s.store, err = database.Open(ctx, hard, cfg, s.cfg.PoolSize-share, prepared, s.meters.retries.Inc); err != nil {
		return err
	}
	if s.background, err = database.Open(ctx, hard, cfg, share, nil, nil); err != nil {
		s.store.Close()
	}
	return err
}

func (s *Service) gauges() {
	s.meters.gauge("overbook_telescope_outbox_oldest_pending_seconds", func() float64 { return s.mailer.oldestPending().Seconds() })
	s.meters.gauge("overbook_telescope_outbox_parked_total", func() float64 { return float64(s.mailer.parked()) })
	s.meters.gauge("overbook_telescope_schedule_age_seconds", func() float64 { return s.projection.age().Seconds() })
	s.meters.gauge("overbook_telescope_clock_offset_seconds", func() float64 { return s.cfg.Clock.Offset().Seconds() })
	for name, pool := range map[string]*pgxpool.Pool{"requests": s.store.Pool(), "background": s.background.Pool()} {
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
	s.store.Close()
}
