package database

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Deadlines of database work beside those of the settings. Past them a client
// is told 503 and may try again.
const (
	idleTxTimeout   = 10 * time.Second
	rollbackTimeout = time.Second // past it the connection is thrown away
)

// A Store is a pool and its rules: it runs transactions and reads, each within
// a deadline. Safe for concurrent use.
type Store struct {
	cfg     Config
	pool    *pgxpool.Pool
	retried func()          // counts
	hard    context.Context // ends when everything under way must be given up

	mu     sync.Mutex
	jitter *rand.Rand
}

// Open opens size connections and prepares the statements on each, also on
// those that replace them later. ctx bounds the opening alone; when hard ends,
// everything under way is given up. retried counts transactions that are run
// again, and may be nil. Close the store.
func Open(ctx, hard context.Context, cfg Config, size int, statements []string, retried func()) (*Store, error) {
	if retried == nil {
		retried = func() {}
	}
	pool, err := openPool(ctx, cfg, size, statements)
	if err != nil {
		return nil, err
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(cfg.Replica + uuid.NewString())) // a hash takes anything
	jitter := rand.New(rand.NewPCG(seed.Sum64(), 0))          //nolint:gosec // spreads retries, hides nothing
	return &Store{cfg: cfg, pool: pool, retried: retried, hard: hard, jitter: jitter}, nil
}

// Pool is the pool itself, for work that has deadlines of its own.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Close closes all connections, when they are given back.
func (s *Store) Close() { s.pool.Close() }

// Bounded gives a context for one client's work: it does not end with the
// client, whose leaving changes nothing of what was asked for, but with its own
// deadline and with the service. Call the function when the work is done.
func (s *Store) Bounded(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StatementTimeout+s.cfg.LockTimeout+time.Second)
	stop := context.AfterFunc(s.hard, cancel)
	return ctx, func() { stop(); cancel() }
}

// WithConn lends a connection. Waiting for one has a deadline of its own, in
// which those who have one and wait for a lock get it or give up. What is done
// with it is bounded by ctx alone: see [Store.Bounded].
func (s *Store) WithConn(ctx context.Context, do func(*pgxpool.Conn) error) error {
	waiting, cancel := context.WithTimeout(ctx, s.cfg.LockTimeout+time.Second)
	conn, err := s.pool.Acquire(waiting)
	cancel()
	if err != nil {
		return fmt.Errorf("wait for a database connection: %w", err)
	}
	defer conn.Release()
	return do(conn)
}

// Read runs one statement that changes nothing.
func Read[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, end := s.Bounded(ctx)
	defer end()
	var out []T
	err := s.WithConn(ctx, func(conn *pgxpool.Conn) error {
		var err error
		out, err = Rows(ctx, conn, scan, sql, args...)
		return err
	})
	return out, err
}

// An Asker is whatever runs a query: a connection, a transaction, a pool.
type Asker interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Rows runs a query and collects what it gives, an empty list when that is nothing.
func Rows[T any](ctx context.Context, db Asker, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}
