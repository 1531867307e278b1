// Package database owns how a server of ours speaks to Postgres: it opens and
// warms pools of sessions that have deadlines, runs transactions that are
// repeated whole when the database asks for it, tells a commit of which nobody
// knows the outcome from one that did not happen, knows what trouble passes,
// and migrates schemas.
//
// What must not happen here: a word of any design. SQL, and what an error
// means for a client, are the design's.
package database

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is what the sessions of a server are opened with. All fields are needed.
type Config struct {
	URL     string
	Replica string // name of the sessions

	LockTimeout      time.Duration // wait for any lock
	StatementTimeout time.Duration
	Tries            int // of a transaction that deadlocked or could not be serialised, at least 1
}

// warned is where a session's last warning is kept.
const warned = "warning"

// BackgroundShare is how many of size connections are for the background's
// work, so that it is never queued behind a burst of clients; the rest serve
// clients.
func BackgroundShare(size int) int { return min(max(size/5, 1), 8) }

// session is what every session is opened with.
func (cfg Config) session(cc *pgx.ConnConfig) {
	ms := func(d time.Duration) string { return fmt.Sprint(max(d.Milliseconds(), 1)) } // 0 would mean for ever
	cc.RuntimeParams["application_name"] = cfg.Replica
	cc.RuntimeParams["lock_timeout"] = ms(cfg.LockTimeout)
	cc.RuntimeParams["statement_timeout"] = ms(cfg.StatementTimeout)
	cc.RuntimeParams["idle_in_transaction_session_timeout"] = ms(idleTxTimeout)
	cc.RuntimeParams["default_transaction_isolation"] = "read committed"
	cc.RuntimeParams["TimeZone"] = "UTC"
	cc.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			conn.CustomData()[warned] = n.Message
		}
	}
}

// Connect opens one session that belongs to no pool, as for LISTEN. It has the
// deadlines of all others.
func Connect(ctx context.Context, cfg Config) (*pgx.Conn, error) {
	cc, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	cfg.session(cc)
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, fmt.Errorf("open a database connection: %w", err)
	}
	return conn, nil
}

// openPool opens size connections and prepares the statements on each, also on
// those that replace them later.
func openPool(ctx context.Context, cfg Config, size int, statements []string) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	cfg.session(pc.ConnConfig)
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
