package telescope

import (
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
)

// A slotState is all that a slot is when nothing overlaps. Whoever has a
// closed slot has it flagged, so that needs no field.
type slotState struct {
	Closed  bool
	Booking string // who has it: the booking's id, unnamed, "" when it is free
	Member  string // whose that is, where it is known and somebody's answer depends on it
	Guessed string // ids that bookings of unknown outcome were taken to have, each with a comma after it
}

// unnamed is a booking that nobody was told the id of.
const unnamed = "?"

// A slotInput is what was asked of a slot. Booking is the one that it is about;
// IDs are those that a booking of unknown outcome may have, each with a comma
// after it: ids that answers name and no booking was answered with.
type slotInput struct {
	Do      string // book, cancel, close, reopen, import, release, keep, read, account
	Booking string
	Member  string
	IDs     string
	State   string // import: the state asked for
}

// A slotAnswer is what was answered: "done", or the type of the refusal.
type slotAnswer struct {
	Told     string
	Booking  string // book: its id; close: the flagged one; import: all flagged ones; read and account: who has it, if it is told
	State    string // read and account
	Reserved bool   // read
	Mine     bool   // read
}

// toldDone is the answer of what took effect, and of a read.
const toldDone = "done"

// linearTime bounds the search for an order. It takes milliseconds; see decision 7.
const linearTime = 20 * time.Second

// linearizable is T-I12.
func linearizable() harness.Check {
	const doc = "what clients were told of each slot can be explained by some order of their calls, each taking effect between request and answer"
	return linear.NewCheck("T-I12", doc, where+"/model.go", slotModel(), slotCalls, linearTime)
}

// slotModel is the contract of one slot (docs/reference-server-telescope.md):
// open and free before the first call.
func slotModel() linear.Model {
	return linear.Model{
		Name: "slot",
		Init: func(string) any { return slotState{} },
		Step: func(state, input, output any, known bool) []any {
			s, in := state.(slotState), input.(slotInput)
			if !known {
				return boxed(unanswered(s, in))
			}
			out := output.(slotAnswer)
			if out.Told != toldDone {
				return boxed(only(s, refusalHolds(s, in, out.Told)))
			}
			return boxed(answered(s, in, out))
		},
		Observes: func(input, output any) bool {
			return slices.Contains([]string{kindRead, kindAccount, "keep"}, input.(slotInput).Do) || output.(slotAnswer).Told != toldDone
		},
		DescribeState: func(v any) string { return v.(slotState).String() },
	}
}

// String says what the slot is, to people.
func (s slotState) String() string {
	text := "open and "
	if s.Closed {
		text = "closed and "
	}
	switch s.Booking {
	case "":
		return text + "free"
	case unnamed:
		return text + "held by a booking that was never answered"
	}
	text += "held by " + brief(s.Booking)
	if s.Member != "" {
		text += " of " + s.Member
	}
	return text
}

func boxed(states []slotState) []any {
	list := make([]any, len(states))
	for i, s := range states {
		list[i] = s
	}
	return list
}

// only gives the state if it may be, else none.
func only(s slotState, may bool) []slotState {
	if may {
		return []slotState{s}
	}
	return nil
}

// refusalHolds says whether the slot gives the refusal. A booking looks at the
// slot's state first, then at who has it. A booking that is over is never
// active again; whether it was before is not remembered here.
func refusalHolds(s slotState, in slotInput, told string) bool {
	switch in.Do + " " + told {
	case "book slot-closed":
		return s.Closed
	case "book slot-taken":
		return !s.Closed && s.Booking != ""
	case "cancel already-cancelled":
		return s.Booking != in.Booking
	case "close already-closed":
		return s.Closed
	case "reopen already-open":
		return !s.Closed
	}
	return true // it says nothing about the slot
}

// answered gives the state after a call that took effect, or that read.
func answered(s slotState, in slotInput, out slotAnswer) []slotState {
	next, may := s, false
	switch in.Do {
	case kindBook:
		may = !s.Closed && s.Booking == ""
		next.Booking, next.Member = out.Booking, in.Member
	case kindCancel:
		may = s.Booking == in.Booking
		next.Booking, next.Member = "", ""
	case kindClose:
		may = !s.Closed && s.Booking == out.Booking
		next.Closed = true
	case kindReopen:
		may = s.Closed
		next.Closed = false
	case kindImport:
		next.Closed = in.State == "closed"
		may = s.Closed || !next.Closed || s.Booking == "" || strings.Contains(out.Booking, s.Booking+",")
	case "release":
		may = s.Closed && s.Booking == in.Booking
		next.Booking, next.Member = "", ""
	case "keep":
		may = s.Closed && s.Booking == in.Booking
	case kindRead:
		may = readHolds(s, in, out)
	case kindAccount:
		may = accountHolds(s, in, out)
	}
	return only(next, may)
}

// readHolds says whether the slot reads like that. The booking's id is told to
// its member and to staff.
func readHolds(s slotState, in slotInput, out slotAnswer) bool {
	return out.State == s.word() && out.Reserved == (s.Booking != "") &&
		(out.Booking == "" || out.Booking == s.Booking) &&
		(!out.Reserved || out.Mine || in.Member == "" || in.Member != s.Member)
}

// accountHolds says whether the member's account page shows the slot like that.
func accountHolds(s slotState, in slotInput, out slotAnswer) bool {
	if out.Booking == "" {
		return s.Booking == "" || s.Member != in.Member
	}
	return s.Booking == out.Booking && out.State == s.word()
}

func (s slotState) word() string {
	if s.Closed {
		return "closed"
	}
	return "open"
}

// unanswered gives the states to which a call may have led of which nobody
// knows the outcome, beside the one that it found.
func unanswered(s slotState, in slotInput) []slotState {
	switch in.Do {
	case kindBook:
		return guessed(s, in)
	case kindCancel, "release":
		return answered(s, in, slotAnswer{})
	case kindClose:
		return only(slotState{true, s.Booking, s.Member, s.Guessed}, !s.Closed)
	case kindReopen, kindImport:
		return answered(s, in, slotAnswer{Booking: s.Booking + ","})
	}
	return nil
}

// guessed are the states after a booking that was not answered: with each id
// that it may have and no other was taken to have, and with none.
func guessed(s slotState, in slotInput) []slotState {
	if s.Closed || s.Booking != "" {
		return nil
	}
	next := []slotState{{Booking: unnamed, Member: in.Member, Guessed: s.Guessed}}
	for id := range strings.SplitAfterSeq(in.IDs, ",") {
		if id == "" || strings.Contains(s.Guessed, id) {
			continue
		}
		all := strings.SplitAfter(s.Guessed+id, ",")
		slices.Sort(all)
		next = append(next, slotState{Booking: strings.TrimSuffix(id, ","), Member: in.Member, Guessed: strings.Join(all, "")})
	}
	return next
}

// brief is as much of an id as tells it from others in a sentence.
func brief(id string) string { return id[:min(len(id), 8)] }
