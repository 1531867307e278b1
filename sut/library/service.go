package library

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/cache"
	"github.com/overbook/overbook/sut/outbox"
	"github.com/overbook/overbook/sut/seatlock"
	"github.com/overbook/overbook/sut/upstream"
)

// Bounds of what is cached.
const (
	chargesMost = 10_000 // students whose charge is kept at once
	readTries   = 3      // of a shared read that failed on somebody else's credential
)

// A Service is one replica of the library server, without its HTTP listener.
type Service struct {
	cfg     Config
	log     *slog.Logger
	store   *store
	pyxis   *upstream.Client
	seats   *seatlock.Locker
	list    *cache.Cache[[]upstream.Seat]
	charges *cache.Cache[*upstream.Charge]
	relay   *outbox.Relay
	waiters *waiters
	worker  *worker
	metrics *meters

	hard   context.Context // ends when upstream calls under way must be given up
	giveUp context.CancelFunc
	halt   context.CancelFunc // ends the loops
	loops  sync.WaitGroup
}

// Start opens every connection, starts the loops and gives a service that is
// ready to serve. Close it.
func Start(ctx context.Context, cfg Config) (*Service, error) {
	if err := schema().Check(ctx, cfg.DatabaseURL); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, log: cfg.Log.With("replica", cfg.Replica), waiters: newWaiters()}
	s.metrics = newMeters(s)
	var err error
	if s.pyxis, err = upstream.New(s.upstreamConfig()); err != nil {
		return nil, err
	}
	s.seats, err = seatlock.New(seatlock.Config{
		URL: cfg.RedisURL, Prefix: cfg.RedisPrefix, TTL: cfg.SeatLockTTL, Log: s.log, OnTrouble: s.metrics.redisTrouble.Inc,
	})
	if err != nil {
		return nil, err
	}
	if s.store, err = openStore(ctx, cfg, uuid.NewString()); err != nil {
		s.seats.Close()
		return nil, err
	}
	s.list = cache.New[[]upstream.Seat](cfg.Clock, cfg.CacheTTL, 1)
	s.charges = cache.New[*upstream.Charge](cfg.Clock, cfg.CacheTTL, chargesMost)
	s.relay = outbox.New(outbox.NewPostgres(s.store.background.Pool(), "library_reservation_outbox", "intent_id"),
		s.store.notify, outbox.Config{Clock: cfg.Clock, Log: s.log})
	s.worker = newWorker(s)
	if err := s.startLoops(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Service) upstreamConfig() upstream.Config {
	return upstream.Config{
		URL: s.cfg.PyxisURL, Timeout: s.cfg.UpstreamTimeout,
		BreakerFailures: s.cfg.BreakerFailures, BreakerOpen: s.cfg.BreakerOpen, BreakerProbes: s.cfg.BreakerProbes,
		OnBreaker: func(from, to string) { s.log.Warn("breaker changed", "from", from, "to", to) },
		OnCall:    s.metrics.upstreamCall,
	}
}

// startLoops starts what runs until Close. The context only carries values:
// how long starting takes is not how long the loops live.
func (s *Service) startLoops(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var soft context.Context
	soft, s.halt = context.WithCancel(ctx)
	s.hard, s.giveUp = context.WithCancel(ctx)
	conn, err := s.listen(soft)
	if err != nil {
		return fmt.Errorf("listen for other replicas: %w", err)
	}
	s.loops.Go(func() { s.hear(soft, conn) })
	s.loops.Go(func() { s.worker.tick(soft) })
	s.loops.Go(func() { s.worker.watchWaits(soft) })
	s.loops.Go(func() { s.reap(soft) })
	s.loops.Go(func() { s.relay.Run(soft) })
	return nil
}

// Drain takes no new claims, lets the calls that are under way end, and then
// sends away the clients who still wait (they get 202). Calls that outlast the
// context are given up; their intents stay RESERVING, and whoever reaps next
// decides them.
func (s *Service) Drain(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		// The last part of the time is for sending answers.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*4/5)
		defer cancel()
	}
	err := s.worker.stop(ctx)
	s.waiters.dismiss()
	if err != nil {
		return fmt.Errorf("wait for upstream calls under way: %w", err)
	}
	return nil
}

// Close stops everything at once, gives up calls under way, and closes all
// connections. For a graceful end, Drain first.
func (s *Service) Close() {
	if s.halt != nil {
		s.halt()
		s.giveUp()
		s.worker.halt()
		s.worker.finished.Wait() // soon: its calls have just been given up
		s.loops.Wait()
	}
	s.waiters.dismiss()
	s.list.Close()
	s.charges.Close()
	s.store.close()
	s.seats.Close()
	s.pyxis.Close()
}

// outlive gives a context that does not end with the request it comes from but
// with the service. Call the function when it is no longer needed.
func (s *Service) outlive(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(s.hard, cancel)
	return ctx, func() { stop(); cancel() }
}

// freeSeats is the list of seats through the cache. The list is the same for
// everybody but is read with somebody's credential: whoever shared a read that
// failed on another student's credential tries again with their own.
func (s *Service) freeSeats(ctx context.Context, who upstream.Caller) (v cache.Value[[]upstream.Seat], err error) {
	for range readTries {
		var joined bool
		v, joined, err = s.list.Get(ctx, "seats", func(ctx context.Context) ([]upstream.Seat, error) {
			ctx, end := s.outlive(ctx)
			defer end()
			return s.pyxis.Seats(ctx, who)
		})
		if !joined || !errors.Is(err, upstream.ErrRejected) {
			break
		}
	}
	return v, err
}

// currentCharge is the student's charge through the cache.
func (s *Service) currentCharge(ctx context.Context, who upstream.Caller) (*upstream.Charge, error) {
	v, _, err := s.charges.Get(ctx, who.Student, func(ctx context.Context) (*upstream.Charge, error) {
		ctx, end := s.outlive(ctx)
		defer end()
		return s.pyxis.CurrentCharge(ctx, who)
	})
	return v.V, err
}

// recheck looks up the intents that clients here wait for (on one seat, or
// all when seat is "") and answers those that have ended.
func (s *Service) recheck(ctx context.Context, seat string) {
	ids := s.waiters.intents(seat)
	if len(ids) == 0 {
		return
	}
	ended, err := s.store.endedAmong(ctx, ids)
	if err != nil {
		s.log.Warn("answers could not be looked up", "intents", len(ids), "error", err)
		return // the tick tries again
	}
	s.waiters.deliver(ended)
}

// await waits until the intent has ended, for at most the confirm wait of
// machine time. It then gives whatever state the intent has.
func (s *Service) await(ctx context.Context, w *waiter, r record) (record, error) {
	timer := time.NewTimer(s.cfg.ConfirmWait)
	defer timer.Stop()
	select {
	case ended := <-w.answer:
		return ended, nil
	case <-timer.C:
	case <-s.waiters.closed:
	case <-ctx.Done():
		return r, nil // the client is gone
	}
	select {
	case ended := <-w.answer:
		return ended, nil
	default:
	}
	now, known, err := s.store.lookUpIntent(ctx, r.IntentID)
	if err != nil || !known {
		return r, nil // the intent is stored: what we last knew of it is an answer
	}
	return now, nil
}
