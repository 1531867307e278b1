package redis

import (
	"net"
	"sync"
)

// A link is the pair of connections of one client.
type link struct {
	client net.Conn

	mu     sync.Mutex
	server net.Conn // nil until dialled
	broken bool
}

// join adds the server's side; false when the link was broken meanwhile.
func (l *link) join(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server
	return !l.broken
}

// reset closes both sides at once, with RST towards the client, so that
// nothing still buffered is delivered.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}
}

// close ends both sides in good order.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range []net.Conn{l.client, l.server} {
		if c != nil {
			_ = c.Close()
		}
	}
}
