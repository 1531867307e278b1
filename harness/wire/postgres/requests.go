package pgwire

import (
	"errors"
	"fmt"

	"github.com/overbook/overbook/harness"
)

// requests passes on what the server under test sends, until the connection
// ends or the session can't go on.
func (s *session) requests() error {
	for {
		if err := s.passRequest(); err != nil {
			// Postgres sees the same end, also half a message or half a unit. But
			// what is behind a unit that was not let through must not get through.
			if _, lost := errors.AsType[*lostError](err); !lost && !s.skip && s.ctx.Err() == nil {
				_, _ = s.in.Write(s.gathering.raw)
				_ = s.client.rest(s.write)
				_ = s.push()
			}
			return err
		}
	}
}

func (s *session) write(b []byte) error {
	if _, err := s.in.Write(b); err != nil {
		return &lostError{whyPostgres}
	}
	return nil
}

// push hands Postgres what is written for it.
func (s *session) push() error {
	if err := s.in.Flush(); err != nil {
		return &lostError{whyPostgres}
	}
	return nil
}

func (s *session) passRequest() error {
	kind, length, err := s.client.next()
	if err != nil {
		return err
	}
	switch kind {
	case 'P', 'B', 'D', 'C', 'E':
		return s.collect(kind, length)
	case 'S', 'Q', 'H', 'F':
		if kind == 'S' && s.endsCopy() {
			return s.passRaw(kind, length)
		}
		if err := s.collect(kind, length); err != nil {
			return err
		}
		u := s.gathering
		u.end = kind
		s.gathering = &unit{}
		err := s.unit(u)
		s.reuse(u)
		return err
	case 'd', 'c', 'f':
		if len(s.gathering.raw) > 0 {
			return s.collect(kind, length) // it stays behind what it belongs to
		}
		if kind != 'd' {
			s.copied()
		}
		return s.passRaw(kind, length)
	default:
		if kind != 'X' && kind != 'p' && !s.strange {
			s.strange = true
			s.wire.ledger.trouble(fmt.Errorf("session %d of %s: there is no message of type %q", s.id, s.name, kind))
		}
		// It means something only behind what was sent before it.
		if err := s.write(s.gathering.raw); err != nil {
			return err
		}
		s.gathering.raw = s.gathering.raw[:0]
	}
	return s.passRaw(kind, length)
}

const spareMost = 1 << 20 // bytes of a buffer that is kept for the next unit

// reuse keeps the unit's buffer for the next one.
func (s *session) reuse(u *unit) {
	if cap(u.raw) <= spareMost && s.gathering.raw == nil {
		s.gathering.raw = u.raw[:0]
	}
	u.raw = nil
}

// passRaw passes on a message as it is. It is on its way when this returns,
// unless more is here already.
func (s *session) passRaw(kind byte, length int) error {
	if err := s.client.pass(length, s.write); err != nil {
		return err
	}
	if kind == 'd' && s.client.r.Buffered() > 0 {
		return nil
	}
	return s.push()
}

// copied notes that the data of a COPY are over. One that was begun with an
// Execute had its Sync passed over; the one behind the data counts.
func (s *session) copied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = len(s.queue) > 0 && s.queue[0].copying && s.queue[0].end == 'S'
}

func (s *session) endsCopy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ends := s.closing && len(s.gathering.raw) == 0
	s.closing = false
	return ends
}

// unit takes a whole unit on its way.
func (s *session) unit(u *unit) error {
	s.arrive(u)
	if s.skip {
		if u.end != 'S' {
			s.wire.ledger.ended(u.record, "skipped up to the next Sync, as Postgres does after an error")
			return nil
		}
		s.skip = false
		u.raw, u.items, u.executions = append(u.raw[:0], syncFrame...), nil, nil
	}
	if !s.wire.watching() {
		return s.forward(u)
	}
	// One at a time: only so is it known what state a unit meets.
	if err := s.drain(); err != nil {
		return err
	}
	s.mu.Lock()
	s.begin(u)
	skipping := s.skipping
	s.mu.Unlock()
	if skipping {
		return s.forward(u)
	}
	err := s.guide(u)
	if err != nil {
		s.wire.ledger.ended(u.record, s.reason(err))
	}
	return err
}

func (s *session) arrive(u *unit) {
	u.record = &harness.Unit{Session: s.id, Server: s.name, Statements: u.statements()}
	s.wire.ledger.arrive(u.record)
}

// forward passes the unit on and doesn't wait for its answer.
func (s *session) forward(u *unit) error {
	return s.send(&exchange{unit: u, end: u.end, items: u.items}, u.raw)
}

// send begins an exchange.
func (s *session) send(e *exchange, bytes []byte) error {
	s.mu.Lock()
	s.queue = append(s.queue, e)
	if len(s.queue) == 1 {
		s.begin(e.unit)
	}
	if u := e.unit; u != nil {
		s.wire.ledger.note(u.record, func(r *harness.Unit) {
			if r.Forwarded == 0 {
				r.Forwarded = s.wire.ledger.now() // before it: what comes of it comes later
			}
		})
	}
	s.completeFlushed()
	s.mu.Unlock()
	s.wake()
	if err := s.write(bytes); err != nil {
		return err
	}
	return s.push()
}

// drain waits until nothing is on its way to Postgres or back.
func (s *session) drain() error {
	s.mu.Lock()
	var last *exchange
	if n := len(s.queue); n > 0 {
		last = s.queue[n-1]
	} else if n := len(s.finished); n > 0 {
		last = s.finished[n-1]
	}
	if last == nil {
		s.mu.Unlock()
		return nil
	}
	if last.done == nil {
		last.done = make(chan struct{})
	}
	s.mu.Unlock()
	return s.await(last.done)
}

// reason is why a unit was not let through, in words.
func (s *session) reason(err error) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != "" {
		return s.lost
	}
	if lost, ok := errors.AsType[*lostError](err); ok {
		return lost.why
	}
	return whyClient
}
