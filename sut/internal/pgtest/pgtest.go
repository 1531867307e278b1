// Package pgtest gives tests of the reference server a real Postgres: a
// throw-away cluster from local binaries, or the server that
// OVERBOOK_TEST_DATABASE_URL names, with a fresh database for each test.
//
// For tests only; the server itself must not import it.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// EnvURL names a Postgres server to use instead of starting one. Its user
// must be allowed to create databases.
const EnvURL = "OVERBOOK_TEST_DATABASE_URL"

const readyWithin = 60 * time.Second // a busy machine takes its time

// A Cluster is a Postgres server for the tests of one package.
type Cluster struct {
	admin    string // URL of a database to create others from
	dir      string // "" when the server is somebody else's
	postgres *exec.Cmd
	made     atomic.Int64

	templates sync.Mutex
	filled    []string // templates that are ready
}

// Main starts a cluster, hands it to use, runs the tests and stops it. It
// gives the exit code for os.Exit. Without a Postgres the tests fail, and say
// what to install.
func Main(m *testing.M, use func(*Cluster)) int {
	c, err := Start(context.Background())
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "these tests need a Postgres:", err)
		return 1
	}
	defer c.Stop()
	use(c)
	return m.Run()
}

// Start gives a cluster that accepts connections.
func Start(ctx context.Context) (*Cluster, error) {
	if url := os.Getenv(EnvURL); url != "" {
		return &Cluster{admin: url}, nil
	}
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "overbook-pgtest-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir}
	if err := c.start(ctx, bin); err != nil {
		c.Stop() //nolint:contextcheck // cleaning up is not bound by how long starting may take
		return nil, err
	}
	return c, nil
}

// binaries finds the folder of initdb and postgres, the newest version first.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	var found []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/initdb", "/opt/homebrew/opt/postgresql*/bin/initdb", "/usr/local/opt/postgresql*/bin/initdb"} {
		matches, _ := filepath.Glob(pattern) // the patterns are well-formed
		found = append(found, matches...)
	}
	if len(found) == 0 {
		return "", errors.New("no initdb in PATH or /usr/lib/postgresql: install it (Debian: apt-get install postgresql; macOS: brew install postgresql), or set " + EnvURL + " to a server where databases may be created")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

func (c *Cluster) start(ctx context.Context, bin string) error {
	attr := childAttr()
	if os.Getuid() == 0 { // Postgres refuses to run as root
		who, err := user.Lookup("postgres")
		if err != nil {
			return fmt.Errorf("running as root, Postgres needs the user postgres: %w", err)
		}
		uid, _ := strconv.Atoi(who.Uid) // numbers by definition here
		gid, _ := strconv.Atoi(who.Gid)
		if err := os.Chown(c.dir, uid, gid); err != nil {
			return err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // from the user database
	}
	data := filepath.Join(c.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-N", "-A", "trust", "-U", "postgres", "--locale=C", "-E", "UTF8", "-D", data)
	initdb.Dir, initdb.SysProcAttr = "/", attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()                                                              // the child has its own
	c.postgres = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port), //nolint:noctx // Stop ends it
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off",
		"-c", "dynamic_shared_memory_type=mmap", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_connections=300")
	c.postgres.Dir, c.postgres.SysProcAttr, c.postgres.Stdout, c.postgres.Stderr = "/", attr, log, log
	if err := c.postgres.Start(); err != nil {
		c.postgres = nil
		return err
	}
	c.admin = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	return c.awaitReady(ctx)
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (c *Cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := pgx.Connect(ctx, c.admin)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			out, _ := os.ReadFile(filepath.Join(c.dir, "log")) // as much as there is
			return fmt.Errorf("postgres did not accept connections within %v: %w\n%s", readyWithin, err, out)
		}
	}
}

// Template makes a database once per name, has prepare fill it, and gives the
// URL of a copy for this test. Copying is much faster than filling.
func (c *Cluster) Template(tb testing.TB, name string, prepare func(url string) error) string {
	tb.Helper()
	full := fmt.Sprintf("overbook_test_%d_template_%s", os.Getpid(), name)
	c.templates.Lock()
	defer c.templates.Unlock()
	if !slices.Contains(c.filled, full) {
		c.exec(tb, "create database "+full)
		if err := prepare(c.url(tb, full)); err != nil {
			tb.Fatalf("fill the template %s: %v", name, err)
		}
		c.filled = append(c.filled, full)
	}
	return c.create(tb, " template "+full)
}

// Stop ends the server, if it is ours, and removes its files; on somebody
// else's server it removes the templates.
func (c *Cluster) Stop() {
	if c.postgres == nil {
		c.dropTemplates()
	}
	if c.postgres != nil {
		_ = c.postgres.Process.Signal(syscall.SIGQUIT) // gone already is as good
		_ = c.postgres.Wait()
	}
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

// Database gives the URL of a fresh, empty database that goes away with the test.
func (c *Cluster) Database(tb testing.TB) string {
	tb.Helper()
	return c.create(tb, "")
}

func (c *Cluster) create(tb testing.TB, how string) string {
	tb.Helper()
	name := fmt.Sprintf("overbook_test_%d_%d", os.Getpid(), c.made.Add(1))
	c.exec(tb, "create database "+name+how)
	tb.Cleanup(func() { c.exec(tb, "drop database if exists "+name+" with (force)") })
	return c.url(tb, name)
}

// url is the URL of a database of this cluster.
func (c *Cluster) url(tb testing.TB, name string) string {
	tb.Helper()
	cfg, err := pgx.ParseConfig(c.admin)
	if err != nil {
		tb.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", cfg.User, cfg.Password,
		net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))), name)
}

func (c *Cluster) exec(tb testing.TB, sql string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.admin)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func (c *Cluster) dropTemplates() {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.admin)
	if err != nil {
		return // never started, or gone
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, name := range c.filled {
		_, _ = conn.Exec(ctx, "drop database if exists "+name+" with (force)")
	}
}
