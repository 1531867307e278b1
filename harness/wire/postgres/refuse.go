package pgwire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
)

// fatalStates are those after which Postgres closes the connection.
var fatalStates = []string{"57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04", "53300"}

// errorMessages are Postgres' own words.
var errorMessages = map[string]string{
	"40001": "could not serialize access due to concurrent update",
	"40P01": "deadlock detected",
	"53300": "sorry, too many clients already",
	"55P03": "canceling statement due to lock timeout",
	"57014": "canceling statement due to user request",
	"57P01": "terminating connection due to administrator command",
	"57P02": "terminating connection because of crash of another server process",
	"57P03": "the database system is shutting down",
	"57P05": "terminating connection due to idle-session timeout",
	"25P03": "terminating connection due to idle-in-transaction timeout",
}

func injected(code string) errorBody {
	message, known := errorMessages[code]
	if !known {
		message = "error " + code + " put in by Overbook"
	}
	e := errorBody{severity: "ERROR", code: code, message: message}
	if slices.Contains(fatalStates, code) {
		e.severity = "FATAL"
	}
	return e
}

func (e errorBody) frame() []byte { return errorFrame(e.severity, e.code, e.message) }

func errorFrame(severity, code, message string) []byte {
	var b []byte
	for _, field := range []struct {
		kind byte
		text string
	}{{'S', severity}, {'V', severity}, {'C', code}, {'M', message}} {
		b = append(b, field.kind)
		b = append(b, field.text...)
		b = append(b, 0)
	}
	return frame('E', append(b, 0)...)
}

// raising is a statement that fails with the state wanted, so that Postgres
// does to the transaction what it does after an error.
func raising(e errorBody) string {
	return fmt.Sprintf("DO $overbook$ BEGIN RAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = '%s'; END $overbook$",
		e.code, strings.ReplaceAll(e.message, "'", "''"))
}

// failStatement has one statement of the unit fail instead of being executed.
// Those before it are executed, those behind it are not.
func (p *passage) failStatement(v verdict) error {
	e := injected(v.code)
	if e.fatal() {
		return p.failFatally(e, v.statement)
	}
	if p.u.end == 'Q' && len(p.u.items) == 0 {
		return p.failQuery(e, v.statement)
	}
	return p.failBefore(e, v.statement, raising(e))
}

// failQuery puts a failing statement in the place of one in a query.
func (p *passage) failQuery(e errorBody, statement int) error {
	sql := p.u.query[:p.u.executions[statement].statement.offset] + raising(e)
	err := p.ask(&exchange{unit: p.u, end: 'Q', answer: &p.answer}, queryFrame(sql))
	if p.answer.failed && p.u.executed == statement {
		p.answer.replace(p.answer.failure, e.frame())
		p.u.blame(statement, e)
	}
	p.afterStatement, p.afterCommit = false, false
	return p.answered(err)
}

// failBefore forwards what is before the Execute of a statement, and has
// Postgres run something else instead of it and all that follows.
func (p *passage) failBefore(e errorBody, statement int, instead string) error {
	p.afterStatement, p.afterCommit = false, false
	from, items := 0, 0
	if p.u.end != 'F' && p.u.end != 'Q' && statement < len(p.u.executions) {
		x := p.u.executions[statement]
		from, items = x.from, x.item
	}
	done := p.sent
	if from > done.bytes {
		part := &exchange{unit: p.u, end: 'H', items: p.u.items[done.items:items], answer: &p.answer}
		if err := p.ask(part, append(append([]byte(nil), p.u.raw[done.bytes:from]...), flushFrame...)); err != nil {
			return err
		}
		p.answer.at = 0
		if p.answer.failed { // by itself: then that is the answer
			rest := &exchange{unit: p.u, end: p.u.end, items: p.u.items[items:], answer: &p.answer}
			return p.answered(p.ask(rest, p.u.raw[from:]))
		}
	}
	return p.failWith(e, statement, instead)
}

// failWith ends the unit with an error, after Postgres has run instead.
func (p *passage) failWith(e errorBody, statement int, instead string) error {
	p.wire.ledger.note(p.u.record, func(r *harness.Unit) {
		if r.Forwarded == 0 {
			r.Forwarded = p.wire.ledger.now()
		}
	})
	ended, err := p.command(instead)
	if ended.at == 0 {
		return err
	}
	p.u.failed = true
	if n := len(p.u.executions); n > 0 {
		p.u.blame(min(statement, n-1), e)
	}
	p.answer.failed, p.answer.at, p.answer.status = true, ended.at, ended.status
	p.answer.bytes = append(append(p.answer.bytes, e.frame()...), ended.aside...)
	if p.u.end == 'H' {
		p.skip = true // no Sync yet: the server under test sends it when it has read the error
	} else {
		p.answer.bytes = append(p.answer.bytes, frame('Z', ended.status)...)
	}
	return p.answered(err)
}

// failWhole has a unit fail whose commit comes first in it, or which can't be
// taken apart.
func (p *passage) failWhole(v verdict) error {
	e := injected(v.code)
	switch {
	case e.fatal():
		return p.failFatally(e, p.cut.statements)
	case p.cut.statements == 0 && p.u.end == 'Q':
		return p.failWith(e, 0, "ROLLBACK")
	case p.cut.statements == 0:
		return p.failBefore(e, 0, "ROLLBACK")
	}
	return p.failStatement(verdict{code: v.code})
}

// failCommit rolls back what is executed and not committed.
func (p *passage) failCommit(v verdict) error {
	e := injected(v.code)
	at := min(p.cut.statements, len(p.u.executions)-1)
	if e.fatal() {
		return p.failFatally(e, at)
	}
	switch {
	case p.cut.how == splitFlush && p.cut.explicit:
		return p.failBefore(e, at, "ROLLBACK")
	case p.cut.how == splitFlush:
		return p.failWith(e, at, "ROLLBACK")
	case p.cut.how == splitText:
		p.answer.replace(p.answer.ready, nil)
		return p.failWith(e, at, "ROLLBACK")
	}
	return p.failWrapped(e, at)
}

// failWrapped fails a query around which we put BEGIN and COMMIT.
func (p *passage) failWrapped(e errorBody, at int) error {
	ended, err := p.command("ROLLBACK")
	if ended.at == 0 {
		return err
	}
	p.u.failed, p.answer.failed = true, true
	p.u.blame(at, e)
	p.answer.replace(p.answer.complete, e.frame())
	p.answer.finish(ended.status, ended.aside)
	p.answer.at = ended.at
	return p.answered(err)
}

// failFatally ends the connection with an error, as Postgres does when it is
// told to. Postgres itself sees a connection that breaks.
func (p *passage) failFatally(e errorBody, statement int) error {
	if n := len(p.u.executions); n > 0 {
		p.u.blame(min(statement, n-1), e)
	}
	statements := p.u.statements()
	p.wire.ledger.note(p.u.record, func(r *harness.Unit) { r.Statements = statements })
	why := "FATAL " + e.code + " put in by Overbook"
	p.wire.ledger.ended(p.u.record, why)
	_ = p.deliver(e.frame(), true) // whether or not it arrives, the connection ends
	p.endFatally(why)
	return &lostError{why}
}
