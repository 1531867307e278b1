package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/internal/pgtest"
)

var cluster *pgtest.Cluster

func TestMain(m *testing.M) {
	os.Exit(pgtest.Main(m, func(c *pgtest.Cluster) { cluster = c }))
}

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second

// A ground is a database with a table of two rows, and a store on it.
type ground struct {
	t     *testing.T
	cfg   Config
	store *Store
	again atomic.Int64 // transactions that were run again
	stop  context.CancelFunc
}

const selectOne = `select 1 + $1::int`

func newGround(t *testing.T, change ...func(*Config)) *ground {
	t.Helper()
	t.Parallel()
	cfg := Config{URL: cluster.Database(t), Replica: "sut-1", LockTimeout: 2 * time.Second, StatementTimeout: 5 * time.Second, Tries: 3}
	for _, c := range change {
		c(&cfg)
	}
	hard, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	g := &ground{t: t, cfg: cfg, stop: stop}
	t.Cleanup(stop)
	var err error
	if g.store, err = Open(t.Context(), hard, cfg, 4, []string{selectOne}, func() { g.again.Add(1) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.store.Close)
	g.exec(`create table things (id int primary key, n int not null)`)
	g.exec(`insert into things values (1, 0), (2, 0)`)
	return g
}

func (g *ground) exec(sql string) {
	g.t.Helper()
	if _, err := g.store.Pool().Exec(context.Background(), sql); err != nil {
		g.t.Fatalf("%s: %v", sql, err)
	}
}

// list is what a query gives, outside of any transaction.
func list[T any](g *ground, sql string, args ...any) []T {
	g.t.Helper()
	got, err := Read(g.t.Context(), g.store, pgx.RowTo[T], sql, args...)
	if err != nil {
		g.t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func TestSessionsHaveDeadlinesAndStatements(t *testing.T) {
	g := newGround(t)
	own := `from pg_stat_activity where application_name = 'sut-1' and datname = current_database()`
	if n := list[int](g, `select count(*)::int `+own); n[0] != 4 {
		t.Errorf("%d sessions, want 4 from the beginning", n[0])
	}
	if got, err := Read(t.Context(), g.store, pgx.RowTo[int], `select n from things where id > 5`); err != nil || got == nil || len(got) != 0 {
		t.Errorf("nothing was read as %v, %v", got, err)
	}
	settings := `select name || '=' || setting from pg_settings where name = any($1) order by 1`
	names := []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "default_transaction_isolation", "TimeZone"}
	want := []string{"TimeZone=UTC", "default_transaction_isolation=read committed", "idle_in_transaction_session_timeout=10000", "lock_timeout=2000", "statement_timeout=5000"}
	check := func(who string, db Asker) {
		t.Helper()
		got, err := Rows(t.Context(), db, pgx.RowTo[string], settings, names)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", who, diff)
		}
	}
	check("a session of the pool", g.store.Pool())
	single, err := Connect(t.Context(), g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = single.Close(context.Background()) }()
	check("a session of its own", single)

	prepared := func() int {
		return list[int](g, `select count(*)::int from pg_prepared_statements where statement = $1`, selectOne)[0]
	}
	if prepared() != 1 {
		t.Error("the statement is not prepared")
	}
	if _, err := single.Exec(t.Context(), `select pg_terminate_backend(pid) `+own+` and pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}
	err = await(t.Context(), func() bool { // a dead session is found out by using it
		got, err := Read(t.Context(), g.store, pgx.RowTo[int], `select count(*)::int from pg_prepared_statements where statement = $1`, selectOne)
		return err == nil && got[0] == 1
	})
	if err != nil {
		t.Error("no new session with the statement prepared:", err)
	}
}

// await waits until ok, within the test's patience.
func await(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !ok() {
		if err := clock.Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	cfg := Config{URL: cluster.Database(t), Replica: "x", LockTimeout: time.Second, StatementTimeout: time.Second, Tries: 1}
	for want, change := range map[string]func(*Config) []string{
		"read the database URL":       func(c *Config) []string { c.URL = "postgres://a b"; return nil },
		"open 2 database connections": func(c *Config) []string { c.URL = "postgres://x@127.0.0.1:1/x?connect_timeout=2"; return nil },
		`prepare "select nothing"`:    func(*Config) []string { return []string{"select nothing"} },
	} {
		c := cfg
		statements := change(&c)
		s, err := Open(t.Context(), t.Context(), c, 2, statements, nil)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// Two transactions that want each other's row: one is the victim, once, and is
// run again from the beginning.
func TestDeadlockIsRunAgain(t *testing.T) {
	t.Parallel()
	for how, add := range map[string]func(*Store, int, int, func()) error{
		"statement by statement": func(s *Store, one, other int, both func()) error {
			return s.Transact(context.Background(), func(ctx context.Context, tx pgx.Tx) (bool, error) {
				if _, err := tx.Exec(ctx, `update things set n = n + 1 where id = $1`, one); err != nil {
					return false, err
				}
				both()
				_, err := tx.Exec(ctx, `update things set n = n + 1 where id = $1`, other)
				return true, err
			})
		},
		"in one go": func(s *Store, one, other int, _ func()) error {
			return s.TransactBatch(context.Background(), func(b *pgx.Batch) {
				b.Queue(`update things set n = n + 1 where id = $1`, one)
				b.Queue(`select pg_sleep(0.3)`) // the other one has its row by then
				b.Queue(`update things set n = n + 1 where id = $1`, other)
			})
		},
	} {
		t.Run(how, func(t *testing.T) {
			g := newGround(t, func(c *Config) { c.URL += "&deadlock_timeout=100"; c.LockTimeout = 4 * time.Second })
			var arrived atomic.Int64
			both := func() { // the first time each of them waits for the other
				arrived.Add(1)
				if err := await(context.Background(), func() bool { return arrived.Load() >= 2 }); err != nil {
					t.Error(err)
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- add(g.store, 2, 1, both) }()
			if err := errors.Join(add(g.store, 1, 2, both), <-ended); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff([]int{2, 2}, list[int](g, `select n from things order by id`)); diff != "" {
				t.Error(diff)
			}
			if n := g.again.Load(); n < 1 {
				t.Error("nothing was run again: there was no deadlock")
			}
		})
	}
}

func TestTriesAreBounded(t *testing.T) {
	g := newGround(t)
	for _, trouble := range []error{
		&pgconn.PgError{Code: "40001"}, fmt.Errorf("in some statement: %w", &pgconn.PgError{Code: "40P01"}), ErrAgain,
	} {
		tries := 0
		err := g.store.Transact(t.Context(), func(context.Context, pgx.Tx) (bool, error) { tries++; return true, trouble })
		if tries != 3 || !errors.Is(err, trouble) || !Passing(err) {
			t.Errorf("%v: %d tries, then %v", trouble, tries, err)
		}
	}
	tries := 0
	_ = g.store.Transact(t.Context(), func(context.Context, pgx.Tx) (bool, error) { tries++; return true, &pgconn.PgError{Code: "23505"} })
	if tries != 1 {
		t.Errorf("%d tries of what can't be cured by trying", tries)
	}
	if n := g.again.Load(); n != 6 {
		t.Errorf("%d retries counted, want 6", n)
	}
}

// Nothing of a transaction stays that has nothing to commit, or an error, and
// its connection goes back clean.
func TestNothingStaysWithoutCommit(t *testing.T) {
	g := newGround(t)
	broken := errors.New("broken")
	for range 10 { // more often than there are connections
		for _, end := range []error{nil, broken} {
			err := g.store.Transact(t.Context(), func(ctx context.Context, tx pgx.Tx) (bool, error) {
				_, err := tx.Exec(ctx, `update things set n = 7`)
				return false, errors.Join(err, end)
			})
			if !errors.Is(err, end) {
				t.Errorf("Transact = %v, want %v", err, end)
			}
		}
		err := g.store.TransactBatch(t.Context(), func(b *pgx.Batch) {
			b.Queue(`update things set n = 7`)
			b.Queue(`insert into things values (1, 1)`)
		})
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "23505" {
			t.Errorf("TransactBatch = %v", err)
		}
	}
	if got := list[int](g, `select count(*)::int from things where n = 7`); got[0] != 0 {
		t.Errorf("%d rows were changed", got[0])
	}
	if got := list[int](g, `select count(*)::int from pg_stat_activity where state like 'idle in transaction%' and datname = current_database()`); got[0] != 0 {
		t.Errorf("%d sessions are left in a transaction", got[0])
	}
}

// A caller that leaves changes nothing; a service that ends ends everything.
func TestWhoEndsATransaction(t *testing.T) {
	g := newGround(t)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	err := g.store.Transact(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		_, err := tx.Exec(ctx, `update things set n = 1`)
		return true, err
	})
	if got := list[int](g, `select sum(n)::int from things`); err != nil || got[0] != 2 {
		t.Errorf("a client that left: sum %d, %v", got[0], err)
	}
	err = g.store.Transact(t.Context(), func(ctx context.Context, tx pgx.Tx) (bool, error) {
		g.stop()
		_, err := tx.Exec(ctx, `select pg_sleep(1)`) // would end well
		return true, err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("giving up = %v", err)
	}
}

// Who gets no connection is told so within the deadline.
func TestWaitForAConnectionIsBounded(t *testing.T) {
	g := newGround(t, func(c *Config) { c.LockTimeout = 10 * time.Millisecond })
	for range 4 {
		conn, err := g.store.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	began := clock.Mono()
	err := g.store.WithConn(t.Context(), func(*pgxpool.Conn) error { return nil })
	if took := clock.Mono() - began; err == nil || !Passing(err) || took < time.Second || took > 10*time.Second || !strings.Contains(err.Error(), "wait for a database connection") {
		t.Errorf("after %s: %v", took, err)
	}
}

// A warning that comes with the commit leaves its outcome open; one that came
// before does not.
func TestWarningOfACommit(t *testing.T) {
	g := newGround(t)
	g.exec(`create function warn() returns trigger language plpgsql as $$ begin raise warning 'not everybody has it'; return null; end $$`)
	g.exec(`create constraint trigger late after insert on things deferrable initially deferred for each row execute function warn()`)
	err := g.store.Transact(t.Context(), func(ctx context.Context, tx pgx.Tx) (bool, error) {
		_, err := tx.Exec(ctx, `insert into things values (3, 0)`)
		return true, err
	})
	if !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "not everybody has it") {
		t.Errorf("warned at the commit: %v", err)
	}
	err = g.store.Transact(t.Context(), func(ctx context.Context, tx pgx.Tx) (bool, error) {
		_, err := tx.Exec(ctx, `do $$ begin raise warning 'early'; end $$`)
		return true, err
	})
	if err != nil {
		t.Errorf("warned before the commit: %v", err)
	}
	if n := g.again.Load(); n != 0 {
		t.Errorf("%d transactions of unknown outcome were run again", n)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	url := cluster.Database(t)
	step := func(sql string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(sql)} }
	files := fstest.MapFS{"001_first.sql": step(`create table one (id int)`)}
	schema := Schema{Design: "garden", Files: files}
	if err := schema.Check(t.Context(), url); err == nil || !strings.Contains(err.Error(), "is at version 0, this server needs 1: run `overbook sut migrate --design garden`") {
		t.Errorf("Check of an empty database = %v", err)
	}
	migrated := make(chan error, 5)
	for range cap(migrated) { // as several replicas do
		go func() {
			version, err := schema.Migrate(context.Background(), url)
			if err == nil && version != 1 {
				err = fmt.Errorf("version %d", version)
			}
			migrated <- err
		}()
	}
	for range cap(migrated) {
		if err := <-migrated; err != nil {
			t.Error(err)
		}
	}
	if err := schema.Check(t.Context(), url); err != nil {
		t.Errorf("Check = %v", err)
	}
	other := Schema{Design: "orchard", Files: fstest.MapFS{"001_first.sql": step(`create table two (id int)`)}}
	if version, err := other.Migrate(t.Context(), url); version != 1 || err != nil {
		t.Errorf("another design in the same database: version %d, %v", version, err)
	}
	files["002_second.sql"] = step(`create table one (id int)`) // there is one
	if _, err := schema.Migrate(t.Context(), url); err == nil || !strings.Contains(err.Error(), "migrate the garden's schema") {
		t.Errorf("Migrate with a wrong step = %v", err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var version int
	if err := conn.QueryRow(t.Context(), `select version from public.garden_schema_version`).Scan(&version); err != nil || version != 1 {
		t.Errorf("version %d, %v", version, err)
	}
}
