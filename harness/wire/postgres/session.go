package pgwire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overbook/overbook/harness"
)

// A session is one connection of a server under test and the one to Postgres
// behind it. Two goroutines serve it: one reads what the server sends
// (requests), one what Postgres answers (answers).
//
// Nobody but requests writes to Postgres. To the server writes answers, but
// for the time in which requests has a unit's answer in its own hands.
type session struct {
	wire   *Wire
	id     int
	name   string // of the server
	target *target
	ctx    context.Context         //nolint:containedctx // ends when either side's connection does; what is held waits on it
	cancel context.CancelCauseFunc // with a lostError

	clientConn, serverConn net.Conn
	client, server         *frames

	// Of requests alone.
	gathering *unit         // what has been read of the next unit
	in        *bufio.Writer // to Postgres
	strange   bool          // there was a message that could not be read, and Err says so
	skip      bool          // an error of ours stands in for Postgres': what comes up to the next Sync is not forwarded

	outMu    sync.Mutex    // held for whole messages
	out      *bufio.Writer // to the server
	detained atomic.Bool   // requests has the answer in its hands; what Postgres sends of itself is parked
	parked   []byte
	muted    bool // the last word is said

	mu          sync.Mutex
	pid         int
	backend     *backend
	departed    bool            // the connection has ended, as far as the server under test goes
	order       int             // messages from the server under test, counted
	started     bool            // the first ReadyForQuery was there
	skipping    bool            // Postgres passes over everything up to the next Sync
	queue       []*exchange     // not answered yet
	finished    []*exchange     // answered, but the last message is still in hand
	unconfirmed []*harness.Unit // delivered, if the next flush succeeds
	names       map[string]*statement
	portals     map[string]*portal
	tx          transaction
	backslash   bool   // standard_conforming_strings is off
	lost        string // why the connection ended, once it has
	closing     bool   // the next Sync ends a COPY, and is answered with it
}

// A lostError is why a session can't go on.
type lostError struct{ why string }

func (e *lostError) Error() string { return e.why }

const (
	whyClient   = "the server under test closed the connection"
	whyPostgres = "Postgres closed the connection"
	whyClosed   = "the wire was closed"
	whyRetarget = "the wire was led to another database"
)

func newSession(w *Wire, name string, conn net.Conn) *session {
	s := &session{
		wire: w, name: name, clientConn: conn, client: newFrames(conn),
		out: bufio.NewWriterSize(conn, outBuffer), gathering: &unit{},
		names: map[string]*statement{}, portals: map[string]*portal{}, tx: transaction{status: 'I'},
	}
	s.ctx, s.cancel = context.WithCancelCause(w.ctx)
	return s
}

// join adds the connection to Postgres.
func (s *session) join(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serverConn, s.server = conn, newFrames(conn)
	s.server.idle = s.flush
	s.in = bufio.NewWriterSize(conn, outBuffer)
}

// serve carries the session from the first message behind the startup to its end.
func (s *session) serve() {
	var back sync.WaitGroup
	back.Go(func() {
		s.end(s.answers())
		_ = s.clientConn.Close() // requests waits for it
	})
	err := s.requests()
	s.leave(err)
	back.Wait()
	s.settleUnits()
	s.sever(whyClient)
}

// leave ends the server's side in good order: Postgres may still be busy, and
// answers hears what becomes of it.
func (s *session) leave(err error) {
	if broken, ok := errors.AsType[*brokenError](err); ok {
		s.refuse(broken)
		return
	}
	why := whyClient
	if lost, ok := errors.AsType[*lostError](err); ok {
		why = lost.why
	}
	s.blame(why)
	s.wire.gone.ended(s)
	if half, ok := s.serverConn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// end is the end of Postgres' side.
func (s *session) end(err error) {
	if broken, ok := errors.AsType[*brokenError](err); ok {
		s.refuse(broken)
		return
	}
	if tooLong(err) {
		s.wire.ledger.trouble(fmt.Errorf("session %d of %s: %w (%d)", s.id, s.name, err, answerMost))
		s.sever(err.Error())
		return
	}
	s.lose(whyPostgres)
	s.wire.gone.ended(s)
	s.wire.gone.gone(s, err)
}

// blame notes why the session ends; the first reason counts.
func (s *session) blame(why string) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first = s.lost == ""; first {
		s.lost = why
	}
	return first
}

// lose ends the session for all who wait in it.
func (s *session) lose(why string) (first bool) {
	first = s.blame(why)
	s.cancel(&lostError{why})
	return first
}

// sever closes both connections at once, with a reset, so that nothing that
// is on its way arrives.
func (s *session) sever(why string) {
	s.lose(why)
	s.wire.gone.ended(s)
	s.mu.Lock()
	conns := []net.Conn{s.clientConn, s.serverConn}
	s.mu.Unlock()
	for _, c := range conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}

// refuse ends a connection whose bytes are no messages: with a word to the
// server under test, as Postgres would have.
func (s *session) refuse(broken *brokenError) {
	s.wire.ledger.trouble(fmt.Errorf("session %d of %s: %w", s.id, s.name, broken))
	// No word where it is in the middle of a message, which may never end.
	if s.lose(broken.why) && s.outMu.TryLock() {
		_, _ = s.out.Write(errorFrame("FATAL", "08P01", "Overbook's Postgres wire can't go on: "+broken.why))
		_ = s.out.Flush()
		s.muted = true
		s.outMu.Unlock()
	}
	s.wire.gone.ended(s)
	_ = s.clientConn.Close()
	_ = s.serverConn.Close()
}

// endFatally ends the session as Postgres does after a FATAL error; Postgres
// itself sees a connection that breaks.
func (s *session) endFatally(why string) {
	s.lose(why)
	s.wire.gone.ended(s)
	_ = s.clientConn.Close()
	if tcp, ok := s.serverConn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = s.serverConn.Close()
}

// settleUnits closes the record of what the session leaves undone.
func (s *session) settleUnits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.queue {
		if e.unit != nil {
			s.wire.ledger.ended(e.unit.record, s.lost)
		}
	}
	s.queue = nil
	if s.tx.number == 0 || s.tx.last == nil {
		return
	}
	dangling := false
	s.wire.ledger.note(s.tx.last, func(r *harness.Unit) { dangling = r.Err == "" })
	if dangling {
		// No unit tells of this end: without one the transaction would look open.
		s.wire.ledger.arrive(&harness.Unit{
			Session: s.id, Server: s.name, PID: s.pid, Tx: s.tx.number, Before: string(s.tx.status),
			Err: "in the transaction, " + s.lost,
		})
	}
	s.tx = transaction{status: 'I'}
}

// watch gives a context that ends when the server under test leaves, for the
// time in which requests doesn't read. stop must be called before it reads on.
func (s *session) watch() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for more := s.client.r.Buffered() + 1; more <= inputBuffer; more = s.client.r.Buffered() + 1 {
			ahead, err := s.client.r.Peek(more)
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				return
			}
			if err == nil {
				ahead, _ = s.client.r.Peek(s.client.r.Buffered())
			}
			if err != nil || saysGoodbye(ahead) {
				cancel(&lostError{whyClient})
				return
			}
		}
	})
	return ctx, func() {
		_ = s.clientConn.SetReadDeadline(past)
		watcher.Wait()
		_ = s.clientConn.SetReadDeadline(time.Time{})
		cancel(nil)
	}
}

// saysGoodbye reports whether there is a Terminate among the messages. Some
// drivers wait for the other end to close after it.
func saysGoodbye(b []byte) bool {
	for len(b) >= headSize {
		if b[0] == 'X' {
			return true
		}
		length := int64(binary.BigEndian.Uint32(b[1:])) + 1
		if length < headSize || length > int64(len(b)) {
			return false
		}
		b = b[length:]
	}
	return false
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// await waits until it is done, or until either side is gone.
func (s *session) await(done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	ctx, stop := s.watch()
	defer stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
