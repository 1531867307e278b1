package wirehttp

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness/load"
)

// settle takes over what the release did with one line.
func (bu *burst) settle(l *line, r result) {
	l.cn.out = l.cn.out[r.n:]
	if r.n > 0 || errors.Is(r.err, errNoCompletion) {
		for _, ra := range l.racers {
			ra.exposed = true
		}
	}
	switch {
	case r.err != nil && !errors.Is(r.err, unix.EAGAIN):
		bu.drain(l) // an answer may have come before the connection broke
		bu.endLine(l, r.err, r.at)
	case len(l.cn.out) == 0:
		l.whole = true
		bu.sentAll(l, r.at)
	default:
		l.waits = true
	}
}

func (bu *burst) sentAll(l *line, at time.Duration) {
	l.waits = false
	for _, ra := range l.racers {
		if ra.sent == 0 && ra.ended == 0 {
			ra.sent = at
		}
	}
}

// hushFor is how long nobody reads after the release of so many requests, and
// hushMost its bound.
const (
	hushFor  = 30 * time.Microsecond // for each request: more than a server needs to take it in
	hushMost = 5 * time.Millisecond
)

// hush keeps this process off the processors while the server takes in what
// was released: on a small machine each answer that is read in between pushes
// a request apart from the others. Nothing waits for it, and it shows in no
// figure, as the kernel stamps the answers when they come; so it is only done
// where that is so, on lines with one request.
func (bu *burst) hush() {
	if len(bu.lines) < len(bu.racers) {
		return
	}
	d := min(time.Duration(len(bu.racers))*hushFor, hushMost)
	for _, l := range bu.lines {
		if !l.cn.stamped {
			return // the wait would go into the answers' times
		}
	}
	for _, ra := range bu.racers {
		d = min(d, ra.timeout/10)
	}
	wait := unix.NsecToTimespec(int64(d))
	_, _ = unix.Ppoll(nil, &wait, nil)
}

// soon looks, at once after the release and the hush, which answers are there already.
// Unless the kernel says when they came, those requests are not counted as in
// flight together with the others.
func (bu *burst) soon() {
	for _, l := range bu.poll.wait(bu.lines, 0) {
		bu.drain(l)
		for _, ra := range l.racers {
			ra.soon = ra.soon || (ra.ended != 0 && ra.landed == 0 && !l.quiet)
		}
	}
}

// stampLine puts the kernel's stamp in the place of our own bound, for when
// the held part of a line was sent: if it left in one piece, and if the stamp
// is within the bounds.
func (bu *burst) stampLine(l *line) {
	if !l.whole {
		return
	}
	l.whole = false // once
	stamp := sendStamp(l.fd)
	for _, ra := range l.racers {
		if at, ok := bu.clocks.within(stamp, bu.report.Released, ra.sent); ok {
			ra.sent = at
		}
	}
}

// landed notes when the answer of a line with one racer came. Of bytes that
// came one after another the kernel keeps the last stamp alone, so that it
// says nothing about one of many answers on a line.
func (bu *burst) landed(l *line, at time.Duration) {
	ra := l.racers[0]
	if len(l.racers) > 1 || !ra.answered || ra.landed != 0 {
		return
	}
	if sock, ok := l.cn.sock.(*fdSocket); ok {
		if landed, ok := bu.clocks.within(sock.landed, bu.report.Released, at); ok {
			ra.landed, ra.ended = landed, landed
		}
	}
}

// collect reads answers until every racer has ended: answered, broken off, or
// given up at its deadline or when ctx ends.
func (bu *burst) collect(ctx context.Context) {
	unwatch := bu.poll.wakeWhenDone(ctx)
	defer unwatch()
	for _, l := range bu.lines {
		if l.waits {
			bu.poll.wantWrite(l, true)
		}
	}
	for {
		next, open := bu.expire()
		if !open {
			return
		}
		if ctx.Err() != nil {
			cause := load.Errorf(load.ClassCancelled, "given up: %w", context.Cause(ctx))
			for _, l := range bu.lines {
				bu.endLine(l, cause, bu.c.cfg.Clock.Now())
			}
			return
		}
		for _, l := range bu.poll.wait(bu.lines, next) {
			if l.waits {
				bu.push(l)
			}
			bu.drain(l)
		}
	}
}

// expire gives up racers whose time is over, and says how long the others may
// still be waited for and whether there are any.
func (bu *burst) expire() (next time.Duration, open bool) {
	now := bu.c.cfg.Clock.Now()
	next = setupTimeout // looks again at least that often
	for _, l := range bu.lines {
		if !l.open {
			continue
		}
		for _, ra := range l.racers {
			left := bu.report.Released + ra.timeout - now
			switch {
			case ra.ended != 0:
			case left <= 0:
				ra.ended = now
				ra.fail(ra.giveUp())
			default:
				next = min(next, left)
			}
		}
		bu.closeIfOver(l)
		open = open || l.open
	}
	return next, open
}

// push goes on with what the kernel did not take at the release.
func (bu *burst) push(l *line) {
	before := len(l.cn.out)
	all, err := l.cn.flush()
	if len(l.cn.out) < before {
		for _, ra := range l.racers {
			ra.exposed = true
		}
	}
	if err != nil {
		l.waits = false
		bu.drain(l) // an answer may have come before the connection broke
		bu.endLine(l, err, bu.c.cfg.Clock.Now())
		return
	}
	if all {
		bu.sentAll(l, bu.c.cfg.Clock.Now())
		bu.poll.wantWrite(l, false)
	}
}

// drain reads what is there.
func (bu *burst) drain(l *line) {
	for l.open {
		n, err := l.cn.app().Read(bu.buf)
		at := bu.c.cfg.Clock.Now()
		if n > 0 {
			l.proto.feed(bu.buf[:n], at)
			bu.landed(l, at)
		}
		if errors.Is(err, errWouldBlock) {
			break
		}
		if err != nil {
			bu.endLine(l, err, at)
			return
		}
		bu.closeIfOver(l)
	}
	bu.closeIfOver(l)
}

// endLine ends all racers of a line that have not ended.
func (bu *burst) endLine(l *line, cause error, at time.Duration) {
	if !l.open {
		return
	}
	l.proto.end(cause, at)
	for _, ra := range l.racers {
		if ra.ended == 0 {
			ra.ended = at
			if errors.Is(cause, io.EOF) {
				cause = load.Errorf(load.ClassClosed, "the server closed the connection without an answer")
			}
			ra.fail(cause)
		}
	}
	bu.closeIfOver(l)
}

// closeIfOver is done with a line whose racers have all ended. The connection
// itself stays open until the burst is over when it was answered, so that
// the server is not kept busy with closing while others are still racing.
func (bu *burst) closeIfOver(l *line) {
	if !l.open {
		return
	}
	answered := true
	for _, ra := range l.racers {
		if ra.ended == 0 {
			return
		}
		answered = answered && ra.answered
	}
	l.open = false
	if !answered {
		bu.stampLine(l)
		l.cn.close()
		return
	}
	bu.poll.forget(l)
}
