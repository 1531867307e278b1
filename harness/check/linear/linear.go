package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// A Call is one operation on one key as a client saw it. It took effect, if at
// all, at some instant from Call to Return, both included: a call that is
// sent at the very instant at which another is answered overlaps it.
type Call struct {
	ID      string          // unique for its key: the operation's id
	Process int             // client; calls of one client on one key don't overlap. Negative: nobody's in particular, not looked at
	Key     string          // what it was about, in the words of the sentence: "slot 4"
	Input   any             // the model's
	Output  any             // the model's; not looked at when the outcome is unknown
	Call    time.Duration   // offset from the run's epoch; nothing of it reached the server before
	Return  time.Duration   // the whole answer was here; not looked at when the outcome is unknown
	Outcome harness.Outcome // OK, Fail: known, the answer is information. Info: may take effect at any time from Call on, or never
	Text    string          // "book by member-1 -> 201 b1"
	_       struct{}
}

// known says whether the call was answered.
func (c Call) known() bool { return c.Outcome != harness.Info }

// A Model is how one key behaves when nothing overlaps.
type Model struct {
	Name string               // of what a key stands for: "slot"
	Init func(key string) any // state before the first call

	// Step gives each state to which the call may lead: none when it is
	// impossible in this state. It must be a function of its arguments and
	// leave them as they are. Of a call of unknown outcome, known is false and
	// output nil; it need not give the state that it started from, as such a
	// call may stay without effect anyway.
	Step func(state, input, output any, known bool) []any

	// Observes says that an answered call changes nothing in whatever state it
	// is possible: a read, a refusal. "Changes nothing in some states" is not
	// enough: setting what is set already does not observe. Nil: none does.
	Observes func(input, output any) bool

	Equal         func(a, b any) bool // of states; nil: they are compared with ==
	Hash          func(any) uint64    // equal states have equal hashes; used with Equal only, may be nil
	Describe      func(Call) string   // nil: the call's text
	DescribeState func(any) string    // "open and free"; nil: as fmt prints it
	_             struct{}
}

// A Result is the judgement on a history, the worst over its keys.
type Result struct {
	Status   harness.Status
	Reason   harness.Reason // for Unknown
	Key      string         // the one that the sentence is about, if it is about one
	Keys     int            // judged
	Calls    int            // of all keys, those of unknown outcome included
	States   int            // that the search went through, for the verdict and for the words
	Took     time.Duration  // depends on the machine; not part of the verdict
	Sentence string         // no full stop
	Ops      []string       // ids of the smallest set of calls found that exclude each other, in order of their answers
	Lines    []string       // those calls with their times, one a line, for people
	_        struct{}
}

// Bounds of one judgement, in states. A state costs 100 to 500 bytes.
const (
	mostStates = 500_000 // of the decision
	mostWords  = 50_000  // of finding the smallest set of calls to name
	mostProbe  = 5_000   // of one question on the way to it
	mostEasy   = 2_000   // of the first try at each key
)

// Check judges the calls of a history. A deadline that passes, or a context
// that ends, before the verdict is known makes it Unknown. Failed is certain:
// no order of the calls on Key is possible.
func Check(ctx context.Context, m Model, calls []Call, deadline time.Duration) (res Result) {
	started := clock.New()
	defer func() {
		if p := recover(); p != nil {
			res = undecided(harness.ReasonChecker, "", "the model of the %s panicked: %v", m.Name, p)
		}
		res.Took = started.Now()
	}()
	keys, byKey := partition(calls)
	for _, k := range keys {
		if why := unfit(byKey[k]); why != "" {
			return undecided(harness.ReasonAssumption, k, "%s: %s", k, why)
		}
	}
	if !slices.ContainsFunc(calls, Call.known) {
		return undecided(harness.ReasonVacuous, "", "there was no answered call to judge")
	}
	return judge(ctx, m, keys, byKey, deadline)
}

// judge decides every key, then finds the words for the first violation. The
// words have a bound in states alone, so that they don't depend on how long the
// verdict took.
func judge(ctx context.Context, m Model, keys []string, byKey map[string][]Call, deadline time.Duration) Result {
	limited, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	ds := decideAll(limited, m, keys, byKey)
	total := Result{Status: harness.Pass, Keys: len(keys)}
	var wrong, open []*decision
	unknown := 0
	for _, d := range ds {
		total.States += d.states
		total.Calls += len(d.h.calls)
		unknown += len(d.h.calls) - d.h.known
		switch {
		case d.err != nil:
			open = append(open, d)
		case !d.legal:
			wrong = append(wrong, d)
		}
	}
	switch {
	case len(wrong) > 0:
		d := wrong[0]
		words, states := explain(ctx, d.h, d.wrong, d.stuck)
		total.States += states
		total.Status, total.Key, total.Ops, total.Lines = harness.Failed, d.h.key, words.ops, words.lines
		total.Sentence = d.h.key + ": " + words.sentence
		if n := len(wrong) - 1; n > 0 {
			total.Sentence += fmt.Sprintf("; and no order on %d more of %d %ss", n, len(keys), m.Name)
		}
	case len(open) > 0:
		d := open[0]
		total.Status, total.Reason, total.Key = harness.Unknown, harness.ReasonTimeout, d.h.key
		total.Sentence = fmt.Sprintf("%s: %s", d.h.key, giveUp(d.err, deadline))
		if errors.As(d.err, new(*modelError)) {
			total.Reason, total.Sentence = harness.ReasonChecker, d.h.key+": "+d.err.Error()
		}
	default:
		total.Sentence = fmt.Sprintf("some order explains every answer of %s on %s (%d of unknown outcome)",
			plural(total.Calls, "call"), plural(len(keys), m.Name), unknown)
	}
	return total
}

// A decision on one key: legal, or wrong from the instant on, or not decided.
type decision struct {
	h      *history
	legal  bool
	wrong  time.Duration // when the first answer came that no order explains
	stuck  []int32       // states just before it
	states int
	err    error
}

// decideAll decides every key, first all those that are easy: one hard key
// must not keep a violation on another from being seen.
func decideAll(ctx context.Context, m Model, keys []string, byKey map[string][]Call) []*decision {
	ds := make([]*decision, len(keys))
	for i, k := range keys {
		ds[i] = &decision{h: newHistory(m, k, byKey[k])}
		ds[i].decide(ctx, mostEasy)
	}
	for _, d := range ds {
		if errors.Is(d.err, errStates) {
			d.decide(ctx, mostStates)
		}
	}
	return ds
}

func (d *decision) decide(ctx context.Context, most int) {
	s := newSearch(ctx, d.h.t, d.h.problem(forever, func(int) bool { return true }), most)
	d.legal, d.err = s.run(d.h.start)
	d.wrong, d.stuck = s.reached, s.stuck
	d.states += s.states
}

func giveUp(err error, deadline time.Duration) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("not decided within %s", deadline)
	case errors.Is(err, errStates):
		return fmt.Sprintf("not decided within %d states", mostStates)
	}
	return fmt.Sprintf("not decided: %s", err)
}

// NewCheck makes a check of the model over the calls that the function finds
// in a record. Its error is Unknown (checker-error).
func NewCheck(id, doc, rule string, m Model, calls func(harness.Record) ([]Call, error), deadline time.Duration) harness.Check {
	return harness.Check{ID: id, Doc: doc, Rule: rule, Judge: func(rec harness.Record) harness.Verdict {
		list, err := calls(rec)
		if err != nil {
			return harness.Undecided(harness.ReasonChecker, "the calls could not be read from the record: %s", err)
		}
		return Check(context.Background(), m, list, deadline).verdict()
	}}
}

func (r Result) verdict() harness.Verdict {
	switch r.Status {
	case harness.Pass:
		return harness.Passed("%s", r.Sentence)
	case harness.Failed:
		text := strings.Join(append([]string{"these calls exclude each other:"}, r.Lines...), "\n  ")
		return harness.Violated([]harness.Evidence{{Text: text, Ops: r.Ops}}, "%s", r.Sentence)
	default:
		return harness.Undecided(cmp.Or(r.Reason, harness.ReasonChecker), "%s", r.Sentence)
	}
}

func undecided(why harness.Reason, key, format string, args ...any) Result {
	return Result{Status: harness.Unknown, Reason: why, Key: key, Sentence: fmt.Sprintf(format, args...)}
}

// partition sorts the calls by key. A history has an order when the calls on
// each key have one (locality).
func partition(calls []Call) (keys []string, byKey map[string][]Call) {
	byKey = map[string][]Call{}
	for _, c := range calls {
		if _, ok := byKey[c.Key]; !ok {
			keys = append(keys, c.Key)
		}
		byKey[c.Key] = append(byKey[c.Key], c)
	}
	slices.Sort(keys)
	return keys, byKey
}

// unfit says why the calls on one key are no history, "" if they are one.
func unfit(calls []Call) string {
	ids := map[string]bool{}
	last := map[int]Call{}
	ordered := slices.SortedStableFunc(slices.Values(calls), func(a, b Call) int { return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Return, b.Return)) })
	for _, c := range ordered {
		switch {
		case c.ID == "" || ids[c.ID]:
			return fmt.Sprintf("the id %q is used twice or empty", c.ID)
		case c.Outcome < harness.OK || c.Outcome > harness.Info:
			return fmt.Sprintf("%s has no outcome", c.ID)
		case c.known() && c.Return < c.Call:
			return fmt.Sprintf("%s was answered before it was sent", c.ID)
		}
		ids[c.ID] = true
		if c.Process < 0 {
			continue
		}
		// A client that got no answer goes on as another one.
		if p, ok := last[c.Process]; ok && c.Call < p.Return {
			return fmt.Sprintf("client %d overlaps itself: %s was sent before %s was answered", c.Process, c.ID, p.ID)
		}
		if c.known() {
			last[c.Process] = c
		}
	}
	return ""
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
