package linear

import (
	"fmt"
	"reflect"
	"slices"
)

// A table gives numbers to states and to classes of calls, and remembers each
// step of the model. Calls of one class have the same input, output and
// knowledge, so that the model cannot tell them apart.
type table struct {
	m       Model
	states  []any
	byValue map[any]int32      // when states are compared with ==
	byHash  map[uint64][]int32 // when the model compares them
	classes []class
	byClass map[class]int32
	steps   map[[2]int32][]int32
}

type class struct {
	input, output   any
	known, observes bool
}

// A modelError is a model that does not keep what it says of itself.
type modelError struct{ text string }

// Error says which promise was broken, and where.
func (e *modelError) Error() string { return e.text }

func newTable(m Model) *table {
	return &table{
		m: m, byValue: map[any]int32{}, byHash: map[uint64][]int32{},
		byClass: map[class]int32{}, steps: map[[2]int32][]int32{},
	}
}

// state gives the number of a state.
func (t *table) state(v any) int32 {
	if t.m.Equal == nil {
		n, ok := t.byValue[v]
		if !ok {
			n = t.newState(v)
			t.byValue[v] = n
		}
		return n
	}
	hash := uint64(0)
	if t.m.Hash != nil {
		hash = t.m.Hash(v)
	}
	for _, n := range t.byHash[hash] {
		if t.m.Equal(t.states[n], v) {
			return n
		}
	}
	n := t.newState(v)
	t.byHash[hash] = append(t.byHash[hash], n)
	return n
}

func (t *table) newState(v any) int32 {
	t.states = append(t.states, v)
	return int32(len(t.states) - 1)
}

// class gives the number of a call's class. What can't be compared is a class
// of its own, which costs time and nothing else.
func (t *table) class(c Call) int32 {
	k := class{input: c.Input, known: c.known()}
	if k.known {
		k.output = c.Output
		k.observes = t.m.Observes != nil && t.m.Observes(c.Input, c.Output)
	}
	alike := isComparable(k.input) && isComparable(k.output)
	if alike {
		if n, ok := t.byClass[k]; ok {
			return n
		}
	}
	t.classes = append(t.classes, k)
	n := int32(len(t.classes) - 1)
	if alike {
		t.byClass[k] = n
	}
	return n
}

func isComparable(v any) bool { return v == nil || reflect.ValueOf(v).Comparable() }

// step gives the states to which a call of the class may lead, each once.
func (t *table) step(state, class int32) ([]int32, error) {
	at := [2]int32{state, class}
	if next, ok := t.steps[at]; ok {
		return next, nil
	}
	c := t.classes[class]
	next := []int32{}
	for _, v := range t.m.Step(t.states[state], c.input, c.output, c.known) {
		n := t.state(v)
		if c.observes && n != state {
			return nil, &modelError{fmt.Sprintf("the model says that %v -> %v changes nothing, and then takes it from %s to %s",
				c.input, c.output, t.describe(state), t.describe(n))}
		}
		if !slices.Contains(next, n) {
			next = append(next, n)
		}
	}
	t.steps[at] = next
	return next, nil
}

func (t *table) describe(state int32) string {
	if t.m.DescribeState == nil {
		return fmt.Sprint(t.states[state])
	}
	return t.m.DescribeState(t.states[state])
}
