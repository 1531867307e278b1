package provision

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// dockerHostName is how a container on the bridge calls this machine.
const dockerHostName = "host.docker.internal"

// The images are the published ones; OVERBOOK_PG_IMAGE, OVERBOOK_WIREMOCK_IMAGE and
// OVERBOOK_REDIS_IMAGE name others.
func postgresImage() string { return envOr("OVERBOOK_PG_IMAGE", "postgres:17") }

func wiremockImage() string {
	return envOr("OVERBOOK_WIREMOCK_IMAGE", "wiremock/wiremock:"+WireMockVersion)
}
func redisImage() string { return envOr("OVERBOOK_REDIS_IMAGE", "redis:7") }

// DockerHas says which image Docker would run a part ("postgres", "wiremock",
// "redis") from; the error says why it could not.
func DockerHas(ctx context.Context, part string) (detail string, err error) {
	p, version, err := dockerProvider(ctx)
	if err != nil {
		return "", err
	}
	defer p.Close()
	name := map[string]string{"postgres": postgresImage(), "wiremock": wiremockImage(), "redis": redisImage()}[part]
	if err := haveImage(ctx, p, name); err != nil {
		return "", err
	}
	return fmt.Sprintf("Docker %s has the image %s", version, name), nil
}

func dockerPostgres(ctx context.Context, o Options) (*Postgres, error) {
	if err := o.docker.open(ctx); err != nil {
		return nil, err
	}
	r := recipe{
		name: "PostgreSQL", image: postgresImage(), port: "5432/tcp",
		env: map[string]string{"POSTGRES_HOST_AUTH_METHOD": "trust", "POSTGRES_INITDB_ARGS": "-N --locale=C -E UTF8", "PGDATA": "/var/lib/postgresql/data"},
		cmd: []string{"postgres", "-c", "max_connections=" + strconv.Itoa(MaxConnections), "-c", "jit=off", "-c", "max_wal_size=512MB", "-c", "timezone=UTC"},
	}
	if !o.Durable {
		r.cmd = append(r.cmd, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
		r.tmpfs = map[string]string{"/var/lib/postgresql/data": "rw,size=1g"}
	}
	c, err := o.docker.run(ctx, r)
	if err != nil {
		return nil, err
	}
	address, err := c.endpoint(ctx, r.port)
	if err != nil {
		return nil, err
	}
	p := &Postgres{running: running{name: r.name, container: c}, adminURL: "postgres://postgres@" + address + "/postgres?sslmode=disable"}
	// The image's first server, for setting up, listens on a socket alone.
	if err := c.await(ctx, func(ctx context.Context) error { return answers(ctx, p.adminURL) }); err != nil {
		return nil, err
	}
	if err := p.connect(ctx); err != nil {
		return nil, c.failed(ctx, err)
	}
	p.describe = fmt.Sprintf("PostgreSQL %d.%d, Docker %s image %s, %s", p.version/10000, p.version%10000, o.docker.version, r.image, durability(o.Durable))
	return p, nil
}

func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, dockerTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// dockerWireMock runs on the host's network where the daemon is on this
// machine: it has to reach doubles that listen on our loopback.
func dockerWireMock(ctx context.Context, o Options) (*WireMock, error) {
	if err := o.docker.open(ctx); err != nil {
		return nil, err
	}
	r := recipe{
		name: "WireMock", image: wiremockImage(),
		env: map[string]string{"JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms64m -Xmx1g"},
		cmd: append([]string{"--port", "0", "--bind-address", "127.0.0.1"}, wiremockServing...),
	}
	if !o.docker.local {
		r.cmd, r.port = append([]string{"--port", "8080"}, wiremockServing...), "8080/tcp"
	}
	c, err := o.docker.run(ctx, r)
	if err != nil {
		return nil, err
	}
	w := &WireMock{running: running{name: r.name, container: c}}
	if o.docker.local {
		err = c.await(ctx, func(ctx context.Context) error { return w.readPort(ctx) })
	} else {
		address, addressErr := c.endpoint(ctx, r.port)
		w.url, w.reach, err = "http://"+address, dockerHostName, addressErr
	}
	if err != nil {
		return nil, err
	}
	version := ""
	if err := c.await(ctx, func(ctx context.Context) (err error) { version, err = w.health(ctx); return err }); err != nil {
		return nil, err
	}
	w.describe = fmt.Sprintf("WireMock %s, Docker %s image %s", version, o.docker.version, r.image)
	return w, nil
}

// readPort looks for the port in what the container has printed so far.
func (w *WireMock) readPort(ctx context.Context) error {
	text, err := w.container.log(ctx)
	if err != nil {
		return err
	}
	m := portLine.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("it has not printed its port yet")
	}
	w.url = "http://127.0.0.1:" + m[1]
	return nil
}

// Reach turns the URL of a server on this machine's loopback into the one by
// which WireMock reaches it, for proxying and webhooks: another host name
// when WireMock runs in a container with a network of its own.
func (w *WireMock) Reach(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || w.reach == "" || u.Hostname() != "127.0.0.1" && u.Hostname() != "localhost" {
		return rawURL
	}
	u.Host = w.reach + ":" + u.Port()
	return u.String()
}

func dockerRedis(ctx context.Context, o Options) (*Redis, error) {
	if err := o.docker.open(ctx); err != nil {
		return nil, err
	}
	r := recipe{name: "Redis", image: redisImage(), port: "6379/tcp", cmd: []string{"redis-server", "--save", "", "--appendonly", "no"}}
	c, err := o.docker.run(ctx, r)
	if err != nil {
		return nil, err
	}
	address, err := c.endpoint(ctx, r.port)
	if err != nil {
		return nil, err
	}
	server, version := &Redis{running: running{name: r.name, container: c}, url: "redis://" + address + "/0"}, ""
	if err := c.await(ctx, func(ctx context.Context) (err error) { version, err = redisVersion(ctx, server.url); return err }); err != nil {
		return nil, err
	}
	server.describe = fmt.Sprintf("Redis %s, Docker %s image %s", version, o.docker.version, r.image)
	return server, nil
}
