package wirehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/load"
)

// defaultTimeout is the deadline of calls when nothing else is said.
const defaultTimeout = 30 * time.Second

// A Config says how calls are made.
type Config struct {
	Clock   clock.Clock   // of the run; all stamps are its offsets
	Timeout time.Duration // for one answer, where neither request nor burst says; 0 means 30 s
	TLS     *tls.Config   // for https targets; nil takes the machine's roots. Its NextProtos are ours to set
	OpID    func() string // gives a new id per call, unique in the run; may be called by several goroutines
	RunID   string        // goes into the trace ids, so that runs do not share them
	_       struct{}
}

// A Client makes calls. It keeps no connection between them, except within an
// open loop, and is safe for concurrent use.
type Client struct {
	cfg Config
}

// New makes a client.
func New(c Config) *Client {
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &Client{cfg: c}
}

// Do makes one call, HTTP/1.1, on a connection of its own: one attempt, never
// a second. baseURL is the replica's, such as "http://127.0.0.1:41234".
// Whatever happens is in the operation. Intended is the instant of the call,
// so that connecting counts as response time; Sent is when the whole request
// was in the kernel.
func (c *Client) Do(ctx context.Context, baseURL string, r harness.Request) harness.Operation {
	return c.DoUntil(ctx, baseURL, r, nil)
}

// DoUntil makes one call as [Client.Do] does. When the first byte of the
// answer is here, atAnswer is called once, if it is not nil, with the operation
// as it then stands; the answer is then not read, and the connection is reset.
func (c *Client) DoUntil(ctx context.Context, baseURL string, r harness.Request, atAnswer func(context.Context, harness.Operation)) harness.Operation {
	ra := c.newRacer(baseURL, "", 0, r)
	ra.op.Intended = c.cfg.Clock.Now()
	if ra.err != nil {
		return ra.operation()
	}
	ctx, cancel := context.WithTimeout(ctx, ra.timeout)
	defer cancel()
	ra.fail(c.exchange(ctx, ra, atAnswer))
	return ra.operation()
}

// exchange carries one call from dial to last byte and stamps it.
func (c *Client) exchange(ctx context.Context, ra *racer, atAnswer func(context.Context, harness.Operation)) error {
	cn, err := c.dial(ctx, ra.target, "http/1.1")
	if err != nil {
		return err
	}
	defer cn.close()
	_, err = c.converse(ctx, cn, ra, make([]byte, readSize), atAnswer)
	return err
}

// converse carries one call over a connection, stamps it, and reports whether
// the connection may carry another one. buf is for reading.
func (c *Client) converse(ctx context.Context, cn *conn, ra *racer, buf []byte, atAnswer func(context.Context, harness.Operation)) (reusable bool, err error) {
	unwatch := cn.closeWhenDone(ctx)
	defer func() { reusable = !unwatch() && reusable }()
	head, held := ra.wire1()
	n, err := cn.app().Write(append(head, held...))
	ra.exposed = n > 0 || cn.tls != nil // TLS does not say how much of a record went out
	if err != nil {
		return false, causeOf(ctx, fmt.Errorf("send request: %w", err))
	}
	ra.sent = c.cfg.Clock.Now()
	if atAnswer != nil || ra.req.Lose != harness.LoseNothing {
		return false, c.lose(ctx, cn, ra, atAnswer)
	}
	p := newParser(ra.op.Method)
	for {
		n, err := cn.app().Read(buf)
		done, perr := p.feed(buf[:n])
		if !done && perr == nil && err != nil {
			done, perr = p.end(err)
		}
		if perr != nil {
			return false, causeOf(ctx, fmt.Errorf("read answer: %w", perr))
		}
		if done {
			ra.answer(p.answer(), c.cfg.Clock.Now())
			return p.reusable() && err == nil, nil
		}
	}
}

// lose goes away without the answer. Right after the request it is with a FIN,
// as a reset could overtake the request in the server; when the first byte of
// the answer is here with a reset, so that nobody takes the rest.
func (c *Client) lose(ctx context.Context, cn *conn, ra *racer, atAnswer func(context.Context, harness.Operation)) error {
	if atAnswer == nil && ra.req.Lose == harness.LoseAfterSend {
		return load.Errorf(load.ClassLost, "the client went away after its request, as the scenario wants it")
	}
	if _, err := cn.app().Read(make([]byte, 1)); err != nil {
		return causeOf(ctx, fmt.Errorf("wait for the answer that is to be lost: %w", err))
	}
	if atAnswer != nil {
		ra.op.Sent = ra.sent
		atAnswer(ctx, ra.op)
	}
	if tcp, ok := cn.inner.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the close then sends a reset
	}
	return load.Errorf(load.ClassLost, "the client went away when its answer came, as the scenario wants it")
}

// causeOf puts the reason for which the context ended in the place of the
// error that closing the connection caused.
func causeOf(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return load.Errorf(load.ClassTimeout, "no whole answer before the deadline (%v)", err)
	}
	return load.Errorf(load.ClassCancelled, "given up: %w (%v)", context.Cause(ctx), err)
}
