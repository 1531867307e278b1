package provision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// MaxConnections is what our own clusters allow.
const MaxConnections = 300

const adminConnections = 4 // for creating and dropping databases; more wait

// Postgres is a cluster that is up, ours or given by URL.
type Postgres struct {
	running
	adminURL string
	version  int    // server_version_num: 150018
	prefix   string // of the names of databases made here; empty on a cluster of our own
	pool     *pgxpool.Pool
	holder   *pgx.Conn // the session that claims the prefix; nil on a cluster of our own

	scratch *scratch // the data directory, when local

	mu        sync.Mutex
	templates map[string]*template
	made      map[string]bool // databases to drop at the end on somebody else's cluster
}

// upPostgres takes the cluster that was named, or starts one.
func upPostgres(ctx context.Context, o Options) (*Postgres, error) {
	if o.PostgresURL != "" {
		return givenPostgres(ctx, o)
	}
	return choose(o,
		func() (*Postgres, error) { return localPostgres(ctx, o) },
		func() (*Postgres, error) { return dockerPostgres(ctx, o) },
		func(why string) error {
			return &Problem{What: "start PostgreSQL", Why: why, Fix: installFix("postgres") + ", or --postgres URL"}
		})
}

// givenPostgres looks at the cluster that the caller named. Databases made on
// it carry a prefix, and go when the session that holds it is gone.
func givenPostgres(ctx context.Context, o Options) (*Postgres, error) {
	config, err := pgxpool.ParseConfig(o.PostgresURL)
	if err != nil {
		return nil, &Problem{What: "read the Postgres URL", Why: redact(err.Error(), o.PostgresURL), Fix: "give it as postgres://user:password@host:5432/postgres"}
	}
	where := net.JoinHostPort(config.ConnConfig.Host, fmt.Sprint(config.ConnConfig.Port))
	p := &Postgres{running: running{name: "PostgreSQL"}, adminURL: o.PostgresURL}
	if err := p.connect(ctx); err != nil {
		return nil, &Problem{
			What: "connect to the Postgres that was named", Where: where, Err: err,
			Fix: "check that it runs, the address and the password; or leave the URL out to have one started",
		}
	}
	if err := p.claimPrefix(ctx); err != nil {
		_ = p.close(context.WithoutCancel(ctx))
		return nil, &Problem{What: "prepare the Postgres that was named", Where: where, Err: err, Fix: "its user needs CREATEDB"}
	}
	var version, fsync, commit string
	if err := p.pool.QueryRow(ctx, `select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')`).Scan(&version, &fsync, &commit); err != nil {
		_ = p.close(context.WithoutCancel(ctx))
		return nil, &Problem{What: "ask the Postgres that was named for its version", Where: where, Err: err}
	}
	number, _, _ := strings.Cut(version, " ")
	p.describe = fmt.Sprintf("PostgreSQL %s, given at %s, fsync %s, synchronous_commit %s", number, where, fsync, commit)
	return p, nil
}

// redact keeps a password out of an error that quotes the URL.
func redact(text, rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.User == nil {
		return strings.ReplaceAll(text, rawURL, "the URL")
	}
	if password, ok := u.User.Password(); ok && password != "" {
		text = strings.ReplaceAll(text, password, "xxxxx")
	}
	return text
}

// connect opens the admin pool and asks the server for its version.
func (p *Postgres) connect(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(p.adminURL)
	if err != nil {
		return err
	}
	config.MaxConns = adminConnections
	config.ConnConfig.ConnectTimeout = 10 * time.Second
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "overbook-admin"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	if err := pool.QueryRow(ctx, `select current_setting('server_version_num')::int`).Scan(&p.version); err != nil {
		pool.Close()
		return err
	}
	p.pool = pool
	p.templates, p.made = map[string]*template{}, map[string]bool{}
	return nil
}

// AdminURL connects to the maintenance database as the superuser (or as the
// user of the URL that was given).
func (p *Postgres) AdminURL() string { return p.adminURL }

func (p *Postgres) close(ctx context.Context) error {
	if p.closing.Swap(true) {
		return nil
	}
	var errs []error
	if p.process == nil && p.container == nil {
		errs = append(errs, p.dropMade(ctx))
	}
	if p.holder != nil {
		errs = append(errs, p.holder.Close(ctx))
	}
	if p.pool != nil {
		p.pool.Close()
	}
	if p.process != nil {
		errs = append(errs, p.process.Stop(ctx))
	}
	if p.container != nil {
		errs = append(errs, p.container.remove(ctx))
	}
	if p.scratch != nil {
		errs = append(errs, p.scratch.remove())
	}
	return errors.Join(errs...)
}

// databaseURL is the admin URL with another database.
func (p *Postgres) databaseURL(name string) (string, error) {
	u, err := url.Parse(p.adminURL)
	if err != nil || u.Scheme == "" {
		return "", errors.New("databases can be made only when the cluster is given as a postgres:// URL")
	}
	u.Path = "/" + name
	return u.String(), nil
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
