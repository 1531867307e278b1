package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/overbook/overbook/harness/clock"
)

const (
	probePause    = 20 * time.Millisecond
	containerLog  = 256 << 10 // bytes of a container's log that are looked at
	containerTail = 30        // lines of it in an error
)

// A recipe says how to run a part in Docker.
type recipe struct {
	name  string // "PostgreSQL"
	image string
	cmd   []string
	env   map[string]string
	tmpfs map[string]string
	port  string // "5432/tcp": published on a free port; "" on the host's network
}

// A container is a part that runs in Docker.
type container struct {
	session *dockerSession
	name    string
	ctr     *testcontainers.DockerContainer
	done    chan struct{} // closed when it has ended
	cancel  context.CancelFunc
	ended   string // how; readable after done

	removal   sync.Once
	removeErr error
}

// run starts the container and watches it. The image has to be here: nothing
// is pulled during a run.
func (s *dockerSession) run(ctx context.Context, r recipe) (*container, error) {
	if err := haveImage(ctx, s.provider, r.image); err != nil {
		return nil, err
	}
	options := []testcontainers.ContainerCustomizer{
		testcontainers.WithCmd(r.cmd...), testcontainers.WithEnv(r.env), testcontainers.WithTmpfs(r.tmpfs),
		testcontainers.WithLabels(map[string]string{labelSession: s.lock.dir, labelHost: hostName()}),
		testcontainers.WithHostConfigModifier(func(h *dockercontainer.HostConfig) { s.place(h, r) }),
	}
	if r.port != "" {
		options = append(options, testcontainers.WithExposedPorts(r.port))
	}
	ctr, err := testcontainers.Run(ctx, r.image, options...)
	if ctr == nil {
		return nil, &Problem{What: "start " + r.name + " in Docker", Where: r.image, Err: err}
	}
	c := &container{session: s, name: r.name, ctr: ctr, done: make(chan struct{})}
	c.watch() //nolint:contextcheck // until remove, not until ctx ends
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return c, nil
}

// place keeps ports on loopback, where the daemon is on this machine.
func (s *dockerSession) place(h *dockercontainer.HostConfig, r recipe) {
	h.ShmSize = 256 << 20
	switch {
	case r.port == "":
		h.NetworkMode = network.NetworkHost
		return
	case s.local:
		h.PortBindings = network.PortMap{network.MustParsePort(r.port): {{HostIP: netip.MustParseAddr("127.0.0.1")}}}
	}
	h.ExtraHosts = append(h.ExtraHosts, dockerHostName+":host-gateway")
}

func haveImage(ctx context.Context, p *testcontainers.DockerProvider, name string) error {
	ctx, cancel := context.WithTimeout(ctx, dockerTimeout)
	defer cancel()
	if _, err := p.Client().ImageInspect(ctx, name); err != nil {
		return absent("Docker has no image %s (docker pull %s, or scripts/docker-local-images.sh)", name, name)
	}
	return nil
}

// watch waits for the end of the container, in a goroutine that remove waits for.
func (c *container) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() {
		defer close(c.done)
		end := c.session.provider.Client().ContainerWait(ctx, c.ctr.GetContainerID(), client.ContainerWaitOptions{Condition: dockercontainer.WaitConditionNotRunning})
		select {
		case r := <-end.Result:
			c.ended = fmt.Sprintf("exit status %d", r.StatusCode)
		case err := <-end.Error:
			c.ended = fmt.Sprintf("lost sight of it: %v", err)
		}
	}()
}

// await asks until the answer is nil, the container has ended or time is up.
func (c *container) await(ctx context.Context, ask func(context.Context) error) error {
	err := clock.Await(ctx, c.name+" in Docker to be ready", startTimeout, probePause, func(ctx context.Context) (bool, string, error) {
		select {
		case <-c.done:
			return false, "", errors.New(c.ended)
		default:
		}
		if err := ask(ctx); err != nil {
			return false, err.Error(), nil //nolint:nilerr // not ready yet
		}
		return true, "", nil
	})
	if err != nil {
		return c.failed(ctx, err)
	}
	return nil
}

// failed removes the container and says why it was no use.
func (c *container) failed(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*dockerTimeout)
	defer cancel()
	return errors.Join(&Problem{What: "bring up " + c.name + " in Docker", Where: c.ctr.Image, Why: "its last output:\n    " + c.tail(ctx), Err: err}, c.remove(ctx))
}

// tail is the end of the log, ready to print.
func (c *container) tail(ctx context.Context) string {
	text, err := c.log(ctx)
	if err != nil {
		return fmt.Sprintf("(cannot be read: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-containerTail):], "\n    ")
}

func (c *container) log(ctx context.Context) (string, error) {
	r, err := c.ctr.Logs(ctx)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, containerLog))
	return string(text), err
}

// endpoint is host:port of the published port.
func (c *container) endpoint(ctx context.Context, port string) (string, error) {
	host, err := c.ctr.Host(ctx)
	if err != nil {
		return "", c.failed(ctx, err)
	}
	mapped, err := c.ctr.MappedPort(ctx, port)
	if err != nil {
		return "", c.failed(ctx, err)
	}
	if host == "localhost" || c.session.local {
		host = "127.0.0.1" // what is published there; "localhost" may be tried as ::1 first
	}
	return net.JoinHostPort(host, fmt.Sprint(mapped.Num())), nil
}

// died is the error of a container that ended on its own.
func (c *container) died(name string) error {
	select {
	case <-c.done:
		ctx, cancel := context.WithTimeout(context.Background(), dockerTimeout)
		defer cancel()
		return &Problem{What: name + " died during the run", Why: c.ended + "; its last output:\n    " + c.tail(ctx), Fix: "results since then are not to be trusted; look at the container's memory limit and run again"}
	default:
		return nil
	}
}

// remove kills the container, removes it with its volumes, and waits for the
// watching goroutine.
func (c *container) remove(ctx context.Context) error {
	c.removal.Do(func() {
		_, err := c.session.provider.Client().ContainerRemove(ctx, c.ctr.GetContainerID(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		c.cancel()
		<-c.done
		if err != nil {
			c.removeErr = fmt.Errorf("remove the container of %s: %w; by hand: docker rm -f -v %s", c.name, err, c.ctr.GetContainerID())
		}
	})
	return c.removeErr
}
