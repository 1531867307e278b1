package run

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// awaitPause is the pause between two questions of a condition. It bounds how
// late a condition is noticed, nothing else depends on it.
const awaitPause = 5 * time.Millisecond

// env is what a scenario's Drive sees of its session. It implements [harness.Env].
type env struct{ s *session }

var _ harness.Env = (*env)(nil)

func (e *env) Plan() harness.Plan             { return e.s.plan }
func (e *env) Params() harness.Params         { return e.s.plan.Params }
func (e *env) Now() time.Duration             { return e.s.rec.clock.Now() }
func (e *env) Database() harness.Database     { return e.s.db }
func (e *env) Measure(name string, v float64) { e.s.rec.measure(name, v) }
func (e *env) Redis() harness.Cuttable        { return e.s.cuttableRedis() }

// Record notes the event. Crash points are progress, too: there are many, and
// each takes a while.
func (e *env) Record(ev harness.Event) {
	e.s.rec.event(ev)
	if ev.Kind == harness.EventPoint {
		e.s.c.config.Progress(Progress{Scenario: e.s.scenario.Name, Text: fmt.Sprintf("drive, point %s of %s", ev.Attrs["number"], ev.Attrs["of"])})
	}
}

func (e *env) Witness(kind string, want, got float64, text string) {
	e.s.rec.witnessed(harness.Witness{Kind: kind, Want: want, Got: got, Text: text})
}

func (e *env) Servers() []harness.Server {
	list := make([]harness.Server, 0, len(e.s.servers))
	for _, r := range e.s.servers {
		list = append(list, r)
	}
	return list
}

// Upstream gives the wire by the double's name; asking for one that the
// topology does not have is a mistake in the scenario and panics.
func (e *env) Upstream(name string) harness.Upstream {
	u, ok := e.s.upstreams[name]
	if !ok {
		panic(fmt.Sprintf("scenario %s asks for the upstream %q, which its topology does not have", e.s.scenario.Name, name))
	}
	return u
}

func (e *env) Await(ctx context.Context, what string, deadline time.Duration, holds func(context.Context) (bool, string, error)) error {
	return clock.Await(ctx, what, deadline, awaitPause, holds)
}

// target finds the replica that a request goes to and its URL now.
func (s *session) target(r *harness.Request) string {
	if r.Server == "" {
		r.Server = s.servers[int(s.next.Add(1)-1)%len(s.servers)].name
	}
	for _, candidate := range s.servers {
		if candidate.name == r.Server {
			return candidate.URL()
		}
	}
	panic(fmt.Sprintf("scenario %s addresses the server %q, which its topology does not have", s.scenario.Name, r.Server))
}

func (e *env) Do(ctx context.Context, r harness.Request) harness.Operation {
	op := e.s.do(ctx, r)
	e.s.rec.operations(op)
	return op
}

func (s *session) do(ctx context.Context, r harness.Request) harness.Operation {
	url := s.target(&r)
	if url == "" {
		return harness.Operation{
			ID: s.rec.opID(), Process: r.Process, Caller: r.Caller, Kind: r.Kind, Server: r.Server, Method: r.Method, Path: r.Path,
			Intended: s.rec.clock.Now(), Outcome: harness.Fail, Err: r.Server + " is not running; nothing was sent",
		}
	}
	return s.client.DoUntil(ctx, url, r, s.responseFault(r))
}

func (e *env) DoAll(ctx context.Context, requests []harness.Request, limit int) []harness.Operation {
	ops := make([]harness.Operation, len(requests))
	var g errgroup.Group
	g.SetLimit(limit)
	for i, r := range requests {
		g.Go(func() error {
			ops[i] = e.s.do(ctx, r)
			return nil
		})
	}
	_ = g.Wait() // the functions above return no error
	e.s.rec.operations(ops...)
	return ops
}

func (e *env) Burst(ctx context.Context, b harness.Burst) (harness.BurstReport, []harness.Operation, error) {
	targets := make([]string, len(b.Requests))
	for i := range b.Requests {
		if targets[i] = e.s.target(&b.Requests[i]); targets[i] == "" {
			return harness.BurstReport{}, nil, fmt.Errorf("burst %s: %s is not running", b.Name, b.Requests[i].Server)
		}
	}
	report, ops, err := e.s.client.Burst(ctx, targets, b)
	if report.Name != "" {
		e.s.rec.burst(report)
	}
	if report.Released != 0 {
		e.Record(harness.Event{At: report.Released, Kind: harness.EventBurst, Subject: b.Name, Text: fmt.Sprintf("%d requests released", report.Sent)})
	}
	e.s.rec.operations(ops...)
	if err != nil {
		return report, ops, fmt.Errorf("burst %s: %w", b.Name, err)
	}
	return report, ops, nil
}

// Advance moves the clock of every server that can hear it; one that is
// stopped or down gets the offset when it starts again.
func (e *env) Advance(ctx context.Context, by time.Duration) error {
	e.s.clockBy.Add(int64(by))
	e.Record(harness.Event{Kind: harness.EventFault, Subject: "clock", Text: fmt.Sprintf("servers' time moved by %s", by)})
	return e.tellTime(ctx, time.Time{})
}

func (e *env) StopClock(ctx context.Context, at time.Time) (func(context.Context) error, error) {
	// From now on the offset is what makes it that time at this moment.
	behind := at.Sub(clock.Wall()) - e.s.offset()
	if behind < 0 {
		return nil, fmt.Errorf("stop the servers' clock at %s: it shows %s more than that", at.Format(time.RFC3339Nano), -behind)
	}
	e.s.clockBy.Add(int64(behind.Truncate(time.Millisecond) + time.Millisecond)) // offsets are told in whole milliseconds
	e.Record(harness.Event{Kind: harness.EventFault, Subject: "clock", Text: "servers' time stands still at " + at.UTC().Format(time.RFC3339Nano)})
	if err := e.tellTime(ctx, at); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		e.Record(harness.Event{Kind: harness.EventFault, Subject: "clock", Text: "servers' time goes on"})
		return e.tellTime(ctx, time.Time{})
	}, nil
}

// tellTime tells every server the offset, and where its clock is to stand
// still; zero has it run.
func (e *env) tellTime(ctx context.Context, stopped time.Time) error {
	offset := e.s.offset()
	for _, r := range e.s.servers {
		if !r.listening() {
			continue
		}
		if err := setClock(ctx, r.URL(), offset, stopped); err != nil {
			return fmt.Errorf("move the clock of %s: %w", r.name, err)
		}
	}
	return nil
}

func (s *session) offset() time.Duration { return time.Duration(s.clockBy.Load()) }

func setClock(ctx context.Context, url string, offset time.Duration, stopped time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, adminDeadline)
	defer cancel()
	text := fmt.Sprintf(`{"offset_ms":%d}`, offset.Milliseconds())
	if !stopped.IsZero() {
		text = fmt.Sprintf(`{"offset_ms":%d,"stopped_at":%q}`, offset.Milliseconds(), stopped.UTC().Format(time.RFC3339Nano))
	}
	body := strings.NewReader(text)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/testing/clock", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("answered %d", res.StatusCode)
	}
	return nil
}

func (s *session) cuttableRedis() harness.Cuttable {
	if s.redis == nil {
		panic(fmt.Sprintf("scenario %s asks for Redis, which its topology does not have", s.scenario.Name))
	}
	return s.redis
}
