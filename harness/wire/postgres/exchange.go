package pgwire

import (
	"encoding/binary"
	"errors"
	"time"
)

// An exchange is what is answered as a whole by Postgres: a unit, a part of
// one, or a command of our own. Guarded by session.mu until it is done.
type exchange struct {
	unit   *unit // nil for a command of our own
	end    byte  // as of a unit
	items  []item
	answer *answer       // collects it; nil: it goes on to the server under test as it comes
	copies chan struct{} // told that Postgres wants the data of a COPY; with an answer only

	cursor  int  // items answered
	failed  bool // an error ended it; what is left of the items is not looked at
	fatal   bool // that ends the connection: nothing more comes
	copying bool // it is a COPY FROM STDIN under way, or was

	done chan struct{} // closed when it is answered; nil until somebody waits
}

// An answer is what came back, message by message.
type answer struct {
	bytes    []byte
	notices  []byte // of a command of our own, which are the server's to hear
	aside    []byte // likewise, notifications and changed parameters
	complete span   // last CommandComplete
	failure  span   // last ErrorResponse
	ready    span   // last ReadyForQuery
	failed   bool
	err      errorBody
	status   byte          // of the ReadyForQuery
	at       time.Duration // when it was whole
}

// A span is a place in an answer's bytes.
type span struct{ from, to int }

var errAnswerTooLong = errors.New("an answer that is held has more bytes than can be kept")

// add takes a piece of a message in.
func (a *answer) add(piece []byte) error {
	if len(a.bytes)+len(piece) > answerMost {
		return errAnswerTooLong
	}
	a.bytes = append(a.bytes, piece...)
	return nil
}

// mark notes where a message of interest begins.
func (a *answer) mark(kind byte, length int) {
	here := span{len(a.bytes), len(a.bytes) + length}
	switch kind {
	case 'C':
		a.complete = here
	case 'E':
		a.failure = here
	case 'Z':
		a.ready = here
	}
}

// replace puts something else in the place of a message.
func (a *answer) replace(s span, with []byte) {
	tail := append([]byte(nil), a.bytes[s.to:]...)
	a.bytes = append(append(a.bytes[:s.from], with...), tail...)
	shift := len(with) - (s.to - s.from)
	for _, o := range []*span{&a.complete, &a.failure, &a.ready} {
		if o.from >= s.to {
			o.from, o.to = o.from+shift, o.to+shift
		}
	}
}

// finish gives the answer its last message anew: the status, and before it
// what else there is to say.
func (a *answer) finish(status byte, before []byte) {
	a.replace(a.ready, append(append([]byte(nil), before...), frame('Z', status)...))
	a.status = status
}

// take lets a message of Postgres answer the next item, or statement.
func (e *exchange) take(s *session, kind byte, body []byte) {
	switch kind {
	case '1':
		e.step('P')
	case '2':
		e.step('B')
	case '3':
		if it := e.step('C'); it != nil && it.about == 'S' {
			s.forget(it.name, it.order)
		}
	case 't':
		if it := e.current(); it != nil && it.kind == 'D' && it.statement != nil {
			it.statement.types = parameterTypes(body)
		}
	case 'T', 'n':
		if e.end == 'S' || e.end == 'H' {
			e.step('D')
		}
	case 'C', 'I', 's', 'V':
		e.completed(s, kind, body)
	case 'G':
		e.copying = true
	case 'E':
		e.fails(readError(body))
	}
}

func (e *exchange) current() *item {
	if e.cursor >= len(e.items) {
		return nil
	}
	return &e.items[e.cursor]
}

// step answers the next item of the kind.
func (e *exchange) step(kind byte) *item {
	for i := e.cursor; i < len(e.items); i++ {
		if e.items[i].kind == kind {
			e.cursor = i + 1
			return &e.items[i]
		}
	}
	return nil
}

// completed notes that an execution has come to its end.
func (e *exchange) completed(s *session, kind byte, body []byte) {
	if e.unit == nil {
		return
	}
	var x *execution
	switch e.end {
	case 'S', 'H':
		if it := e.step('E'); it != nil && it.execution >= 0 {
			x = &e.unit.executions[it.execution]
		}
	default:
		if e.unit.executed < len(e.unit.executions) && kind != 'I' {
			x = &e.unit.executions[e.unit.executed]
			e.unit.executed++
		}
	}
	if x == nil {
		return
	}
	x.done = true
	if kind == 'C' {
		x.tag, _ = cString(body)
		x.tag = recorded(x.tag, recordedParam)
		s.learn(x.statement, x.order)
	}
}

// fails notes an error: with the statement that it belongs to.
func (e *exchange) fails(err errorBody) {
	e.failed, e.fatal = true, err.fatal()
	if e.answer != nil {
		e.answer.failed, e.answer.err = true, err
	}
	if e.unit == nil {
		return
	}
	e.unit.failed = true
	if len(e.unit.executions) == 0 {
		return
	}
	at := len(e.unit.executions) - 1
	if e.end == 'Q' || e.end == 'F' {
		at = min(e.unit.executed, at)
	} else {
		for i := e.cursor; i < len(e.items); i++ {
			if e.items[i].execution >= 0 {
				at = e.items[i].execution
				break
			}
		}
	}
	e.unit.blame(at, err)
}

func (u *unit) blame(execution int, err errorBody) {
	x := &u.executions[execution]
	x.code, x.text = recorded(err.code, recordedParam), recorded(err.message, recordedSQL)
}

// answered reports whether nothing more is to come, where no ReadyForQuery tells.
func (e *exchange) answered(skipping bool) bool {
	return e.end == 'H' && !e.fatal && (skipping || e.failed || e.cursor >= len(e.items))
}

// parameterTypes reads a ParameterDescription, as far as it is there.
func parameterTypes(body []byte) []uint32 {
	if len(body) < 2 {
		return nil
	}
	n := min(int(binary.BigEndian.Uint16(body)), (len(body)-2)/4)
	types := make([]uint32, n)
	for i := range types {
		types[i] = binary.BigEndian.Uint32(body[2+4*i:])
	}
	return types
}

// learn takes the effect of a statement on prepared ones into account.
func (s *session) learn(st *statement, order int) {
	switch {
	case st.prepares != "":
		s.names[st.name] = newStatement(st.prepares, s.backslash)
		s.names[st.name].since = order
	case st.forgets && st.name == "all":
		for name := range s.names {
			s.forget(name, order)
		}
	case st.forgets:
		s.forget(st.name, order)
	}
}

// forget drops a prepared statement, unless it was prepared anew since.
func (s *session) forget(name string, order int) {
	if st := s.names[name]; st != nil && st.since <= order {
		delete(s.names, name)
	}
}

// undo takes back the names that Parses of the exchange did not get to define.
func (s *session) undo(e *exchange) {
	for i := len(e.items) - 1; i >= e.cursor; i-- {
		it := e.items[i]
		if it.kind != 'P' || s.names[it.name] != it.statement {
			continue
		}
		if it.previous == nil {
			delete(s.names, it.name)
		} else {
			s.names[it.name] = it.previous
		}
	}
}
