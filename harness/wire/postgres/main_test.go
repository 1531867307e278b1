package pgwire_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/provision"
	pgwire "github.com/overbook/overbook/harness/wire/postgres"
)

const patience = 20 * time.Second // for what must happen, on a busy machine

var (
	postgres *provision.Postgres
	shared   string        // URL of a database in which each world has a schema of its own
	homes    *pgxpool.Pool // to there
	made     atomic.Int64
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	env, err := provision.Up(context.Background(), provision.Options{Need: provision.Need{Postgres: true}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := env.Close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	postgres = env.Postgres
	db, err := postgres.Clone(context.Background(), "", "wire_shared")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = db.URL
	if homes, err = pgxpool.New(context.Background(), shared); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer homes.Close()
	return m.Run()
}

const schema = `
create table slots (id int primary key, open bool not null default true);
insert into slots select generate_series(1, 20);
create table bookings (slot int primary key references slots, member text not null, at timestamptz not null default now());
create table lazy (id int primary key, slot int references slots deferrable initially deferred);
create table payments (id int generated always as identity primary key, note text)`

// A world is a schema of its own with a wire in front of it.
type world struct {
	t      *testing.T
	direct string    // URL around the wire
	around *pgx.Conn // to there, once it is needed
	clock  clock.Clock
	*pgwire.Wire

	mu      sync.Mutex
	killed  []string
	stopped []string
	strikes []harness.Strike
	healed  []harness.Fault
	kill    func(string) error // what Kill does besides noting it
}

func startWorld(t *testing.T, change ...func(*pgwire.Config)) *world {
	t.Helper()
	x := &world{t: t, clock: clock.New(), direct: home(t)}
	c := pgwire.Config{
		Clock: x.clock, Target: x.direct, Servers: []string{"sut-1", "sut-2"},
		Kill: func(_ context.Context, server string) error {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.killed = append(x.killed, server)
			if x.kill != nil {
				return x.kill(server)
			}
			return nil
		},
		Stop: func(_ context.Context, server string) error {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.stopped = append(x.stopped, server)
			return nil
		},
		OnStrike: func(_ harness.Fault, s harness.Strike) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.strikes = append(x.strikes, s)
		},
		OnHeal: func(f harness.Fault) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.healed = append(x.healed, f)
		},
	}
	for _, f := range change {
		f(&c)
	}
	var err error
	if x.Wire, err = pgwire.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// home makes a schema with the tables, and gives a URL that leads there.
func home(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("world_%d", made.Add(1))
	_, err := homes.Exec(limit(tb), fmt.Sprintf("create schema %s; set search_path to %s; %s; reset search_path", name, name, schema))
	must(tb, err)
	u, err := url.Parse(shared)
	must(tb, err)
	query := u.Query()
	query.Set("search_path", name)
	query.Set("application_name", name)
	u.RawQuery = query.Encode()
	return u.String()
}

// database makes a database with the tables, and gives its URL.
func database(tb testing.TB) string {
	tb.Helper()
	ctx := context.Background()
	err := postgres.Template(ctx, "wire", func(ctx context.Context, url string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, schema)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	db, err := postgres.Clone(ctx, "wire", fmt.Sprintf("wire_%d", made.Add(1)))
	if err != nil {
		tb.Fatal(err)
	}
	return db.URL
}

// modes are pgx's ways of sending a statement.
var modes = map[string]pgx.QueryExecMode{
	"cache_statement": pgx.QueryExecModeCacheStatement,
	"cache_describe":  pgx.QueryExecModeCacheDescribe,
	"describe_exec":   pgx.QueryExecModeDescribeExec,
	"exec":            pgx.QueryExecModeExec,
	"simple_protocol": pgx.QueryExecModeSimpleProtocol,
}

// dial connects through the wire.
func (x *world) dial(mode pgx.QueryExecMode) *pgx.Conn {
	x.t.Helper()
	return connect(x.t, x.URL("sut-1"), mode)
}

func connect(tb testing.TB, url string, mode pgx.QueryExecMode) *pgx.Conn {
	tb.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	config.DefaultQueryExecMode = mode
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// limit is a context for what must come to an end.
func limit(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// exec runs a statement that must succeed.
func exec(tb testing.TB, conn *pgx.Conn, sql string, args ...any) {
	tb.Helper()
	if _, err := conn.Exec(limit(tb), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// count asks the database around the wire.
func (x *world) count(sql string, args ...any) int {
	x.t.Helper()
	if x.around == nil {
		x.around = connect(x.t, x.direct, pgx.QueryExecModeExec)
	}
	var n int
	must(x.t, x.around.QueryRow(limit(x.t), sql, args...).Scan(&n))
	return n
}

func (x *world) bookings() int { x.t.Helper(); return x.count(`select count(*) from bookings`) }

// gone waits until nothing of ended connections is left.
func (x *world) gone() {
	x.t.Helper()
	must(x.t, x.AwaitGone(limit(x.t)))
}

// unit finds the last unit with a statement that matches.
func (x *world) unit(pattern string) harness.Unit {
	x.t.Helper()
	re := regexp.MustCompile("(?i)" + pattern)
	units := x.Units()
	for _, u := range slices.Backward(units) {
		for _, s := range u.Statements {
			if re.MatchString(s.SQL) {
				return u
			}
		}
	}
	x.t.Fatalf("no unit with %s in the record:\n%s", pattern, show(units))
	return harness.Unit{}
}

// until waits for the record to satisfy a condition.
func (x *world) until(what string, holds func([]harness.Unit) bool) {
	x.t.Helper()
	must(x.t, clock.Await(context.Background(), what, patience, time.Millisecond, func(context.Context) (bool, string, error) {
		units := x.Units()
		return holds(units), show(units), nil
	}))
}

func show(units []harness.Unit) string {
	var b strings.Builder
	for _, u := range units {
		fmt.Fprintf(&b, "%d: session %d tx %d %s>%s committed %v fault %q err %q %+v\n", u.Seq, u.Session, u.Tx, u.Before, u.After, u.Committed, u.Fault, u.Err, u.Statements)
	}
	return b.String()
}

// inject puts a fault in place by its text.
func (x *world) inject(text string) harness.Injected {
	x.t.Helper()
	f, err := harness.ParseFault(text)
	must(x.t, err)
	return x.Inject(f)
}

// code is the SQLSTATE of an error of Postgres.
func code(err error) string {
	if pg, ok := err.(*pgconn.PgError); ok { //nolint:errorlint // tests look at what pgx gives
		return pg.Code
	}
	return ""
}
