package linear

import (
	"cmp"
	"slices"
	"time"
)

// A history is the calls on one key, ready for searching.
type history struct {
	key     string
	calls   []Call // by return; those of unknown outcome last
	known   int    // answered calls
	classes []int32
	t       *table
	start   int32
}

func newHistory(m Model, key string, calls []Call) *history {
	h := &history{key: key, calls: slices.Clone(calls), t: newTable(m)}
	slices.SortStableFunc(h.calls, func(a, b Call) int {
		return cmp.Or(cmp.Compare(end(a), end(b)), cmp.Compare(a.Call, b.Call), cmp.Compare(a.ID, b.ID))
	})
	for _, c := range h.calls {
		h.classes = append(h.classes, h.t.class(c))
		if c.known() {
			h.known++
		}
	}
	h.start = h.t.state(m.Init(key))
	return h
}

// end is the last instant at which the call may take effect.
func end(c Call) time.Duration {
	if c.known() {
		return c.Return
	}
	return forever
}

// problem makes a problem of the calls that were sent by the instant. The
// known ones that must says so of have to take effect as they were answered.
// All others may: in their time, with the answer that they got, or not at all.
// So whatever order there is for the whole history gives one for each such
// problem, and a problem without an order proves that the history has none.
func (h *history) problem(by time.Duration, must func(i int) bool) problem {
	var p problem
	for i, c := range h.calls {
		it := item{call: i, class: h.classes[i], from: c.Call, to: end(c)}
		switch {
		case c.Call > by:
		case c.known() && must(i):
			p.must = append(p.must, it)
		case h.t.classes[it.class].observes: // says nothing when it need not be so
		default:
			p.may = append(p.may, it)
		}
	}
	return p
}
