package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/overbook/overbook/harness/clock"
)

const (
	maxIdle     = 256             // connections kept; further ones are closed after use
	maxIdleTime = 5 * time.Second // well below the idle time-out of any server behind us
	dialTimeout = 5 * time.Second
)

// A pool keeps connections to the upstream. It writes a request once, on one
// connection; what fails has failed.
type pool struct {
	clock  clock.Clock
	addr   string
	host   string
	prefix string

	mu     sync.Mutex
	idle   []*upstreamConn // the last one used is at the end
	active map[*upstreamConn]struct{}
	closed bool
}

type upstreamConn struct {
	net.Conn
	in    *bufio.Reader
	out   bytes.Buffer
	since time.Duration // idle since
}

// An answer is what the upstream said, whole.
type answer struct {
	status int
	header http.Header
	body   []byte
	keep   bool // the connection may be used again
}

func newPool(c clock.Clock, target *url.URL) *pool {
	addr := target.Host
	if target.Port() == "" {
		addr = net.JoinHostPort(target.Hostname(), "80")
	}
	return &pool{
		clock:  c,
		addr:   addr,
		host:   target.Host,
		prefix: strings.TrimSuffix(target.EscapedPath(), "/"),
		active: make(map[*upstreamConn]struct{}),
	}
}

// get gives an idle connection that the upstream has not closed, or a new one.
func (p *pool) get(ctx context.Context) (*upstreamConn, error) {
	for {
		c, err := p.take()
		if err != nil {
			return nil, err
		}
		if c == nil {
			break
		}
		if p.clock.Now()-c.since < maxIdleTime && !gone(c.Conn) {
			return c, nil
		}
		p.put(c, false)
	}
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, err
	}
	c := &upstreamConn{Conn: conn, in: bufio.NewReader(conn)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.Join(errClosed, conn.Close())
	}
	p.active[c] = struct{}{}
	return c, nil
}

// take moves the connection used last from idle to active; nil when none is idle.
func (p *pool) take() (*upstreamConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if len(p.idle) == 0 {
		return nil, nil
	}
	c := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	p.active[c] = struct{}{}
	return c, nil
}

// put takes a connection back, to keep or to close.
func (p *pool) put(c *upstreamConn, keep bool) {
	p.mu.Lock()
	delete(p.active, c)
	keep = keep && !p.closed && len(p.idle) < maxIdle && c.in.Buffered() == 0
	if keep {
		c.since = p.clock.Now()
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		_ = c.Close() // nothing is left to be said on it
	}
}

// close ends all connections; whoever reads on one gets an error.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		_ = c.Close()
	}
	p.idle = nil
	for c := range p.active {
		_ = c.Close()
	}
}

// hopByHop are the header fields that belong to one connection.
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Expect": true, "Content-Length": true, "Host": true,
}

// write sends the request in one piece.
func (p *pool) write(c *upstreamConn, r *http.Request, body []byte, runID string) error {
	b := &c.out
	b.Reset()
	fmt.Fprintf(b, "%s %s%s HTTP/1.1\r\nHost: %s\r\n%s: %s\r\n", r.Method, p.prefix, r.URL.RequestURI(), p.host, RunHeader, runID)
	if len(body) > 0 || r.ContentLength != 0 || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		b.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n")
	}
	r.Header.Del(RunHeader) // ours is the only one
	if err := r.Header.WriteSubset(b, skipped(r.Header)); err != nil {
		return err
	}
	b.WriteString("\r\n")
	b.Write(body)
	_, err := c.Write(b.Bytes())
	return err
}

// skipped gives the fields that must not be passed on.
func skipped(h http.Header) map[string]bool {
	named := h.Values("Connection")
	if len(named) == 0 {
		return hopByHop
	}
	skip := make(map[string]bool, len(hopByHop)+len(named))
	for name := range hopByHop {
		skip[name] = true
	}
	for _, line := range named {
		for name := range strings.SplitSeq(line, ",") {
			skip[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	return skip
}

// read gives the whole answer to a request of the method.
func (c *upstreamConn) read(method string) (*answer, error) {
	req := &http.Request{Method: method}
	resp, err := http.ReadResponse(c.in, req)
	for err == nil && resp.StatusCode >= 100 && resp.StatusCode < 200 {
		if err = resp.Body.Close(); err == nil {
			resp, err = http.ReadResponse(c.in, req)
		}
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("it is larger than %d bytes", maxBody)
	}
	for name := range skipped(resp.Header) {
		if name != "Content-Length" || method != http.MethodHead {
			resp.Header.Del(name)
		}
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: body, keep: !resp.Close}, nil
}
