package provision

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/overbook/overbook/harness/proc"
)

// Redis is a server that is up, ours or given by URL.
type Redis struct {
	running
	url string
}

func upRedis(ctx context.Context, o Options) (*Redis, error) {
	if o.RedisURL != "" {
		return givenRedis(ctx, o)
	}
	return choose(o,
		func() (*Redis, error) { return localRedis(ctx, o) },
		func() (*Redis, error) { return dockerRedis(ctx, o) },
		func(why string) error {
			return &Problem{What: "start Redis", Why: why, Fix: installFix("redis") + ", or --redis URL"}
		})
}

func givenRedis(ctx context.Context, o Options) (*Redis, error) {
	options, err := redis.ParseURL(o.RedisURL)
	if err != nil {
		return nil, &Problem{What: "read the Redis URL", Why: redact(err.Error(), o.RedisURL), Fix: "give it as redis://host:6379/0"}
	}
	version, err := redisVersion(ctx, o.RedisURL)
	if err != nil {
		return nil, &Problem{What: "connect to the Redis that was named", Where: options.Addr, Err: err, Fix: "check that it runs, the address and the password; or leave the URL out to have one started"}
	}
	return &Redis{running: running{name: "Redis", describe: fmt.Sprintf("Redis %s, given at %s", version, options.Addr)}, url: o.RedisURL}, nil
}

var redisVersionField = regexp.MustCompile(`redis_version:(\S+)`)

// silent keeps the client library from writing to standard error: errors are
// returned, and who gets them says more.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

var quietRedis = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

// redisVersion connects, asks and hangs up.
func redisVersion(ctx context.Context, url string) (string, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return "", err
	}
	options.MaxRetries, options.DialerRetries, options.DialTimeout, options.PoolSize = -1, 1, 5*time.Second, 1
	quietRedis()
	client := redis.NewClient(options)
	defer client.Close()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	if m := redisVersionField.FindStringSubmatch(info); m != nil {
		return m[1], nil
	}
	return "of unknown version", nil
}

// localRedis starts a server that keeps nothing on disk.
func localRedis(ctx context.Context, o Options) (*Redis, error) {
	bin, err := RedisBinary()
	if err != nil {
		return nil, err
	}
	line, err := VersionOf(ctx, bin, "--version")
	if err != nil {
		return nil, &Problem{What: "start Redis", Where: bin, Err: err, Fix: installFix("redis")}
	}
	number, err := versionNumber(line)
	if err != nil {
		return nil, &Problem{What: "start Redis", Where: bin, Err: err}
	}
	for try := 1; ; try++ {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		process, err := proc.Start(ctx, proc.Spec{
			Name: "Redis", Path: bin, Args: redisFlags(o, number, port), Env: childEnv(o), Dir: o.WorkDir,
			Log: filepath.Join(o.WorkDir, "redis.log"), Ready: regexp.MustCompile(`[Rr]eady to accept connections`),
			ReadyTimeout: startTimeout, StopGrace: stopGrace,
		})
		if err == nil {
			r := &Redis{
				running: running{name: "Redis", describe: fmt.Sprintf("Redis %s, local %s", number, bin), process: process},
				url:     fmt.Sprintf("redis://127.0.0.1:%d/0", port),
			}
			if _, err := redisVersion(ctx, r.url); err != nil {
				return nil, errors.Join(&Problem{What: "connect to the Redis just started", Where: r.url, Err: err}, process.Kill())
			}
			return r, nil
		}
		if !addressTaken(err) || try == portTries {
			return nil, &Problem{What: "bring up Redis", Where: bin, Err: err}
		}
		o.Progress(fmt.Sprintf("port %d was taken meanwhile, Redis gets another one", port))
	}
}

// redisFlags: Redis overwrites its environment with its title, so the mark
// goes into the title, which versions from 6.2 on allow.
func redisFlags(o Options, version string, port int) []string {
	args := []string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", o.WorkDir, "--daemonize", "no", "--tcp-backlog", "4096",
	}
	if o.MarkEnv != "" && !olderThan(version, 6, 2) {
		args = append(args, "--proc-title-template", "{title} {listen-addr} "+o.MarkEnv)
	}
	return args
}

func olderThan(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(first)
	b, _ := strconv.Atoi(second)
	return a < major || a == major && b < minor
}

// URL is redis://host:port/0.
func (r *Redis) URL() string { return r.url }

func (r *Redis) close(ctx context.Context) error {
	r.closing.Store(true)
	switch {
	case r.process != nil:
		return r.process.Kill()
	case r.container != nil:
		return r.container.remove(ctx)
	}
	return nil
}
