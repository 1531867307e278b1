package tickets

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
	"github.com/overbook/overbook/scenarios/answers"
)

// A seatState is all that a seat is when nothing overlaps, no hold runs out and
// no payment is undecided.
type seatState struct {
	Hold string // who has it: the hold's id, unnamed, "" when it is free
	Sold bool
}

// unnamed is a hold that nobody was told the id of.
const unnamed = "?"

// What is asked of a seat.
const (
	doClaim   = "claim"
	doRelease = "release"
	doPay     = "pay"
	doRead    = "read"
)

// A seatInput is what was asked of a seat. Hold is the one that it is about.
type seatInput struct {
	Do   string
	Hold string
}

// A seatAnswer is what was answered: toldDone, the type of the refusal, or of a
// read the seat's state.
type seatAnswer struct {
	Told string
	Hold string // of a claim that was granted
}

// toldDone is the answer of what took effect.
const toldDone = "done"

// linearTime bounds the search for an order. It takes milliseconds.
const linearTime = 20 * time.Second

// linearizable is S-I1 and S-I4 as clients were told, of scenarios in which no
// hold runs out and every payment is decided by the answer to its charge.
func linearizable() harness.Check {
	const doc = "what clients were told of each seat can be explained by some order of their calls, each taking effect between request and answer"
	return linear.NewCheck("S-I4.told", doc, where+"/model.go", seatModel(), seatCalls, linearTime)
}

// seatModel is the contract of one seat: free before the first call.
func seatModel() linear.Model {
	return linear.Model{
		Name: "seat",
		Init: func(string) any { return seatState{} },
		Step: func(state, input, output any, known bool) []any {
			s, in := state.(seatState), input.(seatInput)
			if !known {
				return unanswered(s, in)
			}
			if next, may := answered(s, in, output.(seatAnswer)); may {
				return []any{next}
			}
			return nil
		},
		Observes: func(input, output any) bool {
			return input.(seatInput).Do == doRead || output.(seatAnswer).Told != toldDone
		},
		DescribeState: func(v any) string { return v.(seatState).String() },
	}
}

// word is the state as the server tells it.
func (s seatState) word() string {
	switch {
	case s.Hold == "":
		return "FREE"
	case s.Sold:
		return "SOLD"
	}
	return "HELD"
}

// String says what the seat is, to people.
func (s seatState) String() string {
	switch {
	case s.Hold == "":
		return "free"
	case s.Sold:
		return "sold to " + brief(s.Hold)
	}
	return "held by " + brief(s.Hold)
}

// has says whether the hold may be the one that has the seat.
func (s seatState) has(hold string) bool { return s.Hold == hold || s.Hold == unnamed }

// answered gives the state after an answered call, and whether it is possible.
func answered(s seatState, in seatInput, out seatAnswer) (seatState, bool) {
	switch in.Do + " " + out.Told {
	case "claim " + toldDone:
		return seatState{Hold: out.Hold}, s.Hold == ""
	case "claim seat-taken":
		return s, s.Hold != ""
	case "release " + toldDone:
		return seatState{}, s.has(in.Hold) && !s.Sold
	case "pay " + toldDone:
		return seatState{Hold: in.Hold, Sold: true}, s.has(in.Hold) && !s.Sold
	case "pay payment-declined":
		return s, s.has(in.Hold) && !s.Sold
	case "release hold-over", "pay hold-over":
		return s, !s.has(in.Hold) || s.Sold
	}
	return s, in.Do == doRead && out.Told == s.word()
}

// unanswered gives the states to which a call may have led of which nobody
// knows the outcome, beside the one that it found.
func unanswered(s seatState, in seatInput) []any {
	switch {
	case in.Do == doClaim && s.Hold == "":
		return []any{seatState{Hold: unnamed}}
	case in.Do == doRelease && s.has(in.Hold) && !s.Sold:
		return []any{seatState{}}
	case in.Do == doPay && s.has(in.Hold) && !s.Sold:
		return []any{seatState{Hold: in.Hold, Sold: true}}
	}
	return nil
}

// brief is as much of an id as tells it from others in a sentence.
func brief(id string) string { return id[:min(len(id), 8)] }

// seatCalls reads the calls on seats from a record: claims of named seats,
// releases and charges of holds that an answer named, and what a show's list
// says of each seat that somebody acted on. Left out is what says nothing of a
// seat and certainly had no effect, and what was sent after the clock was moved
// for the first time, as holds may have run out then. 5xx and no answer are of
// unknown outcome.
func seatCalls(rec harness.Record) ([]linear.Call, error) {
	moved := clockMoved(rec)
	seatOf := map[string]string{} // by hold
	acted := map[string]bool{}
	for _, op := range rec.History.Operations {
		if h, err := holdOf(op); err == nil && isClaim(op) {
			seatOf[h.HoldID] = seatKey(h.ShowID, h.Seat)
		}
		if key := claimedSeat(op); key != "" {
			acted[key] = true
		}
	}
	var calls []linear.Call
	for _, op := range rec.History.Operations {
		if op.Sent == 0 || op.Sent >= moved {
			continue
		}
		key, in := claimedSeat(op), seatInput{Do: doClaim}
		if id, charges := holdInPath(op); id != "" {
			key, in = seatOf[id], seatInput{Do: doRelease, Hold: id}
			if charges {
				in.Do = doPay
			}
			if key == "" && op.Status == 0 {
				return nil, fmt.Errorf("operation %s (%s %s) has no answer, and no other says of which seat that hold is", op.ID, op.Method, op.Path)
			}
		}
		if key != "" {
			if c, says := callOf(op, key, in); says {
				calls = append(calls, c)
			}
		}
		calls = append(calls, readsOf(op, acted)...)
	}
	return calls, nil
}

// clockMoved is when the servers' clock was moved for the first time.
func clockMoved(rec harness.Record) time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, e := range rec.History.Events {
		if e.Kind == harness.EventFault && e.Subject == "clock" {
			first = min(first, e.At)
		}
	}
	return first
}

func seatKey(show int64, seat string) string { return fmt.Sprintf("seat %s of show %d", seat, show) }

func isClaim(op harness.Operation) bool {
	return op.Method == http.MethodPost && strings.HasPrefix(op.Path, "/tickets/shows/") && strings.HasSuffix(op.Path, "/holds")
}

// claimedSeat is the seat that a claim was for, or of one for the best seat the
// seat that it was given; "" when there is none.
func claimedSeat(op harness.Operation) string {
	if !isClaim(op) {
		return ""
	}
	if h, err := holdOf(op); err == nil {
		return seatKey(h.ShowID, h.Seat)
	}
	id, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(op.Path, "/tickets/shows/"), "/holds"), 10, 64)
	seat, named := inputOf(op)["seat"].(string)
	if err != nil || !named {
		return ""
	}
	return seatKey(id, seat)
}

// callOf makes the call of a write; says is false when it says nothing of the seat.
func callOf(op harness.Operation, key string, in seatInput) (c linear.Call, says bool) {
	c = linear.Call{ID: op.ID, Process: op.Process, Key: key, Input: in, Call: op.Sent, Outcome: harness.Info}
	c.Text = fmt.Sprintf("%s by %s -> %s", in.Do, op.Caller, answers.Word(op))
	if op.Status == 0 || op.Status >= 500 {
		return c, true
	}
	out := seatAnswer{Told: answers.ProblemType(op)}
	switch {
	case op.Status == http.StatusOK, op.Status == http.StatusCreated:
		out.Told = toldDone
		if h, err := holdOf(op); err == nil && in.Do == doClaim {
			out.Hold = h.HoldID
			c.Text += " " + brief(h.HoldID)
		}
	case out.Told != "seat-taken" && out.Told != "hold-over" && out.Told != "payment-declined":
		return c, false
	}
	c.Output, c.Return, c.Outcome = out, op.Answered, op.Outcome
	return c, true
}

// readsOf makes a call for each seat of a show's list that somebody acted on.
func readsOf(op harness.Operation, acted map[string]bool) []linear.Call {
	var list seatsAnswer
	if op.Method != http.MethodGet || !strings.HasSuffix(op.Path, "/seats") || op.Status != http.StatusOK || op.Decode(&list) != nil {
		return nil
	}
	var calls []linear.Call
	for _, s := range list.Seats {
		if key := seatKey(list.ShowID, s.Seat); acted[key] {
			calls = append(calls, linear.Call{
				ID: op.ID, Process: op.Process, Key: key, Input: seatInput{Do: doRead}, Output: seatAnswer{Told: s.State},
				Call: op.Sent, Return: op.Answered, Outcome: op.Outcome, Text: fmt.Sprintf("read by %s -> %s", op.Caller, s.State),
			})
		}
	}
	return calls
}
