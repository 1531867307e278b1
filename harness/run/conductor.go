package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/proc"
	"github.com/overbook/overbook/harness/provision"
	"github.com/overbook/overbook/harness/wire/upstream"
)

// Deadlines of the conductor's own steps. They bound what should take
// milliseconds; none of them is a measure of anything.
const (
	startDeadline   = 30 * time.Second // a server process, until it is ready
	stopDeadline    = 15 * time.Second // a server process that was told to end, until it is gone
	adminDeadline   = 10 * time.Second // one admin call to a part
	collectDeadline = 30 * time.Second
	downDeadline    = 15 * time.Second
	requestTimeout  = 30 * time.Second // a client's call, unless the scenario says otherwise
)

// Config says what a conductor needs.
type Config struct {
	Parts   provision.Options
	Out     string   // root of the run directories
	Command []string // the reference server: its program and first arguments
	Tool    string   // how a person calls us, for the replay line: "overbook"
	Version string
	Mark    string // in the environment of every child (OVERBOOK_RUN), for the leak check

	// Interrupted is cancelled by the first Ctrl-C: the run heals its faults,
	// collects and judges what there is.
	Interrupted context.Context

	// Progress is told what is going on; it may be called from several goroutines.
	Progress func(Progress)
	_        struct{}
}

// Progress is one step of a run, for people who wait.
type Progress struct {
	Scenario string
	Text     string
	_        struct{}
}

// A Conductor runs scenarios on parts that it started (or was given).
type Conductor struct {
	config   Config
	parts    *provision.Environment
	wiremock *upstream.WireMock
	runs     atomic.Int64 // that have begun
	under    atomic.Int64 // runs under way
}

// New brings up the parts that runs with these topologies need. They depend on
// the plans' parameters: one server needs no Redis, three do.
func New(ctx context.Context, c Config, topologies []harness.Topology) (*Conductor, error) {
	if c.Interrupted == nil {
		c.Interrupted = context.Background()
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	c.Parts.Need = provision.Need{Postgres: true}
	for _, t := range topologies {
		c.Parts.Need.WireMock = c.Parts.Need.WireMock || len(t.Doubles) > 0
		c.Parts.Need.Redis = c.Parts.Need.Redis || t.Redis
	}
	c.Parts.MarkEnv = "OVERBOOK_RUN=" + c.Mark
	if c.Parts.Progress == nil {
		c.Parts.Progress = func(text string) { c.Progress(Progress{Text: text}) }
	}
	parts, err := provision.Up(ctx, c.Parts)
	if err != nil {
		return nil, err
	}
	conductor := &Conductor{config: c, parts: parts}
	if parts.WireMock != nil {
		conductor.wiremock = upstream.NewWireMock(parts.WireMock.URL())
		if err := conductor.warm(ctx); err != nil {
			return nil, errors.Join(err, conductor.Close())
		}
	}
	return conductor, nil
}

// warm takes WireMock's cold start out of the first run's latencies.
func (c *Conductor) warm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, adminDeadline)
	defer cancel()
	if err := c.wiremock.Warm(ctx); err != nil {
		return fmt.Errorf("warm up WireMock: %w", err)
	}
	return nil
}

// emptyJournal has WireMock forget the calls of earlier runs: each question about
// the journal goes through all of it, so that a suite's later runs would wait
// longer and longer. Somebody else's WireMock keeps what it has, and so does ours
// while another run is under way.
func (c *Conductor) emptyJournal(ctx context.Context) error {
	if c.config.Parts.WireMockURL != "" || c.under.Load() > 1 {
		return nil
	}
	return c.wiremock.ResetJournal(ctx)
}

// Close stops every part that this conductor started.
func (c *Conductor) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), downDeadline)
	defer cancel()
	return c.parts.Close(ctx)
}

// Describe says which parts the figures were measured on.
func (c *Conductor) Describe(h *harness.Host) {
	if c.parts.Postgres != nil {
		h.Postgres = c.parts.Postgres.Describe()
	}
	if c.parts.WireMock != nil {
		h.WireMock = c.parts.WireMock.Describe()
	}
	if c.parts.Redis != nil {
		h.Redis = c.parts.Redis.Describe()
	}
}

// template gives the name of a database that the server's own migration has
// brought up to date; made once per design and server program.
func (c *Conductor) template(ctx context.Context, design string, command []string, mutant string) (string, error) {
	name := "template_" + design
	if mutant != "" {
		name += "_" + strings.ToLower(strings.NewReplacer("-", "_", "+", "_").Replace(mutant))
	}
	err := c.parts.Postgres.Template(ctx, name, func(ctx context.Context, url string) error {
		return c.migrate(ctx, append(append([]string{}, command...), "migrate", "--design", design), url)
	})
	return name, err
}

// migrate runs the server's own migration to its end. As a process like any
// other of ours, it does not outlive a harness that is killed.
func (c *Conductor) migrate(ctx context.Context, command []string, url string) error {
	doing := "migrate the schema with `" + strings.Join(command, " ") + "`"
	p, err := proc.Start(ctx, proc.Spec{
		Name: "migration", Path: command[0], Args: command[1:], Env: append(baseEnv(c.config.Mark), "DATABASE_URL="+url),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startDeadline, fmt.Errorf("not done within %s", startDeadline))
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", doing, context.Cause(ctx)), p.Kill())
	}
	if p.ExitText() != "exit status 0" {
		return fmt.Errorf("%s: %s; its last output:\n%s", doing, p.ExitText(), joinLines(p.Tail(30)))
	}
	return nil
}

// baseEnv is the environment that every server process starts from.
func baseEnv(mark string) []string {
	env := []string{"OVERBOOK_RUN=" + mark}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "GOMAXPROCS", "GODEBUG"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// newID names a run within this invocation, and all invocations on one
// database cluster.
func (c *Conductor) newID() string {
	return fmt.Sprintf("%s_%d", c.config.Mark, c.runs.Add(1))
}

// Wall is the time for headings.
func wall() time.Time { return clock.Wall() }
