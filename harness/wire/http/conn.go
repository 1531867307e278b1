package wirehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/overbook/overbook/harness/load"
)

// readSize is how much is read at once.
const readSize = 32 << 10

// A socket is a connection that never blocks and that the Go scheduler does
// not watch. Read and Write give errWouldBlock when they would.
type socket interface {
	io.ReadWriteCloser
}

// errWouldBlock is temporary, so that crypto/tls goes on after it.
var errWouldBlock error = wouldBlockError{}

type wouldBlockError struct{}

func (wouldBlockError) Error() string   { return "would block" }
func (wouldBlockError) Timeout() bool   { return true }
func (wouldBlockError) Temporary() bool { return true }

// A conn is one connection, in two lives: while it is set up, an ordinary
// blocking net.Conn; after detach, a socket. In its second life everything
// that is written, TLS records too, is first put into out, so that it can be
// released together with that of other connections.
type conn struct {
	inner net.Conn
	sock  socket    // nil before detach
	tls   *tls.Conn // nil for plain text
	out   []byte    // written after detach, not in the kernel yet
	once  sync.Once

	stamped bool // after detach: the kernel stamps what comes
}

// dial connects to the target and agrees on proto by ALPN where TLS is spoken.
func (c *Client) dial(ctx context.Context, t target, proto string) (*conn, error) {
	var d net.Dialer
	inner, err := d.DialContext(ctx, "tcp", t.addr)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, load.Errorf(load.ClassCancelled, "connect to %s: %w", t.addr, context.Cause(ctx))
		}
		return nil, fmt.Errorf("connect to %s: %w", t.addr, err)
	}
	cn := &conn{inner: inner}
	if !t.tls {
		return cn, nil
	}
	cfg := c.cfg.TLS.Clone()
	cfg.NextProtos = []string{proto}
	if cfg.ServerName == "" {
		cfg.ServerName = t.name
	}
	cn.tls = tls.Client(cn, cfg)
	if err := cn.tls.HandshakeContext(ctx); err != nil {
		cn.close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", t.addr, err)
	}
	got := cn.tls.ConnectionState().NegotiatedProtocol
	if got != proto && (got != "" || proto != "http/1.1") {
		cn.close()
		return nil, load.Errorf(load.ClassOther, "TLS with %s: the server does not speak %s (it chose %q)", t.addr, proto, got)
	}
	return cn, nil
}

// app is where the application's bytes are written and read.
func (cn *conn) app() io.ReadWriter {
	if cn.tls != nil {
		return cn.tls
	}
	return cn
}

// closeWhenDone breaks blocking reads and writes when ctx ends. The function
// it gives ends the watch and waits for it. It reports whether ctx has ended,
// after which the connection is of no use.
func (cn *conn) closeWhenDone(ctx context.Context) func() (broken bool) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = cn.inner.SetDeadline(time.Unix(1, 0)) // long ago: wakes whoever is blocked
	})
	return func() bool {
		if stop() {
			return false
		}
		<-over
		return true
	}
}

// Read is the lower side of the connection, under TLS.
func (cn *conn) Read(p []byte) (int, error) {
	if cn.sock != nil {
		return cn.sock.Read(p)
	}
	return cn.inner.Read(p)
}

// Write is the lower side of the connection, under TLS.
func (cn *conn) Write(p []byte) (int, error) {
	if cn.sock != nil {
		cn.out = append(cn.out, p...)
		return len(p), nil
	}
	return cn.inner.Write(p)
}

// flush hands as much of out to the kernel as it takes and says whether that
// was all.
func (cn *conn) flush() (bool, error) {
	for len(cn.out) > 0 {
		n, err := cn.sock.Write(cn.out)
		cn.out = slices.Delete(cn.out, 0, n)
		if errors.Is(err, errWouldBlock) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

func (cn *conn) close() {
	cn.once.Do(func() {
		if cn.sock != nil {
			_ = cn.sock.Close()
			return
		}
		_ = cn.inner.Close()
	})
}

// Close, the addresses and the deadlines are what crypto/tls asks of a net.Conn.
func (cn *conn) Close() error { cn.close(); return nil }

// LocalAddr is the address of our side.
func (cn *conn) LocalAddr() net.Addr { return cn.inner.LocalAddr() }

// RemoteAddr is the address of the server.
func (cn *conn) RemoteAddr() net.Addr { return cn.inner.RemoteAddr() }

// SetDeadline works while the connection is set up; a socket never blocks.
func (cn *conn) SetDeadline(t time.Time) error {
	if cn.sock != nil {
		return nil
	}
	return cn.inner.SetDeadline(t)
}

// SetReadDeadline is as SetDeadline.
func (cn *conn) SetReadDeadline(t time.Time) error { return cn.SetDeadline(t) }

// SetWriteDeadline is as SetDeadline.
func (cn *conn) SetWriteDeadline(t time.Time) error { return cn.SetDeadline(t) }
