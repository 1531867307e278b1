package pgwire

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

const troublesKept = 8

// A ledger is the record of a wire.
type ledger struct {
	clock clock.Clock
	limit int

	mu           sync.Mutex
	units        []*harness.Unit
	seq          int
	sessions     int
	transactions int
	troubles     []error
}

// arrive records a unit that has been read whole.
func (l *ledger) arrive(r *harness.Unit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	r.Seq, r.Arrived = l.seq, l.clock.Now()
	if len(l.units) < l.limit {
		l.units = append(l.units, r)
		return
	}
	if l.seq == l.limit+1 {
		l.add(fmt.Errorf("more than %d units: the rest is not in the record", l.limit))
	}
}

// note changes a unit's record.
func (l *ledger) note(r *harness.Unit, change func(*harness.Unit)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(r)
}

// ended notes why a unit ended without a whole answer; the first reason counts.
func (l *ledger) ended(r *harness.Unit, why string) {
	l.note(r, func(r *harness.Unit) {
		if r.Err == "" {
			r.Err = why
		}
	})
}

// undelivered takes back that the unit's answer was handed over.
func (l *ledger) undelivered(r *harness.Unit, why string) {
	l.note(r, func(r *harness.Unit) {
		r.Delivered = 0
		if r.Err == "" {
			r.Err = why
		}
	})
}

func (l *ledger) snapshot() []harness.Unit {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]harness.Unit, len(l.units))
	for i, r := range l.units {
		list[i] = *r
	}
	return list
}

func (l *ledger) copies(records []*harness.Unit) []harness.Unit {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]harness.Unit, len(records))
	for i, r := range records {
		list[i] = *r
	}
	return list
}

func (l *ledger) session() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions++
	return l.sessions
}

func (l *ledger) transaction() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.transactions++
	return l.transactions
}

func (l *ledger) now() time.Duration { return l.clock.Now() }

// trouble notes why the record is not whole.
func (l *ledger) trouble(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(err)
}

func (l *ledger) add(err error) {
	if len(l.troubles) < troublesKept {
		l.troubles = append(l.troubles, err)
	}
}

func (l *ledger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.troubles) == 0 {
		return nil
	}
	return fmt.Errorf("the Postgres wire's record is not whole: %w", errors.Join(l.troubles...))
}
