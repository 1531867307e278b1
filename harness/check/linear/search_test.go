package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
)

// swap asks a register of three values to go from one to another; a read asks
// to stay. Two answers may look alike and be sent and answered at other times.
type swap struct{ from, to int }

var swaps = Model{
	Name: "register", Init: func(string) any { return 0 },
	Step: func(state, input, _ any, _ bool) []any {
		s := input.(swap)
		switch {
		case s.from < 0: // from whatever it is
			return []any{s.to}
		case s.from == state:
			return []any{s.to}
		}
		return nil
	},
	Observes: func(input, _ any) bool { return input.(swap).from == input.(swap).to },
}

// bruteForce tries every order of the must items and any of the may items.
func bruteForce(t *table, p problem, state int32, latest time.Duration) bool {
	if len(p.must) == 0 {
		return true
	}
	limit := forever
	for _, i := range p.must {
		limit = min(limit, i.to)
	}
	try := func(list []item, k int, rest func([]item) problem) bool {
		it := list[k]
		if it.from > limit || it.to < latest {
			return false
		}
		next, err := t.step(state, it.class)
		if err != nil {
			panic(err)
		}
		others := append(append([]item{}, list[:k]...), list[k+1:]...)
		for _, n := range next {
			if bruteForce(t, rest(others), n, max(latest, it.from)) {
				return true
			}
		}
		return false
	}
	for k := range p.must {
		if try(p.must, k, func(l []item) problem { return problem{must: l, may: p.may} }) {
			return true
		}
	}
	for k := range p.may {
		if try(p.may, k, func(l []item) problem { return problem{must: p.must, may: l} }) {
			return true
		}
	}
	return false
}

// randomProblem draws up to four calls that must and up to five that may take
// effect. Every other problem has may calls that end, and every other few
// different ones.
func randomProblem(rng *rand.Rand) (*table, problem) {
	t := newTable(swaps)
	t.state(0)
	var p problem
	length, timed, values := 1+rng.IntN(14), rng.IntN(2) == 0, 2+rng.IntN(2)
	draw := func(n int) item {
		from := time.Duration(1 + rng.IntN(12))
		c := Call{Input: swap{rng.IntN(values+1) - 1, rng.IntN(values)}, Output: true, Outcome: harness.OK}
		if rng.IntN(3) == 0 {
			v := rng.IntN(values)
			c.Input = swap{v, v}
		}
		return item{call: n, class: t.class(c), from: from, to: from + time.Duration(rng.IntN(length))}
	}
	for n := range 1 + rng.IntN(4) {
		p.must = append(p.must, draw(n))
	}
	for n := range rng.IntN(6) {
		it := draw(n)
		if !timed {
			it.to = forever
		}
		if !t.classes[it.class].observes {
			p.may = append(p.may, it)
		}
	}
	return t, p
}

// The search finds an order exactly when trying all of them does.
func TestSearchAgreesWithBruteForce(t *testing.T) {
	const problems = 60_000
	found := 0
	for seed := range uint64(problems) {
		table, p := randomProblem(rand.New(rand.NewPCG(seed, 7)))
		text := fmt.Sprintf("must %+v\nmay %+v\nclasses %+v", p.must, p.may, table.classes)
		want := bruteForce(table, p, 0, 0)
		got, err := newSearch(context.Background(), table, p, 10_000).run(0)
		if err != nil || got != want {
			t.Fatalf("seed %d: got %v %v, want %v\n%s", seed, got, err, want, text)
		}
		if want {
			found++
		}
	}
	t.Logf("%d problems, seeds 0 to %d: %d have an order", problems, problems-1, found)
	if found < problems/10 || found > problems*9/10 {
		t.Error("this is no fair mixture")
	}
}

// Of two calls that look alike the one that ends first may have to come first,
// although it was sent last.
func TestAlikeCallsThatLieInsideEachOther(t *testing.T) {
	table := newTable(swaps)
	at := func(in swap, from, to time.Duration) item {
		return item{class: table.class(Call{Input: in, Output: true, Outcome: harness.OK}), from: from, to: to}
	}
	p := problem{
		must: []item{at(swap{1, 0}, 10, 20), at(swap{1, 1}, 30, 40)},
		may:  []item{at(swap{0, 1}, 1, 50), at(swap{0, 1}, 2, 5)},
	}
	if found, err := newSearch(context.Background(), table, p, 100).run(table.state(0)); !found || err != nil {
		t.Errorf("got %v %v, want an order", found, err)
	}
}

// What a failed search says it reached is the first answer without an explanation.
func TestReachedIsTheFirstWithoutAnOrder(t *testing.T) {
	for seed := range uint64(20_000) {
		table, p := randomProblem(rand.New(rand.NewPCG(seed, 8)))
		for i := range p.may {
			p.may[i].to = forever
		}
		s := newSearch(context.Background(), table, p, 10_000)
		if legal, err := s.run(0); legal || err != nil {
			continue
		}
		want := forever
		for _, last := range p.must { // the earliest end by which there is no order
			part := problem{may: p.may}
			for _, i := range p.must {
				if i.to <= last.to {
					part.must = append(part.must, i)
				} else {
					part.may = append(part.may, i)
				}
			}
			if !bruteForce(table, part, 0, 0) {
				want = min(want, last.to)
			}
		}
		if s.reached != want {
			t.Fatalf("seed %d: reached %d, want %d", seed, s.reached, want)
		}
	}
}

// Words that cost too much say less, and nothing that is wrong.
func TestWordsThatCostTooMuch(t *testing.T) {
	var calls []Call
	for i := range 8 {
		in := swap{i % 3, (i + 1) % 3}
		calls = append(calls, Call{ID: fmt.Sprintf("op-%d", i), Key: "it", Input: in, Call: time.Duration(10 * i), Return: time.Duration(10*i + 5), Outcome: harness.OK, Text: fmt.Sprint(in)})
	}
	calls = append(calls, Call{ID: "last", Key: "it", Input: swap{1, 1}, Call: 90, Return: 95, Outcome: harness.OK, Text: "read 1"})
	h := newHistory(swaps, "it", calls)
	d := &decision{h: h}
	if d.decide(context.Background(), mostEasy); d.legal || d.err != nil {
		t.Fatalf("got %+v", d)
	}
	e := &explainer{ctx: context.Background(), h: h, by: d.wrong, stuck: d.stuck}
	want := "read 1 (last) is the first answer that no order explains: in every order of the 8 answers before it the register is then 2"
	if got := e.sentence(e.core()); got != want {
		t.Errorf("without states: got %s", got)
	}
	w, _ := explain(context.Background(), h, d.wrong, d.stuck)
	want = "read 1 (last) was sent after {1 2} (op-7) had been answered, and cannot have come after it: the register was then 2, whatever the other 7 calls did"
	if w.sentence != want {
		t.Errorf("with states: got %s", w.sentence)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if w, _ = explain(ended, h, d.wrong, d.stuck); len(w.ops) != 9 {
		t.Errorf("with an ended context: got %v", w.ops)
	}
}
