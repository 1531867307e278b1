package linear

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// words is what people are told of a violation.
type words struct {
	sentence   string
	ops, lines []string
}

// An explainer looks for a small set of answers that exclude each other,
// whatever all other calls did: there is no order even if each of the others
// may have taken effect, in its time, or not. States is what it has left to
// spend; a question that it can no longer pay for counts as "there may be an
// order", which makes the set larger, never wrong.
type explainer struct {
	ctx    context.Context //nolint:containedctx // lives as long as one call
	h      *history
	by     time.Duration // calls sent later are left out
	stuck  []int32       // states just before the answer that has no explanation
	states int
}

// mostListedCalls is how many answers people are shown.
const mostListedCalls = 12

// explain finds the words for a history that has no order because of an
// answer that came at the instant. states is what it cost.
func explain(ctx context.Context, h *history, wrong time.Duration, stuck []int32) (w words, states int) {
	e := &explainer{ctx: ctx, h: h, by: wrong, stuck: stuck, states: mostWords}
	core := e.core()
	w.sentence = e.sentence(core)
	if len(core) > mostListedCalls {
		core = core[len(core)-1:]
	}
	for _, i := range core {
		c := h.calls[i]
		w.ops = append(w.ops, c.ID)
		w.lines = append(w.lines, fmt.Sprintf("%s  %s  [+%.3f ms … +%.3f ms]", c.ID, h.describe(i), ms(c.Call), ms(c.Return)))
	}
	return w, mostWords - e.states
}

// excluded says whether it is certain that the answers exclude each other.
// visit is told of each configuration in which nothing is left to observe; may be nil.
func (e *explainer) excluded(answers []int, visit func(s *search, state int32)) bool {
	in := make([]bool, len(e.h.calls))
	for _, i := range answers {
		in[i] = true
	}
	s := newSearch(e.ctx, e.h.t, e.h.problem(e.by, func(i int) bool { return in[i] }), min(e.states, mostProbe))
	if visit != nil {
		s.visit = func(state int32) { visit(s, state) }
	}
	legal, err := s.run(e.h.start)
	e.states -= min(e.states, s.states)
	return !legal && err == nil
}

// core gives a smallest set of answers that still exclude each other, in the
// order in which they came: none of them can be left out.
func (e *explainer) core() []int {
	var answers []int // up to the first without an explanation, the latest first
	for i := range e.h.known {
		if e.h.calls[i].Return <= e.by {
			answers = append(answers, i)
		}
	}
	slices.Reverse(answers)
	// Most contradictions are short in time, and few answers make a cheap question.
	for n := 1; n < len(answers); n *= 2 {
		if e.excluded(answers[:n], nil) {
			answers = answers[:n]
			break
		}
	}
	slices.SortStableFunc(answers, func(a, b int) int { return e.rank(a) - e.rank(b) })
	core := e.quickXplain(nil, false, answers)
	slices.Sort(core)
	return core
}

// rank orders answers by how much they say to people: changes first, then what
// only observes; the latest first within each.
func (e *explainer) rank(i int) int {
	if e.h.t.classes[e.h.classes[i]].observes {
		return 1
	}
	return 0
}

// quickXplain gives a smallest set of the candidates that, with the given
// answers, exclude each other; those that stand first are preferred. All of
// given and candidates exclude each other (Junker 2004).
func (e *explainer) quickXplain(given []int, changed bool, candidates []int) []int {
	if len(candidates) == 0 || changed && e.excluded(given, nil) {
		return nil
	}
	if len(candidates) == 1 {
		return candidates
	}
	first, second := candidates[:len(candidates)/2], candidates[len(candidates)/2:]
	fromSecond := e.quickXplain(slices.Concat(given, first), true, second)
	fromFirst := e.quickXplain(slices.Concat(given, fromSecond), len(fromSecond) > 0, first)
	return slices.Concat(fromFirst, fromSecond)
}

// sentence says which answers exclude each other, and in what state they meet.
func (e *explainer) sentence(core []int) string {
	if len(core) > mostNamed {
		return e.name(core[len(core)-1]) + " is the first answer that no order explains" +
			e.clause(fmt.Sprintf(": in every order of the %d answers before it the %%s is then %%s", e.answers()-1), e.stuck)
	}
	text := e.conflict(core, e.lastStates(core))
	switch others := e.sent() - len(core); {
	case others == 1:
		text += ", whatever the other call did"
	case others > 1:
		text += fmt.Sprintf(", whatever the other %d calls did", others)
	}
	return text
}

// conflict says how few answers exclude each other. states are those in which
// each of them has no place.
func (e *explainer) conflict(core []int, states map[int][]int32) string {
	first, last := core[0], core[len(core)-1]
	switch n := len(core); {
	case n == 1 && len(states[last]) > mostListed:
		return fmt.Sprintf("%s has no explanation: until it was answered the %s was in no state that allows it", e.name(last), e.h.t.m.Name)
	case n == 1:
		return e.name(last) + " has no explanation" + e.clause(": until it was answered the %s can only have been %s", states[last])
	case n == 2 && e.apart(core):
		return fmt.Sprintf("%s was sent after %s had been answered, and cannot have come after it", e.name(last), e.name(first)) +
			e.clause(": the %s was then %s", states[last])
	case n == 2:
		return fmt.Sprintf("%s and %s overlapped and exclude each other", e.name(first), e.name(last)) +
			e.clause(": after the first the %s is %s", states[last]) + e.clause(", after the second the %s is %s", states[first])
	}
	names := make([]string, len(core))
	for k, i := range core {
		names[k] = e.name(i)
	}
	how := "each was sent after the one before had been answered"
	if !e.apart(core) {
		how = "some of them overlapped"
	}
	most := strings.Join(names[:len(names)-1], ", ")
	return fmt.Sprintf("%s and %s exclude each other (%s)", most, names[len(names)-1], how) + e.clause(": after all but the last the %s is %s", states[last])
}

// clause says what states the thing is in; nothing when they are not known.
func (e *explainer) clause(format string, states []int32) string {
	if len(states) == 0 {
		return ""
	}
	return fmt.Sprintf(format, e.h.t.m.Name, e.either(states))
}

// lastStates gives, for each answer of the core, the states in which it is the
// last one that has no place yet. There may be none: the two are alike, or the
// last can't come last. Nothing is given when not all states were seen.
func (e *explainer) lastStates(core []int) map[int][]int32 {
	states := map[int][]int32{}
	e.states = max(e.states, mostProbe)
	all := e.excluded(core, func(s *search, state int32) {
		if s.left != 1 {
			return
		}
		i := s.p.must[s.first].call
		if !slices.Contains(states[i], state) {
			states[i] = append(states[i], state)
		}
	})
	if !all {
		return nil
	}
	return states
}

// How many answers a sentence names, and how many states it lists.
const (
	mostNamed  = 5
	mostListed = 3
)

// either lists states.
func (e *explainer) either(states []int32) string {
	texts := []string{}
	for _, s := range states {
		if text := e.h.t.describe(s); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) > mostListed {
		return strings.Join(texts[:mostListed], ", or ") + ", or in another state"
	}
	return strings.Join(texts, ", or ")
}

// apart says whether each was sent after the one before had been answered.
func (e *explainer) apart(core []int) bool {
	for k := range core[1:] {
		if e.h.calls[core[k]].Return >= e.h.calls[core[k+1]].Call {
			return false
		}
	}
	return true
}

// answers counts those that play a part.
func (e *explainer) answers() int {
	n := 0
	for _, c := range e.h.calls[:e.h.known] {
		if c.Return <= e.by {
			n++
		}
	}
	return n
}

// sent counts the calls that play a part.
func (e *explainer) sent() int {
	n := 0
	for _, c := range e.h.calls {
		if c.Call <= e.by {
			n++
		}
	}
	return n
}

func (e *explainer) name(i int) string {
	return fmt.Sprintf("%s (%s)", e.h.describe(i), e.h.calls[i].ID)
}

func (h *history) describe(i int) string {
	if h.t.m.Describe == nil {
		return h.calls[i].Text
	}
	return h.t.m.Describe(h.calls[i])
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
