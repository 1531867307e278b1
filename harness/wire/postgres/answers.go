package pgwire

import (
	"encoding/binary"
	"errors"

	"github.com/overbook/overbook/harness"
)

// A destination is where a message from Postgres goes.
type destination struct {
	exchange *exchange // whose answer it is; nil: none's
	answer   *answer   // that takes it in; nil: on to the server under test
	aside    bool      // it is no part of the answer to a command of our own, and goes on later
	notice   bool
	dropped  bool
	parked   bool // requests has the answer in its hands: this is for behind it
}

// answers passes on what Postgres sends, until the connection ends.
func (s *session) answers() error {
	for {
		if err := s.passAnswer(); err != nil {
			s.giveUp()
			return err
		}
	}
}

// giveUp passes on what there is when Postgres' side ends: half a message, or
// what was to be held up to its end.
func (s *session) giveUp() {
	s.mu.Lock()
	var held *answer
	if len(s.queue) > 0 && s.queue[0].unit != nil {
		held = s.queue[0].answer
	}
	s.mu.Unlock()
	s.outMu.Lock()
	var to destination
	if s.detained.Load() {
		if held != nil {
			_ = s.put(to, held.bytes)
		}
		_ = s.put(to, s.parked)
		s.parked = nil
		to.dropped = held == nil // it is the answer to a command of our own
	}
	_ = s.server.rest(func(b []byte) error { return s.put(to, b) })
	s.outMu.Unlock()
	s.flush()
}

func (s *session) passAnswer() error {
	kind, length, err := s.server.next()
	if err != nil {
		return err
	}
	var to destination
	if kind == 'D' || kind == 'd' {
		to = s.rows()
	} else {
		body, err := s.server.front(length)
		if err != nil {
			return err
		}
		to = s.see(kind, body)
	}
	s.outMu.Lock()
	to.parked = s.detained.Load()
	if to.answer != nil && !to.aside {
		to.answer.mark(kind, length)
	}
	err = s.server.pass(length, func(b []byte) error { return s.put(to, b) })
	s.outMu.Unlock()
	if err != nil {
		return err
	}
	if kind == 'G' && to.answer != nil {
		s.letCopy(to.exchange)
	}
	s.wake()
	return nil
}

// put hands on a piece of a message. outMu is held, so that a message is
// never taken apart by another.
func (s *session) put(to destination, piece []byte) error {
	switch {
	case to.dropped || s.muted:
	case to.aside && to.notice:
		to.answer.notices = append(to.answer.notices, piece...)
	case to.aside:
		to.answer.aside = append(to.answer.aside, piece...)
	case to.answer != nil:
		return to.answer.add(piece)
	case to.parked:
		if len(s.parked)+len(piece) > answerMost {
			return errAnswerTooLong
		}
		s.parked = append(s.parked, piece...)
	default:
		if _, err := s.out.Write(piece); err != nil {
			_ = s.clientConn.Close() // requests learns of it; what Postgres still says is wanted for the record
		}
	}
	return nil
}

// flush hands the server under test what is written for it.
func (s *session) flush() {
	s.outMu.Lock()
	err := s.out.Flush()
	s.outMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		_ = s.clientConn.Close()
		for _, r := range s.unconfirmed {
			s.wire.ledger.undelivered(r, whyClient)
		}
	}
	clear(s.unconfirmed)
	s.unconfirmed = s.unconfirmed[:0]
}

// rows is where rows and copied data go: they say nothing by themselves.
func (s *session) rows() destination {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return destination{}
	}
	return destination{exchange: s.queue[0], answer: s.queue[0].answer}
}

// see takes a message into account before it is passed on.
func (s *session) see(kind byte, body []byte) destination {
	s.mu.Lock()
	defer s.mu.Unlock()
	aside := s.note(kind, body)
	if !s.started {
		s.started = kind == 'Z'
		return destination{}
	}
	if kind == 'Z' {
		s.passOver()
	}
	if len(s.queue) == 0 {
		return destination{}
	}
	e := s.queue[0]
	to := destination{exchange: e, answer: e.answer}
	if aside {
		to.aside, to.notice = e.unit == nil, kind == 'N'
		return to
	}
	e.take(s, kind, body)
	switch {
	case kind == 'Z':
		status := byte('I')
		if len(body) > 0 {
			status = body[0]
		}
		s.skipping = false
		s.complete(status)
	case kind == 'E' && (e.end == 'S' || e.end == 'H'):
		s.skipping = true
	}
	s.completeFlushed()
	return to
}

// note looks at messages that are no part of any answer.
func (s *session) note(kind byte, body []byte) (aside bool) {
	switch kind {
	case 'K':
		if len(body) > 4 {
			s.pid = int(binary.BigEndian.Uint32(body))
			s.wire.gone.began(s, string(body))
		}
	case 'S':
		name, rest := cString(body)
		if value, _ := cString(rest); name == "standard_conforming_strings" {
			s.backslash = value == "off"
		}
	case 'N', 'A', 'R', 'v':
	case 'E':
		if s.lost == "" && readError(body).fatal() {
			s.lost = whyPostgres // whoever closes first after that
		}
		return false
	default:
		return false
	}
	return true
}

// passOver drops what Postgres has skipped before the ReadyForQuery that is
// here: after an error it answers nothing up to the next Sync.
func (s *session) passOver() {
	for s.skipping && len(s.queue) > 0 && s.queue[0].end != 'S' {
		s.complete(0)
	}
}

// completeFlushed completes the exchanges whose end no ReadyForQuery tells.
func (s *session) completeFlushed() {
	for len(s.queue) > 0 && s.queue[0].answered(s.skipping) {
		s.complete(0)
	}
}

// complete takes the first exchange off the queue. status is Postgres', 0
// where it told none.
func (s *session) complete(status byte) {
	e := s.queue[0]
	s.queue = s.queue[1:]
	s.undo(e)
	s.finished = append(s.finished, e)
	if e.answer != nil {
		e.answer.status, e.answer.at = status, s.wire.ledger.now()
	} else if e.unit != nil {
		committed, after := s.account(e.unit, status)
		s.finish(e.unit, after, committed)
	}
	if len(s.queue) > 0 {
		s.begin(s.queue[0].unit)
	}
}

// begin lets the unit run: the one before it is answered.
func (s *session) begin(u *unit) {
	if u == nil || u.begun {
		return
	}
	u.begun = true
	before := string(s.tx.status)
	s.tx.join(u, s.wire.ledger.transaction)
	number, pid := s.tx.number, s.pid
	s.wire.ledger.note(u.record, func(r *harness.Unit) { r.Before, r.Tx, r.PID = before, number, pid })
}

// account takes the unit's answer into account.
func (s *session) account(u *unit, ready byte) (committed bool, after string) {
	committed = s.tx.leave(u, ready, s.wire.ledger.transaction)
	if s.tx.status == 'I' && len(s.queue) == 0 {
		clear(s.portals) // they end with their transaction
	}
	return committed, string(s.tx.status)
}

// finish records a unit that is answered and passed on in one go.
func (s *session) finish(u *unit, after string, committed bool) {
	statements, lost := u.statements(), s.lost
	s.wire.ledger.note(u.record, func(r *harness.Unit) {
		r.Statements, r.After, r.Committed, r.Answered = statements, after, committed, s.wire.ledger.now()
		if lost == "" {
			r.Delivered = r.Answered
		} else if r.Err == "" {
			r.Err = lost
		}
	})
	s.unconfirmed = append(s.unconfirmed, u.record)
}

// wake tells those who wait for the exchanges that have been completed.
func (s *session) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range s.finished {
		if e.done != nil {
			close(e.done)
		}
		s.finished[i] = nil
	}
	s.finished = s.finished[:0]
}

// letCopy passes on that Postgres wants data, in spite of whoever holds the
// answer: there would be no end to it without the data.
func (s *session) letCopy(e *exchange) {
	s.outMu.Lock()
	if _, err := s.out.Write(e.answer.bytes); err != nil || s.out.Flush() != nil {
		_ = s.clientConn.Close()
	}
	e.answer.bytes = nil
	s.outMu.Unlock()
	select {
	case e.copies <- struct{}{}:
	default:
	}
}

// tooLong reports whether the session ended because an answer could not be kept.
func tooLong(err error) bool { return errors.Is(err, errAnswerTooLong) }
