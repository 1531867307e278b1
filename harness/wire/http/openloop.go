package wirehttp

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/load"
)

// A Route says where a request goes now: the base URL ("" when its server is
// not running; it may fill in the request's server), and what is to be done at
// its answer, as with [Client.DoUntil]; nil for nothing.
type Route func(r *harness.Request) (baseURL string, atAnswer func(context.Context, harness.Operation))

// deafMost is how many calls a client may ask for after it was cut off. One
// that goes on asking never leaves, and is a mistake of the scenario.
const deafMost = 100

// errLoadOver ends the calls of a load whose deadline has passed.
var errLoadOver = errors.New("the deadline of the open loop has passed")

// An openLoop is one load on its way.
type openLoop struct {
	harness.OpenLoop
	c       *Client
	route   Route
	pool    *pool
	started time.Duration

	visitors []*visitor // that have arrived; the scheduler's alone until all are gone
	present  int        // the most at once; the scheduler's alone
	gone     atomic.Int64
	left     atomic.Int64

	panicOnce sync.Once
	panicked  any
	stop      context.CancelFunc
}

// OpenLoop lets the clients of l arrive by its schedule and returns when all of
// them are gone and every connection is closed. The operations are by client,
// each client's in order. The error says that l makes no sense or, with all
// that was seen until then, that ctx ended first; a client that panics makes
// OpenLoop panic once the others are gone.
func (c *Client) OpenLoop(ctx context.Context, l harness.OpenLoop, route Route) (harness.OpenLoopReport, []harness.Operation, error) {
	if err := l.Validate(); err != nil {
		return harness.OpenLoopReport{Name: l.Name, Planned: len(l.Arrivals)}, nil, err
	}
	lo := &openLoop{OpenLoop: l, c: c, route: route, pool: c.newPool(l.Connections)}
	outer := ctx
	ctx, cancel := context.WithTimeoutCause(outer, l.Deadline, errLoadOver)
	defer cancel()
	lo.stop, lo.started = cancel, c.cfg.Clock.Now()
	var clients sync.WaitGroup
	lo.schedule(ctx, &clients)
	clients.Wait() // bounded by the deadline: a client can't stay, see deafMost
	ended := c.cfg.Clock.Now()
	lo.pool.close()
	if lo.panicked != nil {
		panic(lo.panicked)
	}
	ops := lo.operations()
	report := lo.report(ops, ended)
	if outer.Err() != nil && report.Left < report.Planned {
		return report, ops, fmt.Errorf("ended early, %d of %d clients had left: %w", report.Left, report.Planned, context.Cause(outer))
	}
	return report, ops, nil
}

// schedule starts each client at its time, and never waits for anything else.
func (lo *openLoop) schedule(ctx context.Context, clients *sync.WaitGroup) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n, offset := range lo.Arrivals {
		v := &visitor{load: lo, ctx: ctx, n: n, arrival: lo.started + offset}
		if wait := v.arrival - lo.c.cfg.Clock.Now(); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		lo.visitors = append(lo.visitors, v)
		lo.present = max(lo.present, len(lo.visitors)-int(lo.gone.Load()))
		clients.Go(v.visit)
	}
}

// operations gives all of them, by client. The clients are gone.
func (lo *openLoop) operations() []harness.Operation {
	n := 0
	for _, v := range lo.visitors {
		n += len(v.ops)
	}
	ops := make([]harness.Operation, 0, n)
	for _, v := range lo.visitors {
		ops = append(ops, v.ops...)
	}
	return ops
}

// report counts what happened. The clients are gone.
func (lo *openLoop) report(ops []harness.Operation, ended time.Duration) harness.OpenLoopReport {
	pool := lo.pool.figures()
	r := harness.OpenLoopReport{
		Name: lo.Name, Planned: len(lo.Arrivals), Arrived: len(lo.visitors), Left: int(lo.left.Load()),
		Started: lo.started, Ended: ended, Schedule: lo.Arrivals[len(lo.Arrivals)-1],
		MaxPresent: lo.present, Slack: lo.LateAllowed(), Calls: len(ops),
		InFlight: load.MaxInFlight(load.Intervals(ops)), Waited: pool.waited, WaitMax: pool.waitMax, Stale: pool.stale,
		Connections: lo.Connections, ConnectionsOpened: pool.opened, ConnectionsMost: pool.most,
	}
	r.CutOff = r.Arrived - r.Left
	late := make([]time.Duration, 0, len(lo.visitors))
	for _, v := range lo.visitors {
		late = append(late, v.late)
		r.ThinkLate = max(r.ThinkLate, v.thinkLate)
	}
	r.LateP50, r.LateP99, r.LateMax = load.Lateness(late)
	d := load.Account(len(ops), len(ops), ops)
	r.Sent, r.Answered, r.TimedOut, r.Broken = d.Sent, d.Answered, d.TimedOut, d.Broken
	for _, op := range ops {
		if op.Sent == 0 && load.ClassOf(op.Err).ClientSide() {
			r.Unsent++
		}
	}
	r.Refused = r.Calls - r.Sent - r.Unsent
	return r
}

// A visitor is one client. It implements [harness.Visitor].
type visitor struct {
	load      *openLoop
	ctx       context.Context //nolint:containedctx // of the whole load: tells whether it is over
	n         int
	arrival   time.Duration
	late      time.Duration // by which it was started after its arrival
	thinkLate time.Duration
	ops       []harness.Operation
	deaf      int // calls asked for after it was cut off
	busy      atomic.Bool
}

// visit is the client's time from its arrival until it leaves.
func (v *visitor) visit() {
	v.late = v.load.c.cfg.Clock.Now() - v.arrival
	defer func() {
		if p := recover(); p != nil {
			v.load.panicOnce.Do(func() {
				v.load.panicked = fmt.Sprintf("client %d of the open loop %s: %v\n%s", v.n, v.load.Name, p, debug.Stack())
			})
			v.load.stop() // the others need not go on
		}
		v.load.gone.Add(1)
	}()
	v.load.Client(v.ctx, v)
	if v.over() == nil {
		v.load.left.Add(1)
	}
}

// over says why the load has ended; nil while it has not.
func (v *visitor) over() error { return context.Cause(v.ctx) }

// N is of [harness.Visitor].
func (v *visitor) N() int { return v.n }

// Do is of [harness.Visitor].
func (v *visitor) Do(ctx context.Context, r harness.Request) harness.Operation {
	if !v.busy.CompareAndSwap(false, true) {
		panic("it makes two calls at the same time")
	}
	defer v.busy.Store(false)
	intended := v.arrival
	if len(v.ops) > 0 {
		intended = v.load.c.cfg.Clock.Now()
	}
	over := v.over()
	var url string
	var atAnswer func(context.Context, harness.Operation)
	if over == nil { // a fault waiting for the call's answer must not be spent on it
		url, atAnswer = v.load.route(&r)
	}
	ra := v.load.c.newRacer(url, "", 0, r)
	ra.op.Load, ra.op.Intended = v.load.Name, intended
	switch {
	case over != nil:
		ra.err = load.Errorf(load.ClassCancelled, "not sent: %w", over)
	case url == "":
		ra.err = load.Errorf(load.ClassRefused, "%s is not running; nothing was sent", r.Server)
	case ra.err == nil:
		ra.fail(v.load.pool.do(ctx, ra, atAnswer))
	}
	op := ra.operation()
	if over != nil {
		if v.deaf++; v.deaf > deafMost {
			panic(fmt.Sprintf("it goes on after it was cut off (%v): want a client that returns when ctx has ended", over))
		}
		if v.deaf > 1 {
			return op // the first one tells it; more would only say that nobody looked at ctx
		}
	}
	v.ops = append(v.ops, op)
	return op
}

// Pause is of [harness.Visitor].
func (v *visitor) Pause(ctx context.Context, d time.Duration) error {
	until := v.load.c.cfg.Clock.Now() + d
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		v.thinkLate = max(v.thinkLate, v.load.c.cfg.Clock.Now()-until)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
