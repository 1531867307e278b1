package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/proc"
	"github.com/overbook/overbook/harness/rundir"
	"github.com/overbook/overbook/harness/wire/http"
	"github.com/overbook/overbook/harness/wire/postgres"
	"github.com/overbook/overbook/harness/wire/redis"
)

// session is one run in progress.
type session struct {
	c        *Conductor
	id       string
	scenario harness.Scenario
	plan     harness.Plan
	topology harness.Topology
	command  []string // of the server, mutated or not
	rec      *recorder
	dir      *rundir.Dir
	started  time.Time
	phases   map[string]float64

	database  string // URL of the run's own database
	db        *database
	pair      *pair // nil on the shared cluster
	upstreams map[string]*double
	redis     *redis.Wire
	pgwire    *pgwire.Wire // nil when the topology is without
	servers   []*replica
	client    *wirehttp.Client
	clockBy   atomic.Int64 // offset of the servers' clocks, ns
	felled    bool         // a shared part has died, and that was noted
	next      atomic.Int64 // replica for the next unaddressed request
	undo      []func(context.Context) error

	faultsMu       sync.Mutex
	responseFaults []*injected
}

// A Server says which program plays the server under test in a run.
type Server struct {
	Command []string // program and first arguments
	Mutant  string   // the bug planted in it, "" for none
	_       struct{}
}

// Run conducts one scenario. The error is set when no result could be stored
// at all; whatever went wrong inside the run is in the result, as Unknown.
func (c *Conductor) Run(ctx context.Context, s harness.Scenario, plan harness.Plan, server Server) (harness.Result, harness.Record, error) {
	run, err := c.session(s, plan, server)
	if err != nil {
		return harness.Result{}, harness.Record{}, err
	}
	c.under.Add(1)
	defer c.under.Add(-1)
	record := run.conduct(ctx)
	result, err := run.finish(record)
	if err != nil {
		return result, record, errors.Join(err, run.dir.Discard())
	}
	return result, record, nil
}

// session makes a run that has not begun; its directory exists already.
func (c *Conductor) session(s harness.Scenario, plan harness.Plan, server Server) (*session, error) {
	if len(server.Command) == 0 {
		server.Command = c.config.Command
	}
	plan.Mutant = server.Mutant
	run := &session{
		c: c, id: c.newID(), scenario: s, plan: plan, topology: s.Topology(plan.Params), command: server.Command,
		rec: newRecorder(clock.New()), started: wall(), phases: map[string]float64{}, upstreams: map[string]*double{},
	}
	if err := c.has(run.topology); err != nil {
		return nil, fmt.Errorf("run %s: %w", s.Name, err)
	}
	var err error
	run.dir, err = rundir.Create(c.config.Out, s.Name, run.started, plan.Seed)
	return run, err
}

// conduct goes through the phases up to the finished record. Trouble is noted
// and ends the drive, but what can still be observed is.
func (s *session) conduct(ctx context.Context) harness.Record {
	rows := map[string]harness.Rows{}
	var counts []harness.UpstreamCount
	if s.phase(ctx, "up", func() error { return s.upUntilInterrupted(ctx) }) {
		s.phase(ctx, "drive", func() error { return s.drive(ctx) })
		s.heal(ctx)
		s.noteDeaths()
		s.phase(ctx, "settle", func() error { return s.settle(ctx) })
		s.phase(ctx, "collect", func() error {
			rows, counts = s.collect(ctx)
			if _, how := s.c.death(); how != nil { // of a part that only the counts would miss
				return how
			}
			return context.Cause(ctx) // of the second Ctrl-C: not everything was read
		})
		s.noteDeaths() // of servers that ended while they settled
	}
	calls := s.ledger()
	if lost := lostAnswers(calls); lost != "" && !s.felled {
		s.rec.troubled(harness.ReasonEnvironment, "%s", lost)
	}
	units := s.units()
	s.phase(ctx, "down", func() error { return s.down(ctx) })
	record := s.rec.record(s.plan)
	record.Rows, record.Counts, record.Upstream = rows, counts, calls
	record.Postgres = units
	return record
}

// phase runs one phase, notes its length, and turns its error into trouble.
func (s *session) phase(ctx context.Context, name string, do func() error) bool {
	s.c.config.Progress(Progress{Scenario: s.scenario.Name, Text: name})
	from := s.rec.clock.Now()
	err := do()
	s.phases[name] = s.rec.phase(name, from)
	if err == nil {
		return true
	}
	if !s.fallen(ctx, name, err) {
		s.rec.troubled(s.reasonFor(err), "%s: %v", name, err)
	}
	return false
}

func (s *session) reasonFor(err error) harness.Reason {
	var late *clock.DeadlineError
	var leak *leakError
	switch {
	case s.c.config.Interrupted.Err() != nil:
		return harness.ReasonInterrupted
	case errors.As(err, &late):
		return harness.ReasonTimeout
	case errors.As(err, &leak):
		return harness.ReasonLeak
	}
	return harness.ReasonEnvironment
}

// fallen reports whether a shared part has died, which is then the trouble,
// told once; the errors that it led to are only noted in the history.
func (s *session) fallen(ctx context.Context, phase string, err error) bool {
	how := s.c.deathBehind(ctx)
	if how == nil {
		return false
	}
	if !s.felled {
		s.felled = true
		s.rec.troubled(harness.ReasonEnvironment, "%s: %v", phase, how)
	}
	s.rec.event(harness.Event{Kind: harness.EventNote, Subject: phase, Text: err.Error()})
	return true
}

// upUntilInterrupted gives up on the first Ctrl-C: nothing was driven yet.
func (s *session) upUntilInterrupted(ctx context.Context) error {
	ctx, cancel := s.c.untilInterrupted(ctx)
	defer cancel(nil)
	err := s.up(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		return errInterrupted
	}
	return err
}

// heal takes every fault back that Drive left: an interruption may have come
// in the middle of one.
func (s *session) heal(ctx context.Context) {
	for _, d := range s.upstreams {
		d.heal()
	}
	s.healResponses()
	if s.pgwire != nil {
		s.pgwire.Heal()
	}
	s.db.endSessions() //nolint:contextcheck // they end also when ctx has ended
	for _, r := range s.servers {
		if err := r.resume(ctx); err != nil {
			s.rec.troubled(harness.ReasonEnvironment, "heal: %s", err)
		}
	}
}

// up brings the topology of this scenario up.
func (s *session) up(ctx context.Context) error {
	if err := s.upDatabase(ctx); err != nil {
		return err
	}
	s.servers = s.replicas()
	names := make([]string, 0, len(s.servers))
	for _, r := range s.servers {
		names = append(names, r.name)
	}
	if err := s.startPostgresWire(ctx, names); err != nil {
		return err
	}
	if len(s.topology.Doubles) > 0 {
		if err := s.c.emptyJournal(ctx); err != nil {
			return err
		}
	}
	for _, d := range s.topology.Doubles {
		u, err := s.startDouble(ctx, d, seedOf(s.plan.Seed, d.Name), names)
		if err != nil {
			return err
		}
		s.upstreams[d.Name] = u
		s.undo = append(s.undo, u.close)
	}
	if s.topology.Redis {
		var err error
		if s.redis, err = redis.Start(ctx, s.c.parts.Redis.URL()); err != nil {
			return fmt.Errorf("stand on the wire to Redis: %w", err)
		}
		s.undo = append(s.undo, func(context.Context) error { return s.redis.Close() })
	}
	s.client = wirehttp.New(wirehttp.Config{Clock: s.rec.clock, Timeout: requestTimeout, OpID: s.rec.opID, RunID: s.id})
	s.undo = append(s.undo, s.stopServers)
	if err := s.startServers(ctx); err != nil {
		return err
	}
	return s.assumeEmpty(ctx)
}

// assumeEmpty is the assumption that all counting rests on.
func (s *session) assumeEmpty(ctx context.Context) error {
	for _, t := range s.scenario.Tables {
		rows, err := s.db.Query(ctx, "select count(*) as n from "+t)
		if err != nil {
			return fmt.Errorf("look whether %s is empty: %w", t, err)
		}
		if n := rows[0]["n"]; n != float64(0) {
			s.rec.troubled(harness.ReasonAssumption, "table %s holds %v rows at the start, expected none", t, n)
		}
	}
	return nil
}

// drive runs the scenario while the sessions are watched. The parts' deaths
// and the first Ctrl-C end it.
func (s *session) drive(ctx context.Context) error {
	ctx, cancel := s.c.untilInterrupted(ctx)
	defer cancel(nil)
	watchCtx, endWatch := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.watchSessions(watchCtx) })
	wg.Go(func() { s.c.watchParts(watchCtx, cancel) })
	err := s.scenario.Drive(ctx, &env{s})
	endWatch()
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

var errInterrupted = errors.New("interrupted")

// noteDeaths notes, once each, servers that ended although nobody ended them.
func (s *session) noteDeaths() (some bool) {
	for _, r := range s.servers {
		if text, dead := r.died(); dead {
			s.rec.troubled(harness.ReasonEnvironment, "%s", text)
			some = true
		}
	}
	if s.pair != nil && !s.felled {
		if err := s.pair.died(); err != nil {
			s.rec.troubled(harness.ReasonEnvironment, "%v", err)
			s.felled, some = true, true
		}
	}
	return some
}

// settle waits for the scenario's condition. A death ends it: what waits for
// the dead would never come, and the run is no pass anyway.
func (s *session) settle(ctx context.Context) error {
	w := s.scenario.Settle
	if w.SQL == "" {
		return nil
	}
	return clock.Await(ctx, w.Doc, w.Deadline, awaitPause, func(ctx context.Context) (bool, string, error) {
		if s.noteDeaths() {
			return true, "", nil
		}
		if _, err := s.c.death(); err != nil {
			return false, "", err
		}
		if s.c.config.Interrupted.Err() != nil && !s.anyRunning() {
			return false, "", errors.New("not waited for: interrupted while no server was running, so nobody is left to come to rest")
		}
		rows, err := s.db.Query(ctx, w.SQL)
		if err != nil {
			return false, "", err
		}
		if len(rows) == 0 {
			return true, "", nil
		}
		return false, fmt.Sprintf("%d left, such as %s", len(rows), jsonText(rows[0])), nil
	})
}

// anyRunning says whether a server process of the run is up.
func (s *session) anyRunning() bool {
	return slices.ContainsFunc(s.servers, func(r *replica) bool { return r.URL() != "" })
}

// jsonText shows rows to a person.
func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// stopServers kills every server of the run and waits for it.
func (s *session) stopServers(ctx context.Context) error {
	var errs []error
	for _, r := range s.servers {
		errs = append(errs, r.Kill(ctx))
	}
	return errors.Join(errs...)
}

// down takes everything of this run away, last first, and looks for leaks.
func (s *session) down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downDeadline)
	defer cancel()
	var errs []error
	if s.client != nil {
		errs = append(errs, s.stopServers(ctx), s.leaks(ctx))
	}
	for _, undo := range slices.Backward(s.undo) {
		errs = append(errs, undo(ctx))
	}
	return errors.Join(errs...)
}

// leakError says that something of the run is still there after its servers were stopped.
type leakError struct{ what string }

func (e *leakError) Error() string { return "left behind: " + e.what }

// leaks looks for server processes and database sessions that outlive their servers.
func (s *session) leaks(ctx context.Context) error {
	left, err := proc.Living(s.serverMark())
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // where it can't be asked, the sessions below tell
		return err
	}
	if len(left) > 0 {
		return &leakError{left[0].String()}
	}
	err = clock.Await(ctx, "sessions of stopped servers end", 5*time.Second, awaitPause, func(ctx context.Context) (bool, string, error) {
		rows, err := s.db.Query(ctx, `select pid, application_name, state, query from pg_stat_activity
where datname = current_database() and application_name <> '`+observer+`' and backend_type = 'client backend'`)
		if err != nil {
			return false, "", err
		}
		return len(rows) == 0, jsonText(rows), nil
	})
	if late, ok := errors.AsType[*clock.DeadlineError](err); ok {
		return &leakError{"database sessions of stopped servers: " + late.Last}
	}
	return err
}

// finish judges the record and stores it.
func (s *session) finish(record harness.Record) (harness.Result, error) {
	from := s.rec.clock.Now()
	verdicts := check.Judge(s.scenario, record)
	s.phases["check"] = float64(s.rec.clock.Now()-from) / float64(time.Millisecond)
	result := Summarise(s.scenario, record, verdicts)
	result.Started, result.PhasesMS = s.started, s.phases
	result.DurationMS = float64(s.rec.clock.Now()) / float64(time.Millisecond)
	result.RunDir = s.dir.Final()
	result.Replay = replayLine(s.c.config.Tool, s.scenario, s.plan)
	extra, err := extraFiles(s.scenario, record, result)
	if err != nil {
		return result, err
	}
	return result, s.dir.Commit(record, result, extra)
}
