package linear_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
)

type unknown struct{} // output of a call without an answer

// oracle asks porcupine, without any rule of ours. optional are ids of known
// calls that may have had no effect.
func oracle(m linear.Model, calls []linear.Call, optional ...string) bool {
	type answered struct {
		output   any
		optional bool
	}
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.Init("")} },
		Step: func(state, input, output any) []any {
			if _, ok := output.(unknown); ok {
				return append(m.Step(state, input, nil, false), state)
			}
			a := output.(answered)
			next := m.Step(state, input, a.output, true)
			if a.optional {
				next = append(next, state)
			}
			return next
		},
		Equal: m.Equal, Hash: m.Hash,
	}
	var ops []porcupine.Operation
	for i, c := range calls {
		op := porcupine.Operation{ClientId: i, Input: c.Input, Call: int64(c.Call), Output: answered{c.Output, false}, Return: int64(c.Return)}
		switch {
		case c.Outcome == harness.Info:
			op.Output, op.Return = unknown{}, math.MaxInt64
		case slices.Contains(optional, c.ID):
			op.Output = answered{c.Output, true}
		}
		ops = append(ops, op)
	}
	return porcupine.CheckOperations(nm.ToModel(), ops)
}

func check(m linear.Model, calls []linear.Call) linear.Result {
	return linear.Check(context.Background(), m, calls, time.Minute)
}

// compare holds a judgement against the oracle's, and the words against it, too.
func compare(t *testing.T, m linear.Model, calls []linear.Call, seed uint64) harness.Status {
	t.Helper()
	want := harness.Failed
	if oracle(m, calls) {
		want = harness.Pass
	}
	got := check(m, calls)
	if got.Status != want {
		t.Fatalf("seed %d: %v (%s), porcupine says %v\n%s", seed, got.Status, got.Sentence, want, listed(calls))
	}
	if want == harness.Pass || seed%2 != 0 { // the words take most of the time
		return want
	}
	var others []string
	for _, c := range calls {
		if c.Outcome != harness.Info && !slices.Contains(got.Ops, c.ID) {
			others = append(others, c.ID)
		}
	}
	if oracle(m, calls, others...) {
		t.Fatalf("seed %d: %v don't exclude each other\n%s", seed, got.Ops, listed(calls))
	}
	for _, id := range got.Ops {
		if !oracle(m, calls, append(others, id)...) {
			t.Fatalf("seed %d: %s is not needed among %v\n%s", seed, id, got.Ops, listed(calls))
		}
	}
	return want
}

func listed(calls []linear.Call) string {
	text := ""
	for _, c := range calls {
		end := "open"
		if c.Outcome != harness.Info {
			end = c.Return.String()
		}
		text += c.ID + "  " + c.Text + "  [" + c.Call.String() + " " + end + "]\n"
	}
	return text
}

var everything = []string{"book", "book", "book", "cancel", "cancel", "close", "reopen", "read"}

// The decision and the words agree with a checker that has none of our rules,
// on histories that are right and on such as were spoiled.
func TestAgreesWithPorcupine(t *testing.T) {
	const histories = 2500
	tally := map[harness.Status]int{}
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 1))
		st := storm{clients: 3 + rng.IntN(2), calls: 2 + rng.IntN(3), pause: 20, length: 1 + time.Duration(rng.IntN(60)), what: everything, guess: seed%2 == 0}
		if rng.IntN(2) == 0 {
			st.lost = 0.3
		}
		calls := st.history(rng)
		if !slices.ContainsFunc(calls, func(c linear.Call) bool { return c.Outcome != harness.Info }) {
			continue
		}
		if got := check(slotModel, calls); got.Status != harness.Pass {
			t.Fatalf("seed %d: a slot that works is %v: %s\n%s", seed, got.Status, got.Sentence, listed(calls))
		}
		for range rng.IntN(4) {
			spoil(rng, calls)
		}
		if !slices.ContainsFunc(calls, func(c linear.Call) bool { return c.Outcome != harness.Info }) {
			continue
		}
		tally[compare(t, slotModel, calls, seed)]++
	}
	t.Logf("%d histories, seeds 0 to %d: %v", histories, histories-1, tally)
	if tally[harness.Pass] < histories/10 || tally[harness.Failed] < histories/10 {
		t.Errorf("%v is no fair mixture", tally)
	}
}
