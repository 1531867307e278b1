package linear_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
)

// The tests' slot: open or closed, free or held by a booking.
type slot struct {
	closed bool
	holder int
}

// asked is book, cancel, close, reopen or read; who is the booking to cancel.
type asked struct {
	what string
	who  int
}

// told is the answer: ok, taken, closed, gone, already; for a book its
// booking, for a close and a read who had the slot.
type told struct {
	what string
	who  int
	slot slot // read
}

var slotModel = linear.Model{
	Name: "slot",
	Init: func(string) any { return slot{} },
	Step: func(state, input, output any, known bool) []any {
		s, in := state.(slot), input.(asked)
		if !known {
			return slotUnknown(s, in)
		}
		out := output.(told)
		if answer, next := slotAnswer(s, in, out.who); answer == out {
			return []any{next}
		}
		return nil
	},
	Observes: func(input, output any) bool {
		return input.(asked).what == "read" || output.(told).what != "ok"
	},
	DescribeState: func(v any) string {
		s := v.(slot)
		text := "open and "
		if s.closed {
			text = "closed and "
		}
		if s.holder == 0 {
			return text + "free"
		}
		return text + fmt.Sprintf("held by b%d", s.holder)
	},
}

// slotAnswer is what the slot tells, and what becomes of it; booking is the
// number that a new booking gets.
func slotAnswer(s slot, in asked, booking int) (told, slot) {
	switch in.what {
	case "book":
		switch {
		case s.closed:
			return told{what: "closed"}, s
		case s.holder != 0:
			return told{what: "taken"}, s
		}
		return told{what: "ok", who: booking}, slot{holder: booking}
	case "cancel":
		if s.holder != in.who {
			return told{what: "gone"}, s
		}
		return told{what: "ok"}, slot{closed: s.closed}
	case "close":
		if s.closed {
			return told{what: "already"}, s
		}
		return told{what: "ok", who: s.holder}, slot{closed: true, holder: s.holder}
	case "reopen":
		if !s.closed {
			return told{what: "already"}, s
		}
		return told{what: "ok"}, slot{holder: s.holder}
	}
	return told{what: "read", slot: s}, s
}

// slotUnknown: an unanswered book makes the booking that in.who says.
func slotUnknown(s slot, in asked) []any {
	if answer, next := slotAnswer(s, in, in.who); answer.what == "ok" {
		return []any{next}
	}
	return nil
}

// A storm is a history made by a slot that works.
type storm struct {
	clients, calls int           // calls of each client
	pause          time.Duration // most between a client's calls
	length         time.Duration // most of a call
	lost           float64       // share of calls without an answer
	what           []string      // drawn from
	guess          bool          // clients cancel what they can't know of, too
}

// history plays the storm: each call takes effect at an instant of its own,
// in the order of these instants, and some answers are lost.
func (st storm) history(rng *rand.Rand) []linear.Call {
	var calls []linear.Call
	when := map[string]time.Duration{}
	for client := range st.clients {
		at := time.Duration(0)
		for n := range st.calls {
			at += 1 + time.Duration(rng.Int64N(int64(st.pause)+1))
			length := 1 + rng.Int64N(int64(st.length))
			c := linear.Call{ID: fmt.Sprintf("op-%d-%d", client, n), Process: client, Key: "slot 1", Call: at, Return: at + time.Duration(length), Outcome: harness.OK}
			when[c.ID] = at + time.Duration(rng.Int64N(length+1))
			calls = append(calls, c)
			at += time.Duration(length)
		}
	}
	slices.SortFunc(calls, func(a, b linear.Call) int { return int(when[a.ID] - when[b.ID]) })
	s, bookings, mine := slot{}, 0, map[int]int{}
	for i := range calls {
		c := &calls[i]
		in := st.ask(rng, s, mine[c.Process], &bookings)
		out, next := slotAnswer(s, in, bookings)
		if in.what == "book" && out.what == "ok" {
			mine[c.Process] = bookings
		}
		c.Input, c.Output = in, out
		if rng.Float64() < st.lost {
			if in.what == "book" {
				in.who = bookings // what nobody was told
				mine[c.Process] = 0
			}
			c.Input, c.Output, c.Outcome, c.Return = in, nil, harness.Info, 0
			if rng.IntN(2) == 0 {
				next = s
			}
		}
		s = next
		c.Text = text(*c)
	}
	return calls
}

// ask draws what a client does who has a booking, if it has one.
func (st storm) ask(rng *rand.Rand, s slot, mine int, bookings *int) asked {
	in := asked{what: st.what[rng.IntN(len(st.what))]}
	switch in.what {
	case "book":
		*bookings++
	case "cancel":
		in.who = mine
		if st.guess {
			in.who = max(1, []int{s.holder, s.holder, *bookings, *bookings - 1}[rng.IntN(4)])
		}
		if in.who == 0 {
			in.what = "read"
		}
	}
	return in
}

func text(c linear.Call) string {
	in := c.Input.(asked)
	name := in.what
	if in.what == "cancel" {
		name += fmt.Sprintf(" b%d", in.who)
	}
	if c.Outcome == harness.Info {
		return name + " -> no answer"
	}
	out := c.Output.(told)
	switch {
	case in.what == "read":
		return name + " -> " + slotModel.DescribeState(out.slot)
	case out.who != 0:
		return name + fmt.Sprintf(" -> ok b%d", out.who)
	}
	return name + " -> " + out.what
}

// spoil changes one thing in a history, so that it may have no order any more.
func spoil(rng *rand.Rand, calls []linear.Call) {
	i := rng.IntN(len(calls))
	c := &calls[i]
	out, _ := c.Output.(told)
	switch rng.IntN(5) {
	case 0: // an answer was another one
		c.Output = told{what: []string{"ok", "taken", "closed", "gone", "already"}[rng.IntN(5)], who: out.who}
		if in := c.Input.(asked); in.what == "read" {
			c.Output = told{what: "read", slot: slot{closed: rng.IntN(2) == 0, holder: rng.IntN(3)}}
		}
	case 1: // it was somebody else's
		out.who = rng.IntN(4)
		c.Output = out
	case 2: // it was shorter
		if c.Outcome != harness.Info {
			c.Return = c.Call + (c.Return-c.Call)/2
		}
	case 3: // it never was
		c.Outcome = harness.Info
	case 4: // two answers were swapped
		if d := &calls[rng.IntN(len(calls))]; d.Outcome != harness.Info && c.Outcome != harness.Info && d.Input == c.Input {
			c.Output, d.Output = d.Output, c.Output
		}
	}
	if c.Output == nil {
		c.Outcome = harness.Info
	}
	c.Text = text(*c)
}
