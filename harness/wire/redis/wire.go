package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
)

const (
	dialTimeout = 5 * time.Second
	acceptPause = 5 * time.Millisecond
	bufferSize  = 16 << 10 // bytes on their way in one direction of one connection; the sender waits when full
)

// A Wire is a running proxy.
type Wire struct {
	target   string // host:port
	userinfo *url.Userinfo
	path     string // "/0"
	listener net.Listener
	ctx      context.Context //nolint:containedctx // ends with Close; what runs between dial and copy needs it
	cancel   context.CancelFunc
	handlers sync.WaitGroup

	mu      sync.Mutex
	cuts    int // cut while more than 0, so that two cuts may overlap
	refused int // connections that cuts have met
	delay   time.Duration
	links   map[*link]struct{}
	ended   bool
}

var _ harness.Cuttable = (*Wire)(nil)

// Start listens on a free loopback port and passes connections on to target,
// a redis:// URL or host:port. It does not try whether target answers. ctx
// governs the start alone; Close ends the wire.
func Start(ctx context.Context, target string) (*Wire, error) {
	w := &Wire{target: target, path: "/0", links: map[*link]struct{}{}}
	if u, err := url.Parse(target); err == nil && u.Host != "" {
		if u.Scheme != "redis" {
			return nil, fmt.Errorf("start Redis wire: %s:// is not possible, only redis:// (the wire does not speak TLS)", u.Scheme)
		}
		w.target, w.userinfo = u.Host, u.User
		if u.Port() == "" {
			w.target = net.JoinHostPort(u.Hostname(), "6379")
		}
		if len(u.Path) > 1 {
			w.path = u.Path
		}
	}
	if _, _, err := net.SplitHostPort(w.target); err != nil {
		return nil, fmt.Errorf("start Redis wire to %q: %w; want redis://host:port/0 or host:port", target, err)
	}
	var err error
	if w.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start Redis wire: %w", err)
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.handlers.Go(w.accept)
	return w, nil
}

// URL is the address for the server under test: redis://127.0.0.1:port/0,
// with the user, password and database of the target.
func (w *Wire) URL() string {
	u := url.URL{Scheme: "redis", User: w.userinfo, Host: w.listener.Addr().String(), Path: w.path}
	return u.String()
}

// Cut closes every connection with a reset and closes new ones at once, until
// mend is called. Cuts may overlap: the wire works again after the last mend.
func (w *Wire) Cut() (mend func()) {
	w.mu.Lock()
	w.cuts++
	w.refused += len(w.links)
	for l := range w.links {
		l.reset()
	}
	w.mu.Unlock()
	return sync.OnceFunc(func() {
		w.mu.Lock()
		w.cuts--
		w.mu.Unlock()
	})
}

// Refused gives how many connections cuts have broken or refused so far: a cut
// that nobody met has tried nothing.
func (w *Wire) Refused() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// SetDelay makes every piece of data wait this long in each direction before
// it is passed on, from the next piece on and on every connection. Data on
// one connection stays in order. 0 takes the delay back.
func (w *Wire) SetDelay(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = max(d, 0)
}

// Close ends every connection and the listener, and returns when all
// goroutines have ended. Closing again does nothing.
func (w *Wire) Close() error {
	w.cancel()
	err := w.listener.Close()
	w.mu.Lock()
	w.ended = true
	for l := range w.links {
		l.reset()
	}
	w.mu.Unlock()
	w.handlers.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept hands every connection to a goroutine of its own; Close waits for all.
func (w *Wire) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !w.pause() {
				return
			}
			continue // it was gone before we took it, or we are out of descriptors
		}
		w.handlers.Go(func() { w.serve(conn) })
	}
}

// pause keeps a listener that cannot accept from spinning; false after Close.
func (w *Wire) pause() bool { return w.sleep(acceptPause) }

// serve joins one connection with the target until either end closes.
func (w *Wire) serve(client net.Conn) {
	l := &link{client: client}
	defer l.close()
	if !w.admit(l) {
		l.reset()
		return
	}
	defer w.forget(l)
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(w.ctx, "tcp", w.target)
	if err != nil {
		l.reset() // Redis is not there: the caller sees a broken connection, as it would without us
		return
	}
	if !l.join(server) {
		return // cut while dialling
	}
	var back sync.WaitGroup
	back.Go(func() { w.pass(client, server) })
	w.pass(server, client)
	back.Wait()
}

func (w *Wire) admit(l *link) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cuts > 0 && !w.ended {
		w.refused++
	}
	if w.cuts > 0 || w.ended {
		return false
	}
	w.links[l] = struct{}{}
	return true
}

func (w *Wire) forget(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.links, l)
}

// pass copies one direction; its end is passed on as an end of writing.
func (w *Wire) pass(to, from net.Conn) {
	buffer := make([]byte, bufferSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !w.wait() {
				break
			}
			if _, werr := to.Write(buffer[:n]); werr != nil {
				_ = from.Close() // so that the sender learns of it
				break
			}
		}
		if err != nil {
			break
		}
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// wait lets the delay pass; false when the wire was closed meanwhile.
func (w *Wire) wait() bool {
	w.mu.Lock()
	d := w.delay
	w.mu.Unlock()
	return d == 0 || w.sleep(d)
}

// sleep is the delay itself; false when the wire was closed meanwhile.
func (w *Wire) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}
