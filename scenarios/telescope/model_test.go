package telescope

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
)

// A story is a record written by hand. Times are in milliseconds.
type story struct {
	rec harness.Record
	n   int
}

// tell adds one call of a client of its own; status 0 is no answer.
func (s *story) tell(r harness.Request, from, to float64, status int, body string) *story {
	s.n++
	at := func(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
	op := harness.Operation{
		ID: fmt.Sprintf("op-%d", s.n), Process: s.n, Kind: r.Kind, Caller: r.Caller, Key: r.Header["Idempotency-Key"], Method: r.Method, Path: r.Path,
		Input: r.Body, Status: status, Output: body, Intended: at(from), Sent: at(from) + 1, Answered: at(to), Outcome: harness.OK,
	}
	switch {
	case status == 0:
		op.Answered, op.Outcome, op.Err = 0, harness.Info, "timeout: no whole answer"
	case status >= 500:
		op.Outcome = harness.Info
	case status >= 400:
		op.Outcome = harness.Fail
	}
	s.rec.History.Operations = append(s.rec.History.Operations, op)
	return s
}

func (s *story) book(who string, from, to float64, booking string) *story {
	body := fmt.Sprintf(`{"booking_id":%q,"slot_id":4,"member":%q,"starts_at":"2027-01-02T08:00:00Z","state":"active"}`, booking, who)
	return s.tell(book(0, who, 4, s.key()), from, to, 201, body)
}

func (s *story) cancel(who, booking string, from, to float64) *story {
	return s.tell(cancel(0, who, booking, s.key()), from, to, 200, fmt.Sprintf(`{"booking_id":%q,"slot_id":4,"state":"cancelled"}`, booking))
}

func (s *story) close(from, to float64, flagged string) *story {
	if flagged != "null" {
		flagged = `"` + flagged + `"`
	}
	return s.tell(closeSlot(0, "staff-1", 4, s.key()), from, to, 200, fmt.Sprintf(`{"slot_id":4,"state":"closed","flagged":%s}`, flagged))
}

func (s *story) reopen(from, to float64) *story {
	return s.tell(reopenSlot(0, "staff-1", 4, s.key()), from, to, 200, `{"slot_id":4,"state":"open"}`)
}

func (s *story) refused(r harness.Request, from, to float64, why string) *story {
	return s.tell(r, from, to, 409, `{"type":"/problems/`+why+`","status":409}`)
}

func (s *story) lost(r harness.Request, from float64) *story { return s.tell(r, from, 0, 0, "") }

// read is of staff, who are told whose booking it is.
func (s *story) read(from, to float64, state, booking string) *story {
	body := fmt.Sprintf(`{"slot_id":4,"starts_at":"2027-01-02T08:00:00Z","state":%q,"reserved":%v,"mine":false,"booking_id":null}`, state, booking != "")
	if booking != "" {
		body = strings.Replace(body, "null", `"`+booking+`"`, 1)
	}
	return s.tell(readSlot(0, "staff-2", 4), from, to, 200, body)
}

// look is of a member: mine is the member's booking, if it is.
func (s *story) look(who string, from, to float64, reserved bool, mine string) *story {
	body := fmt.Sprintf(`{"slot_id":4,"state":"open","reserved":%v,"mine":%v,"booking_id":null}`, reserved, mine != "")
	if mine != "" {
		body = strings.Replace(body, "null", `"`+mine+`"`, 1)
	}
	return s.tell(readSlot(0, who, 4), from, to, 200, body)
}

func (s *story) key() string { return fmt.Sprintf("key-%d", s.n) }

// tries is a booking of the slot under a key of its own.
func (s *story) tries(who string) harness.Request { return book(0, who, 4, s.key()) }

func (s *story) verdict() harness.Verdict { return linearizable().Judge(s.rec) }

func TestViolationsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		story *story
		want  string
	}{
		"two winners": {
			new(story).book("member-1", 0, 5, "b1").book("member-2", 0, 6, "b2"),
			"slot 4: book by member-1 -> 201 b1 (op-1) and book by member-2 -> 201 b2 (op-2) overlapped and exclude each other: after the first the slot is open and held by b1 of member-1, after the second the slot is open and held by b2 of member-2",
		},
		"two winners, one after the other": {
			new(story).book("member-1", 0, 5, "b1").book("member-2", 6, 9, "b2"),
			"slot 4: book by member-2 -> 201 b2 (op-2) was sent after book by member-1 -> 201 b1 (op-1) had been answered, and cannot have come after it: the slot was then open and held by b1 of member-1",
		},
		"booked after the closure": {
			new(story).close(0, 5, "null").book("member-2", 6, 9, "b2"),
			"slot 4: book by member-2 -> 201 b2 (op-2) was sent after close by staff-1 -> 200, nobody had it (op-1) had been answered, and cannot have come after it: the slot was then closed and free",
		},
		"a closure that overlooked a booking": {
			new(story).book("member-1", 0, 5, "b1").close(6, 9, "null"),
			"slot 4: close by staff-1 -> 200, nobody had it (op-2) was sent after book by member-1 -> 201 b1 (op-1) had been answered, and cannot have come after it: the slot was then open and held by b1 of member-1",
		},
		"a closure that flagged somebody who had cancelled": {
			new(story).book("member-1", 0, 5, "b1").cancel("member-1", "b1", 6, 9).close(10, 12, "b1"),
			"slot 4: close by staff-1 -> 200, b1 flagged (op-3) was sent after cancel of b1 by member-1 -> 200 (op-2) had been answered, and cannot have come after it: the slot was then open and free, whatever the other call did",
		},
		"a booking that was lost": {
			new(story).book("member-1", 0, 5, "b1").read(6, 9, "open", ""),
			"slot 4: read by staff-2 -> open and free (op-2) was sent after book by member-1 -> 201 b1 (op-1) had been answered, and cannot have come after it: the slot was then open and held by b1 of member-1",
		},
		"a booking that its member does not find": {
			new(story).book("member-1", 0, 5, "b1").tell(account(0, "member-1"), 6, 9, 200, `{"reservations":[],"history":[]}`),
			"slot 4: account of member-1 -> has no booking of it (op-2) was sent after book by member-1 -> 201 b1 (op-1) had been answered, and cannot have come after it: the slot was then open and held by b1 of member-1",
		},
		"cancelled twice": {
			new(story).book("member-1", 0, 5, "b1").cancel("member-1", "b1", 6, 9).cancel("member-1", "b1", 7, 10),
			"slot 4: cancel of b1 by member-1 -> 200 (op-2) and cancel of b1 by member-1 -> 200 (op-3) overlapped and exclude each other: after the first the slot is open and free, whatever the other call did",
		},
		"a stale read": {
			new(story).book("member-1", 0, 5, "b1").cancel("member-1", "b1", 6, 9).read(10, 12, "open", "b1"),
			"slot 4: read by staff-2 -> open and held by b1 (op-3) was sent after cancel of b1 by member-1 -> 200 (op-2) had been answered, and cannot have come after it: the slot was then open and free, whatever the other call did",
		},
		"back from the dead": {
			new(story).book("member-1", 0, 5, "b1").lost(cancel(0, "member-1", "b1", "c"), 6).read(10, 12, "open", "").read(13, 14, "open", "b1"),
			"slot 4: read by staff-2 -> open and held by b1 (op-4) was sent after read by staff-2 -> open and free (op-3) had been answered, and cannot have come after it: the slot was then open and free, whatever the other 2 calls did",
		},
		"a booking without an answer, back from the dead": {
			new(story).lost(new(story).tries("member-1"), 0).read(1, 2, "open", "b1").cancel("member-1", "b1", 3, 4).read(5, 6, "open", "b1"),
			"slot 4: read by staff-2 -> open and held by b1 (op-4) was sent after cancel of b1 by member-1 -> 200 (op-3) had been answered, and cannot have come after it: the slot was then open and free, whatever the other 2 calls did",
		},
		"refused without a cause": {
			new(story).refused(book(0, "member-1", 4, "k"), 0, 5, "slot-taken"),
			"slot 4: book by member-1 -> 409 slot-taken (op-1) has no explanation: until it was answered the slot can only have been open and free",
		},
		"refused by somebody who came later": {
			new(story).refused(book(0, "member-1", 4, "k"), 0, 5, "slot-taken").book("member-2", 6, 9, "b2"),
			"slot 4: book by member-1 -> 409 slot-taken (op-1) has no explanation: until it was answered the slot can only have been open and free",
		},
		"refused after the cancellation": {
			new(story).book("member-1", 0, 5, "b1").cancel("member-1", "b1", 6, 9).refused(book(0, "member-2", 4, "k"), 10, 12, "slot-taken"),
			"slot 4: book by member-2 -> 409 slot-taken (op-3) was sent after cancel of b1 by member-1 -> 200 (op-2) had been answered, and cannot have come after it: the slot was then open and free, whatever the other call did",
		},
		"a reopening that was lost": {
			new(story).close(0, 5, "null").reopen(6, 9).refused(book(0, "member-2", 4, "k"), 10, 12, "slot-closed"),
			"slot 4: book by member-2 -> 409 slot-closed (op-3) was sent after reopen by staff-1 -> 200 (op-2) had been answered, and cannot have come after it: the slot was then open and free, whatever the other call did",
		},
		"a reopening that gave the reservation away": {
			new(story).book("member-1", 0, 5, "b1").close(6, 9, "b1").reopen(10, 12).book("member-2", 13, 14, "b2"),
			"slot 4: book by member-2 -> 201 b2 (op-4) was sent after reopen by staff-1 -> 200 (op-3) had been answered, and cannot have come after it: the slot was then open and held by b1 of member-1, whatever the other 2 calls did",
		},
		"taken, although closed": {
			new(story).book("member-1", 0, 5, "b1").close(6, 9, "b1").refused(book(0, "member-2", 4, "k"), 10, 12, "slot-taken"),
			"slot 4: book by member-2 -> 409 slot-taken (op-3) was sent after close by staff-1 -> 200, b1 flagged (op-2) had been answered, and cannot have come after it: the slot was then closed and held by b1 of member-1, whatever the other call did",
		},
		"cancelled already, by nobody": {
			new(story).book("member-1", 0, 5, "b1").refused(cancel(0, "member-1", "b1", "k"), 6, 9, "already-cancelled"),
			"slot 4: cancel of b1 by member-1 -> 409 already-cancelled (op-2) was sent after book by member-1 -> 201 b1 (op-1) had been answered, and cannot have come after it: the slot was then open and held by b1 of member-1",
		},
		"closed already, by nobody": {
			new(story).refused(closeSlot(0, "staff-1", 4, "k"), 0, 5, "already-closed"),
			"slot 4: close by staff-1 -> 409 already-closed (op-1) has no explanation: until it was answered the slot can only have been open and free",
		},
		"somebody else's, where it is one's own": {
			new(story).book("member-1", 0, 5, "b1").look("member-1", 6, 9, true, ""),
			"slot 4: read by member-1 -> open and held by somebody (op-2) has no explanation: until it was answered the slot can only have been open and free, or open and held by b1 of member-1, whatever the other call did",
		},
		"released and still there": {
			new(story).book("member-1", 0, 5, "b1").close(6, 9, "b1").tell(resolve("b1", "release"), 10, 12, 200, `{"booking_id":"b1","slot_id":4,"decision":"release"}`).read(13, 14, "closed", "b1"),
			"slot 4: read by staff-2 -> closed and held by b1 (op-4) was sent after release of b1 by staff-1 -> 200 (op-3) had been answered, and cannot have come after it: the slot was then closed and free, whatever the other 2 calls did",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.story.verdict()
			if v.Status != harness.Failed || v.Summary != c.want {
				t.Errorf("\n got %v %s %s\nwant FAIL %s", v.Status, v.Reason, v.Summary, c.want)
			}
			if v.Status == harness.Failed && (len(v.Evidence) != 1 || len(v.Evidence[0].Ops) == 0 || strings.Count(v.Evidence[0].Text, "\n") != len(v.Evidence[0].Ops)) {
				t.Errorf("evidence %+v", v.Evidence)
			}
		})
	}
}

func resolve(booking, decision string) harness.Request {
	return harness.Request{
		Kind: "resolve", Caller: "staff-1", Method: "POST", Path: "/telescope/staff/flagged/" + booking + "/resolution",
		Header: signed("staff-1", "r-"+booking), Body: []byte(fmt.Sprintf(`{"decision":%q}`, decision)),
	}
}

func imports(state string) harness.Request {
	r := importOf(0, "staff-1", []slot{{ID: 4}, {ID: 5}}, time.Unix(0, 0), state, "i-"+state)
	return r
}

func TestWhatLooksOddAndIsNot(t *testing.T) {
	all := func(s *story) *story { // everything at once
		return s.book("member-1", 0, 100, "b1").cancel("member-1", "b1", 1, 99).book("member-2", 0, 98, "b2").close(0, 97, "b1").reopen(0, 96).close(0, 95, "null").
			reopen(0, 94).refused(s.tries("member-3"), 0, 93, "slot-taken").refused(s.tries("member-4"), 0, 92, "slot-closed").read(0, 91, "closed", "b1").read(0, 90, "open", "b2")
	}
	retried := book(0, "member-1", 4, "same")
	body := `{"booking_id":"b1","slot_id":4,"member":"member-1","state":"active"}`
	for name, s := range map[string]*story{
		"everything at once":                          all(new(story)),
		"a booking without an answer, seen late":      new(story).lost(book(0, "member-1", 4, "k"), 0).read(50, 51, "open", "").read(60, 61, "open", "b1"),
		"a cancellation that took effect late":        new(story).book("member-1", 0, 5, "b1").lost(cancel(0, "member-1", "b1", "c"), 6).read(10, 12, "open", "b1").read(13, 14, "open", ""),
		"a closure that took effect late":             new(story).lost(closeSlot(0, "staff-1", 4, "k"), 0).book("member-1", 6, 9, "b1").refused(book(0, "member-2", 4, "k"), 10, 12, "slot-closed"),
		"busy, and yet":                               new(story).tell(book(0, "member-1", 4, "k"), 0, 5, 503, `{"type":"/problems/busy"}`).refused(book(0, "member-2", 4, "k"), 10, 12, "slot-taken"),
		"a retry of what was lost":                    new(story).lost(retried, 0).read(1, 2, "open", "b1").tell(retried, 10, 12, 201, body),
		"copies, of which the slowest was first":      new(story).tell(retried, 0, 90, 201, body).tell(retried, 20, 30, 201, body).read(31, 32, "open", "b1").tell(retried, 95, 99, 201, body),
		"a copy that came too early":                  new(story).tell(retried, 0, 90, 201, body).refused(retried, 20, 30, "in-progress"),
		"a copy answered after the cancellation":      new(story).tell(retried, 0, 5, 201, body).cancel("member-1", "b1", 6, 7).tell(retried, 8, 9, 201, body).book("member-2", 10, 11, "b2"),
		"one key, two members":                        new(story).tell(book(0, "member-1", 4, "k"), 0, 5, 201, body).cancel("member-1", "b1", 6, 7).tell(book(0, "member-2", 4, "k"), 8, 9, 201, strings.ReplaceAll(body, "1", "2")).cancel("member-2", "b2", 10, 11),
		"refused by what nobody was told of":          new(story).lost(book(0, "member-1", 4, "k"), 0).refused(book(0, "member-2", 4, "k"), 10, 12, "slot-taken").look("member-3", 13, 14, true, ""),
		"a slot that ends and begins between":         new(story).book("member-1", 0, 5, "b1").cancel("member-1", "b1", 6, 20).book("member-2", 7, 19, "b2").refused(book(0, "member-3", 4, "k"), 8, 18, "slot-taken").cancel("member-2", "b2", 21, 22).refused(cancel(0, "member-2", "b2", "again"), 23, 24, "already-cancelled"),
		"quota says nothing of the slot":              new(story).book("member-1", 0, 5, "b1").refused(book(0, "member-2", 4, "k"), 6, 9, "quota-exceeded"),
		"not found, not allowed, not understood":      new(story).book("member-1", 0, 5, "b1").tell(cancel(0, "member-2", "b1", "k"), 6, 9, 404, `{"type":"/problems/unknown-booking"}`).tell(book(0, "member-2", 4, ""), 6, 9, 400, `{"type":"/problems/key-missing"}`).tell(closeSlot(0, "member-1", 4, "k"), 6, 9, 403, `{"type":"/problems/forbidden"}`).read(10, 11, "open", "b1"),
		"a flagged reservation can be cancelled":      new(story).book("member-1", 0, 5, "b1").close(6, 7, "b1").cancel("member-1", "b1", 8, 9).reopen(10, 11).book("member-2", 12, 13, "b2"),
		"a reservation stands again":                  new(story).book("member-1", 0, 5, "b1").close(6, 7, "b1").reopen(8, 9).refused(book(0, "member-2", 4, "k"), 10, 11, "slot-taken").look("member-1", 12, 13, true, "b1"),
		"imports close and reopen":                    new(story).book("member-1", 0, 5, "b1").tell(imports("closed"), 6, 7, 200, `{"flagged":["b1"]}`).refused(closeSlot(0, "staff-1", 4, "k"), 8, 9, "already-closed").tell(imports("open"), 10, 11, 200, `{"flagged":[]}`).read(12, 13, "open", "b1"),
		"an import without an answer":                 new(story).lost(imports("closed"), 0).refused(closeSlot(0, "staff-1", 4, "k"), 8, 9, "already-closed"),
		"kept by staff":                               new(story).book("member-1", 0, 5, "b1").close(6, 7, "b1").tell(resolve("b1", "keep"), 8, 9, 200, `{"decision":"keep"}`).read(10, 11, "closed", "b1"),
		"the account page shows both":                 new(story).book("member-1", 0, 5, "b1").tell(account(0, "member-1"), 6, 9, 200, `{"reservations":[{"booking_id":"b1","slot_id":4,"state":"active"}]}`).close(10, 11, "b1").tell(account(0, "member-1"), 12, 13, 200, `{"reservations":[{"booking_id":"b1","slot_id":4,"state":"flagged"}]}`),
		"an account page finds what was not answered": new(story).lost(book(0, "member-1", 4, "k"), 0).lost(book(0, "member-2", 4, "k"), 0).tell(account(0, "member-1"), 6, 9, 200, `{"reservations":[{"booking_id":"b1","slot_id":4,"state":"active"}]}`).cancel("member-1", "b1", 10, 11).refused(book(0, "member-3", 4, "k"), 12, 13, "slot-taken"),
		"the same time is not before":                 new(story).book("member-1", 0, 5, "b1").read(5, 9, "open", ""),
	} {
		t.Run(name, func(t *testing.T) {
			if v := s.verdict(); v.Status != harness.Pass {
				t.Errorf("%v %s: %s", v.Status, v.Reason, v.Summary)
			}
		})
	}
}
