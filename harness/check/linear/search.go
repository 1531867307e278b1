package linear

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
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

// A problem asks for an order of all must items and any of the may items.
type problem struct {
	must []item // by from
	may  []item // by class, then by from
}

func (p *problem) sort() {
	byTime := func(a, b item) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) }
	slices.SortStableFunc(p.must, byTime)
	slices.SortStableFunc(p.may, func(a, b item) int { return cmp.Or(cmp.Compare(a.class, b.class), byTime(a, b)) })
}

var errStates = errors.New("more states than the bound allows")

// A search goes depth first through configurations: which must items took
// effect, which may items did, and the state they led to.
//
// Three rules keep it small; decision 7 shows that they lose no order.
//   - absorb: a call that only observes takes effect as soon as it may.
//   - classes: of two items of one class, the one that was sent and ends no
//     later than the other goes first.
//   - dominance: who got as far with fewer may items can do whatever this one can.
type search struct {
	ctx context.Context //nolint:containedctx // lives as long as one call
	t   *table
	p   problem

	done   []uint64      // must items that took effect
	first  int           // the first that did not
	left   int           // how many did not
	trail  []int         // the order in which they did
	used   []uint64      // may items that took effect
	latest time.Duration // the latest start of all that took effect: what ended earlier can't come any more
	timed  bool          // there are may items that end

	seen   map[string][]usage
	key    []byte
	states int
	most   int
	err    error

	// reached is the earliest end of an item that no configuration got past:
	// the latest limit of all of them. stuck are some states of those that got there.
	reached time.Duration
	stuck   []int32

	// visit is told of each configuration in which nothing is left to absorb. May be nil.
	visit func(state int32)
}

// A usage is what a configuration has used up: may items that could still have
// come, by index, and the time before which nothing may end.
type usage struct {
	may    []int
	latest time.Duration
}

func newSearch(ctx context.Context, t *table, p problem, most int) *search {
	p.sort()
	return &search{
		ctx: ctx, t: t, p: p, timed: slices.ContainsFunc(p.may, func(i item) bool { return i.to < forever }), most: most, left: len(p.must),
		done: make([]uint64, len(p.must)/64+1), used: make([]uint64, len(p.may)/64+1), seen: map[string][]usage{},
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
	undo := s.mark()
	s.absorb(state)
	if s.err == nil && s.left == 0 {
		return true
	}
	if s.err == nil {
		limit, end := s.window()
		if limit > s.reached {
			s.reached, s.stuck = limit, s.stuck[:0]
		}
		if limit == s.reached && len(s.stuck) <= mostListed && !slices.Contains(s.stuck, state) {
			s.stuck = append(s.stuck, state)
		}
		if s.isNew(state, end) && (s.tryMust(state, limit, end) || s.tryMay(state, limit)) {
			return true
		}
	}
	s.back(undo)
	return false
}

// A mark is a point to which the search can go back.
type mark struct {
	trail, first int
	latest       time.Duration
}

func (s *search) mark() mark { return mark{len(s.trail), s.first, s.latest} }

// back undoes the must items since the mark.
func (s *search) back(m mark) {
	for _, i := range s.trail[m.trail:] {
		s.done[i/64] &^= 1 << (i % 64)
	}
	s.left += len(s.trail) - m.trail
	s.trail, s.first, s.latest = s.trail[:m.trail], m.first, m.latest
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

func has(set []uint64, i int) bool { return set[i/64]&(1<<(i%64)) != 0 }

func (s *search) isDone(i int) bool { return has(s.done, i) }

func (s *search) take(i int) {
	s.done[i/64] |= 1 << (i % 64)
	s.latest = max(s.latest, s.p.must[i].from)
	s.trail = append(s.trail, i)
	s.left--
	for s.first < len(s.p.must) && s.isDone(s.first) {
		s.first++
	}
}

// absorb lets every call that only observes, and may come now, come now, unless
// that would keep a may item from coming first.
func (s *search) absorb(state int32) {
	for again := true; again; {
		again = false
		limit, end := s.window()
		ends := s.nextEnd()
		for i := s.first; i < end; i++ {
			it := s.p.must[i]
			if s.isDone(i) || it.from > min(limit, ends) || !s.t.classes[it.class].observes {
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

// nextEnd is when the next may item ends that could still come.
func (s *search) nextEnd() time.Duration {
	ends := forever
	if s.timed {
		for i, it := range s.p.may {
			if it.to >= s.latest && it.to < ends && !has(s.used, i) {
				ends = it.to
			}
		}
	}
	return ends
}

// tryMust goes on with each of the must items that change something, and with
// the first sent of those that only observe and were not absorbed.
func (s *search) tryMust(state int32, limit time.Duration, end int) bool {
	var ready []int
	observer := false
	for i := s.first; i < end; i++ {
		it := s.p.must[i]
		observes := s.t.classes[it.class].observes
		if s.isDone(i) || it.from > limit || observes && observer || len(s.step(state, it.class)) == 0 {
			continue
		}
		observer = observer || observes
		ready = append(ready, i)
	}
	slices.SortStableFunc(ready, func(a, b int) int { return cmp.Compare(s.p.must[a].to, s.p.must[b].to) })
	for n, i := range ready {
		if s.err != nil {
			return false
		}
		it := s.p.must[i]
		if slices.ContainsFunc(ready[:n], func(j int) bool {
			before := s.p.must[j]
			return before.class == it.class && (!s.timed || before.from <= it.from)
		}) {
			continue
		}
		for _, next := range s.step(state, it.class) {
			undo := s.mark()
			s.take(i)
			if s.from(next) {
				return true
			}
			s.back(undo)
		}
	}
	return false
}

// tryMay goes on with may items that change something now: of each class those
// that end before all of it that were sent earlier.
func (s *search) tryMay(state int32, limit time.Duration) bool {
	chosen, class, ends := false, int32(0), forever
	for i, it := range s.p.may {
		if i == 0 || it.class != class {
			chosen, class, ends = false, it.class, forever
		}
		if has(s.used, i) || it.from > limit || it.to < s.latest || chosen && it.to >= ends {
			continue
		}
		chosen, ends = true, it.to
		for _, next := range s.step(state, it.class) {
			if next == state {
				continue // it may as well stay without effect
			}
			undo := s.mark()
			s.used[i/64] |= 1 << (i % 64)
			s.latest = max(s.latest, it.from)
			if s.err == nil && s.from(next) {
				return true
			}
			s.used[i/64] &^= 1 << (i % 64)
			s.back(undo)
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
	now := s.usage()
	before := s.seen[string(s.key)]
	if slices.ContainsFunc(before, func(b usage) bool { return s.dominates(b, now) }) {
		return false
	}
	s.seen[string(s.key)] = append(before, now)
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

// usage gives what the configuration has used up.
func (s *search) usage() usage {
	var u usage
	if s.timed {
		u.latest = s.latest
	}
	for w, word := range s.used {
		for ; word != 0; word &= word - 1 {
			if i := w*64 + bits.TrailingZeros64(word); s.p.may[i].to >= u.latest {
				u.may = append(u.may, i)
			}
		}
	}
	return u
}

// dominates says whether a has all that b has: whatever may item could still
// come for b could for a. That nothing ended for a which did not for b follows:
// the item that was sent last of a's took effect for b, too, or ended.
func (s *search) dominates(a, b usage) bool {
	for _, i := range a.may {
		if s.p.may[i].to >= b.latest && !slices.Contains(b.may, i) {
			return false
		}
	}
	return true
}
