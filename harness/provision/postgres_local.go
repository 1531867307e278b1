package provision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
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

// localPostgres starts a cluster from local binaries.
func localPostgres(ctx context.Context, o Options) (*Postgres, error) {
	bin, err := PostgresBinaries()
	if err != nil {
		return nil, err
	}
	line, err := VersionOf(ctx, filepath.Join(bin, "postgres"), "--version")
	if err != nil {
		return nil, &Problem{What: "start PostgreSQL", Where: bin, Err: err, Fix: installFix("postgres")}
	}
	number, err := versionNumber(line)
	if err != nil {
		return nil, &Problem{What: "start PostgreSQL", Where: bin, Err: err}
	}
	cred, err := PostgresUser()
	if err != nil {
		return nil, err
	}
	base := os.TempDir()
	if !o.Durable && freeBytes(memoryDir) > memoryMinFree {
		base = memoryDir
	}
	dir, err := newScratch(base)
	if err != nil {
		return nil, err
	}
	p := &Postgres{
		running: running{name: "PostgreSQL", describe: fmt.Sprintf("PostgreSQL %s, local %s, %s", number, bin, durability(o.Durable))},
		scratch: dir,
	}
	if err := p.boot(ctx, o, bin, number, cred); err != nil {
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
func (p *Postgres) boot(ctx context.Context, o Options, bin, number string, cred *syscall.Credential) error {
	data := filepath.Join(p.scratch.dir, "data")
	seed := seed{bin: bin, version: number, cache: o.CacheDir, cred: cred, env: childEnv(o), progress: o.Progress}
	if err := seed.unpack(ctx, data); err != nil {
		return err
	}
	if cred != nil {
		if err := os.Chown(p.scratch.dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return &Problem{What: "hand the data directory to the user that runs Postgres", Where: p.scratch.dir, Err: err}
		}
	}
	for try := 1; ; try++ {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		err = p.serve(ctx, o, bin, data, port, cred)
		if err == nil || !addressTaken(err) || try == portTries {
			return err
		}
		o.Progress(fmt.Sprintf("port %d was taken meanwhile, PostgreSQL gets another one", port))
	}
}

func (p *Postgres) serve(ctx context.Context, o Options, bin, data string, port int, cred *syscall.Credential) (err error) {
	p.adminURL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	p.process, err = proc.Start(ctx, proc.Spec{
		Name: "PostgreSQL", Path: filepath.Join(bin, "postgres"), Args: postgresFlags(o, data, p.scratch.dir, port),
		Env: childEnv(o), Dir: "/", Log: filepath.Join(o.WorkDir, "postgres.log"), Credential: cred,
		Ready:        regexp.MustCompile(`database system is ready to accept connections`),
		ReadyTimeout: startTimeout,
		StopSignal:   syscall.SIGQUIT, DeathSignal: syscall.SIGQUIT, StopGrace: stopGrace,
	})
	if err != nil {
		return &Problem{What: "bring up PostgreSQL", Where: bin, Err: err}
	}
	if err := p.connect(ctx); err != nil {
		return errors.Join(&Problem{What: "connect to the PostgreSQL just started", Where: p.adminURL, Err: err}, p.process.Kill())
	}
	return nil
}

// postgresFlags are the server's settings. The mark is the cluster's name,
// which Postgres puts into the title of each of its processes.
func postgresFlags(o Options, data, sockets string, port int) []string {
	settings := []string{
		"listen_addresses=127.0.0.1", "unix_socket_directories=" + sockets,
		"max_connections=" + strconv.Itoa(MaxConnections), "jit=off", "max_wal_size=512MB",
		"dynamic_shared_memory_type=mmap", // in the data directory, so that it goes with that after a kill
		"timezone=UTC", "log_timezone=UTC", "log_line_prefix=%m [%p] %a ",
	}
	if !o.Durable {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	if mark := o.MarkEnv; mark != "" && len(mark) < 64 {
		settings = append(settings, "cluster_name="+mark)
	}
	args := []string{"-D", data, "-p", strconv.Itoa(port)}
	for _, s := range settings {
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
