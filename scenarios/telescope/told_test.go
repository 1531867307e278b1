package telescope

import (
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
)

func TestToldAmong(t *testing.T) {
	judge := toldAmong("x", "doc", map[string][]string{"book": bookedOrNot, "close": {"200", "409 already-closed"}}).Judge
	r, c := book(0, member(0), 7, "k"), closeSlot(1, staff(0), 7, "k")
	won, taken, shut, closed := granted(r, 1), denied(r, 409, "slot-taken"), denied(r, 409, "slot-closed"), replied(c, 200, "{}")
	other := denied(cancel(0, member(0), uid(1), "k"), 404, "unknown-booking") // of a type that is not judged
	expectVerdict(t, judge(recordOf(oneSlot, won, taken, shut, closed, other, replied(r, 0, ""))), harness.Pass, "book 1 x 201, 1 x 409 slot-closed, 1 x 409 slot-taken; close 1 x 200")
	expectVerdict(t, judge(recordOf(oneSlot, won, closed, denied(r, 409, "quota-exceeded"))), harness.Failed, "409")
	expectVerdict(t, judge(recordOf(oneSlot, won, denied(c, 409, "slot-taken"))), harness.Failed, "1 were told something else")
	expectVerdict(t, judge(recordOf(oneSlot, won, closed, denied(r, 503, "busy"))), harness.Failed, "503")
	expectVerdict(t, judge(inBrokenEnvironment(recordOf(oneSlot, won, closed, denied(r, 503, "busy")))), harness.Pass, "book 1 x 201; close 1 x 200")
	expectVerdict(t, judge(inBrokenEnvironment(recordOf(oneSlot, won, closed, denied(r, 409, "quota-exceeded")))), harness.Failed, "1 were told")
	expectVerdict(t, judge(recordOf(oneSlot, won, replied(c, 0, ""))), harness.Unknown, "of close nobody was answered")
	expectVerdict(t, judge(recordOf(oneSlot)), harness.Unknown, "of book nobody was answered")
}

func TestDone(t *testing.T) {
	r := book(0, member(0), 7, "k")
	ops := []harness.Operation{granted(r, 1), denied(r, 409, "slot-taken"), replied(r, 0, ""), ofKind(kindHold, granted(r, 2))}
	if n := done(ops, kindBook, 201); n != 1 {
		t.Errorf("%d bookings were made, want 1", n)
	}
}

// A fault that never strikes, as the server writes its statement otherwise, is
// no reason to find fault with a booking that went through.
func TestOnceStruck(t *testing.T) {
	check := onceStruck(2, words("answers", "doc", byKind, fixed(tallies{kindBook: {"none": 2}})))
	r := book(0, member(0), 7, "k")
	strike := harness.Event{Kind: harness.EventFault, Subject: "sut-1", Text: "kill at before-commit(insert into active_reservations, 1): COMMIT"}
	struck := func(n int, ops ...harness.Operation) harness.Record {
		rec := recordOf(oneSlot, ops...)
		rec.History.Events = []harness.Event{{Kind: harness.EventNote}, {Kind: harness.EventHeal}}
		for range n {
			rec.History.Events = append(rec.History.Events, strike)
		}
		return rec
	}
	lost, won := replied(r, 0, ""), granted(r, 1)
	expectVerdict(t, check.Judge(struck(2, lost, lost)), harness.Pass, "2 x none")
	expectVerdict(t, check.Judge(struck(2, lost, won)), harness.Failed, "1 x 201")
	expectVerdict(t, check.Judge(struck(0, won)), harness.Unknown, "0 of 2 faults took place")
	expectVerdict(t, check.Judge(struck(1, lost, won)), harness.Unknown, "1 of 2 faults took place")
	// And so the scenarios judge it.
	for _, s := range []harness.Scenario{crashBeforeCommit(), crashAfterCommit()} {
		for _, c := range s.Checks(s.Defaults()) {
			if v := c.Judge(inBrokenEnvironment(struck(0, won))); c.ID == "answers" && v.Status != harness.Unknown {
				t.Errorf("%s: %s %s", s.Name, v.Status, v.Summary)
			}
		}
	}
}

func TestAnswersAreKept(t *testing.T) {
	judge := answersAreKept().Judge
	b, c := book(0, member(0), 7, "k"), closeSlot(1, staff(0), 7, "k")
	won, closed, lost := granted(b, 1), replied(c, 200, `{"state":"closed"}`), denied(book(2, member(1), 7, "k"), 409, "slot-taken")
	recordWith := func(results []harness.Operation, told ...harness.Operation) harness.Record {
		rec := recordOf(oneSlot, told...)
		for _, op := range results {
			kept(rec, op)
		}
		return rec
	}
	all := []harness.Operation{won, closed, lost}
	expectVerdict(t, judge(recordWith(all, all...)), harness.Pass, ": 3")
	spaced := closed
	spaced.Output += " "
	expectVerdict(t, judge(recordWith(all, won, closed, spaced)), harness.Failed, "1 of 3 are not")
	expectVerdict(t, judge(recordWith(all, won, lost, spaced)), harness.Failed, "1 of 3 are not") // with no other answer to compare
	expectVerdict(t, judge(recordWith(all, denied(c, 409, "already-closed"))), harness.Failed, "1 of 1 are not")
	created := closed
	created.Status = 201
	expectVerdict(t, judge(recordWith(all, created)), harness.Failed, "1 of 1 are not") // status alone
	expectVerdict(t, judge(recordWith([]harness.Operation{closed, lost}, all...)), harness.Failed, "1 of 3 are not")
	expectVerdict(t, judge(without(recordWith(all, all...), "booking_operations")), harness.Unknown, "could not be read")
	// What decides nothing is not stored.
	for _, undecided := range []harness.Operation{
		denied(b, 422, "key-reused"), denied(b, 503, "busy"), denied(b, 409, "in-progress"), denied(b, 409, "retry-window-over"), denied(b, 404, "unknown-slot"),
		replied(b, 0, ""), replied(readSlot(0, member(0), 7), 200, "{}"), withoutCaller(won),
	} {
		expectVerdict(t, judge(recordWith(nil, undecided)), harness.Unknown, "no write with a key was decided")
		expectVerdict(t, judge(recordWith([]harness.Operation{closed}, closed, undecided)), harness.Pass, ": 1")
	}
	long := closed
	long.Output = strings.Repeat("x", outputMost)
	longer := long
	longer.Output += "y"
	expectVerdict(t, judge(recordWith([]harness.Operation{longer}, long)), harness.Pass, ": 1") // the record has no more of it
	expectVerdict(t, judge(recordWith([]harness.Operation{long}, closed)), harness.Failed, "1 of 1")
}

// After the clock was moved a result may be gone, or be that of another life.
func TestAnswersAreKeptThroughTime(t *testing.T) {
	judge := answersAreKept().Judge
	b := book(0, member(0), 7, "k")
	first, second := granted(b, 1), granted(b, 2)
	later := func(op harness.Operation) harness.Operation { op.Intended = msec(30); return op }
	moved := func(result *harness.Operation, told ...harness.Operation) harness.Record {
		rec := recordOf(oneSlot, told...)
		rec.History.Events = []harness.Event{{At: msec(25), Kind: harness.EventFault, Subject: "clock"}}
		if result != nil {
			kept(rec, *result)
		}
		return rec
	}
	expectVerdict(t, judge(moved(nil, first)), harness.Pass, ": 1")                               // purged
	expectVerdict(t, judge(moved(&second, first)), harness.Failed, "1 of 1")                      // nobody has used it anew
	expectVerdict(t, judge(moved(&second, first, later(second))), harness.Pass, ": 1")            // somebody has
	expectVerdict(t, judge(moved(&first, first, later(second))), harness.Failed, "1 of 1")        // and was told something else
	expectVerdict(t, judge(moved(&second, first, later(replied(b, 0, "")))), harness.Unknown, "") // or may have
}

func withoutCaller(op harness.Operation) harness.Operation {
	op.Caller = ""
	return op
}
