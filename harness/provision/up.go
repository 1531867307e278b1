package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Need says which parts have to be up.
type Need struct {
	Postgres, WireMock, Redis bool
}

// Options say what is needed and where it may come from.
type Options struct {
	// Given URLs are used as they are; the part is then not ours to stop.
	PostgresURL, WireMockURL, RedisURL string

	Need     Need
	CacheDir string // jar, archive, database seed; "" is $OVERBOOK_CACHE, else the user's cache directory + "/overbook"
	WorkDir  string // logs and files of this run; "" is a temporary directory that Close removes

	// Prefer is "" (local binaries, then Docker), "local" (nothing else) or
	// "docker" (nothing else).
	Prefer string

	// Durable makes Postgres wait for the disk at COMMIT, as in production.
	// Without it windows of races are narrower and commits faster.
	Durable bool

	MarkEnv  string       // "OVERBOOK_RUN=abc": on every child, for proc.Living
	Progress func(string) // told what is being waited for; may be nil

	docker *dockerSession // shared by the parts of one Environment
}

// An Environment is the parts that are up. A part that was not needed is nil.
type Environment struct {
	Postgres *Postgres
	WireMock *WireMock
	Redis    *Redis

	owned  *scratch       // the work directory when it is ours
	docker *dockerSession // what the parts in Docker share
}

const (
	startTimeout = 60 * time.Second // any part, on a machine with a load of 20
	stopGrace    = 5 * time.Second
)

// Up starts what is needed, all parts at once. Errors are joined, and after an
// error nothing is left running.
func Up(ctx context.Context, o Options) (*Environment, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	o.docker = &dockerSession{progress: o.Progress}
	env := &Environment{docker: o.docker}
	if o.WorkDir == "" {
		if env.owned, err = newScratch(os.TempDir()); err != nil {
			return nil, err
		}
		o.WorkDir = env.owned.dir
	} else if err := os.MkdirAll(o.WorkDir, 0o755); err != nil {
		return nil, &Problem{What: "make the work directory", Where: o.WorkDir, Err: err, Fix: "name another one, or make it writable"}
	}
	if err := env.start(ctx, o); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*stopGrace)
		defer cancel()
		return nil, errors.Join(err, env.Close(closing))
	}
	return env, nil
}

// start brings up the parts in parallel; the first failure calls off the rest.
func (e *Environment) start(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	var errs [3]error
	run := func(i int, needed bool, up func() error) {
		if !needed {
			return
		}
		parts.Go(func() {
			if errs[i] = up(); errs[i] != nil {
				cancel(errCalledOff)
			}
		})
	}
	run(0, o.Need.Postgres, func() (err error) { e.Postgres, err = upPostgres(ctx, o); return err })
	run(1, o.Need.WireMock, func() (err error) { e.WireMock, err = upWireMock(ctx, o); return err })
	run(2, o.Need.Redis, func() (err error) { e.Redis, err = upRedis(ctx, o); return err })
	parts.Wait()
	return errors.Join(withoutCalledOff(errs[:])...)
}

var errCalledOff = errors.New("called off because another part did not come up")

// withoutCalledOff leaves out the errors that only follow from another one.
func withoutCalledOff(errs []error) []error {
	var causes []error
	for _, err := range errs {
		if err != nil && !errors.Is(err, errCalledOff) && !errors.Is(err, context.Canceled) {
			causes = append(causes, err)
		}
	}
	if len(causes) == 0 {
		return errs
	}
	return causes
}

// Close stops what is ours, all parts at once, and removes our files. It
// returns when everything is gone. Closing again does nothing.
func (e *Environment) Close(ctx context.Context) error {
	var parts sync.WaitGroup
	var errs [5]error
	if e.Postgres != nil {
		parts.Go(func() { errs[0] = e.Postgres.close(ctx) })
	}
	if e.WireMock != nil {
		parts.Go(func() { errs[1] = e.WireMock.close(ctx) })
	}
	if e.Redis != nil {
		parts.Go(func() { errs[2] = e.Redis.close(ctx) })
	}
	parts.Wait()
	errs[3] = e.docker.close()
	if e.owned != nil {
		errs[4] = e.owned.remove()
	}
	return errors.Join(errs[:]...)
}

func (o Options) withDefaults() (Options, error) {
	switch o.Prefer {
	case "", "local", "docker":
	default:
		return o, &Problem{What: "choose where parts come from", Where: o.Prefer, Why: `there is "local" and "docker"`, Fix: "leave it empty for local binaries first, then Docker"}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.CacheDir == "" {
		dir, err := DefaultCacheDir()
		if err != nil {
			return o, err
		}
		o.CacheDir = dir
	}
	// A relative path would mean something else in a child's own directory.
	var err1, err2 error
	o.CacheDir, err1 = filepath.Abs(o.CacheDir)
	if o.WorkDir != "" {
		o.WorkDir, err2 = filepath.Abs(o.WorkDir)
	}
	return o, errors.Join(err1, err2)
}

// DefaultCacheDir is $OVERBOOK_CACHE, else "overbook" in the user's cache directory.
func DefaultCacheDir() (string, error) {
	if dir := os.Getenv("OVERBOOK_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", &Problem{What: "find the cache directory", Err: err, Fix: "set OVERBOOK_CACHE to a directory you can write to"}
	}
	return filepath.Join(dir, "overbook"), nil
}

// childEnv is the environment of a part: what a program needs to run at all,
// the run's mark, and nothing of what the caller happens to have set (PG*,
// JAVA_TOOL_OPTIONS and the like change what is measured).
func childEnv(o Options) []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "JAVA_HOME"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if o.MarkEnv != "" {
		env = append(env, o.MarkEnv)
	}
	return env
}

// choose runs the ways of getting a part in the order of preference. A way
// that is not available says so with an error that wraps errAbsent.
func choose[T any](o Options, local, docker func() (T, error), missing func(why string) error) (T, error) {
	var reasons []string
	for _, way := range []struct {
		name string
		up   func() (T, error)
	}{{"local", local}, {"docker", docker}} {
		if o.Prefer != "" && o.Prefer != way.name {
			continue
		}
		part, err := way.up()
		if err == nil {
			return part, nil
		}
		if !IsAbsent(err) {
			return part, err
		}
		reasons = append(reasons, err.Error())
	}
	var none T
	return none, missing(strings.Join(reasons, "; "))
}

// An absentError says that a way of getting a part does not exist here, so
// that the next one may be tried.
type absentError struct{ why string }

func (e *absentError) Error() string { return e.why }

// IsAbsent reports whether the error says that a part is not here at all, so
// that it is looked for elsewhere. A part that is here and broken is not absent.
func IsAbsent(err error) bool {
	var absent *absentError
	return errors.As(err, &absent)
}

func absent(format string, args ...any) error { return &absentError{why: fmt.Sprintf(format, args...)} }

// envOr is the environment variable, or the standard when it is empty.
func envOr(name, standard string) string {
	return cmp.Or(os.Getenv(name), standard)
}
