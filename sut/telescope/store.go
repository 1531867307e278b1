package telescope

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/idempotency"
)

// Deadlines of database work beside those of the settings. Past them a client
// is told 503 and may try again.
const (
	idleTxTimeout   = 10 * time.Second
	rollbackTimeout = time.Second // past it the connection is thrown away
)

var (
	// errOutcomeUnknown is a COMMIT of which nobody can say what became of it.
	errOutcomeUnknown = errors.New("the outcome of the commit is not known")

	// errAgain has the whole transaction run again, as a deadlock does.
	errAgain = errors.New("what was read has changed since")
)

// A store runs transactions and reads for clients.
type store struct {
	cfg     Config
	pool    *pgxpool.Pool
	keys    *idempotency.Table
	retried func()          // counts
	hard    context.Context // ends when everything under way must be given up

	mu     sync.Mutex
	jitter *rand.Rand
}

// newStore opens every connection and prepares every statement on it.
func newStore(ctx, hard context.Context, cfg Config, size int, retried func()) (*store, error) {
	s := &store{
		cfg: cfg, retried: retried, hard: hard,
		keys: idempotency.NewTable("booking_operations",
			idempotency.Policy{RetryWindow: cfg.RetryWindow, Retention: cfg.Retention}, "slot_id", "booking_id"),
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(cfg.Replica + uuid.NewString())) // a hash takes anything
	s.jitter = rand.New(rand.NewPCG(seed.Sum64(), 0))         //nolint:gosec // spreads retries, hides nothing
	var err error
	s.pool, err = openPool(ctx, cfg, size, slices.Concat(s.keys.Statements(), statements))
	return s, err
}

// bounded gives a context for one client's work: it does not end with the
// client, whose leaving changes nothing of what was asked for, but with its own
// deadline and with the service.
func (s *store) bounded(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StatementTimeout+s.cfg.LockTimeout+time.Second)
	stop := context.AfterFunc(s.hard, cancel)
	return ctx, func() { stop(); cancel() }
}

// transact runs do in a transaction, each statement a round trip of its own.
// do says whether there is something to commit. A deadlock or serialization
// failure runs everything again, after a pause; do must therefore begin from
// nothing each time.
func (s *store) transact(ctx context.Context, do func(context.Context, pgx.Tx) (commit bool, err error)) error {
	ctx, end := s.bounded(ctx)
	defer end()
	for try := 1; ; try++ {
		err := s.once(ctx, do)
		if !worthRepeating(err) || try == s.cfg.Tries {
			return err
		}
		s.retried()
		if pauseErr := clock.Pause(ctx, s.pause(try)); pauseErr != nil {
			return errors.Join(err, pauseErr)
		}
	}
}

func (s *store) once(ctx context.Context, do func(context.Context, pgx.Tx) (bool, error)) error {
	return s.withConn(ctx, func(conn *pgxpool.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		keep, err := do(ctx, tx)
		if err == nil && keep {
			return commit(ctx, conn, tx)
		}
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(ending) // a connection that can't even do that is closed by it
		return err
	})
}

// withConn lends a connection. Waiting for one has a deadline of its own, in
// which those who have one and wait for a lock get it or give up.
func (s *store) withConn(ctx context.Context, do func(*pgxpool.Conn) error) error {
	waiting, cancel := context.WithTimeout(ctx, s.cfg.LockTimeout+time.Second)
	conn, err := s.pool.Acquire(waiting)
	cancel()
	if err != nil {
		return fmt.Errorf("wait for a database connection: %w", err)
	}
	defer conn.Release()
	return do(conn)
}

// commit commits. Only Postgres saying so makes it certain that nothing was
// stored; anything else that is not plain success leaves the outcome open. So
// does a warning: with a synchronous standby, a commit whose wait for it was
// cut off is reported as a success that the standby may not have.
func commit(ctx context.Context, conn *pgxpool.Conn, tx pgx.Tx) error {
	told := conn.Conn().PgConn().CustomData()
	delete(told, warned)
	err := tx.Commit(ctx)
	if err == nil && told[warned] != nil {
		return fmt.Errorf("commit: %w: %v", errOutcomeUnknown, told[warned])
	}
	if err == nil || errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) || rolledBack(err) {
		return err
	}
	return fmt.Errorf("commit: %w: %w", errOutcomeUnknown, err)
}

// rolledBack reports an error after which nothing of a transaction is left: one
// that did not end the session, unless its code says that it does not know.
func rolledBack(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.SeverityUnlocalized == "ERROR" && pg.Code != "40003" && !strings.HasPrefix(pg.Code, "08")
}

// read runs one statement that changes nothing.
func read[T any](ctx context.Context, s *store, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, end := s.bounded(ctx)
	defer end()
	var out []T
	err := s.withConn(ctx, func(conn *pgxpool.Conn) error {
		var err error
		out, err = rowsOf(ctx, conn, scan, sql, args...)
		return err
	})
	return out, err
}

// asker is whatever runs a query.
type asker interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func rowsOf[T any](ctx context.Context, db asker, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// pause is how long to wait before trying again: 5 ms doubling, half of it random.
func (s *store) pause(try int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := 5 * time.Millisecond << min(try, 7)
	return most/2 + time.Duration(s.jitter.Int64N(int64(most/2)))
}

func worthRepeating(err error) bool {
	if err == nil || errors.Is(err, errOutcomeUnknown) {
		return false
	}
	if errors.Is(err, errAgain) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01") // serialization failure, deadlock
}

// passing reports trouble with the database that time may cure: a lock or
// statement that took too long, no free connection, a server that is full,
// stopping, starting or no longer the one that may write.
func passing(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true // not Postgres speaking: a network, a deadline, a pool
	}
	switch pg.Code {
	case "55P03", "25006", "25P03", "25P04":
		return true
	}
	return slices.Contains([]string{"08", "40", "53", "57", "58"}, pg.Code[:min(2, len(pg.Code))])
}
