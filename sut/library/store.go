package library

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
)

// Deadlines of database work. Past them a client is told 503 and may retry.
const (
	lockTimeout      = 2 * time.Second
	statementTimeout = 5 * time.Second
	idleTxTimeout    = 10 * time.Second
	acquireTimeout   = 3 * time.Second // for a free connection
	workTimeout      = 8 * time.Second // for one transaction with everything around it
	tries            = 5               // of a transaction that deadlocked or could not be serialised
)

// A store speaks SQL. Each method is one short transaction sent in one go, or
// one statement; none of them waits for anything but Postgres.
type store struct {
	requests   *pgxpool.Pool // clients
	background *pgxpool.Pool // worker, reaper, relay: never queued behind a burst of clients
	clock      *clock.Clock
	replica    string
	instance   string // tells this process' notifications from those of others

	mu     sync.Mutex
	jitter *rand.Rand
}

// backgroundShare is how many of size connections are the background's; one
// more listens.
func backgroundShare(size int) int { return min(max(size/5, 1), 8) }

// openStore opens every connection and prepares every statement on it.
func openStore(ctx context.Context, cfg Config, instance string) (*store, error) {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(instance))              // a hash takes anything
	jitter := rand.New(rand.NewPCG(seed.Sum64(), 0)) //nolint:gosec // spreads retries, hides nothing
	s := &store{clock: cfg.Clock, replica: cfg.Replica, instance: instance, jitter: jitter}
	background := backgroundShare(cfg.PoolSize)
	var err error
	if s.requests, err = openPool(ctx, cfg, cfg.PoolSize-background-1); err != nil {
		return nil, err
	}
	if s.background, err = openPool(ctx, cfg, background); err != nil {
		s.requests.Close()
		return nil, err
	}
	return s, nil
}

func (s *store) close() {
	s.requests.Close()
	s.background.Close()
}

// sessionConfig is what every session of this server is opened with.
func sessionConfig(cc *pgx.ConnConfig, replica string) {
	ms := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	cc.RuntimeParams["application_name"] = replica
	cc.RuntimeParams["lock_timeout"] = ms(lockTimeout)
	cc.RuntimeParams["statement_timeout"] = ms(statementTimeout)
	cc.RuntimeParams["idle_in_transaction_session_timeout"] = ms(idleTxTimeout)
	cc.RuntimeParams["TimeZone"] = "UTC"
}

func openPool(ctx context.Context, cfg Config, size int) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(cfg.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	sessionConfig(pc.ConnConfig, cfg.Replica)
	pc.MaxConns, pc.MinConns = int32(size), int32(size) //nolint:gosec // bounded by configuration
	pc.MaxConnIdleTime, pc.MaxConnLifetime = 24*time.Hour, 24*time.Hour
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		for _, sql := range statements {
			if _, err := conn.Prepare(ctx, sql, sql); err != nil {
				return fmt.Errorf("prepare %.60q: %w", sql, err)
			}
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open %d database connections: %w", size, err)
	}
	if err := warm(ctx, pool, size); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open %d database connections: %w", size, err)
	}
	return pool, nil
}

// warm holds every connection of the pool at once, so that all exist.
func warm(ctx context.Context, pool *pgxpool.Pool, size int) error {
	errs := make(chan error, size)
	var all, done sync.WaitGroup
	all.Add(size)
	for range size {
		done.Go(func() {
			conn, err := pool.Acquire(ctx)
			all.Done()
			if err == nil {
				all.Wait() // until the others have theirs
				conn.Release()
			}
			errs <- err
		})
	}
	done.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// transact sends begin, what fill queues, and commit in one go and reads the
// answers: one round trip, and never a transaction that is open while this
// process thinks. A deadlock or serialization failure runs it again, whole;
// fill must therefore begin from nothing each time.
func (s *store) transact(ctx context.Context, pool *pgxpool.Pool, fill func(*pgx.Batch)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTimeout)
	defer cancel()
	for try := 1; ; try++ {
		err := transactOnce(ctx, pool, fill)
		if err == nil || !worthRepeating(err) || try == tries {
			return err
		}
		if err := clock.Pause(ctx, s.pause(try)); err != nil {
			return err
		}
	}
}

func transactOnce(ctx context.Context, pool *pgxpool.Pool, fill func(*pgx.Batch)) error {
	return withConn(ctx, pool, func(conn *pgxpool.Conn) error {
		batch := &pgx.Batch{}
		batch.Queue("begin")
		fill(batch)
		batch.Queue("commit")
		err := conn.SendBatch(ctx, batch).Close()
		if err != nil && conn.Conn().PgConn().TxStatus() != 'I' {
			_, _ = conn.Exec(ctx, "rollback") // a connection that can't even do that is thrown away on release
		}
		return err
	})
}

// withConn lends a connection; waiting for one has a deadline of its own.
func withConn(ctx context.Context, pool *pgxpool.Pool, do func(*pgxpool.Conn) error) error {
	waiting, cancel := context.WithTimeout(ctx, acquireTimeout)
	conn, err := pool.Acquire(waiting)
	cancel()
	if err != nil {
		return fmt.Errorf("wait for a database connection: %w", err)
	}
	defer conn.Release()
	return do(conn)
}

// query runs one statement that changes nothing.
func query[T any](ctx context.Context, pool *pgxpool.Pool, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workTimeout)
	defer cancel()
	var out []T
	err := withConn(ctx, pool, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, scan)
		return err
	})
	return out, err
}

// pause is how long to wait before trying again: 5 ms doubling, half of it random.
func (s *store) pause(try int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := 5 * time.Millisecond << try
	return most/2 + time.Duration(s.jitter.Int64N(int64(most/2)))
}

// SQLSTATE codes that are decided on.
const (
	codeSerialization   = "40001"
	codeDeadlock        = "40P01"
	codeUniqueViolation = "23505"
)

func sqlCode(err error) (code, constraint string) {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code, pg.ConstraintName
	}
	return "", ""
}

func worthRepeating(err error) bool {
	code, _ := sqlCode(err)
	return code == codeSerialization || code == codeDeadlock
}

// into collects a batch statement's rows.
func into[T any](out *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var err error
		*out, err = pgx.CollectRows(rows, scan)
		return err
	}
}

func scanRecord(row pgx.CollectableRow) (r record, err error) {
	err = row.Scan(&r.IntentID, &r.ActionID, &r.Student, &r.Seat, &r.State, &r.Kind)
	return r, err
}

func intentTargets(i *intent) []any {
	return []any{
		&i.IntentID, &i.ActionID, &i.Student, &i.Seat, &i.State, &i.Kind,
		&i.Path, &i.Fence, &i.LockedUntil, &i.Traceparent, &i.Op, &i.Looks,
	}
}

func scanIntent(row pgx.CollectableRow) (i intent, err error) {
	err = row.Scan(intentTargets(&i)...)
	return i, err
}
