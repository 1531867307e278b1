package telescope

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// warned is where a session's last warning is kept.
const warned = "warning"

// backgroundShare is how many of size connections are the background's; the
// rest serve clients.
func backgroundShare(size int) int { return min(max(size/5, 1), 8) }

// sessionConfig is what every session of this server is opened with.
func sessionConfig(cc *pgx.ConnConfig, cfg Config) {
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

// openPool opens size connections and prepares the statements on each, also on
// those that replace them later.
func openPool(ctx context.Context, cfg Config, size int, statements []string) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(cfg.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	sessionConfig(pc.ConnConfig, cfg)
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
