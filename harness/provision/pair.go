package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/harness/clock"
)

// pairFirstVersion is the first Postgres with standby.signal and pg_promote.
const pairFirstVersion = 12

const (
	askPause       = 5 * time.Millisecond // between questions to a server about its state
	promoteTimeout = 30 * time.Second     // promotion of a standby, on a busy machine
)

// A Pair is two Postgres clusters of which the standby streams from the
// primary, with durability on. They are named by what they were born as:
// "the primary PostgreSQL" keeps that name when it is killed and comes back
// as a standby.
//
// A pair makes one failover: KillPrimary, Promote, StartOldFenced, in that
// order. These and Close wait for each other; the rest may be called at any
// time, from any goroutine.
type Pair struct {
	describe         string
	primary, standby *member // by birth

	steps sync.Mutex // held while the pair changes

	mu       sync.Mutex // guards the rest, and the members' port and run
	killed   bool       // the primary, by KillPrimary
	promoted bool
	closed   bool
	died     error
	gone     chan struct{} // closed by died and by Close, whichever comes first

	watchers sync.WaitGroup
}

// UpPair starts the two from local binaries. It returns when the standby
// streams, and with synchronous replication when the primary counts on it:
// from then on a COMMIT is answered only after the standby has it on disk.
//
// Options are those of [Up]; of the given URLs and Prefer the pair takes none
// but local binaries, and says so with an error for which [IsAbsent] holds.
// Fsync, synchronous_commit and full_page_writes are always on; Durable only
// says whether the data has to be on the disk or may be in memory, which makes
// no difference as long as it is processes that die and not the machine.
func UpPair(ctx context.Context, o Options, synchronous bool) (*Pair, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	local, err := pairInstallation(ctx, o)
	if err != nil {
		return nil, err
	}
	p := &Pair{gone: make(chan struct{})}
	if err := p.up(ctx, o, local, synchronous); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*stopGrace)
		defer cancel()
		return nil, errors.Join(err, p.Close(closing))
	}
	return p, nil
}

// pairInstallation finds binaries that can run a pair.
func pairInstallation(ctx context.Context, o Options) (installation, error) {
	none := func(fix, format string, args ...any) (installation, error) {
		return installation{}, &Problem{What: "bring up a primary and a standby", Err: absent(format, args...), Fix: fix}
	}
	switch {
	case o.PostgresURL != "":
		return none("leave --postgres out", "failover kills a PostgreSQL, and the one that was named is not ours to kill")
	case o.Prefer == "docker":
		return none("let parts come from local binaries", "failover needs local PostgreSQL binaries, and Docker alone was asked for")
	case runtime.GOOS != "linux":
		return none("run it on Linux", "failover kills all processes of a PostgreSQL at once, which we can do on Linux only")
	}
	local, err := localInstallation(ctx)
	if IsAbsent(err) {
		return none(installFix("postgres"), "failover needs local PostgreSQL binaries: %v", err)
	}
	if err != nil {
		return installation{}, err
	}
	if v := majorIn(local.number); v < pairFirstVersion {
		return none(installFix("postgres"), "failover needs PostgreSQL %d or newer, and %s has %s", pairFirstVersion, local.bin, local.number)
	}
	if !isExecutable(filepath.Join(local.bin, "pg_basebackup")) {
		return none(installFix("postgres"), "failover needs pg_basebackup, and there is none in %s", local.bin)
	}
	return local, nil
}

// up makes the primary, copies it, and starts the copy as its standby.
func (p *Pair) up(ctx context.Context, o Options, local installation, synchronous bool) (err error) {
	if p.primary, err = local.newMember(o, "primary"); err != nil {
		return err
	}
	if p.standby, err = local.newMember(o, "standby"); err != nil {
		return err
	}
	p.describe = describePair(local, p.primary.scratch.dir, synchronous)
	if o.WorkDir == "" {
		o.WorkDir = p.primary.scratch.dir
	} else if err := os.MkdirAll(o.WorkDir, 0o755); err != nil {
		return &Problem{What: "make the work directory", Where: o.WorkDir, Err: err, Fix: "name another one, or make it writable"}
	}
	p.primary.options.WorkDir, p.standby.options.WorkDir = o.WorkDir, o.WorkDir
	if err := p.primary.fill(ctx); err != nil {
		return err
	}
	if err := p.primary.allowReplication(); err != nil {
		return err
	}
	// The copy must not have this setting: promoted it is without a standby,
	// and its commits would wait for one. Until the standby is there nothing
	// commits on the primary.
	if synchronous {
		p.primary.set("synchronous_standby_names=*")
	}
	if err := p.start(ctx, p.primary, readyForWrites); err != nil {
		return err
	}
	if err := p.standby.copyOf(ctx, p.primary); err != nil {
		return err
	}
	if err := p.start(ctx, p.standby, readyForReads); err != nil {
		return err
	}
	return p.awaitStreaming(ctx, synchronous)
}

func describePair(local installation, dir string, synchronous bool) string {
	text := "two PostgreSQL " + local.number + ", durability on, "
	if !synchronous {
		text += "a"
	}
	text += "synchronous replication"
	if filepath.Dir(dir) == memoryDir {
		text += ", data in memory"
	}
	return text
}

// start starts a member's server and has its end watched.
func (p *Pair) start(ctx context.Context, m *member, ready *regexp.Regexp) error {
	process, port, err := m.serve(ctx, m.port, ready)
	if err != nil {
		return err
	}
	run := &running{name: m.name, process: process}
	p.mu.Lock()
	m.port, m.run = port, run
	p.mu.Unlock()
	p.watchers.Go(func() { //nolint:contextcheck // until its end, not until ctx ends
		<-process.Exited()
		if err := run.Died(); err != nil {
			p.end(err)
		}
	})
	return nil
}

// end closes gone; the first reason stays.
func (p *Pair) end(died error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gone:
	default:
		p.died = died
		close(p.gone)
	}
}

// awaitStreaming asks the primary until it sends WAL to the standby as it
// comes, and waits for it if it is to.
func (p *Pair) awaitStreaming(ctx context.Context, synchronous bool) error {
	problem := func(err error) error {
		return &Problem{What: "have the standby stream from the primary", Where: p.primary.url("postgres"), Err: err, Fix: "look at " + p.standby.logFile()}
	}
	conn, err := pgx.Connect(ctx, p.primary.url("postgres"))
	if err != nil {
		return problem(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	err = clock.Await(ctx, "the standby to stream", startTimeout, askPause, func(ctx context.Context) (bool, string, error) {
		var state, sync string
		err := conn.QueryRow(ctx, `select state, sync_state from pg_stat_replication where application_name = $1`, standbyName).Scan(&state, &sync)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, "no standby connected", p.Died()
		}
		counts := !synchronous || sync == "sync" || sync == "quorum"
		return state == "streaming" && counts, state + ", " + sync, err
	})
	if err != nil {
		return problem(err)
	}
	return nil
}

// Describe says what the two are, in one line: "two PostgreSQL 15.18,
// durability on, synchronous replication", and where the data is if not on
// the disk.
func (p *Pair) Describe() string { return p.describe }

// Done is closed when a server has died on its own (not by KillPrimary), and
// by Close.
func (p *Pair) Done() <-chan struct{} { return p.gone }

// Died says which server ended on its own, and how; nil as long as none has.
func (p *Pair) Died() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.died
}

// URL connects to the database postgres of the current primary as its superuser.
func (p *Pair) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current().url("postgres")
}

// current is the member that is, or was last, the primary. It needs the lock.
func (p *Pair) current() *member {
	if p.promoted {
		return p.standby
	}
	return p.primary
}

// PrimaryURL connects to a database of the cluster that was born primary. The
// port may be another one after StartOldFenced.
func (p *Pair) PrimaryURL(name string) (string, error) { return p.urlOf(p.primary, name) }

// StandbyURL connects to a database of the cluster that was born standby.
// What the primary has committed may be seen there a moment later.
func (p *Pair) StandbyURL(name string) (string, error) { return p.urlOf(p.standby, name) }

func (p *Pair) urlOf(m *member, name string) (string, error) {
	if err := checkDatabaseName(name); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.url(name), nil
}

// Database creates an empty database on the current primary.
func (p *Pair) Database(ctx context.Context, name string) error {
	if err := checkDatabaseName(name); err != nil {
		return fmt.Errorf("create a database: %w", err)
	}
	if err := once(ctx, p.URL(), func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `create database `+quoted(name))
		return err
	}); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

func checkDatabaseName(name string) error {
	if name == "" || len(name) > nameLimit {
		return fmt.Errorf("database name %q has %d bytes, possible are 1 to %d", name, len(name), nameLimit)
	}
	return nil
}

// once does something on a connection of its own.
func once(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

// Close stops both and removes their files. It returns when everything is
// gone. Closing again does nothing.
func (p *Pair) Close(ctx context.Context) error {
	p.steps.Lock()
	defer p.steps.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var both sync.WaitGroup
	var errs [2]error
	for i, m := range []*member{p.primary, p.standby} {
		if m != nil {
			both.Go(func() { errs[i] = m.close(ctx) })
		}
	}
	both.Wait()
	p.watchers.Wait()
	p.end(nil)
	return errors.Join(errs[:]...)
}
