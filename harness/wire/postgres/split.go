package pgwire

import "github.com/overbook/overbook/harness"

// split runs the unit in two parts, with the moment between them at which all
// of its statements are executed and nothing is committed. The server under
// test gets the answers that it would have got.
func (p *passage) split() error {
	if err := p.first(); err != nil {
		return err
	}
	if !p.answer.failed {
		v, err := p.between()
		if err != nil {
			return err
		}
		if v.code != "" {
			return p.failCommit(v)
		}
	}
	return p.answered(p.second())
}

// first runs what is before the commit.
func (p *passage) first() error {
	e := &exchange{unit: p.u, end: 'Q', answer: &p.answer}
	bytes := p.u.raw
	switch p.cut.how {
	case splitFlush:
		e.end, e.items = 'H', p.u.items[:p.cut.items]
		bytes = append(append([]byte(nil), p.u.raw[:p.cut.offset]...), flushFrame...)
	case splitText:
		bytes = queryFrame(p.u.query[:p.cut.offset])
	case splitWrap:
		begun, err := p.command("BEGIN")
		if err != nil {
			return err
		}
		if begun.failed {
			p.sever("BEGIN around an implicit transaction failed: " + begun.err.message)
			return &lostError{"BEGIN around an implicit transaction failed"}
		}
	case splitNot:
	}
	err := p.ask(e, bytes)
	p.sent = progress{p.cut.offset, p.cut.items}
	p.answer.at = 0 // it is not whole yet
	return err
}

// between is the moment at which everything is executed.
func (p *passage) between() (verdict, error) {
	if p.afterStatement {
		if _, err := p.at(harness.AfterStatement, p.cut.statements); err != nil {
			return verdict{}, err
		}
	}
	if p.beforeCommit {
		return p.at(harness.BeforeCommit, 0)
	}
	return verdict{}, nil
}

// second runs the commit, or what is left to do after an error.
func (p *passage) second() error {
	switch p.cut.how {
	case splitFlush:
		e := &exchange{unit: p.u, end: p.u.end, items: p.u.items[p.cut.items:], answer: &p.answer}
		return p.ask(e, p.u.raw[p.cut.offset:])
	case splitText:
		if p.answer.failed {
			p.answer.at = p.wire.ledger.now()
			return nil // Postgres would not have looked at the rest either
		}
		p.answer.replace(p.answer.ready, nil)
		return p.ask(&exchange{unit: p.u, end: 'Q', answer: &p.answer}, queryFrame(p.u.query[p.cut.offset:]))
	case splitWrap:
		return p.unwrap()
	case splitNot:
	}
	return nil
}

// unwrap ends the transaction that we began around a query. The server under
// test must not see it: the status is the one of a session without BEGIN, and
// a COMMIT that fails is the last statement's failure.
func (p *passage) unwrap() error {
	command := "COMMIT"
	if p.answer.failed {
		command = "ROLLBACK"
	}
	ended, err := p.command(command)
	if ended.at == 0 {
		return err
	}
	if !p.answer.failed {
		// Postgres says that the last statement is complete when it has committed.
		outcome := p.answer.bytes[p.answer.complete.from:p.answer.complete.to]
		if ended.failed {
			p.blameLast(ended.err)
			p.answer.failed = true
			outcome = ended.bytes[ended.failure.from:ended.failure.to]
		}
		p.answer.replace(p.answer.complete, append(ended.notices, outcome...))
	}
	p.answer.finish(ended.status, ended.aside)
	p.answer.at = ended.at
	return err
}

// blameLast makes the error that of the unit's last statement.
func (p *passage) blameLast(err errorBody) {
	p.u.failed = true
	if n := len(p.u.executions); n > 0 {
		p.u.blame(n-1, err)
	}
}
