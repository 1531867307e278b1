package linear_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
)

// burst is n users who book one slot at the same moment; the winners are told
// that they have it, all others that it is taken.
func burst(n, winners int) []linear.Call {
	calls := make([]linear.Call, n)
	for i := range calls {
		out := told{what: "taken"}
		if i < winners {
			out = told{what: "ok", who: i + 1}
		}
		calls[i] = linear.Call{
			ID: fmt.Sprintf("op-%d", i+1), Process: i, Key: "slot 1", Input: asked{what: "book"}, Output: out,
			Call: 0, Return: time.Duration(1000 + i), Outcome: harness.OK,
		}
		calls[i].Text = text(calls[i])
	}
	return calls
}

// mixed is n users at the same moment, of whom some close, reopen, read, or
// cancel the one booking that there was before, instead of booking.
func mixed(n int, seed uint64) []linear.Call {
	rng := rand.New(rand.NewPCG(seed, 2))
	calls := []linear.Call{{ID: "first", Process: n, Key: "slot 1", Input: asked{what: "book"}, Output: told{what: "ok", who: 1}, Call: 0, Return: 1, Outcome: harness.OK, Text: "book -> ok b1"}}
	s := slot{holder: 1}
	for i := range n {
		in := asked{what: everything[rng.IntN(len(everything))]}
		if in.what == "cancel" {
			in.who = 1
		}
		c := linear.Call{ID: fmt.Sprintf("op-%d", i+1), Process: i, Key: "slot 1", Input: in, Call: 10, Return: time.Duration(1000 + rng.IntN(1000)), Outcome: harness.OK}
		c.Output, s = slotAnswer(s, in, i+2)
		c.Text = text(c)
		calls = append(calls, c)
	}
	return calls
}

// again makes somebody win a second time: the first who was told that the slot
// was taken is told that it is his.
func again(calls []linear.Call) []linear.Call {
	for i, c := range calls {
		if c.Output == any(told{what: "taken"}) {
			calls[i].Output = told{what: "ok", who: 1_000_000}
			calls[i].Text = text(calls[i])
			return calls
		}
	}
	return calls
}

// busy is a long storm on one slot: hundreds of calls in flight at any time.
func busy(clients, each int, lost float64, seed uint64) []linear.Call {
	st := storm{clients: clients, calls: each, pause: 100, length: 1000, lost: lost, what: everything}
	return st.history(rand.New(rand.NewPCG(seed, 3)))
}

// sizes are the histories that have to be decided quickly. The bounds are in
// states, not in seconds: they are the same on every machine.
var sizes = []struct {
	name   string
	calls  func() []linear.Call
	want   harness.Status
	states int // most, for the verdict and the words
}{
	{"100 users, one winner", func() []linear.Call { return burst(100, 1) }, harness.Pass, 10},
	{"100 users, two winners", func() []linear.Call { return burst(100, 2) }, harness.Failed, 200},
	{"1000 users, one winner", func() []linear.Call { return burst(1000, 1) }, harness.Pass, 10},
	{"1000 users, two winners", func() []linear.Call { return burst(1000, 2) }, harness.Failed, 200},
	{"1000 users, 50 winners", func() []linear.Call { return burst(1000, 50) }, harness.Failed, 2000},
	{"5000 users, two winners", func() []linear.Call { return burst(5000, 2) }, harness.Failed, 200},
	{"1000 users, mixed closures", func() []linear.Call { return mixed(1000, 1) }, harness.Pass, 5000},
	{"1000 users, mixed closures, one more winner", func() []linear.Call { return again(mixed(1000, 1)) }, harness.Failed, 50000},
	{"50 clients, 2000 calls", func() []linear.Call { return busy(50, 40, 0, 1) }, harness.Pass, 20000},
	{"50 clients, 2000 calls, one more winner", func() []linear.Call { return again(busy(50, 40, 0, 1)) }, harness.Failed, 20000},
	{"50 clients, 2000 calls, 5 % without an answer", func() []linear.Call { return busy(50, 40, 0.05, 1) }, harness.Pass, 50000},
}

func TestStatesAreBounded(t *testing.T) {
	for _, s := range sizes {
		t.Run(s.name, func(t *testing.T) {
			got := check(slotModel, s.calls())
			if got.Status != s.want {
				t.Errorf("%v %s", got.Status, got.Sentence)
			}
			if got.States > s.states {
				t.Errorf("%d states, at most %d expected", got.States, s.states)
			}
			t.Logf("%d states, %v: %s", got.States, got.Took.Round(time.Microsecond), got.Sentence)
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, s := range sizes {
		calls := s.calls()
		b.Run(strings.ReplaceAll(s.name, ", ", "/"), func(b *testing.B) {
			for b.Loop() {
				if got := linear.Check(context.Background(), slotModel, calls, time.Minute); got.Status != s.want {
					b.Fatal(got.Sentence)
				}
			}
		})
	}
}
