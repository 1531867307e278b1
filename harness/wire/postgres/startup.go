package pgwire

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	startupMost    = 10_000 // bytes of a startup packet, as in Postgres
	requestsMost   = 4      // for encryption, before a connection has to begin
	dialTimeout    = 5 * time.Second
	cancelDeadline = 10 * time.Second

	codeCancel = 80877102
	codeTLS    = 80877103
	codeGSS    = 80877104
)

// serve carries one connection of a server under test from its first byte.
func (w *Wire) serve(name string, conn net.Conn) {
	s := newSession(w, name, conn)
	if !w.admit(s) {
		_ = conn.Close()
		return
	}
	defer w.forget(s)
	packet, err := s.startup()
	if err != nil {
		if broken, ok := err.(*brokenError); ok { //nolint:errorlint // startup returns it as it is
			w.ledger.trouble(fmt.Errorf("a connection of %s: %w", name, broken))
		}
		s.sever(whyClient)
		return
	}
	if binary.BigEndian.Uint32(packet[4:]) == codeCancel {
		w.cancelRequest(packet)
		s.cancel(&lostError{whyClient})
		_ = conn.Close()
		return
	}
	s.id, s.target = w.ledger.session(), w.current()
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(s.ctx, s.target.network, s.target.address)
	if err != nil {
		s.sever("Postgres is not there") // as a connection that is refused, as far as we can
		return
	}
	s.join(server)
	if s.ctx.Err() != nil { // severed while it was dialled
		s.sever(whyClosed)
		return
	}
	if _, err := server.Write(packet); err != nil {
		s.sever(whyPostgres)
		return
	}
	if replicates(packet) {
		s.blind()
		return
	}
	s.serve()
}

// startup reads the first packet that is not a wish for encryption. We refuse
// those: the wire has to read what is said.
func (s *session) startup() ([]byte, error) {
	for range requestsMost {
		head, err := s.client.r.Peek(8)
		if err != nil {
			return nil, err
		}
		length, code := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if length < 8 || length > startupMost {
			return nil, &brokenError{fmt.Sprintf("it begins with % x, which is no startup packet", head)}
		}
		packet := make([]byte, length)
		if _, err := io.ReadFull(s.client.r, packet); err != nil {
			return nil, err
		}
		if code != codeTLS && code != codeGSS {
			return packet, nil
		}
		if _, err := s.clientConn.Write([]byte{'N'}); err != nil {
			return nil, err
		}
	}
	return nil, &brokenError{"it asks for encryption again and again"}
}

// replicates reports whether the connection will speak the replication
// protocol, which has other messages.
func replicates(packet []byte) bool {
	var m pgproto3.StartupMessage
	if err := m.Decode(packet[4:]); err != nil {
		return false
	}
	value := strings.ToLower(m.Parameters["replication"])
	return value != "" && value != "false" && value != "off" && value != "no" && value != "0"
}

// blind passes bytes on in both directions.
func (s *session) blind() {
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(s.clientConn, s.serverConn)
		_ = s.clientConn.Close()
	})
	_, _ = s.client.r.WriteTo(s.serverConn)
	if half, ok := s.serverConn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	back.Wait()
	s.sever(whyClient)
}

// cancelRequest brings a cancel request to the database on which the session
// was opened, and waits until it has been taken, as its sender does.
func (w *Wire) cancelRequest(packet []byte) {
	t := w.gone.target(packet[8:])
	if t == nil {
		t = w.current()
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(w.ctx, t.network, t.address)
	if err != nil {
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline(cancelDeadline)); err != nil {
		return
	}
	if _, err := conn.Write(packet); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}
