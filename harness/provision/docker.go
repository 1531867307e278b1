package provision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	dockerTimeout = 10 * time.Second // one question to the daemon

	labelSession = "com.overbook.session" // the lock directory of the run that owns the container
	labelHost    = "com.overbook.host"    // the machine that the directory is on
)

// A dockerSession is the containers of one Environment and what makes them go
// away with it: see watchdog.
type dockerSession struct {
	progress func(string)

	once sync.Once
	err  error

	provider *testcontainers.DockerProvider
	local    bool // the daemon runs on this machine and shares our loopback (Linux)
	version  string
	lock     *scratch
	watch    *watchdog
}

// open connects once; parts that start at the same time share the outcome.
func (s *dockerSession) open(ctx context.Context) error {
	s.once.Do(func() { s.err = s.connect(ctx) })
	return s.err
}

func (s *dockerSession) connect(ctx context.Context) (err error) {
	if s.provider, s.version, err = dockerProvider(ctx); err != nil {
		return err
	}
	s.local = daemonIsHere(s.provider.Client().DaemonHost())
	if err := s.sweep(ctx); err != nil {
		return &Problem{What: "remove containers left over from runs that were killed", Err: err, Fix: "docker rm -f -v $(docker ps -aq --filter label=" + labelSession + ")"}
	}
	if s.lock, err = newScratch(os.TempDir()); err != nil {
		return err
	}
	if s.watch, err = startWatchdog(s.lock.dir, s.provider.Client().DaemonHost()); err != nil {
		s.progress(fmt.Sprintf("%v; should overbook be killed, its containers stay until the next start", err))
	}
	return nil
}

// quiet sets what testcontainers reads from the environment, once, before it
// reads it. Its reaper is off: it needs an image of its own, and a reaper that
// could not be reached goes unnoticed; our watchdog needs a shell and the
// docker command, and answers for itself.
var quiet = sync.OnceFunc(func() {
	log.SetDefault(log.NewNoopLogger())
	if _, set := os.LookupEnv("TESTCONTAINERS_RYUK_DISABLED"); !set {
		_ = os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	}
	// In a container with a daemon of its own the published ports are on our
	// loopback, but testcontainers would look for them at the gateway.
	if _, set := os.LookupEnv("TESTCONTAINERS_HOST_OVERRIDE"); !set && ownBridge() {
		_ = os.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
	}
})

// ownBridge reports whether Docker's bridge is in our own network.
func ownBridge() bool {
	_, err := net.InterfaceByName("docker0")
	return err == nil
}

// daemonIsHere reports whether containers can share our loopback.
func daemonIsHere(host string) bool {
	return strings.HasPrefix(host, "unix://") && ownBridge()
}

// dockerProvider connects to the daemon; absent when there is none.
func dockerProvider(ctx context.Context) (p *testcontainers.DockerProvider, version string, err error) {
	quiet()
	defer func() {
		if r := recover(); r != nil { // testcontainers panics on some broken configurations
			err = absent("Docker is not usable: %v", r)
		}
	}()
	p, err = testcontainers.NewDockerProvider()
	if err != nil {
		return nil, "", absent("no Docker daemon answers (%s)", firstLine(err))
	}
	ctx, cancel := context.WithTimeout(ctx, dockerTimeout)
	defer cancel()
	v, err := p.Client().ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return nil, "", absent("no Docker daemon answers (%s)", firstLine(err))
	}
	return p, v.Version, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// DockerVersion says which Docker answers; the error says why none does.
func DockerVersion(ctx context.Context) (string, error) {
	p, version, err := dockerProvider(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Docker %s at %s", version, p.Client().DaemonHost()), p.Close()
}

// close lets the watchdog go, when the containers are gone. Closing again does
// nothing.
func (s *dockerSession) close() error {
	if s == nil || s.lock == nil {
		return nil
	}
	err := errors.Join(s.watch.release(), s.lock.remove(), s.provider.Close())
	s.lock = nil
	return err
}

// sweep removes the containers of runs on this machine that are dead.
func (s *dockerSession) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*dockerTimeout)
	defer cancel()
	api := s.provider.Client()
	found, err := api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labelSession)})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range found.Items {
		if c.Labels[labelHost] != hostName() || !scratchDead(c.Labels[labelSession]) {
			continue
		}
		_, err := api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
