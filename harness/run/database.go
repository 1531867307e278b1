package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/harness"
)

// observer is the application name of our own sessions, which are left out of
// what is observed.
const observer = "overbook"

// rowLimit bounds a table that is dumped into the record.
const rowLimit = 50_000

// database is the scenario's database seen from outside. It implements [harness.Database].
type database struct {
	mu       sync.Mutex
	pool     *pgxpool.Pool // of the cluster that is the primary now
	former   []*pgxpool.Pool
	sessions []*databaseSession // ended with the drive at the latest
}

// now is the pool to the cluster that is the primary now.
func (d *database) now() *pgxpool.Pool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pool
}

// reopen leads to the database elsewhere.
func (d *database) reopen(ctx context.Context, url string) error {
	other, err := openDatabase(ctx, url)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.former = append(d.former, d.pool) // closed at the end: whoever watches sessions still has a connection of it
	d.pool = other.pool
	return nil
}

func (d *database) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pool := range append(d.former, d.pool) {
		pool.Close()
	}
}

func openDatabase(ctx context.Context, url string) (*database, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read database URL: %w", err)
	}
	config.MaxConns = 4
	config.ConnConfig.RuntimeParams["application_name"] = observer
	config.ConnConfig.RuntimeParams["statement_timeout"] = "20000"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the scenario's database: %w", err)
	}
	return &database{pool: pool}, nil
}

// Query gives the rows with their values as JSON has them: numbers, strings,
// booleans, nil. So a row read back from a stored run is the same.
func (d *database) Query(ctx context.Context, sql string, args ...any) ([]harness.Row, error) {
	return queryRows(ctx, d.now(), sql, args...)
}

// querier is a pool or one connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func queryRows(ctx context.Context, q querier, sql string, args ...any) ([]harness.Row, error) {
	sql = strings.TrimRight(strings.TrimSpace(sql), ";")
	rows, err := q.Query(ctx, "select to_jsonb(overbook_row) from (\n"+sql+"\n) overbook_row", args...)
	if err != nil {
		return nil, err
	}
	documents, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, err
	}
	list := make([]harness.Row, 0, len(documents))
	for _, doc := range documents {
		var r harness.Row
		if err := json.Unmarshal(doc, &r); err != nil {
			return nil, fmt.Errorf("decode row: %w", err)
		}
		list = append(list, r)
	}
	return list, nil
}

func (d *database) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	tag, err := d.now().Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

// databaseSession is one connection of our own. It implements [harness.DatabaseSession].
type databaseSession struct{ conn *pgx.Conn }

// Session is of [harness.Database]. It does not come out of the pool: a
// scenario may hold more of them than that has.
func (d *database) Session(ctx context.Context) (harness.DatabaseSession, error) {
	conn, err := pgx.ConnectConfig(ctx, d.now().Config().ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("open a session of our own: %w", err)
	}
	s := &databaseSession{conn}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions = append(d.sessions, s)
	return s, nil
}

// endSessions ends what scenarios left open: their locks must not outlive the drive.
func (d *database) endSessions() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sessions {
		_ = s.End() // its connection is gone either way
	}
	d.sessions = nil
}

func (s *databaseSession) PID() int { return int(s.conn.PgConn().PID()) }

func (s *databaseSession) Query(ctx context.Context, sql string, args ...any) ([]harness.Row, error) {
	return queryRows(ctx, s.conn, sql, args...)
}

func (s *databaseSession) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	tag, err := s.conn.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}

func (s *databaseSession) End() error {
	ctx, cancel := context.WithTimeout(context.Background(), adminDeadline)
	defer cancel()
	return s.conn.Close(ctx)
}

// samplePause is the time between two looks at pg_stat_activity.
const samplePause = 10 * time.Millisecond

const sampleSQL = `select application_name, pid, state_change::text, (extract(epoch from clock_timestamp() - state_change) * 1e9)::bigint, left(query, 200)
from pg_stat_activity
where datname = current_database() and state like 'idle in transaction%' and application_name <> '` + observer + `'`

// watchSessions looks at the servers' sessions again and again while an
// upstream call is in flight, until ctx ends.
//
// It has a connection of its own on which the query is prepared before the
// first call: an upstream call may be over before a new connection is up.
func (s *session) watchSessions(ctx context.Context) {
	conn, err := s.db.now().Acquire(ctx)
	if err == nil {
		defer conn.Release()
		_, err = s.sampleSessions(ctx, conn)
	}
	if err != nil {
		s.unsampled(ctx, err)
		return
	}
	ticker := time.NewTicker(samplePause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !s.callsInFlight() {
			continue
		}
		sample, err := s.sampleSessions(ctx, conn)
		if err != nil {
			s.unsampled(ctx, err)
			return // the database is gone: the check has too few samples and says so
		}
		s.rec.sample(sample)
	}
}

func (s *session) unsampled(ctx context.Context, err error) {
	if ctx.Err() == nil {
		s.rec.event(harness.Event{Kind: harness.EventNote, Subject: "postgres", Text: "sample of sessions: " + err.Error()})
	}
}

func (s *session) callsInFlight() bool {
	for _, d := range s.upstreams {
		if d.wire.InFlight() > 0 {
			return true
		}
	}
	return false
}

func (s *session) sampleSessions(ctx context.Context, conn *pgxpool.Conn) (harness.ActivitySample, error) {
	before := s.rec.clock.Now()
	rows, err := conn.Query(ctx, sampleSQL)
	if err != nil {
		return harness.ActivitySample{}, err
	}
	sample := harness.ActivitySample{At: before}
	for rows.Next() {
		var tx harness.OpenTransaction
		var idle int64
		if err := rows.Scan(&tx.Replica, &tx.PID, &tx.Period, &idle, &tx.Query); err != nil {
			return sample, errors.Join(err, rows.Err())
		}
		tx.Since = time.Duration(idle) // turned into an instant below
		sample.Open = append(sample.Open, tx)
	}
	// The look was taken between before and after: each bound on its safe side.
	sample.Until = s.rec.clock.Now()
	for i := range sample.Open {
		sample.Open[i].Since = sample.Until - sample.Open[i].Since
	}
	return sample, rows.Err()
}
