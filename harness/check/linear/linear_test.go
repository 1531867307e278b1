package linear_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
)

// call makes a call of the slot; to 0 leaves it without an answer.
func call(id string, process int, in asked, out told, from, to time.Duration) linear.Call {
	c := linear.Call{ID: id, Process: process, Key: "slot 1", Input: in, Output: out, Call: from, Return: to, Outcome: harness.OK}
	if to == 0 {
		c.Outcome, c.Output = harness.Info, nil
	}
	c.Text = text(c)
	return c
}

var (
	book   = asked{what: "book"}
	b1, b2 = told{what: "ok", who: 1}, told{what: "ok", who: 2}
	taken  = told{what: "taken"}
	read   = asked{what: "read"}
	free   = told{what: "read"}
)

func TestWhatIsNoHistoryIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		calls  []linear.Call
		reason harness.Reason
		text   string
	}{
		"nothing":           {nil, harness.ReasonVacuous, "there was no answered call to judge"},
		"no answer":         {[]linear.Call{call("op-1", 1, book, b1, 1, 0)}, harness.ReasonVacuous, "there was no answered call to judge"},
		"twice":             {[]linear.Call{call("op-1", 1, book, b1, 1, 2), call("op-1", 2, book, taken, 1, 2)}, harness.ReasonAssumption, `slot 1: the id "op-1" is used twice or empty`},
		"no id":             {[]linear.Call{call("", 1, book, b1, 1, 2)}, harness.ReasonAssumption, `slot 1: the id "" is used twice or empty`},
		"backwards":         {[]linear.Call{call("op-1", 1, book, b1, 2, 1)}, harness.ReasonAssumption, "slot 1: op-1 was answered before it was sent"},
		"overlap":           {[]linear.Call{call("op-1", 1, book, b1, 1, 5), call("op-2", 1, book, taken, 4, 7)}, harness.ReasonAssumption, "slot 1: client 1 overlaps itself: op-2 was sent before op-1 was answered"},
		"overlap, unknown":  {[]linear.Call{call("op-1", 1, book, b1, 1, 5), call("op-2", 1, book, taken, 4, 0)}, harness.ReasonAssumption, "slot 1: client 1 overlaps itself: op-2 was sent before op-1 was answered"},
		"zero outcome":      {[]linear.Call{{ID: "op-1", Key: "slot 1", Input: book, Output: b1, Call: 1, Return: 2}}, harness.ReasonAssumption, "slot 1: op-1 has no outcome"},
		"beyond violations": {[]linear.Call{call("op-1", 1, book, b1, 1, 2), call("op-2", 2, book, b2, 4, 3)}, harness.ReasonAssumption, "slot 1: op-2 was answered before it was sent"},
	} {
		t.Run(name, func(t *testing.T) {
			got := check(slotModel, c.calls)
			if got.Status != harness.Unknown || got.Reason != c.reason || got.Sentence != c.text {
				t.Errorf("got %v %q %q, want %q %q", got.Status, got.Reason, got.Sentence, c.reason, c.text)
			}
		})
	}
}

func TestWhatIsAHistory(t *testing.T) {
	for name, c := range map[string]struct {
		calls []linear.Call
		want  harness.Status
	}{
		"a client goes on after no answer":    {[]linear.Call{call("op-1", 1, book, b1, 1, 0), call("op-2", 1, book, b2, 4, 7)}, harness.Pass},
		"nobody's calls may overlap":          {[]linear.Call{call("op-1", -1, book, b1, 1, 5), call("op-2", -1, book, taken, 2, 3)}, harness.Pass},
		"answered and sent at one instant":    {[]linear.Call{call("op-1", 1, book, b1, 1, 5), call("op-2", 1, read, free, 5, 7)}, harness.Pass},
		"an instant later":                    {[]linear.Call{call("op-1", 1, book, b1, 1, 5), call("op-2", 1, read, free, 6, 7)}, harness.Failed},
		"an unknown one takes effect late":    {[]linear.Call{call("op-1", 1, asked{"book", 1}, b1, 1, 0), call("op-2", 2, read, free, 50, 60), call("op-3", 2, book, taken, 90, 91)}, harness.Pass},
		"but not before it was sent":          {[]linear.Call{call("op-1", 1, asked{"book", 1}, b1, 92, 0), call("op-2", 2, read, free, 50, 60), call("op-3", 2, book, taken, 90, 91)}, harness.Failed},
		"and only once":                       {[]linear.Call{call("op-1", 1, asked{"book", 1}, b1, 1, 0), call("op-2", 2, read, told{what: "read", slot: slot{holder: 1}}, 2, 3), call("op-3", 2, asked{"cancel", 1}, told{what: "ok"}, 4, 5), call("op-4", 2, book, taken, 6, 7)}, harness.Failed},
		"one that failed says what it saw":    {[]linear.Call{failed(call("op-1", 1, book, taken, 1, 2))}, harness.Failed},
		"a reader that is late with its call": {[]linear.Call{call("op-1", 1, read, free, 1, 100), call("op-2", 2, book, b1, 2, 3), call("op-3", 2, book, taken, 4, 5)}, harness.Pass},
	} {
		t.Run(name, func(t *testing.T) {
			if got := check(slotModel, c.calls); got.Status != c.want {
				t.Errorf("got %v: %s", got.Status, got.Sentence)
			}
			if want := oracle(slotModel, c.calls); want != (c.want == harness.Pass) {
				t.Errorf("porcupine says %v", want)
			}
		})
	}
}

func failed(c linear.Call) linear.Call { c.Outcome = harness.Fail; return c }

func on(key string, c linear.Call) linear.Call { c.Key = key; return c }

func TestKeysAreJudgedApartAndTheWorstCounts(t *testing.T) {
	good := []linear.Call{on("slot 3", call("op-1", 1, book, b1, 1, 2)), on("slot 4", call("op-1", 1, book, b2, 3, 4))}
	if got := check(slotModel, good); got.Status != harness.Pass || got.Sentence != "some order explains every answer of 2 calls on 2 slots (0 of unknown outcome)" {
		t.Errorf("got %+v", got)
	}
	bad := append(good, on("slot 9", call("op-2", 1, book, taken, 5, 6)), on("slot 8", call("op-3", 2, book, taken, 5, 6)))
	got := check(slotModel, bad)
	want := "slot 8: book -> taken (op-3) has no explanation: until it was answered the slot can only have been open and free; and no order on 1 more of 4 slots"
	if got.Status != harness.Failed || got.Key != "slot 8" || got.Sentence != want || !slices.Equal(got.Ops, []string{"op-3"}) || got.Calls != 4 || got.Keys != 4 {
		t.Errorf("got %+v", got)
	}
}

// hard is a history whose orders are too many for anybody: n different calls
// at once, each of which changes the state to another one.
func hard(n int) (linear.Model, []linear.Call) {
	m := linear.Model{
		Name: "list", Init: func(string) any { return "" },
		Step: func(state, input, output any, _ bool) []any {
			if output == "never" {
				return nil
			}
			return []any{state.(string) + input.(string)}
		},
	}
	var calls []linear.Call
	for i := range n {
		calls = append(calls, linear.Call{ID: fmt.Sprint(i), Process: i, Key: "list", Input: string(rune('a' + i)), Call: 1, Return: 2, Outcome: harness.OK})
	}
	return m, append(calls, linear.Call{ID: "last", Process: n, Key: "list", Input: "", Output: "never", Call: 1, Return: 2, Outcome: harness.OK})
}

func TestWhatCannotBeDecidedIsUnknown(t *testing.T) {
	m, calls := hard(12)
	got := linear.Check(context.Background(), m, calls, 50*time.Millisecond)
	if got.Status != harness.Unknown || got.Reason != harness.ReasonTimeout || got.Sentence != "list: not decided within 50ms" {
		t.Errorf("deadline: got %+v", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the user has had enough"))
	got = linear.Check(ctx, slotModel, burst(10, 1), time.Minute)
	if got.Status != harness.Unknown || got.Reason != harness.ReasonTimeout {
		t.Errorf("cancelled: got %+v", got)
	}
	if got = linear.Check(context.Background(), slotModel, burst(10, 1), 0); got.Status != harness.Unknown || got.Reason != harness.ReasonTimeout {
		t.Errorf("no time at all: got %+v", got)
	}
	// A violation elsewhere is certain all the same.
	both := append(calls, on("slot 1", call("op-1", 1, book, taken, 1, 2)))
	mixed := m
	mixed.Init = func(key string) any {
		if key == "list" {
			return ""
		}
		return slot{}
	}
	mixed.Step = func(state, input, output any, known bool) []any {
		if _, ok := state.(slot); ok {
			return slotModel.Step(state, input, output, known)
		}
		return m.Step(state, input, output, known)
	}
	got = linear.Check(context.Background(), mixed, both, 500*time.Millisecond)
	if got.Status != harness.Failed || got.Key != "slot 1" {
		t.Errorf("violation beside an undecided key: got %+v", got)
	}
}

func TestModelsThatBreakTheirPromises(t *testing.T) {
	lies := slotModel
	lies.Observes = func(any, any) bool { return true }
	panics := slotModel
	panics.Step = func(any, any, any, bool) []any { panic("no such step") }
	for want, m := range map[string]linear.Model{
		"slot 1: the model says that {book 0} -> {ok 1 {false 0}} changes nothing, and then takes it from open and free to open and held by b1": lies,
		"the model of the slot panicked: no such step": panics,
	} {
		got := check(m, []linear.Call{call("op-1", 1, book, b1, 1, 2)})
		if got.Status != harness.Unknown || got.Reason != harness.ReasonChecker || got.Sentence != want {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
}

func TestCheckOfARecord(t *testing.T) {
	give := func(calls []linear.Call, err error) harness.Check {
		return linear.NewCheck("X-I1", "a slot is a slot", "here", slotModel, func(harness.Record) ([]linear.Call, error) { return calls, err }, time.Minute)
	}
	c := give(burst(3, 1), nil)
	if c.ID != "X-I1" || c.Doc != "a slot is a slot" || c.Rule != "here" || c.NeedsSettled {
		t.Errorf("got %+v", c)
	}
	if v := c.Judge(harness.Record{}); v.Status != harness.Pass || v.Summary != "some order explains every answer of 3 calls on 1 slot (0 of unknown outcome)" {
		t.Errorf("got %+v", v)
	}
	if v := give(nil, errors.New("op-7 has no body")).Judge(harness.Record{}); v.Status != harness.Unknown || v.Reason != harness.ReasonChecker || !strings.HasSuffix(v.Summary, ": op-7 has no body") {
		t.Errorf("got %+v", v)
	}
	if v := give(nil, nil).Judge(harness.Record{}); v.Status != harness.Unknown || v.Reason != harness.ReasonVacuous {
		t.Errorf("got %+v", v)
	}
	v := give(burst(3, 2), nil).Judge(harness.Record{})
	want := harness.Evidence{
		Text: "these calls exclude each other:\n  op-1  book -> ok b1  [+0.000 ms … +0.001 ms]\n  op-2  book -> ok b2  [+0.000 ms … +0.001 ms]",
		Ops:  []string{"op-1", "op-2"},
	}
	if v.Status != harness.Failed || len(v.Evidence) != 1 || v.Evidence[0].Text != want.Text || !slices.Equal(v.Evidence[0].Ops, want.Ops) {
		t.Errorf("got %+v", v)
	}
}

// A queue has states that == can't compare, and an answer may be one of several.
var queue = linear.Model{
	Name: "queue", Init: func(string) any { return []int{} },
	Step: func(state, input, output any, known bool) []any {
		q := state.([]int)
		switch in := input.(int); {
		case in > 0:
			return []any{append(slices.Clone(q), in)}
		case !known && len(q) > 0: // somebody took the first, or the last
			return []any{q[1:], q[:len(q)-1]}
		case known && output == 0 && len(q) == 0:
			return []any{q}
		case known && len(q) > 0 && output == q[0]:
			return []any{q[1:]}
		}
		return nil
	},
	Observes: func(input, output any) bool { return input == 0 && output == 0 },
	Equal:    func(a, b any) bool { return slices.Equal(a.([]int), b.([]int)) },
	Hash: func(v any) uint64 {
		h := uint64(17)
		for _, n := range v.([]int) {
			h = h*31 + uint64(n)
		}
		return h
	},
}

// A register whose writes may write what is there already: they change
// nothing in some states, and must not be taken for observers.
var register = linear.Model{
	Name: "register", Init: func(string) any { return 0 },
	Step: func(state, input, output any, known bool) []any {
		switch in := input.(int); {
		case in >= 0 && known:
			return []any{in}
		case in >= 0: // one that got no answer may have been rounded up
			return []any{in, in + 1}
		case output == state:
			return []any{state}
		}
		return nil
	},
	Observes: func(input, _ any) bool { return input.(int) < 0 },
}

// randomCalls are calls with answers drawn at random: about as many histories
// have an order as have none, when there are few answers.
func randomCalls(rng *rand.Rand, n int, inputs, outputs []int) []linear.Call {
	var calls []linear.Call
	for i := range n {
		from := time.Duration(1 + rng.IntN(20))
		c := linear.Call{
			ID: fmt.Sprint(i), Process: -1, Key: "it", Input: inputs[rng.IntN(len(inputs))], Output: outputs[rng.IntN(len(outputs))],
			Call: from, Return: from + time.Duration(rng.IntN(12)), Outcome: harness.OK,
		}
		if rng.IntN(5) == 0 {
			c.Output, c.Outcome = nil, harness.Info
		}
		c.Text = fmt.Sprintf("%v -> %v", c.Input, c.Output)
		calls = append(calls, c)
	}
	return append(calls, linear.Call{ID: "last", Process: -1, Key: "it", Input: -1, Output: outputs[0], Call: 30, Return: 31, Outcome: harness.OK, Text: "last"})
}

func TestOtherModelsAgreeWithPorcupine(t *testing.T) {
	const histories = 1500
	for name, c := range map[string]struct {
		m               linear.Model
		inputs, outputs []int
	}{
		"queue":    {queue, []int{0, 0, 0, 1, 2}, []int{0, 1, 2}},
		"register": {register, []int{-1, -1, -1, 0, 1, 2}, []int{0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			tally := map[harness.Status]int{}
			for seed := range uint64(histories) {
				rng := rand.New(rand.NewPCG(seed, 4))
				calls := randomCalls(rng, 2+rng.IntN(5), c.inputs, c.outputs)
				tally[compare(t, c.m, calls, seed)]++
			}
			t.Logf("%d histories, seeds 0 to %d: %v", histories, histories-1, tally)
			if tally[harness.Pass] < histories/20 || tally[harness.Failed] < histories/20 {
				t.Errorf("%v is no fair mixture", tally)
			}
		})
	}
}
