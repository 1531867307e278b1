package telescope

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
)

func expectVerdict(t *testing.T, v harness.Verdict, status harness.Status, sentence string) {
	t.Helper()
	if v.Status != status || !strings.Contains(v.Summary, sentence) {
		t.Errorf("got %v %q, want %v %q", v.Status, v.Summary, status, sentence)
	}
}

// msec is an offset in milliseconds.
func msec(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

// replied makes the request's operation, answered with status and body.
func replied(r harness.Request, status int, body string) harness.Operation {
	op := harness.Operation{
		ID: "op", Process: r.Process, Kind: r.Kind, Caller: r.Caller, Key: r.Header["Idempotency-Key"], Method: r.Method, Path: r.Path, Input: r.Body,
		Status: status, Output: body, Intended: msec(10), Sent: msec(10), Answered: msec(20), Header: map[string]string{},
	}
	if status == 0 {
		op.Answered, op.Output = 0, ""
	}
	return op
}

// denied is the request answered with a problem.
func denied(r harness.Request, status int, problem string) harness.Operation {
	op := replied(r, status, fmt.Sprintf(`{"type":"/problems/%s","title":"no","status":%d}`, problem, status))
	op.Header["Content-Type"] = "application/problem+json"
	return op
}

// granted is a booking that was made under the n-th id.
func granted(r harness.Request, n int) harness.Operation {
	return replied(r, 201, bookedBody(int(slotOf(harness.Operation{Path: r.Path})), n, r.Caller))
}

// recordOf numbers the operations and plans the slots.
func recordOf(slots []slot, ops ...harness.Operation) harness.Record {
	choices, _ := json.Marshal(map[string]any{"slots": slots})
	rec := harness.Record{Plan: harness.Plan{Choices: choices}, Rows: map[string]harness.Rows{}}
	for i, op := range ops {
		op.ID = fmt.Sprintf("op-%d", i+1)
		rec.History.Operations = append(rec.History.Operations, op)
	}
	for _, table := range tables {
		rec.Rows["table:"+table] = harness.Rows{Query: "table:" + table, Rows: []harness.Row{}}
	}
	return rec
}

// putRow adds a row to a table of the record.
func putRow(rec harness.Record, table string, row harness.Row) {
	rows := rec.Rows["table:"+table]
	rows.Rows = append(rows.Rows, row)
	rec.Rows["table:"+table] = rows
}

// past adds a slot's events, booking n by member who for those that are about one.
func past(rec harness.Record, slot int64, n int, who, op string, events ...string) {
	for i, e := range events {
		row := harness.Row{"slot_id": float64(slot), "seq": float64(i + 1), "event": e, "booking_id": nil, "member": nil, "overbook_op": op}
		if e == "BOOKED" || e == "CANCELLED" || e == "FLAGGED" {
			row["booking_id"], row["member"] = uid(n), who
		}
		putRow(rec, "audit_history", row)
	}
}

// lying adds a slot's row and, if there is one, its reservation.
func lying(rec harness.Record, slot int64, state string, n int, who string, flag any) {
	putRow(rec, "observing_slots", harness.Row{"slot_id": float64(slot), "state": state})
	if n != 0 {
		putRow(rec, "active_reservations", harness.Row{"slot_id": float64(slot), "booking_id": uid(n), "member": who, "flag_state": flag})
	}
}

// result adds the stored answer of a booking.
func kept(rec harness.Record, op harness.Operation) {
	putRow(rec, "booking_operations", harness.Row{
		"principal": op.Caller, "type": operationType(op), "key": op.Key, "status": float64(op.Status), "body": `\x` + hex.EncodeToString([]byte(op.Output)),
	})
}

func without(rec harness.Record, table string) harness.Record {
	delete(rec.Rows, "table:"+table)
	return rec
}

func inBrokenEnvironment(rec harness.Record) harness.Record {
	rec.Trouble = []harness.Trouble{{Reason: harness.ReasonEnvironment, Text: "drive: postgres died"}}
	return rec
}

var oneSlot = []slot{{ID: 7, Month: 2}}

func TestSameAnswers(t *testing.T) {
	judge, demanding := sameAnswers(false).Judge, sameAnswers(true).Judge
	r := book(0, member(0), 7, "k")
	one := granted(r, 1)
	other := granted(r, 2)
	spaced := one
	spaced.Output += " "
	late := func(op harness.Operation) harness.Operation { op.Sent, op.Answered = msec(30), msec(40); return op }
	expectVerdict(t, judge(recordOf(oneSlot, one, one, denied(r, 409, "in-progress"), denied(r, 503, "busy"), replied(r, 0, ""))), harness.Pass, "2 answers to 1 requests")
	expectVerdict(t, demanding(recordOf(oneSlot, one, one, replied(r, 0, ""))), harness.Pass, "2 answers to 1 requests")
	expectVerdict(t, judge(recordOf(oneSlot, one, replied(r, 0, ""))), harness.Pass, "1 answers to 1 requests, none repeated")
	expectVerdict(t, demanding(recordOf(oneSlot, one, replied(r, 0, ""))), harness.Unknown, "none of them repeatedly")
	expectVerdict(t, demanding(recordOf(oneSlot, one, other)), harness.Failed, "1 of 2 answers differ")
	expectVerdict(t, judge(recordOf(oneSlot, one, other)), harness.Failed, "1 of 2 answers differ")
	expectVerdict(t, judge(recordOf(oneSlot, one, spaced)), harness.Failed, "1 of 2 answers differ")
	expectVerdict(t, judge(recordOf(oneSlot, one, denied(r, 409, "slot-taken"))), harness.Failed, "1 of 2 answers differ")
	expectVerdict(t, judge(recordOf(oneSlot, one, late(denied(r, 422, "key-reused")))), harness.Failed, "1 of 1 answers differ")
	expectVerdict(t, judge(recordOf(oneSlot, denied(r, 404, "unknown-slot"), late(one))), harness.Pass, "1 answers")
	expectVerdict(t, judge(recordOf(oneSlot, one, late(denied(r, 401, "token-expired")))), harness.Pass, "1 answers")
	// Another member's key, another type's and another slot's request are their own.
	foreign := granted(book(0, member(1), 7, "k"), 2)
	elsewhere := granted(book(0, member(0), 8, "k"), 3)
	expectVerdict(t, judge(recordOf(oneSlot, one, foreign, elsewhere, replied(cancel(0, member(0), uid(1), "k"), 200, "{}"))), harness.Pass, "4 answers to 4 requests")
	expectVerdict(t, judge(recordOf(oneSlot)), harness.Unknown, "no write with a key")
	expectVerdict(t, judge(recordOf(oneSlot, replied(readSlot(0, member(0), 7), 200, "{}"))), harness.Unknown, "no write with a key")
	// A key's second life, after the clock was moved, is no copy.
	moved := recordOf(oneSlot, one, late(other))
	moved.History.Operations[1].Intended = msec(30)
	moved.History.Events = []harness.Event{{At: msec(25), Kind: harness.EventFault, Subject: "clock"}}
	expectVerdict(t, judge(moved), harness.Pass, "2 answers to 2 requests")
}

func TestOneEffect(t *testing.T) {
	judge := oneEffect().Judge
	r := book(0, member(0), 7, "k")
	rec := recordOf(oneSlot, granted(r, 1), granted(r, 1), granted(book(0, member(1), 7, "k"), 2))
	past(rec, 7, 1, member(0), "op-1", "CREATED", "BOOKED")
	expectVerdict(t, judge(rec), harness.Pass, "1 keys")
	past(rec, 7, 2, member(1), "op-3", "BOOKED")
	expectVerdict(t, judge(rec), harness.Pass, "2 keys")
	past(rec, 7, 1, member(0), "op-2", "BOOKED")
	expectVerdict(t, judge(rec), harness.Failed, "1 did not")
	expectVerdict(t, judge(recordOf(oneSlot, granted(r, 1))), harness.Unknown, "names no operation")
	expectVerdict(t, judge(without(rec, "audit_history")), harness.Unknown, "could not be read")
}

func TestAnsweredIsStored(t *testing.T) {
	judge := answeredIsStored(false).Judge
	op := granted(book(0, member(0), 7, "k"), 1)
	whole := func() harness.Record {
		rec := recordOf(oneSlot, op)
		past(rec, 7, 1, member(0), "op-1", "CREATED", "BOOKED", "CANCELLED") // also one that was cancelled since
		kept(rec, op)
		return rec
	}
	expectVerdict(t, judge(whole()), harness.Pass, ": 1")
	rec := recordOf(oneSlot, op)
	kept(rec, op)
	expectVerdict(t, judge(rec), harness.Failed, "1 of 1 have not")
	rec = recordOf(oneSlot, op)
	past(rec, 7, 1, member(0), "op-1", "CREATED", "BOOKED")
	expectVerdict(t, judge(rec), harness.Failed, "1 of 1 have not")
	other := op
	other.Output = strings.ReplaceAll(op.Output, "active", "gone")
	kept(rec, other)
	expectVerdict(t, judge(rec), harness.Failed, "1 of 1 have not")
	rec = recordOf(oneSlot, op)
	past(rec, 7, 1, member(3), "op-1", "CREATED", "BOOKED")
	kept(rec, op)
	expectVerdict(t, judge(rec), harness.Failed, "1 of 1 have not")
	expectVerdict(t, judge(recordOf(oneSlot, replied(book(0, member(0), 7, "k"), 201, "<html>"))), harness.Failed, "1 of 1 have not")
	expectVerdict(t, judge(recordOf(oneSlot)), harness.Unknown, "nobody was answered")
	expectVerdict(t, judge(recordOf(oneSlot, denied(book(0, member(0), 7, "k"), 409, "slot-taken"))), harness.Pass, ": nobody was answered 201")
	expectVerdict(t, answeredIsStored(true).Judge(recordOf(oneSlot, denied(book(0, member(0), 7, "k"), 409, "slot-taken"))), harness.Unknown, "nobody was answered 201")
	expectVerdict(t, answeredIsStored(true).Judge(whole()), harness.Pass, ": 1")
	expectVerdict(t, judge(without(whole(), "audit_history")), harness.Unknown, "could not be read")
	expectVerdict(t, judge(without(whole(), "booking_operations")), harness.Unknown, "could not be read")
	// Days later the result may be gone, the history may not.
	rec = recordOf(oneSlot, op)
	rec.History.Events = []harness.Event{{At: msec(25), Kind: harness.EventFault, Subject: "clock"}}
	expectVerdict(t, judge(rec), harness.Failed, "1 of 1 have not")
	past(rec, 7, 1, member(0), "op-1", "CREATED", "BOOKED")
	expectVerdict(t, judge(rec), harness.Pass, ": 1")
}

func TestNothingRevealed(t *testing.T) {
	judge := nothingRevealed().Judge
	mine := granted(book(0, member(0), 7, "k"), 1)
	read := func(who, body string) harness.Operation { return replied(readSlot(1, who, 7), 200, body) }
	expectVerdict(t, judge(recordOf(oneSlot, mine, read(member(1), `{"booking_id":null}`))), harness.Pass, "2 answers, 1 bookings")
	expectVerdict(t, judge(recordOf(oneSlot, mine, read(member(1), `{"booking_id":"`+uid(1)+`"}`))), harness.Failed, "1 did")
	expectVerdict(t, judge(recordOf(oneSlot, mine, read(member(1), `taken by member-1`))), harness.Failed, "1 did")
	expectVerdict(t, judge(recordOf(oneSlot, mine, read("", `taken by member-1`))), harness.Failed, "1 did")
	expectVerdict(t, judge(recordOf(oneSlot, mine, read(member(1), `taken by member-22`))), harness.Failed, "1 did")
	expectVerdict(t, judge(recordOf(oneSlot, mine, read(staff(0), `taken by member-1`))), harness.Pass, "1 answers")
	expectVerdict(t, judge(recordOf(oneSlot, mine, read(member(0), `{"booking_id":"`+uid(1)+`"}`))), harness.Pass, "2 answers")
	said := denied(cancel(1, member(1), uid(1), "k"), 404, "unknown-booking")
	said.Output += uid(1) // which is what it asked about
	expectVerdict(t, judge(recordOf(oneSlot, mine, said)), harness.Pass, "2 answers")
	byHistory := recordOf(oneSlot, read(member(1), uid(5)))
	expectVerdict(t, judge(byHistory), harness.Pass, "0 bookings")
	past(byHistory, 7, 5, member(2), "op-9", "CREATED", "BOOKED")
	expectVerdict(t, judge(byHistory), harness.Failed, "1 did")
	expectVerdict(t, judge(recordOf(oneSlot)), harness.Unknown, "no member was answered")
}

func TestNoServerErrors(t *testing.T) {
	judge := noServerErrors().Judge
	r := book(0, member(0), 7, "k")
	expectVerdict(t, judge(recordOf(oneSlot, granted(r, 1), denied(r, 409, "slot-taken"), replied(r, 0, ""))), harness.Pass, "2 answers")
	expectVerdict(t, judge(recordOf(oneSlot, granted(r, 1), denied(r, 503, "busy"))), harness.Failed, "1 of 2 were")
	expectVerdict(t, judge(inBrokenEnvironment(recordOf(oneSlot, denied(r, 503, "busy")))), harness.Unknown, "environment that broke")
	expectVerdict(t, judge(recordOf(oneSlot, replied(r, 0, ""))), harness.Unknown, "no client was answered")
}

func TestWords(t *testing.T) {
	want := fixed(tallies{kindBook: {"201": 1, "409 slot-taken": 1, "409 quota-exceeded": 0}})
	judge := words("answers", "one wins", byKind, want).Judge
	r := book(0, member(0), 7, "k")
	won, lost, closed := granted(r, 1), denied(r, 409, "slot-taken"), denied(r, 409, "slot-closed")
	expectVerdict(t, judge(recordOf(oneSlot, won, lost)), harness.Pass, "1 x 201, 1 x 409 slot-taken in 1 groups")
	expectVerdict(t, judge(recordOf(oneSlot, won, won)), harness.Failed, "got 2 x 201")
	expectVerdict(t, judge(recordOf(oneSlot, won, closed)), harness.Failed, "1 x 409 slot-closed")
	expectVerdict(t, judge(recordOf(oneSlot, won, replied(r, 409, "no problem document"))), harness.Failed, "1 x 409")
	expectVerdict(t, judge(recordOf(oneSlot, won, replied(r, 0, ""))), harness.Unknown, "1 x none")
	expectVerdict(t, judge(recordOf(oneSlot, won)), harness.Unknown, "book: got 1 x 201, want")
	expectVerdict(t, judge(recordOf(oneSlot)), harness.Unknown, "no group of operations")
	expectVerdict(t, judge(inBrokenEnvironment(recordOf(oneSlot, won, denied(r, 503, "busy")))), harness.Unknown, "1 x 503 busy")
	expectVerdict(t, judge(inBrokenEnvironment(recordOf(oneSlot, won, won))), harness.Failed, "got 2 x 201")
	expectVerdict(t, words("answers", "nothing", byKind, fixed(nil)).Judge(recordOf(oneSlot, won)), harness.Unknown, "no group")
}

func TestHappened(t *testing.T) {
	judge := happened("booked once", map[string]int{"CREATED": 1, "BOOKED": 1, "CLOSED": 0}).Judge
	rec := recordOf(oneSlot)
	past(rec, 7, 1, member(0), "op-1", "CREATED", "BOOKED")
	expectVerdict(t, judge(rec), harness.Pass, "1 x BOOKED, 1 x CREATED")
	past(rec, 7, 1, member(0), "op-1", "BOOKED")
	expectVerdict(t, judge(rec), harness.Failed, "got 2 x BOOKED")
	expectVerdict(t, judge(recordOf(oneSlot)), harness.Failed, "got no operation")
	expectVerdict(t, judge(without(rec, "audit_history")), harness.Unknown, "could not be read")
}

// pairOf is a record of one booking and one closure.
func pairOf(made harness.Operation, flagged string, state string, holder int, flag any, events ...string) harness.Record {
	rec := recordOf(oneSlot, made, replied(closeSlot(1, staff(0), 7, "c"), 200, fmt.Sprintf(`{"slot_id":7,"state":"closed","flagged":%s}`, flagged)))
	lying(rec, 7, state, holder, member(0), flag)
	past(rec, 7, 1, member(0), "op-1", events...)
	return rec
}

func TestSerialOrders(t *testing.T) {
	judge := serialOrders(bookingFirst, closureFirst).Judge
	r := book(0, member(0), 7, "k")
	won, lost, named := granted(r, 1), denied(r, 409, "slot-closed"), `"`+uid(1)+`"`
	booking := func() harness.Record {
		return pairOf(won, named, "closed", 1, "open", "CREATED", "BOOKED", "CLOSED", "FLAGGED")
	}
	closure := func() harness.Record { return pairOf(lost, "null", "closed", 0, nil, "CREATED", "CLOSED") }
	expectVerdict(t, judge(booking()), harness.Pass, "1 booking first, 0 closure first")
	expectVerdict(t, judge(closure()), harness.Pass, "0 booking first, 1 closure first")
	expectVerdict(t, serialOrders(bookingFirst).Judge(closure()), harness.Failed, "1 of 1 did not")
	expectVerdict(t, serialOrders(closureFirst).Judge(booking()), harness.Failed, "1 of 1 did not")
	for name, rec := range map[string]harness.Record{
		"booked on a closed slot, not flagged": pairOf(won, "null", "closed", 1, nil, "CREATED", "CLOSED", "BOOKED"),
		"booked, flagged, another one named":   pairOf(won, `"`+uid(2)+`"`, "closed", 1, "open", "CREATED", "BOOKED", "CLOSED", "FLAGGED"),
		"booked, and the row is not flagged":   pairOf(won, named, "closed", 1, nil, "CREATED", "BOOKED", "CLOSED", "FLAGGED"),
		"booked, and the reservation is gone":  pairOf(won, named, "closed", 0, nil, "CREATED", "BOOKED", "CLOSED", "FLAGGED"),
		"refused, and there is a reservation":  pairOf(lost, "null", "closed", 1, "open", "CREATED", "CLOSED"),
		"refused, and one is flagged":          pairOf(lost, named, "closed", 0, nil, "CREATED", "CLOSED"),
		"not closed after all":                 pairOf(lost, "null", "open", 0, nil, "CREATED", "CLOSED"),
		"refused as taken":                     pairOf(denied(r, 409, "slot-taken"), "null", "closed", 0, nil, "CREATED", "CLOSED"),
		"two closures in the history":          pairOf(lost, "null", "closed", 0, nil, "CREATED", "CLOSED", "CLOSED"),
	} {
		if v := judge(rec); v.Status != harness.Failed {
			t.Errorf("%s: %v %s", name, v.Status, v.Summary)
		}
	}
	expectVerdict(t, judge(pairOf(replied(r, 0, ""), "null", "closed", 0, nil, "CREATED", "CLOSED")), harness.Unknown, "1 pairs were not answered whole")
	for _, table := range []string{"observing_slots", "active_reservations", "audit_history"} {
		expectVerdict(t, judge(without(booking(), table)), harness.Unknown, "could not be read")
	}
}

func TestCancelledOnce(t *testing.T) {
	judge := cancelledOnce().Judge
	trio := func(first, second, rival harness.Operation, holder int, events ...string) harness.Record {
		rec := recordOf(oneSlot, first, second, rival)
		lying(rec, 7, "open", holder, member(9), nil)
		past(rec, 7, 1, member(0), "op-1", events...)
		return rec
	}
	c, r := cancel(0, member(0), uid(1), "a"), book(2, member(9), 7, "k")
	done, again := replied(c, 200, "{}"), denied(cancel(1, member(0), uid(1), "b"), 409, "already-cancelled")
	won, lost := granted(r, 2), denied(r, 409, "slot-taken")
	expectVerdict(t, judge(trio(done, again, won, 2, "CREATED", "BOOKED", "CANCELLED", "BOOKED")), harness.Pass, "0 before, 1 after")
	expectVerdict(t, judge(trio(again, done, lost, 0, "CREATED", "BOOKED", "CANCELLED")), harness.Pass, "1 before, 0 after")
	for name, rec := range map[string]harness.Record{
		"cancelled twice":               trio(done, done, won, 2, "CREATED", "BOOKED", "CANCELLED", "BOOKED"),
		"cancelled by nobody":           trio(again, again, lost, 0, "CREATED", "BOOKED", "CANCELLED"),
		"won, and has it not":           trio(done, again, won, 0, "CREATED", "BOOKED", "CANCELLED", "BOOKED"),
		"lost, and somebody has it":     trio(done, again, lost, 2, "CREATED", "BOOKED", "CANCELLED", "BOOKED"),
		"won, and no history of it":     trio(done, again, won, 2, "CREATED", "BOOKED", "BOOKED"),
		"told that the slot was closed": trio(done, again, denied(r, 409, "slot-closed"), 0, "CREATED", "BOOKED", "CANCELLED"),
	} {
		if v := judge(rec); v.Status != harness.Failed {
			t.Errorf("%s: %v %s", name, v.Status, v.Summary)
		}
	}
	expectVerdict(t, judge(trio(done, replied(c, 0, ""), lost, 0, "CREATED", "BOOKED", "CANCELLED")), harness.Unknown, "not every request was answered")
	expectVerdict(t, judge(without(trio(done, again, lost, 0), "audit_history")), harness.Unknown, "could not be read")
}
