package pgwire

import (
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/overbook/overbook/harness"
)

// An item is a message of the extended protocol that Postgres answers.
type item struct {
	kind      byte // P, B, D, E, C as on the wire
	about     byte // S or P, of D and C
	order     int  // within the session
	name      string
	statement *statement
	previous  *statement // that a Parse takes the name from
	execution int        // of an E that begins one, else -1
}

// An execution is one statement of a unit, run once.
type execution struct {
	statement *statement
	params    []string
	order     int // within the session
	item      int // its E
	from, to  int // its E in the unit's bytes

	// The answer. Written by whoever reads answers, before the exchange is over.
	done            bool // it ran to its end, or as far as it was asked for
	tag, code, text string
}

// A unit is what a session sends up to a Sync, a Query or a Flush, on its way.
type unit struct {
	end   byte   // S, Q, H, or F for a function call
	raw   []byte // valid until it is forwarded
	query string // of a Query

	items      []item
	executions []execution
	copyIn     bool

	begun    bool // those before it are answered; guarded by session.mu
	executed int  // statements of a Query that were answered
	failed   bool // there was an error in the answer

	record *harness.Unit // guarded by the ledger
}

// A portal is a bound statement.
type portal struct {
	statement *statement
	params    []string
	begun     bool
}

// collect reads the message of kind with so many bytes and makes it part of
// the unit that is being gathered.
func (s *session) collect(kind byte, length int) error {
	u := s.gathering
	from := len(u.raw)
	if from+length > unitMost {
		return &brokenError{fmt.Sprintf("a unit of more than %d bytes: it has to be read whole before it is passed on", unitMost)}
	}
	err := s.client.pass(length, func(piece []byte) error {
		u.raw = append(u.raw, piece...)
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.understand(kind, u, from); err != nil && !s.strange {
		s.strange = true
		s.wire.ledger.trouble(fmt.Errorf("session %d of %s: a message of type %q can't be read: %w", s.id, s.name, kind, err))
	}
	return nil
}

// understand notes what a message of the unit means. It has no hold on what
// is forwarded.
func (s *session) understand(kind byte, u *unit, from int) error {
	body := u.raw[from+headSize:]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order++
	it := item{kind: kind, execution: -1, order: s.order}
	var err error
	switch kind {
	case 'P':
		err = s.parse(&it, body)
	case 'B':
		err = s.bind(body)
	case 'D', 'C':
		if len(body) == 0 {
			return fmt.Errorf("it is empty")
		}
		it.about = body[0]
		it.name, _ = cString(body[1:])
		it.statement = s.names[it.name]
		if kind == 'C' && it.about == 'P' {
			delete(s.portals, it.name)
		}
	case 'E':
		s.execute(&it, u, body, from)
	case 'Q':
		u.query, _ = cString(body)
		for _, st := range pieces(u.query, s.backslash) {
			u.add(execution{statement: st, order: s.order})
		}
		return nil
	case 'F':
		if len(body) < 4 {
			return fmt.Errorf("it is cut short")
		}
		u.add(execution{statement: named("function call %d", binary.BigEndian.Uint32(body))})
		return nil
	default:
		return nil
	}
	u.items = append(u.items, it)
	return err
}

// named stands in for a statement whose text was never sent.
func named(format string, args ...any) *statement {
	text := recorded(fmt.Sprintf(format, args...), recordedSQL)
	return &statement{text: text, match: text}
}

func (u *unit) add(x execution) {
	u.executions = append(u.executions, x)
	u.copyIn = u.copyIn || x.statement.copyIn
}

func (s *session) parse(it *item, body []byte) error {
	var m pgproto3.Parse
	if err := m.Decode(body); err != nil {
		return err
	}
	it.name = m.Name
	it.statement = newStatement(m.Query, s.backslash)
	it.statement.types, it.statement.since = m.ParameterOIDs, it.order
	it.previous = s.names[m.Name]
	s.names[m.Name] = it.statement
	return nil
}

func (s *session) bind(body []byte) error {
	var m pgproto3.Bind
	if err := m.Decode(body); err != nil {
		return err
	}
	st := s.names[m.PreparedStatement]
	if st == nil {
		st = named("unknown prepared statement %q", m.PreparedStatement)
	}
	p := &portal{statement: st}
	for i, value := range m.Parameters {
		if i == recordedParams {
			p.params = append(p.params, fmt.Sprintf("... %d more", len(m.Parameters)-i))
			break
		}
		var format int16
		switch {
		case len(m.ParameterFormatCodes) == 1:
			format = m.ParameterFormatCodes[0]
		case i < len(m.ParameterFormatCodes):
			format = m.ParameterFormatCodes[i]
		}
		var oid uint32
		if i < len(st.types) {
			oid = st.types[i]
		}
		p.params = append(p.params, parameter(value, format, oid))
	}
	s.portals[m.DestinationPortal] = p
	return nil
}

// execute notes an Execute. One that goes on with a portal is no new execution.
func (s *session) execute(it *item, u *unit, body []byte, from int) {
	name, _ := cString(body)
	p := s.portals[name]
	if p == nil {
		p = &portal{statement: named("unknown portal %q", name)}
	}
	it.name, it.statement = name, p.statement
	if p.begun || p.statement.blank {
		return
	}
	p.begun = true
	it.execution = len(u.executions)
	u.add(execution{statement: p.statement, params: p.params, order: it.order, item: len(u.items), from: from, to: len(u.raw)})
}

// statements is the unit's part of the record: without answers on arrival,
// with them at its end.
func (u *unit) statements() []harness.Statement {
	if len(u.executions) == 0 {
		return nil
	}
	list := make([]harness.Statement, len(u.executions))
	for i, x := range u.executions {
		list[i] = harness.Statement{SQL: x.statement.text, Params: x.params, Tag: x.tag, Code: x.code, Text: x.text}
	}
	return list
}

// line is a statement of the unit on one line, for people.
func (u *unit) line(execution int) string {
	if execution < 0 || execution >= len(u.executions) {
		return "end of an implicit transaction"
	}
	return recorded(u.executions[execution].statement.match, lineSQL)
}
