package wirehttp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/load"
)

// keptReadSize is how much is read at once from a connection that is kept:
// less than readSize, as there are many of them, each with its buffer.
const keptReadSize = 4 << 10

// A pool is the connections of an open loop. Each carries one call after the
// other; there are never more than it has turns, over all servers.
type pool struct {
	c     *Client
	turns chan struct{} // one token a call that has, or may open, a connection; waiters are served in order

	mu   sync.Mutex
	idle []*kept // of all servers, the one that was used last at the end
	poolFigures
}

// poolFigures are what the pool counts.
type poolFigures struct {
	open, most, opened int
	stale              int // reused connections that died before the answer
	waited             int // calls that had to wait for a turn
	waitMax            time.Duration
}

// A kept connection outlives a call.
type kept struct {
	*conn
	key   poolKey
	buf   []byte
	calls int           // that it has carried
	since time.Duration // it is idle
}

// A poolKey is what connections to a server have in common.
type poolKey struct {
	tls  bool
	addr string
}

func (c *Client) newPool(most int) *pool {
	return &pool{c: c, turns: make(chan struct{}, most)}
}

// do makes one call, one attempt. Waiting for a turn is bounded by ctx alone;
// the call's own timeout begins after it.
func (p *pool) do(ctx context.Context, ra *racer, atAnswer func(context.Context, harness.Operation)) error {
	if err := p.turn(ctx); err != nil {
		return err
	}
	defer func() { <-p.turns }()
	ctx, cancel := context.WithTimeout(ctx, ra.timeout)
	defer cancel()
	cn, err := p.connection(ctx, ra.target)
	if err != nil {
		return err
	}
	idle := p.c.cfg.Clock.Now() - cn.since
	reusable, err := p.c.converse(ctx, cn.conn, ra, cn.buf, atAnswer)
	if err != nil && cn.calls > 0 {
		if class := load.Classify(err); class == load.ClassClosed || class == load.ClassReset {
			p.died()
			err = fmt.Errorf("%w (the connection had carried %d calls and was idle for %s)", err, cn.calls, idle.Round(time.Microsecond))
		}
	}
	p.put(cn, reusable)
	return err
}

// turn waits until the call may have a connection.
func (p *pool) turn(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case p.turns <- struct{}{}:
			return nil
		default:
		}
	}
	from := p.c.cfg.Clock.Now()
	var err error
	select {
	case p.turns <- struct{}{}:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	waited := p.c.cfg.Clock.Now() - from
	p.mu.Lock()
	p.waited++
	p.waitMax = max(p.waitMax, waited)
	p.mu.Unlock()
	if err != nil {
		return load.Errorf(load.ClassWaiting, "waited %s for one of the %d connections: %w", waited.Round(time.Microsecond), cap(p.turns), err)
	}
	return nil
}

// connection gives a live idle connection to the server, the one that was used
// last, or opens one. Whoever calls it holds a turn.
func (p *pool) connection(ctx context.Context, t target) (*kept, error) {
	key := poolKey{t.tls, t.addr}
	for {
		cn := p.take(key)
		if cn == nil {
			break
		}
		if cn.alive() {
			return cn, nil
		}
		p.put(cn, false)
	}
	p.room()
	inner, err := p.c.dial(ctx, t, "http/1.1")
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.open--
		return nil, err
	}
	p.opened++
	return &kept{conn: inner, key: key, buf: make([]byte, keptReadSize), since: p.c.cfg.Clock.Now()}, nil
}

// take takes the idle connection of the server that was used last; nil if
// there is none.
func (p *pool) take(key poolKey) *kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, cn := range slices.Backward(p.idle) {
		if cn.key == key {
			p.idle = slices.Delete(p.idle, i, i+1)
			return cn
		}
	}
	return nil
}

// room counts one more open connection. When that is too many, the one that
// was idle longest (to another server) is closed: there is one, since each
// call that has a connection has a turn.
func (p *pool) room() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == cap(p.turns) && len(p.idle) > 0 {
		p.idle[0].close()
		p.idle = slices.Delete(p.idle, 0, 1)
		p.open--
	}
	p.open++
	p.most = max(p.most, p.open)
}

// put takes a connection back from a call, or closes it.
func (p *pool) put(cn *kept, reusable bool) {
	if !reusable {
		cn.close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !reusable {
		p.open--
		return
	}
	cn.calls++
	cn.since = p.c.cfg.Clock.Now()
	p.idle = append(p.idle, cn)
}

func (p *pool) died() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stale++
}

// close closes what is idle. The calls are over by then, so that this is all.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cn := range p.idle {
		cn.close()
	}
	p.open -= len(p.idle)
	p.idle = nil
}

func (p *pool) figures() poolFigures {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.poolFigures
}

// alive looks whether the server has closed the connection while it was idle,
// or has sent something that nobody asked for, without taking anything off it.
// With TLS what came may be harmless, but that is not worth finding out.
func (cn *kept) alive() bool {
	sc, ok := cn.inner.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(err, unix.EAGAIN)
	})
	return err == nil && quiet
}
