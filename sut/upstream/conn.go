package upstream

import (
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
)

// errSealed is what a connection gives when a call that never began on it
// tries to begin after it was given up.
var errSealed = errors.New("call was given up before its first byte")

// A watchedConn knows whether a call's first byte was ever handed to the
// kernel. That is the only way to be certain that an upstream cannot have seen
// a call that failed.
type watchedConn struct {
	net.Conn

	mu    sync.Mutex
	watch *watch // the call that is about to write, nil when nobody watches
}

// A watch follows one call over whatever connection it gets.
type watch struct {
	guard func() error // asked right before the first byte; an error stops the call

	mu      sync.Mutex
	begun   bool  // a first byte was handed over, or at least tried
	sealed  bool  // no first byte may be handed over any more
	refused error // the guard's objection
	reused  bool  // the connection had served other calls before
}

// begin is asked by the connection before the call's first byte.
func (w *watch) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		return nil
	}
	if w.sealed {
		return errSealed
	}
	if w.guard != nil {
		if err := w.guard(); err != nil {
			w.refused, w.sealed = err, true
			return err
		}
	}
	w.begun = true
	return nil
}

// seal ends the call and reports whether its first byte may have gone out.
// After that none will.
func (w *watch) seal() (begun, reused bool, refused error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sealed = true
	return w.begun, w.reused, w.refused
}

// trace hooks the watch into whatever connection the call gets.
func (w *watch) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c, ok := info.Conn.(*watchedConn)
		w.mu.Lock()
		w.reused = info.Reused
		w.begun = w.begun || !ok // TLS hides our connection: then nothing is certain any more
		w.mu.Unlock()
		if ok {
			c.mu.Lock()
			c.watch = w
			c.mu.Unlock()
		}
	}}
}

// Write asks the watching call first, once.
func (c *watchedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	w := c.watch
	c.mu.Unlock()
	if w != nil {
		if err := w.begin(); err != nil {
			return 0, err
		}
		c.mu.Lock()
		if c.watch == w {
			c.watch = nil
		}
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}
