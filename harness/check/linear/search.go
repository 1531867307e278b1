package linear

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"
)

// forever is the end of a call that stays open.
const forever = time.Duration(math.MaxInt64)

// An item is a call in a problem: it takes effect from "from" to "to".
type item struct {
	call     int // index in the history
	class    int32
	from, to time.Duration
}

// A problem asks for an order of all must items and any of the may items. May
// items stay open; those of one class are interchangeable, and the search uses
// them in the order in which they were sent.
type problem struct {
	must []item        // by from
	may  [][]item      // one list per class, each by from
	at   map[int32]int // index in may, by class
}

// addMay puts a may item on the list of its class.
func (p *problem) addMay(i item) {
	i.to = forever
	at, ok := p.at[i.class]
	if !ok {
		at = len(p.may)
		p.at[i.class] = at
		p.may = append(p.may, nil)
	}
	p.may[at] = append(p.may[at], i)
}

func (p *problem) sort() {
	byFrom := func(a, b item) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) }
	slices.SortStableFunc(p.must, byFrom)
	for _, l := range p.may {
		slices.SortStableFunc(l, byFrom)
	}
}

var errStates = errors.New("more states than the bound allows")

// A search goes depth first through configurations: which must items took
// effect, how many may items of each class did, and the state they led to.
//
// Three rules keep it small; decision 7 shows that they lose no order.
//   - absorb: a call that only observes takes effect as soon as it may.
//   - classes: of must items of one class the one that ends first goes first,
//     of may items of one class the one that was sent first.
//   - dominance: who got as far with fewer may items can do whatever this one can.
type search struct {
	ctx context.Context //nolint:containedctx // lives as long as one call
	t   *table
	p   problem

	done  []uint64 // must items that took effect
	first int      // the first that did not
	left  int      // how many did not
	trail []int    // the order in which they did
	used  []int    // may items that took effect, by class

	seen   map[string][][]usage
	key    []byte
	states int
	most   int
	err    error

	// reached is the earliest end of an item that no configuration got past:
	// the latest limit of all of them. stuck are the states of those that got there.
	reached time.Duration
	stuck   []int32

	// visit is told of each configuration in which nothing is left to absorb. May be nil.
	visit func(state int32)
}

// A usage says how many may items of a class were used.
type usage struct{ class, n int }

func newSearch(ctx context.Context, t *table, p problem, most int) *search {
	p.sort()
	return &search{
		ctx: ctx, t: t, p: p, most: most, left: len(p.must),
		done: make([]uint64, len(p.must)/64+1), used: make([]int, len(p.may)), seen: map[string][][]usage{},
	}
}

// run says whether there is an order that starts in the state.
func (s *search) run(state int32) (bool, error) {
	if err := s.ctx.Err(); err != nil {
		return false, err
	}
	found := s.from(state)
	return found && s.err == nil, s.err
}

func (s *search) from(state int32) bool {
	trail, first := len(s.trail), s.first
	s.absorb(state)
	if s.err == nil && s.left == 0 {
		return true
	}
	if s.err == nil {
		limit, end := s.window()
		if limit > s.reached {
			s.reached, s.stuck = limit, s.stuck[:0]
		}
		if limit == s.reached && !slices.Contains(s.stuck, state) {
			s.stuck = append(s.stuck, state)
		}
		if s.isNew(state, end) && (s.tryMust(state, limit, end) || s.tryMay(state, limit)) {
			return true
		}
	}
	for _, i := range s.trail[trail:] {
		s.done[i/64] &^= 1 << (i % 64)
	}
	s.left += len(s.trail) - trail
	s.trail, s.first = s.trail[:trail], first
	return false
}

// window gives the earliest end among the must items that are left, which is
// the latest start of an item that may take effect now, and the index after
// the last such item. All items that took effect lie before that index.
func (s *search) window() (limit time.Duration, end int) {
	limit = forever
	for end = s.first; end < len(s.p.must) && s.p.must[end].from <= limit; end++ {
		if !s.isDone(end) {
			limit = min(limit, s.p.must[end].to)
		}
	}
	return limit, end
}

func (s *search) isDone(i int) bool { return s.done[i/64]&(1<<(i%64)) != 0 }

func (s *search) take(i int) {
	s.done[i/64] |= 1 << (i % 64)
	s.trail = append(s.trail, i)
	s.left--
	for s.first < len(s.p.must) && s.isDone(s.first) {
		s.first++
	}
}

// absorb lets every call that only observes, and may come now, come now.
func (s *search) absorb(state int32) {
	for again := true; again; {
		again = false
		limit, end := s.window()
		for i := s.first; i < end; i++ {
			it := s.p.must[i]
			if s.isDone(i) || it.from > limit || !s.t.classes[it.class].observes {
				continue
			}
			if next := s.step(state, it.class); len(next) > 0 {
				s.take(i)
				again = true
			}
			if s.err != nil {
				return
			}
		}
	}
}

// tryMust goes on with each of the must items that change something.
func (s *search) tryMust(state int32, limit time.Duration, end int) bool {
	var ready []int
	for i := s.first; i < end; i++ {
		it := s.p.must[i]
		if !s.isDone(i) && it.from <= limit && !s.t.classes[it.class].observes && len(s.step(state, it.class)) > 0 {
			ready = append(ready, i)
		}
	}
	slices.SortStableFunc(ready, func(a, b int) int { return cmp.Compare(s.p.must[a].to, s.p.must[b].to) })
	for n, i := range ready {
		if s.err != nil {
			return false
		}
		class := s.p.must[i].class
		if slices.ContainsFunc(ready[:n], func(j int) bool { return s.p.must[j].class == class }) {
			continue
		}
		for _, next := range s.step(state, class) {
			trail, first := len(s.trail), s.first
			s.take(i)
			if s.from(next) {
				return true
			}
			s.done[i/64] &^= 1 << (i % 64)
			s.left++
			s.trail, s.first = s.trail[:trail], first
		}
	}
	return false
}

// tryMay goes on with one may item of each class that changes something now.
func (s *search) tryMay(state int32, limit time.Duration) bool {
	for class, items := range s.p.may {
		n := s.used[class]
		if s.err != nil || n == len(items) || items[n].from > limit {
			continue
		}
		for _, next := range s.step(state, items[n].class) {
			if next == state {
				continue // it may as well stay without effect
			}
			s.used[class]++
			if s.from(next) {
				return true
			}
			s.used[class]--
		}
	}
	return false
}

func (s *search) step(state, class int32) []int32 {
	next, err := s.t.step(state, class)
	if err != nil && s.err == nil {
		s.err = err
	}
	return next
}

// isNew notes the configuration and says whether the search has to go on from
// it: not when it has been at the same one, or one that dominates it.
func (s *search) isNew(state int32, end int) bool {
	s.key = binary.LittleEndian.AppendUint32(s.key[:0], uint32(state))
	s.key = binary.LittleEndian.AppendUint32(s.key, uint32(s.first/64))
	for w := s.first / 64; w*64 < end; w++ {
		s.key = binary.LittleEndian.AppendUint64(s.key, s.done[w])
	}
	var used []usage
	for class, n := range s.used {
		if n > 0 {
			used = append(used, usage{class, n})
		}
	}
	before := s.seen[string(s.key)]
	if slices.ContainsFunc(before, func(b []usage) bool { return dominates(b, used) }) {
		return false
	}
	s.seen[string(s.key)] = append(before, used)
	s.states++
	if s.states > s.most {
		s.err = errStates
	}
	if s.states%256 == 0 && s.ctx.Err() != nil {
		s.err = s.ctx.Err()
	}
	if s.visit != nil {
		s.visit(state)
	}
	return s.err == nil
}

// dominates says whether a used no more than b of every class. Both are sorted.
func dominates(a, b []usage) bool {
	for _, u := range a {
		for len(b) > 0 && b[0].class < u.class {
			b = b[1:]
		}
		if len(b) == 0 || b[0].class != u.class || b[0].n < u.n {
			return false
		}
	}
	return true
}
