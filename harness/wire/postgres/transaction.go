package pgwire

import "github.com/overbook/overbook/harness"

// Of one transaction.
const (
	textsKept = 1000   // statements that Match is tried on
	unitsKept = 10_000 // units that OpenTransactions gives
)

// A transaction is what a session knows of the one that it is in. Guarded by
// session.mu.
//
// Postgres tells the status at the end of a Query and at a Sync. Between them,
// after a Flush, it is worked out from what was executed: a statement outside
// of BEGIN opens an implicit transaction, which ends at the Sync.
type transaction struct {
	status   byte // I, T or E
	implicit bool // T or E without BEGIN: it ends at the Sync
	number   int
	units    []*harness.Unit // the first of them
	last     *harness.Unit
	texts    []string // of its statements
}

// join makes the unit part of the transaction that it runs in, a new one
// where there is none and it executes something.
func (t *transaction) join(u *unit, number func() int) {
	if t.status == 'I' {
		if len(u.executions) == 0 {
			return
		}
		if t.number == 0 {
			t.number = number()
		}
	}
	if t.last = u.record; len(t.units) < unitsKept {
		t.units = append(t.units, u.record)
	}
	for _, x := range u.executions {
		if len(t.texts) < textsKept {
			t.texts = append(t.texts, x.statement.match)
		}
	}
}

// leave works out what the unit's answer did to the transaction. ready is the
// status that Postgres told, 0 where it told none.
func (t *transaction) leave(u *unit, ready byte, number func() int) (committed bool) {
	for i := range u.executions {
		committed = t.step(&u.executions[i]) || committed
	}
	if u.failed && t.status == 'T' {
		t.status = 'E'
	}
	if ready != 0 {
		committed = committed || t.implicit && t.status == 'T' && ready == 'I'
		t.status, t.implicit = ready, false
	}
	switch {
	case t.status == 'I':
		*t = transaction{status: 'I'}
	case committed: // and another one is open already
		*t = transaction{status: t.status, implicit: t.implicit, number: number()}
	}
	return committed
}

// step takes one statement's answer into account.
func (t *transaction) step(x *execution) (committed bool) {
	switch {
	case x.code != "":
		if t.status == 'I' {
			t.implicit = true
		}
		t.status = 'E'
	case !x.done:
	case x.statement.control == controlBegin:
		t.status, t.implicit = 'T', false
	case x.statement.control == controlCommit:
		committed = x.tag == "COMMIT"
		t.end(x.statement.chain)
	case x.statement.control == controlRollback:
		t.end(x.statement.chain)
	case t.status == 'I':
		t.status, t.implicit = 'T', true
	}
	return committed
}

func (t *transaction) end(chain bool) {
	t.status, t.implicit = 'I', false
	if chain {
		t.status = 'T'
	}
}

// A cut is where a unit's commit is, and how the unit can be taken apart
// there, so that there is a moment at which all before it is executed and
// nothing is committed.
type cut struct {
	commits    bool // it is to commit, if nothing fails
	explicit   bool // by a COMMIT in it
	statements int  // executions before the commit
	how        splitting
	offset     int // of the second part in the unit's bytes, or in the query's text
	items      int // of the first part
}

type splitting byte

const (
	splitNot   splitting = iota
	splitFlush           // a Flush of ours behind the first part
	splitText            // two queries, in a transaction block
	splitWrap            // BEGIN and COMMIT of ours around the query
)

// cut finds the first commit in a unit, by what its statements say.
func (t *transaction) cut(u *unit) cut {
	if t.status == 'E' {
		return cut{}
	}
	block, pending := t.status == 'T' && !t.implicit, t.implicit
	for i, x := range u.executions {
		switch x.statement.control {
		case controlBegin:
			block = true
		case controlCommit:
			c := cut{commits: true, explicit: true, statements: i}
			c.split(u, block, t.status)
			return c
		case controlRollback:
			block, pending = x.statement.chain, false
		case controlNone:
			pending = pending || !block
		}
	}
	if !pending || block || u.end == 'H' {
		return cut{}
	}
	c := cut{commits: true, statements: len(u.executions)}
	c.split(u, false, t.status)
	return c
}

// split finds out how the unit can be taken apart at its commit.
func (c *cut) split(u *unit, block bool, status byte) {
	if u.copyIn || c.statements == 0 || u.end == 'F' || u.end == 'Q' && len(u.items) > 0 {
		return
	}
	switch {
	case u.end != 'Q' && c.explicit:
		last := u.executions[c.statements-1]
		c.how, c.offset, c.items = splitFlush, last.to, last.item+1
	case u.end != 'Q':
		c.how, c.offset, c.items = splitFlush, len(u.raw)-headSize, len(u.items)
	case c.explicit && block && c.statements == len(u.executions)-1 && u.executions[c.statements].statement.plain:
		// Only where nothing is behind it: Postgres reads a query to its end before it runs any of it.
		c.how, c.offset = splitText, u.executions[c.statements].statement.offset
	case !c.explicit && status == 'I':
		for _, x := range u.executions {
			if !x.statement.plain {
				return
			}
		}
		c.how = splitWrap
	}
}
