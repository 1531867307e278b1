package wirehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/load"
)

const (
	// maxRacers bounds one burst: each racer is a connection and a slot of a ring.
	maxRacers = 10_000
	// dialLimit bounds how many connections are being set up at once, so that
	// a server with a short accept queue is not overrun before the race.
	dialLimit = 32
	// setupTimeout bounds everything before the release.
	setupTimeout = 20 * time.Second
	// ackPause is between two looks at the kernel's send queues.
	ackPause = 500 * time.Microsecond
)

// A line is one connection of a burst with the racers it carries.
type line struct {
	cn     *conn
	racers []*racer
	proto  protocol
	fd     int
	pos    int   // in the burst
	err    error // why it is not ready
	open   bool  // some racer has not ended
	waits  bool  // the kernel has not taken all of out yet
	whole  bool  // the kernel took all of it at the release
	quiet  bool  // nothing was answered when all of the burst was in the kernel
}

// A protocol is what HTTP/1.1 and HTTP/2 do differently on a line.
type protocol interface {
	setup(ctx context.Context) error         // sends all but the held parts; blocking, before detach
	hold() error                             // puts the held parts into the connection's out
	early(b []byte) (answers int, err error) // takes bytes read before the release; answers are wrong there
	feed(b []byte, at time.Duration)         // takes bytes read after the release and ends racers
	end(cause error, at time.Duration)
}

// A burst is one barrier from the first connection to the last answer.
type burst struct {
	c      *Client
	name   string
	kind   harness.Technique
	racers []*racer
	lines  []*line
	report harness.BurstReport
	poll   *poller
	after  time.Duration // the release returned
	clocks translation
	buf    []byte
}

// Burst releases the requests at one barrier; see the package's words on
// bursts, stamps and outcomes. targets holds the base URL for each request.
// When the error is not nil there was no release (nothing was sent whole),
// and the report and the operations say how far each request had come. The
// operations are in the order of the requests. When ctx ends after the
// release the answers that are missing are given up.
func (c *Client) Burst(ctx context.Context, targets []string, b harness.Burst) (harness.BurstReport, []harness.Operation, error) {
	bu := newBurst(c, b)
	if err := bu.plan(targets, b); err != nil {
		return bu.abort(err)
	}
	defer bu.close()
	if err := bu.ready(ctx); err != nil {
		return bu.abort(err)
	}
	p, err := newPoller(bu.lines)
	if err != nil {
		return bu.abort(err)
	}
	defer p.close()
	bu.poll = p
	if err := bu.release(); err != nil {
		return bu.abort(err)
	}
	bu.collect(ctx)
	return bu.finish(), bu.operations(), nil
}

func newBurst(c *Client, b harness.Burst) *burst {
	kind := cmp.Or(b.Technique, harness.H1LastHeaderByte)
	return &burst{
		c: c, name: b.Name, kind: kind, buf: make([]byte, readSize),
		report: harness.BurstReport{Name: b.Name, Requests: len(b.Requests), Technique: string(kind)},
	}
}

// plan makes racers and lines, or says why the burst makes no sense.
func (bu *burst) plan(targets []string, b harness.Burst) error {
	switch {
	case len(b.Requests) == 0:
		return errors.New("it has no requests")
	case len(b.Requests) > maxRacers:
		return fmt.Errorf("it has %d requests; at most %d fit into one burst", len(b.Requests), maxRacers)
	case len(targets) != len(b.Requests):
		return fmt.Errorf("it has %d requests and %d targets; each request needs one", len(b.Requests), len(targets))
	}
	for i, r := range b.Requests {
		bu.racers = append(bu.racers, bu.c.newRacer(targets[i], b.Name, b.Timeout, r))
	}
	for i, ra := range bu.racers {
		if ra.err != nil {
			return fmt.Errorf("request %d of %d: %w", i+1, len(bu.racers), ra.err)
		}
	}
	switch bu.kind {
	case harness.H1LastHeaderByte:
		for _, ra := range bu.racers {
			l := bu.addLine(ra)
			l.proto = &proto1{line: l}
		}
	case harness.H2SinglePacket:
		bu.planH2()
	default:
		return fmt.Errorf("technique %q is unknown; there are %s and %s", bu.kind, harness.H1LastHeaderByte, harness.H2SinglePacket)
	}
	return nil
}

func (bu *burst) addLine(racers ...*racer) *line {
	l := &line{racers: racers, pos: len(bu.lines), open: true}
	bu.lines = append(bu.lines, l)
	return l
}

// ready connects all racers and sends everything but the held parts, until
// all of that is acknowledged. Less than all is an error.
func (bu *burst) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	bu.setupAll(ctx)
	var first error
	for _, l := range bu.lines {
		if l.err == nil {
			bu.report.Ready += len(l.racers)
			continue
		}
		if first == nil {
			first = l.err
		}
		for _, ra := range l.racers {
			ra.fail(l.err)
		}
	}
	if first != nil {
		return fmt.Errorf("%d of %d requests are ready, the first that is not: %w", bu.report.Ready, len(bu.racers), first)
	}
	return clock.Await(ctx, "what was sent to be acknowledged", setupTimeout, ackPause, bu.acknowledged)
}

// setupAll sets up the lines with at most dialLimit at once.
func (bu *burst) setupAll(ctx context.Context) {
	var workers sync.WaitGroup
	queue := make(chan *line) // unbuffered: a worker takes the next when it is free
	for range min(dialLimit, len(bu.lines)) {
		workers.Go(func() {
			for l := range queue {
				l.err = bu.setup(ctx, l)
			}
		})
	}
	for _, l := range bu.lines {
		queue <- l // the workers always drain it: setup ends with ctx at the latest
	}
	close(queue)
	workers.Wait()
}

func (bu *burst) setup(ctx context.Context, l *line) (err error) {
	proto := "http/1.1"
	if bu.kind == harness.H2SinglePacket {
		proto = "h2"
	}
	if l.cn, err = bu.c.dial(ctx, l.racers[0].target, proto); err != nil {
		return err
	}
	unwatch := l.cn.closeWhenDone(ctx)
	err = l.proto.setup(ctx)
	unwatch()
	if err != nil {
		return causeOf(ctx, err)
	}
	if l.fd, err = l.cn.detach(); err != nil {
		return fmt.Errorf("take over the connection: %w", err)
	}
	return nil
}

// acknowledged asks whether the servers' kernels have everything sent so far.
func (bu *burst) acknowledged(context.Context) (bool, string, error) {
	for _, l := range bu.lines {
		queued, err := sendQueue(l.fd)
		if err != nil {
			return false, "", fmt.Errorf("look at the send queue of request %d: %w", l.pos+1, err)
		}
		if queued > 0 {
			return false, fmt.Sprintf("%d bytes of request %d are on their way", queued, l.pos+1), nil
		}
	}
	return true, "", nil
}

// release makes the last checks and lets the held parts go.
func (bu *burst) release() error {
	for _, l := range bu.lines {
		if err := l.proto.hold(); err != nil {
			return fmt.Errorf("prepare the held part of request %d: %w", l.pos+1, err)
		}
	}
	shot := newShot(bu.lines, bu.kind)
	defer shot.close()
	if err := bu.nothingEarly(); err != nil {
		return err
	}
	bu.clocks = translate(bu.c.cfg.Clock)
	var how string
	bu.report.Released, bu.after, how = shot.fire(bu.c.cfg.Clock)
	bu.report.Technique = string(bu.kind) + "/" + how
	for _, ra := range bu.racers {
		ra.op.Intended = bu.report.Released
	}
	for _, l := range bu.lines {
		l.quiet = shot.quiet(l.pos)
		bu.settle(l, shot.results[l.pos])
	}
	bu.hush()
	bu.soon()
	return nil
}

// nothingEarly fails when something was answered, or a connection ended,
// before the release.
func (bu *burst) nothingEarly() error {
	var first error
	for _, l := range bu.lines {
		early, err := bu.peek(l)
		bu.report.Early += early
		if early > 0 {
			err = load.Errorf(load.ClassAnswer, "the server answered before the release")
		}
		if err == nil {
			continue
		}
		if first == nil {
			first = fmt.Errorf("request %d of %d: %w", l.pos+1, len(bu.racers), err)
		}
		for _, ra := range l.racers {
			ra.exposed = ra.exposed || early > 0
			ra.fail(err)
		}
	}
	if bu.report.Early > 0 {
		return fmt.Errorf("%d answers came before the release: the server acts on requests that are not whole, so %s cannot hold them back", bu.report.Early, bu.kind)
	}
	return first
}

// peek reads what a line has before the release: nothing, as a rule.
func (bu *burst) peek(l *line) (answers int, err error) {
	answers, err = l.proto.early(nil) // what came during the setup
	for err == nil {
		n, readErr := l.cn.app().Read(bu.buf)
		var more int
		more, err = l.proto.early(bu.buf[:n])
		answers += more
		switch {
		case err != nil || readErr == nil:
		case errors.Is(readErr, errWouldBlock):
			return answers, nil
		default:
			err = load.Errorf(load.ClassClosed, "the server ended the connection before the release: %w", readErr)
		}
	}
	return answers, err
}

// abort gives the records of a burst that was not released.
func (bu *burst) abort(why error) (harness.BurstReport, []harness.Operation, error) {
	now := bu.c.cfg.Clock.Now()
	for _, ra := range bu.racers {
		ra.op.Intended = now
		ra.fail(heldBack(why))
	}
	return bu.report, bu.operations(), fmt.Errorf("burst %q: %w", bu.name, why)
}

// finish counts what happened.
func (bu *burst) finish() harness.BurstReport {
	for _, l := range bu.lines {
		bu.stampLine(l)
	}
	var intervals []load.Interval
	for _, ra := range bu.racers {
		if ra.sent != 0 {
			bu.report.Sent++
			bu.report.Spread = max(bu.report.Spread, ra.sent-bu.report.Released)
		}
		if ra.answered {
			bu.report.Answered++
		}
		if ra.sent != 0 && !ra.soon {
			intervals = append(intervals, load.Interval{Start: ra.sent, End: cmp.Or(ra.landed, ra.ended)})
		}
	}
	bu.report.MaxInFlight = max(load.MaxInFlight(intervals), min(bu.report.Sent, 1))
	return bu.report
}

func (bu *burst) operations() []harness.Operation {
	ops := make([]harness.Operation, 0, len(bu.racers))
	for _, ra := range bu.racers {
		ops = append(ops, ra.operation())
	}
	return ops
}

func (bu *burst) close() {
	for _, l := range bu.lines {
		if l.cn != nil {
			l.cn.close()
		}
	}
}
