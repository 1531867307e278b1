package wirehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

// A Client makes calls. It keeps no connection between them and is safe for
// concurrent use.
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
	ra := c.newRacer(baseURL, "", 0, r)
	ra.op.Intended = c.cfg.Clock.Now()
	if ra.err != nil {
		return ra.operation()
	}
	ctx, cancel := context.WithTimeout(ctx, ra.timeout)
	defer cancel()
	ra.fail(c.exchange(ctx, ra))
	return ra.operation()
}

// exchange carries one call from dial to last byte and stamps it.
func (c *Client) exchange(ctx context.Context, ra *racer) error {
	cn, err := c.dial(ctx, ra.target, "http/1.1")
	if err != nil {
		return err
	}
	defer cn.close()
	unwatch := cn.closeWhenDone(ctx)
	defer unwatch()
	head, held := ra.wire1()
	n, err := cn.app().Write(append(head, held...))
	ra.exposed = n > 0 || cn.tls != nil // TLS does not say how much of a record went out
	if err != nil {
		return causeOf(ctx, fmt.Errorf("send request: %w", err))
	}
	ra.sent = c.cfg.Clock.Now()
	p := newParser(ra.op.Method)
	buf := make([]byte, readSize)
	for {
		n, err := cn.app().Read(buf)
		done, perr := p.feed(buf[:n])
		if !done && perr == nil && err != nil {
			done, perr = p.end(err)
		}
		if perr != nil {
			return causeOf(ctx, fmt.Errorf("read answer: %w", perr))
		}
		if done {
			ra.answer(p.answer(), c.cfg.Clock.Now())
			return nil
		}
	}
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
