package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
)

// Transact runs do in a transaction, each statement a round trip of its own.
// do says whether there is something to commit. A deadlock or serialization
// failure runs everything again, after a pause; do must therefore begin from
// nothing each time. [ErrOutcomeUnknown] is of a commit that may or may not
// have happened.
func (s *Store) Transact(ctx context.Context, do func(context.Context, pgx.Tx) (commit bool, err error)) error {
	return s.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
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

// TransactBatch sends begin, what fill queues, and commit in one go and reads
// the answers: one round trip, and never a transaction that is open while this
// process thinks. A deadlock or serialization failure runs it again, whole;
// fill must therefore begin from nothing each time. It does not say which
// errors leave the outcome open: it is for what can be asked for once more.
func (s *Store) TransactBatch(ctx context.Context, fill func(*pgx.Batch)) error {
	return s.repeat(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
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

// repeat runs one transaction until it is decided or has had its tries.
func (s *Store) repeat(ctx context.Context, once func(context.Context, *pgxpool.Conn) error) error {
	ctx, end := s.Bounded(ctx)
	defer end()
	for try := 1; ; try++ {
		err := s.WithConn(ctx, func(conn *pgxpool.Conn) error { return once(ctx, conn) })
		if !worthRepeating(err) || try == s.cfg.Tries {
			return err
		}
		s.retried()
		if pauseErr := clock.Pause(ctx, s.Backoff(try)); pauseErr != nil {
			return errors.Join(err, pauseErr)
		}
	}
}

// Backoff is how long to wait after so many tries, from 1, before another one:
// 5 ms doubling, half of it random, at most 640 ms.
func (s *Store) Backoff(try int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := 5 * time.Millisecond << min(max(try, 0), 7)
	return most/2 + time.Duration(s.jitter.Int64N(int64(most/2)))
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
		return fmt.Errorf("commit: %w: %v", ErrOutcomeUnknown, told[warned])
	}
	if err == nil || errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) || rolledBack(err) {
		return err
	}
	return fmt.Errorf("commit: %w: %w", ErrOutcomeUnknown, err)
}
