package provision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness/proc"
)

const (
	memoryDir     = "/dev/shm"
	memoryMinFree = 1 << 30
	portTries     = 5 // another process may take the free port between our look and the server's bind
)

// An installation is the local PostgreSQL that clusters of ours run on.
type installation struct {
	bin    string // directory of postgres and initdb
	number string // "15.18"
	cred   *syscall.Credential
}

func localInstallation(ctx context.Context) (installation, error) {
	bin, err := PostgresBinaries()
	if err != nil {
		return installation{}, err
	}
	line, err := VersionOf(ctx, filepath.Join(bin, "postgres"), "--version")
	if err != nil {
		return installation{}, &Problem{What: "start PostgreSQL", Where: bin, Err: err, Fix: installFix("postgres")}
	}
	number, err := versionNumber(line)
	if err != nil {
		return installation{}, &Problem{What: "start PostgreSQL", Where: bin, Err: err}
	}
	cred, err := PostgresUser()
	if err != nil {
		return installation{}, err
	}
	return installation{bin: bin, number: number, cred: cred}, nil
}

// A cluster is a data directory in a scratch directory of its own, and how
// the server on it is started.
type cluster struct {
	installation
	options  Options
	scratch  *scratch
	name     string   // of the server, in messages: "PostgreSQL"
	log      string   // name of its log in the work directory
	mark     string   // cluster_name, which Postgres puts into the title of each of its processes; may be empty
	settings []string // beyond those that every cluster has: "wal_level=replica"
}

// newCluster makes the directory, on the disk where commits have to reach it.
func (i installation) newCluster(o Options, name, log string) (*cluster, error) {
	base := os.TempDir()
	if !o.Durable && freeBytes(memoryDir) > memoryMinFree {
		base = memoryDir
	}
	dir, err := newScratch(base)
	if err != nil {
		return nil, err
	}
	if i.cred != nil {
		if err := os.Chown(dir.dir, int(i.cred.Uid), int(i.cred.Gid)); err != nil {
			return nil, errors.Join(&Problem{What: "hand the data directory to the user that runs Postgres", Where: dir.dir, Err: err}, dir.remove())
		}
	}
	c := &cluster{installation: i, options: o, scratch: dir, name: name, log: log}
	if len(o.MarkEnv) <= clusterNameLimit {
		c.mark = o.MarkEnv
	}
	return c, nil
}

const clusterNameLimit = 63 // bytes of cluster_name

func (c *cluster) data() string { return filepath.Join(c.scratch.dir, "data") }

// fill makes the data directory that of a cluster just initialised.
func (c *cluster) fill(ctx context.Context) error {
	seed := seed{bin: c.bin, version: c.number, cache: c.options.CacheDir, cred: c.cred, env: childEnv(c.options), progress: c.options.Progress}
	return seed.unpack(ctx, c.data())
}

// Ready lines of a server, by what it is.
var (
	readyForWrites = regexp.MustCompile(`database system is ready to accept connections`)
	readyForReads  = regexp.MustCompile(`database system is ready to accept read.only connections`)
)

// serve starts the server, on the port if it is free or 0, and gives the port
// that it got.
func (c *cluster) serve(ctx context.Context, port int, ready *regexp.Regexp) (*proc.Process, int, error) {
	for try := 1; ; try++ {
		if port == 0 {
			var err error
			if port, err = freePort(ctx); err != nil {
				return nil, 0, err
			}
		}
		process, err := c.serveOn(ctx, port, ready)
		if err == nil || !addressTaken(err) || try == portTries {
			return process, port, err
		}
		c.options.Progress(fmt.Sprintf("port %d was taken meanwhile, %s gets another one", port, c.name))
		port = 0
	}
}

func (c *cluster) serveOn(ctx context.Context, port int, ready *regexp.Regexp) (*proc.Process, error) {
	process, err := proc.Start(ctx, proc.Spec{
		Name: c.name, Path: filepath.Join(c.bin, "postgres"), Args: c.flags(port),
		Env: childEnv(c.options), Dir: "/", Log: filepath.Join(c.options.WorkDir, c.log), Credential: c.cred,
		Ready: ready, ReadyTimeout: startTimeout,
		StopSignal: syscall.SIGQUIT, DeathSignal: syscall.SIGQUIT, StopGrace: stopGrace,
	})
	if err != nil {
		return nil, &Problem{What: "bring up " + c.name, Where: c.bin, Err: err}
	}
	return process, nil
}

// localPostgres starts a cluster from local binaries.
func localPostgres(ctx context.Context, o Options) (*Postgres, error) {
	local, err := localInstallation(ctx)
	if err != nil {
		return nil, err
	}
	c, err := local.newCluster(o, "PostgreSQL", "postgres.log")
	if err != nil {
		return nil, err
	}
	p := &Postgres{
		running: running{name: "PostgreSQL", describe: fmt.Sprintf("PostgreSQL %s, local %s, %s", local.number, local.bin, durability(o.Durable))},
		scratch: c.scratch,
	}
	if err := p.boot(ctx, c); err != nil {
		return nil, errors.Join(err, p.close(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func durability(on bool) string {
	if on {
		return "durability on"
	}
	return "durability off"
}

// boot fills the data directory and starts the server on it.
func (p *Postgres) boot(ctx context.Context, c *cluster) error {
	if err := c.fill(ctx); err != nil {
		return err
	}
	process, port, err := c.serve(ctx, 0, readyForWrites)
	if err != nil {
		return err
	}
	p.process, p.adminURL = process, loopbackURL(port, "postgres")
	if err := p.connect(ctx); err != nil {
		return &Problem{What: "connect to the PostgreSQL just started", Where: p.adminURL, Err: err}
	}
	return nil
}

// loopbackURL connects to a database of a cluster of ours as its superuser.
func loopbackURL(port int, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// flags are the server's settings; of one that is given twice the last counts.
func (c *cluster) flags(port int) []string {
	settings := []string{
		"listen_addresses=127.0.0.1", "unix_socket_directories=" + c.scratch.dir,
		"max_connections=" + strconv.Itoa(MaxConnections), "jit=off", "max_wal_size=512MB",
		"dynamic_shared_memory_type=mmap", // in the data directory, so that it goes with that after a kill
		"timezone=UTC", "log_timezone=UTC", "log_line_prefix=%m [%p] %a ",
	}
	if !c.options.Durable {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	if c.mark != "" {
		settings = append(settings, "cluster_name="+c.mark)
	}
	args := []string{"-D", c.data(), "-p", strconv.Itoa(port)}
	for _, s := range slices.Concat(settings, c.settings) {
		args = append(args, "-c", s)
	}
	return args
}

// PostgresUser is who runs Postgres when we are root: the user postgres, else
// nobody. It is nil when we are not root: then it is ourselves.
func PostgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, &Problem{
		What: "start PostgreSQL", Why: "we are root, Postgres must not be, and there is neither a user postgres nor nobody",
		Fix: "useradd --system postgres, or run as an ordinary user",
	}
}

// freePort gives a loopback port that nobody had a moment ago.
func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, &Problem{What: "find a free port", Where: "127.0.0.1", Err: err, Fix: "look at ip_local_port_range and at what holds ports (ss -s)"}
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func addressTaken(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "address already in use")
}

// freeBytes is the room in the file system; 0 when there is none such.
func freeBytes(path string) uint64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
