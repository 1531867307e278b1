package pgwire

import (
	"context"

	"github.com/overbook/overbook/harness"
)

// A passage is a unit being guided past the moments at which something waits
// for it.
type passage struct {
	*session
	u       *unit
	cut     cut
	texts   []string // of its transaction
	aborted bool     // it has failed already
	sent    progress // of a unit that is split
	answer  answer

	beforeStatement, afterStatement, beforeCommit, afterCommit bool // something may wait there
}

// A progress is how far a unit has been forwarded.
type progress struct{ bytes, items int }

// guide takes a unit past its moments, alone: nothing else of the session is
// on its way.
func (s *session) guide(u *unit) error {
	p := s.passage(u)
	if p.beforeStatement {
		v, err := p.at(harness.BeforeStatement, len(u.executions))
		if err != nil {
			return err
		}
		if v.code != "" {
			return p.failStatement(v)
		}
	}
	if p.cut.how != splitNot && (p.afterStatement || p.beforeCommit || s.wire.config.Split) {
		return p.split()
	}
	if p.beforeCommit {
		v, err := p.at(harness.BeforeCommit, 0)
		if err != nil {
			return err
		}
		if v.code != "" {
			return p.failWhole(v)
		}
	}
	if !p.afterStatement && !p.afterCommit {
		return s.forward(u)
	}
	return p.whole()
}

// passage finds out which moments of the unit somebody wants.
func (s *session) passage(u *unit) *passage {
	s.mu.Lock()
	p := &passage{session: s, u: u, cut: s.tx.cut(u), texts: s.tx.texts, aborted: s.tx.status == 'E'}
	s.mu.Unlock()
	p.beforeStatement = p.wanted(harness.BeforeStatement, len(u.executions))
	p.afterStatement = p.wanted(harness.AfterStatement, p.uncommitted())
	if p.cut.commits {
		p.beforeCommit = p.wanted(harness.BeforeCommit, 0)
		p.afterCommit = p.wanted(harness.AfterCommit, 0)
	}
	return p
}

// uncommitted is how many of the unit's statements have a moment at which
// they are executed and not committed.
func (p *passage) uncommitted() int {
	switch {
	case !p.cut.commits:
		return len(p.u.executions)
	case p.cut.how == splitNot:
		return 0
	}
	return p.cut.statements
}

func (p *passage) encounter(m harness.Moment, statements int) encounter {
	return encounter{
		session: p.session, unit: p.u, moment: m, aborted: p.aborted, statements: statements,
		texts: p.texts, explicit: p.cut.explicit, commit: p.cut.statements,
	}
}

func (p *passage) wanted(m harness.Moment, statements int) bool {
	return p.wire.wanted(p.encounter(m, statements))
}

// at lets who waits for the unit at the moment act, and tells how it goes on.
// The error says that it doesn't.
func (p *passage) at(m harness.Moment, statements int) (verdict, error) {
	responses := p.wire.meet(p.encounter(m, statements))
	if len(responses) == 0 {
		return verdict{}, nil
	}
	ctx, stop := p.watch()
	defer stop()
	for _, respond := range responses {
		v := respond(ctx)
		if ctx.Err() != nil {
			return verdict{}, context.Cause(ctx)
		}
		if v.code != "" {
			return v, nil
		}
	}
	return verdict{}, nil
}

// ask sends a part of the unit, or a command of our own, and waits for the
// answer.
func (p *passage) ask(e *exchange, bytes []byte) error {
	e.done, e.copies = make(chan struct{}), make(chan struct{}, 1)
	p.detain()
	if err := p.send(e, bytes); err != nil {
		// Postgres is gone; whatever it said before is with the other goroutine.
		<-p.ctx.Done()
		return context.Cause(p.ctx)
	}
	for {
		copies, err := p.awaitAnswer(e)
		if err != nil || !copies {
			return err
		}
		if err := p.copyIn(e); err != nil {
			return err
		}
	}
}

// awaitAnswer waits for the answer, or for the wish to have data. When the
// server under test goes away meanwhile, Postgres is told so and its answer
// is still waited for: it says what became of the unit.
func (p *passage) awaitAnswer(e *exchange) (copies bool, err error) {
	ctx, stop := p.watch()
	select {
	case <-e.done:
	case <-e.copies:
		copies = true
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	stop()
	if err == nil || p.ctx.Err() != nil {
		return copies, err
	}
	p.leave(err)
	select {
	case <-e.done:
	case <-p.ctx.Done():
	}
	return false, err
}

// copyIn passes on the data of a COPY, up to their end.
func (p *passage) copyIn(e *exchange) error {
	for {
		kind, length, err := p.client.next()
		if err != nil {
			return &lostError{whyClient}
		}
		if err := p.passRaw(kind, length); err != nil {
			return err
		}
		if kind != 'c' && kind != 'f' {
			continue
		}
		if e.end != 'S' {
			return nil
		}
		if kind, length, err = p.client.next(); err != nil {
			return &lostError{whyClient}
		}
		return p.passRaw(kind, length)
	}
}

// command has Postgres do something of our own.
func (p *passage) command(sql string) (*answer, error) {
	a := &answer{}
	return a, p.ask(&exchange{end: 'Q', answer: a}, queryFrame(sql))
}

// whole lets the unit run without taking it apart, and holds its answer.
func (p *passage) whole() error {
	err := p.ask(&exchange{unit: p.u, end: p.u.end, items: p.u.items, answer: &p.answer}, p.u.raw)
	return p.answered(err)
}

// answered goes on with the unit when all of its answer is there; err is why
// it is not, or why nobody is there to have it.
func (p *passage) answered(err error) error {
	if p.answer.at == 0 {
		return err
	}
	committed := p.conclude(p.answer.status)
	if err != nil {
		return err
	}
	if p.afterStatement && !p.cut.commits && !p.answer.failed {
		if _, err := p.at(harness.AfterStatement, p.uncommitted()); err != nil {
			return err
		}
	}
	if p.afterCommit && committed {
		if _, err := p.at(harness.AfterCommit, 0); err != nil {
			return err
		}
	}
	return p.deliver(p.answer.bytes, false)
}

// conclude records what the answer says.
func (p *passage) conclude(status byte) (committed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	committed, after := p.account(p.u, status)
	statements := p.u.statements()
	p.wire.ledger.note(p.u.record, func(r *harness.Unit) {
		r.Statements, r.After, r.Committed, r.Answered = statements, after, committed, p.answer.at
	})
	return committed
}

// detain keeps what Postgres sends from the server under test.
func (p *passage) detain() { p.detained.Store(true) }

// deliver hands over the answer, and what Postgres has sent meanwhile.
// last says that nothing may come behind it.
func (p *passage) deliver(answer []byte, last bool) error {
	p.wire.ledger.note(p.u.record, func(r *harness.Unit) { r.Delivered = p.wire.ledger.now() })
	p.outMu.Lock()
	defer p.outMu.Unlock()
	p.detained.Store(false)
	_, err := p.out.Write(answer)
	if err == nil {
		_, err = p.out.Write(p.parked)
	}
	if err == nil {
		err = p.out.Flush()
	}
	p.parked = nil
	p.muted = last
	if err != nil {
		p.wire.ledger.undelivered(p.u.record, whyClient)
		return &lostError{whyClient}
	}
	return nil
}
