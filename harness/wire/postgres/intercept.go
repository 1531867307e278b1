package pgwire

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/overbook/overbook/harness"
)

// An encounter is a unit at a moment. Whatever holds, fails or loses units
// stands on it: it is asked who wants to stop the unit there (wants, ahead,
// so that the unit can be taken apart and its answer kept), and when it is
// there (meet).
type encounter struct {
	session    *session
	unit       *unit
	moment     harness.Moment
	aborted    bool     // the transaction has failed already
	statements int      // so many of the unit's statements come into question, at a statement's moment
	texts      []string // of the transaction's statements, at a commit's moment
	explicit   bool     // there is a COMMIT in the unit,
	commit     int      // which is this statement
}

// A response is what somebody does about an encounter. It may take as long as
// ctx lives, and the unit waits for it. ctx ends when either side of the
// connection has gone; the unit is then lost.
type response func(ctx context.Context) verdict

// A verdict is how the unit goes on. The zero one lets it go on as it would.
type verdict struct {
	code      string // SQLSTATE of the error that it ends with instead
	statement int    // which one has it
}

// An interceptor waits for units. Both calls come with interceptors.mu held.
type interceptor interface {
	// wants says whether it may stop the unit at that moment.
	wants(e encounter) bool

	// meet gives what it does; nil lets the unit pass. taken says that another
	// one before it acts on the unit.
	meet(e encounter, taken bool) (do response, takes bool)
}

// interceptors are those that are in place, in the order in which they came.
type interceptors struct {
	mu    sync.Mutex
	list  []interceptor
	count atomic.Int64
}

func (i *interceptors) add(x interceptor) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.list = append(i.list, x)
	i.count.Store(int64(len(i.list)))
}

func (i *interceptors) remove(x interceptor) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.list = slices.DeleteFunc(i.list, func(o interceptor) bool { return o == x })
	i.count.Store(int64(len(i.list)))
}

func (i *interceptors) all() []interceptor {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.list)
}

// watching reports whether units have to be guided.
func (w *Wire) watching() bool { return w.config.Split || w.interceptors.count.Load() > 0 }

func (w *Wire) wanted(e encounter) bool {
	w.interceptors.mu.Lock()
	defer w.interceptors.mu.Unlock()
	return slices.ContainsFunc(w.interceptors.list, func(i interceptor) bool { return i.wants(e) })
}

// meet gives what is to be done about a unit at a moment, in order.
func (w *Wire) meet(e encounter) []response {
	w.interceptors.mu.Lock()
	defer w.interceptors.mu.Unlock()
	var do []response
	taken := false
	for _, i := range w.interceptors.list {
		r, takes := i.meet(e, taken)
		taken = taken || takes
		if r != nil {
			do = append(do, r)
		}
	}
	return do
}

// match says whether a text of the encounter satisfies the test, and which
// statement of the unit it is about.
func (e encounter) match(test func(string) bool) (statement int, ok bool) {
	if e.moment == harness.BeforeCommit || e.moment == harness.AfterCommit {
		return e.about(), slices.ContainsFunc(e.texts, test)
	}
	for i, x := range e.unit.executions[:e.statements] {
		if test(x.statement.match) {
			return i, true
		}
	}
	return 0, false
}

// about is the statement that commits.
func (e encounter) about() int {
	if e.explicit {
		return e.commit
	}
	return len(e.unit.executions) - 1
}
