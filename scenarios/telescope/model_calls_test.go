package telescope

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
)

func callsOf(t *testing.T, rec harness.Record) []linear.Call {
	t.Helper()
	calls, err := slotCalls(rec)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

func ids(calls []linear.Call) string {
	var list []string
	for _, c := range calls {
		list = append(list, c.ID)
	}
	return strings.Join(list, " ")
}

func TestCopiesAreOneCall(t *testing.T) {
	same, body := book(0, "member-1", 4, "same"), `{"booking_id":"b1","slot_id":4,"member":"member-1"}`
	rec := new(story).lost(same, 1).tell(same, 2, 50, 201, body).tell(same, 3, 20, 201, body).refused(same, 0, 10, "in-progress").tell(same, 0, 10, 401, `{"type":"/problems/unauthorized"}`).rec
	calls := callsOf(t, rec)
	if len(calls) != 1 {
		t.Fatalf("got %v, want one call", ids(calls))
	}
	c := calls[0]
	if c.ID != "op-3" || c.Process != -1 || c.Call != time.Millisecond || c.Return != 20*time.Millisecond || c.Outcome != harness.OK || c.Text != "book by member-1 -> 201 b1 (3 copies)" {
		t.Errorf("got %+v", c)
	}
	if calls = callsOf(t, new(story).lost(same, 1).tell(same, 2, 9, 503, "").rec); len(calls) != 1 || calls[0].Outcome != harness.Info {
		t.Errorf("two unknown copies: got %+v", calls)
	}
	// Another slot, another member, another type: another request.
	rec = new(story).lost(same, 1).lost(book(0, "member-1", 5, "same"), 2).lost(book(0, "member-2", 4, "same"), 3).lost(closeSlot(0, "member-1", 4, "same"), 4).lost(book(0, "member-1", 4, ""), 5).rec
	if calls = callsOf(t, rec); ids(calls) != "op-1 op-2 op-3 op-4 op-5" {
		t.Errorf("got %s", ids(calls))
	}
}

// After the clock was moved a copy may be a new request, or a replay, which
// says what it said before.
func TestKeysAcrossMovesOfTheClock(t *testing.T) {
	s := new(story).book("member-1", 0, 5, "b1").cancel("member-1", "b1", 6, 9)
	first := s.rec.History.Operations[0]
	again := func(body string) *story {
		c := &story{n: 2}
		c.rec.History.Operations = slices.Clone(s.rec.History.Operations)
		c.rec.History.Events = []harness.Event{{At: 20 * time.Millisecond, Kind: harness.EventFault, Subject: "clock"}}
		return c.tell(book(0, "member-1", 4, first.Key), 30, 35, 201, body)
	}
	if v := again(first.Output).read(36, 37, "open", "").verdict(); v.Status != harness.Pass {
		t.Errorf("a replay: %v %s", v.Status, v.Summary)
	}
	second := strings.Replace(first.Output, "b1", "b2", 1)
	if v := again(second).read(36, 37, "open", "b2").verdict(); v.Status != harness.Pass {
		t.Errorf("a new request: %v %s", v.Status, v.Summary)
	}
	if v := again(second).read(36, 37, "open", "").verdict(); v.Status != harness.Failed {
		t.Errorf("a new request that was lost: %v %s", v.Status, v.Summary)
	}
}

func TestWhenRequestsWereSent(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	op := func(id string, intended, sent, answered int, burst string) harness.Operation {
		return harness.Operation{ID: id, Process: 1, Intended: ms(intended), Sent: ms(sent), Answered: ms(answered), Burst: burst}
	}
	rec := harness.Record{History: harness.History{
		Operations: []harness.Operation{
			op("first", 1, 2, 30, ""), op("late, it waited for the first", 10, 31, 40, ""), op("in time", 50, 51, 60, ""),
			op("headers held", 70, 71, 80, "one"), op("headers gone ahead", 90, 91, 99, "two"), op("overlaps", 95, 96, 120, ""),
		},
		Bursts: []harness.BurstReport{{Name: "one", Technique: "h1-last-header-byte/io_uring"}, {Name: "two", Technique: "h2-single-packet"}},
	}}
	want := map[string]int{"first": 1, "late, it waited for the first": 30, "in time": 50, "headers held": 70, "headers gone ahead": 80, "overlaps": 95}
	for id, got := range invocations(rec) {
		if got != ms(want[id]) {
			t.Errorf("%s: sent at %v, want %v", id, got, ms(want[id]))
		}
	}
}

func TestWhatIsNoCallOnASlot(t *testing.T) {
	s := new(story).lost(book(0, "member-1", 4, "k"), 1).tell(imports("open"), 0, 1, 200, `{"flagged":[]}`)
	never := &s.rec.History.Operations[0]
	never.Outcome, never.Sent = harness.Fail, 0
	if v := s.verdict(); v.Status != harness.Unknown || v.Reason != harness.ReasonVacuous {
		t.Errorf("never sent, and imported: got %v %s", v.Status, v.Summary)
	}
	// A 201 that does not say which booking it made leaves it open what became of it.
	s = new(story).tell(book(0, "member-1", 4, "k"), 0, 5, 201, "<html>").tell(readSlot(0, "staff-1", 4), 6, 7, 200, "<html>")
	if calls := callsOf(t, s.rec); len(calls) != 1 || calls[0].Outcome != harness.Info {
		t.Errorf("unreadable: got %+v", calls)
	}
	s = new(story).book("member-1", 0, 5, "b1").lost(cancel(0, "member-1", "b7", "k"), 6)
	if v := s.verdict(); v.Status != harness.Unknown || v.Reason != harness.ReasonChecker || !strings.Contains(v.Summary, "operation op-2 (DELETE /telescope/reservations/b7) has no answer, and no other says of which slot that booking is") {
		t.Errorf("an unknown booking: got %v %s", v.Status, v.Summary)
	}
}
