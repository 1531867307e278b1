package calendar

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// A book is what the provider knows of one calendar.
type book struct {
	name   string
	events map[string]Event // by id: ours and the others'
	spent  map[string]bool  // ids that can't be created any more
	made   map[string]int   // by id: how often an event of ours was made
	tokens session
	frozen *snapshot // free/busy as it was, nil when it is fresh
	quota  quota
	queue  []moment // external events whose moment has not come, in the order in which they were asked for

	refreshes, refused int
}

// A snapshot is a calendar as it was at a time.
type snapshot struct {
	at     time.Time
	events []Event
}

// A quota is what is left of a behaviour's counts.
type quota struct {
	fail     map[string]int // by kind of call; -1: all
	limit    RateLimit      // what is left of it; For 0: none
	answered map[string]int // by kind and event id: calls that were decided
}

func newBook(name string) *book {
	return &book{name: name, events: map[string]Event{}, spent: map[string]bool{}, made: map[string]int{}, tokens: newSession()}
}

// clone gives a book that can be gone back to.
func (b *book) clone() *book {
	c := *b
	c.events, c.spent, c.made = maps.Clone(b.events), maps.Clone(b.spent), maps.Clone(b.made)
	c.quota.fail, c.quota.answered = maps.Clone(b.quota.fail), maps.Clone(b.quota.answered)
	c.tokens, c.queue = b.tokens.clone(), slices.Clone(b.queue)
	return &c
}

// overlapping gives the events that overlap a range, by start. What ends where
// the range starts does not overlap it.
func (b *book) overlapping(start, end time.Time) []Event { return within(b.sorted(), start, end) }

func within(events []Event, start, end time.Time) []Event {
	return only(events, func(e Event) bool { return e.Start.Before(end) && e.End.After(start) })
}

// sorted gives all events by start, then by id.
func (b *book) sorted() []Event {
	return slices.SortedFunc(maps.Values(b.events), func(x, y Event) int {
		return cmp.Or(x.Start.Compare(y.Start), strings.Compare(x.EventID, y.EventID))
	})
}

// externals gives the ids of the others' events that overlap a range, never nil.
func (b *book) externals(start, end time.Time) []string {
	ids := []string{}
	for _, e := range b.overlapping(start, end) {
		if e.Source == TheOther {
			ids = append(ids, e.EventID)
		}
	}
	return ids
}

// begin has a behaviour's counts start anew.
func (b *book) begin(w Behaviour, now time.Time) {
	b.quota = quota{fail: maps.Clone(w.FailFirst), answered: map[string]int{}}
	if w.RateLimit != nil {
		b.quota.limit = *w.RateLimit
	}
	switch {
	case w.Freebusy == Fresh:
		b.frozen = nil
	case b.frozen == nil:
		b.frozen = &snapshot{now, b.sorted()}
	}
}

// failing takes one of the failures that are left for a kind of call.
func (q *quota) failing(kind string) bool {
	left := q.fail[kind]
	if left > 0 {
		q.fail[kind]--
	}
	return left != 0
}

// limited counts a call, and says whether it is refused.
func (q *quota) limited() bool {
	switch {
	case q.limit.For == 0:
		return false
	case q.limit.After > 0:
		q.limit.After--
		return false
	}
	q.limit.For--
	return true
}

// answer gives how a call that was decided is answered.
func (q *quota) answer(w Behaviour, kind, id string) string {
	rule, ruled := w.answers()[kind]
	if !ruled {
		return Final
	}
	key := kind + " " + id
	q.answered[key]++
	if rule.first > 0 && q.answered[key] > rule.first {
		return Final
	}
	return rule.word
}

// row is the book's row in the ledger; waiting creates are not its business.
func (b *book) row(waiting int) Calendar {
	created := 0
	for _, n := range b.made {
		created += n
	}
	return Calendar{Calendar: b.name, Refreshes: b.refreshes, Refused: b.refused, Created: created, Waiting: waiting, Moments: len(b.queue)}
}
