package tickets

import (
	"fmt"
	"slices"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

func TestTallied(t *testing.T) {
	judge := holdStates("one each", map[string]int{"CONFIRMED": 1, "EXPIRED": 0}).Judge
	rec := recordOf(replied(desync(), 200, "{}"))
	expectVerdict(t, judge(rec), harness.Failed, "got no operation")
	putOrder(rec, 1, [3]string{"CONFIRMED", "SOLD", ""}, nil)
	expectVerdict(t, judge(rec), harness.Pass, "1 x CONFIRMED")
	putOrder(rec, 2, [3]string{"EXPIRED", "", ""}, nil)
	expectVerdict(t, judge(rec), harness.Failed, "1 x CONFIRMED, 1 x EXPIRED")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "nobody did anything")
	expectVerdict(t, judge(without(rec, "table:holds")), harness.Unknown, "holds could not be read")
}

func TestEachSeatOnce(t *testing.T) {
	judge := eachSeatOnce().Judge
	a, b := granted(claimBest(0, "member-1", 1), 1, "S-1"), granted(claimBest(1, "member-2", 1), 2, "S-2")
	expectVerdict(t, judge(recordOf(a, b)), harness.Pass, "2 seats")
	expectVerdict(t, judge(recordOf(a, granted(claim(1, "member-2", 1, "S-1"), 2, "S-1"))), harness.Failed, "seat S-1 of show 1 was given before")
	expectVerdict(t, judge(recordOf(replied(claimBest(0, "member-1", 1), 201, "a seat"))), harness.Failed, "can't be read")
	expectVerdict(t, judge(recordOf(denied(claimBest(0, "member-1", 1), 409, "sold-out", ""))), harness.Unknown, "nobody was told")
}

func TestOtherTabIsNamed(t *testing.T) {
	judge := otherTabIsNamed().Judge
	won := inBurst(granted(claim(0, "member-1", 1, "S-1"), 1, "S-1"), "claim-1")
	refused := func(hold, seat string) harness.Operation {
		return inBurst(denied(claim(1, "member-1", 1, "S-2"), 409, "checkout-active", fmt.Sprintf(`,"hold_id":%q,"seat":%q`, hold, seat)), "claim-1")
	}
	expectVerdict(t, judge(recordOf(won, refused(uid("h", 1), "S-1"))), harness.Pass, ": 1")
	expectVerdict(t, judge(recordOf(refused(uid("h", 1), "S-1"), won)), harness.Pass, ": 1")
	expectVerdict(t, judge(recordOf(won, refused(uid("h", 2), "S-1"))), harness.Failed, "hold_id should be")
	expectVerdict(t, judge(recordOf(won, refused(uid("h", 1), "S-2"))), harness.Failed, "seat should be S-1")
	expectVerdict(t, judge(recordOf(won, inBurst(denied(claim(1, "member-1", 1, "S-2"), 409, "checkout-active", ""), "claim-1"))), harness.Failed, "should be")
	expectVerdict(t, judge(recordOf(won)), harness.Unknown, "no tab was refused")
}

func TestDroppedTo(t *testing.T) {
	told := func(state string) harness.Record {
		return recordOf(replied(release(0, "member-1", uid("h", 1)), 200, fmt.Sprintf(`{"state":"RELEASED","seat_state":%q}`, state)))
	}
	expectVerdict(t, droppedTo(policyQuarantine).Judge(told("QUARANTINED")), harness.Pass, "QUARANTINED, 1 times")
	expectVerdict(t, droppedTo(policyRelease).Judge(told("FREE")), harness.Pass, "FREE, 1 times")
	expectVerdict(t, droppedTo(policyQuarantine).Judge(told("FREE")), harness.Failed, "seat_state is FREE, want QUARANTINED")
	expectVerdict(t, droppedTo(policyRelease).Judge(recordOf()), harness.Unknown, "nobody was told")
	expectVerdict(t, orderIs("id", "doc", kindOrder, "RESERVED").Judge(recordOf(replied(order(0, "member-1", uid("h", 1)), 200, `{"state":"EXPIRED"}`))), harness.Failed, "state is EXPIRED")
}

func TestEndedInTime(t *testing.T) {
	judge := endedInTime().Judge
	ended := func(at string) harness.Record {
		rec := recordOf()
		putOrder(rec, 1, [3]string{"EXPIRED", "", ""}, nil) // until 00:08:00
		rec.Rows["table:holds"].Rows[0]["ended_at"] = at
		return rec
	}
	expectVerdict(t, judge(ended("2031-01-01T00:08:00.02+00:00")), harness.Pass, "1, at most 20ms late")
	expectVerdict(t, judge(ended("2031-01-01T00:07:59.9+00:00")), harness.Failed, "was to end at")
	expectVerdict(t, judge(ended("2031-01-01T00:08:04+00:00")), harness.Failed, "was to end at")
	rec := recordOf()
	putOrder(rec, 1, [3]string{"RESERVED", "HELD", ""}, nil)
	expectVerdict(t, judge(rec), harness.Unknown, "no hold ran out")
	expectVerdict(t, judge(without(rec, "table:holds")), harness.Unknown, "could not be read")
}

func TestNothingChanged(t *testing.T) {
	judge := nothingChanged().Judge
	digest := func(of string) harness.Event {
		return harness.Event{Subject: subjectDigest, Attrs: map[string]string{"seats": "s", "holds": of}}
	}
	rec := func(events ...harness.Event) harness.Record {
		return harness.Record{History: harness.History{Events: events}}
	}
	expectVerdict(t, judge(rec(digest("a"), digest("a"))), harness.Pass, "2 tables")
	expectVerdict(t, judge(rec(digest("a"), digest("b"))), harness.Failed, "holds: a before, b after")
	expectVerdict(t, judge(rec(digest("a"))), harness.Unknown, "there are 1 digests")
}

// Each bad request is something of its own, and can be made of any world.
func TestBadRequests(t *testing.T) {
	names := map[string]bool{}
	w := badWorld{show: show{ID: 1}, other: show{ID: 2, Seats: []string{"Z-99"}}, held: holdAnswer{HoldID: uid("h", 1)}}
	for _, b := range badRequests() {
		r := b.make(w)
		if names[b.name] || b.want == "" || r.Method == "" || r.Path == "" {
			t.Errorf("%s: twice, or not whole: %+v", b.name, r)
		}
		names[b.name] = true
	}
	if len(names) < 80 {
		t.Errorf("there are %d, want 80 or more", len(names))
	}
}

func TestOrderOfDeliveries(t *testing.T) {
	cb := func(seq int, card string, reversed bool) payments.Callback {
		return payments.Callback{Seq: seq, Card: card, Reversed: reversed}
	}
	var got []int
	for _, c := range inOrder([]payments.Callback{cb(1, "a", true), cb(2, "b", false), cb(3, "a", true), cb(4, "c", true), cb(5, "a", true)}) {
		got = append(got, c.Seq)
	}
	if want := []int{5, 2, 3, 4, 1}; !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
}

func TestLinearizable(t *testing.T) {
	judge := linearizable().Judge
	seat := func(who string) harness.Request { return claim(0, who, 1, "S-1") }
	first := between(granted(seat("member-1"), 1, "S-1"), 10, 20)
	list := func(state string, sent, answered int) harness.Operation {
		return between(replied(seats(9, "member-9", 1), 200, fmt.Sprintf(`{"show_id":1,"seats":[{"seat":"S-1","state":%q},{"seat":"S-7","state":"SOLD"}]}`, state)), sent, answered)
	}
	refused := func(sent, answered int) harness.Operation {
		return process(1, between(denied(seat("member-2"), 409, "seat-taken", ""), sent, answered))
	}
	second := func(sent, answered int) harness.Operation {
		return process(1, between(granted(seat("member-2"), 2, "S-1"), sent, answered))
	}
	gone := between(replied(release(0, "member-1", uid("h", 1)), 200, "{}"), 30, 40)
	paid := between(replied(charge(0, "member-1", uid("h", 1), "c"), 201, `{"state":"CAPTURED"}`), 30, 40)
	lost := between(replied(seat("member-1"), 0, ""), 10, 0)
	for name, ops := range map[string][]harness.Operation{
		"refused while it is held":          {first, refused(25, 28), list("HELD", 25, 28)},
		"freed and claimed":                 {first, gone, second(50, 60), list("FREE", 41, 45)},
		"freed and claimed at once":         {first, gone, second(35, 60)},
		"sold":                              {first, paid, refused(50, 60), list("SOLD", 50, 60)},
		"declined, then given up":           {first, between(denied(charge(0, "member-1", uid("h", 1), "c"), 402, "payment-declined", ""), 22, 25), gone},
		"who got no answer may have it":     {lost, refused(30, 40), list("HELD", 30, 40)},
		"who got no answer may not":         {lost, second(30, 40)},
		"over for who does not have it":     {first, gone, between(denied(release(0, "member-1", uid("h", 1)), 409, "hold-over", ""), 50, 60)},
		"a checkout elsewhere says nothing": {process(1, between(denied(seat("member-2"), 409, "checkout-active", ""), 1, 5)), first},
	} {
		if v := judge(recordOf(ops...)); v.Status != harness.Pass {
			t.Errorf("%s: %v %s", name, v.Status, v.Summary)
		}
	}
	for name, ops := range map[string][]harness.Operation{
		"given twice":                {first, second(50, 60)},
		"refused while it was free":  {refused(1, 5), first},
		"sold from under somebody":   {first, gone, second(50, 60), between(replied(charge(0, "member-1", uid("h", 1), "c"), 201, "{}"), 70, 80)},
		"given up after it was sold": {first, paid, between(replied(release(0, "member-1", uid("h", 1)), 200, "{}"), 50, 60)},
		"over while it is held":      {first, between(denied(charge(0, "member-1", uid("h", 1), "c"), 409, "hold-over", ""), 30, 40)},
		"read as free":               {first, list("FREE", 50, 60)},
		"read as in quarantine":      {first, list("QUARANTINED", 50, 60)},
	} {
		if v := judge(recordOf(ops...)); v.Status != harness.Failed || len(v.Evidence) == 0 {
			t.Errorf("%s: %v %s", name, v.Status, v.Summary)
		}
	}
	moved := recordOf(first, second(50, 60)) // after the clock was moved holds may have run out
	moved.History.Events = []harness.Event{{At: msec(45), Kind: harness.EventFault, Subject: "clock"}}
	expectVerdict(t, judge(moved), harness.Pass, "")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "")
	expectVerdict(t, judge(recordOf(between(replied(charge(0, "member-1", uid("h", 1), "c"), 0, ""), 5, 0))), harness.Unknown, "no other says of which seat")
}

func process(n int, op harness.Operation) harness.Operation {
	op.Process = n
	return op
}

// What is told in a burst of one seat is compared with what should be.
func TestAnswersOfABurst(t *testing.T) {
	s := hundredOnOneSeat()
	p := harness.Params{"users": "2", "rounds": "1", "replicas": "1"}
	var judge func(harness.Record) harness.Verdict
	for _, c := range s.Checks(p) {
		if c.ID == "answers" {
			judge = c.Judge
		}
	}
	won, lost := inBurst(granted(claim(0, "member-1", 1, "S-1"), 1, "S-1"), "round-1"), inBurst(denied(claim(1, "member-2", 1, "S-1"), 409, "seat-taken", ""), "round-1")
	expectVerdict(t, judge(recordOf(won, lost)), harness.Pass, "1 x 201, 1 x 409 seat-taken")
	expectVerdict(t, judge(recordOf(won, won)), harness.Failed, "got 2 x 201")
	expectVerdict(t, judge(recordOf(won, inBurst(replied(claim(1, "member-2", 1, "S-1"), 500, ""), "round-1"))), harness.Failed, "1 x 500")
	expectVerdict(t, judge(recordOf(won, inBurst(replied(claim(1, "member-2", 1, "S-1"), 0, ""), "round-1"))), harness.Unknown, "1 x none")
	if answers.ByBurst(won) != "round-1" {
		t.Error("a burst is grouped by its name")
	}
}
