package tickets

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/payments"
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
		ID: "op", Process: r.Process, Kind: r.Kind, Caller: r.Caller, Method: r.Method, Path: r.Path, Input: r.Body,
		Status: status, Output: body, Intended: msec(10), Sent: msec(10), Answered: msec(20), Outcome: harness.OK,
	}
	switch {
	case status == 0:
		op.Answered, op.Output, op.Outcome = 0, "", harness.Info
	case status >= 400:
		op.Outcome = harness.Fail
	}
	return op
}

// denied is the request answered with a problem and further members.
func denied(r harness.Request, status int, problem, members string) harness.Operation {
	return replied(r, status, fmt.Sprintf(`{"type":"/problems/%s","title":"no"%s}`, problem, members))
}

// between gives the operation other times.
func between(op harness.Operation, sent, answered int) harness.Operation {
	op.Sent, op.Answered = msec(sent), msec(answered)
	return op
}

// inBurst says that the operation was part of a burst.
func inBurst(op harness.Operation, name string) harness.Operation {
	op.Burst = name
	return op
}

// granted is a claim that was answered with the n-th hold.
func granted(r harness.Request, n int, seat string) harness.Operation {
	return replied(r, 201, fmt.Sprintf(`{"hold_id":"%s","show_id":1,"seat":%q,"state":"RESERVED","expires_at":"2031-01-01T00:08:00Z","amount":4500,"currency":"EUR"}`, uid("h", n), seat))
}

// recordOf numbers the operations; all tables and the ledger are there and empty.
func recordOf(ops ...harness.Operation) harness.Record {
	rec := harness.Record{Rows: map[string]harness.Rows{}}
	for i, op := range ops {
		op.ID = fmt.Sprintf("op-%d", i+1)
		rec.History.Operations = append(rec.History.Operations, op)
	}
	for _, table := range tables {
		rec.Rows["table:"+table] = harness.Rows{Rows: []harness.Row{}}
	}
	rec.Rows["ledger:"+payments.Name] = harness.Rows{Rows: []harness.Row{}}
	return rec
}

// putRow adds a row to a table of the record.
func putRow(rec harness.Record, table string, row harness.Row) {
	rows := rec.Rows["table:"+table]
	rows.Rows = append(rows.Rows, row)
	rec.Rows["table:"+table] = rows
}

// putOrder adds a hold, its seat and its charge with a payment; states are of the
// hold, the seat and the charge.
func putOrder(rec harness.Record, n int, states [3]string, captured any) {
	winner := any(nil)
	if states[0] == "CONFIRMED" {
		winner = uid("c", n)
	}
	putRow(rec, "holds", harness.Row{
		"hold_id": uid("h", n), "show_id": 1.0, "seat": fmt.Sprintf("S-%d", n), "login": fmt.Sprintf("member-%d", n), "state": states[0],
		"amount": 4500.0, "currency": "EUR", "winning_charge": winner, "expires_at": "2031-01-01T00:08:00+00:00", "ended_at": "2031-01-01T00:08:00.5+00:00",
	})
	if states[1] != "" {
		putRow(rec, "seats", harness.Row{"show_id": 1.0, "seat": fmt.Sprintf("S-%d", n), "state": states[1], "hold_id": uid("h", n)})
	}
	if states[2] != "" {
		row := harness.Row{"charge_id": uid("c", n), "hold_id": uid("h", n), "payment_id": fmt.Sprintf("pay_%d", n), "state": states[2], "captured_amount": captured, "captured_currency": nil, "sent_at": "2031-01-01T00:00:00+00:00"}
		if captured != nil {
			row["captured_currency"] = "EUR"
		}
		putRow(rec, "charges", row)
	}
}

// withLedger stores what the provider says.
func withLedger(t *testing.T, rec harness.Record, l payments.Ledger) harness.Record {
	t.Helper()
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var rows []harness.Row
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	rec.Rows["ledger:"+payments.Name] = harness.Rows{Rows: rows}
	return rec
}

func taken(n int, amount int64) payments.Payment {
	return payments.Payment{PaymentID: fmt.Sprintf("pay_%d", n), Reference: uid("c", n), Intent: uid("h", n), Amount: 4500, Currency: "EUR", Status: payments.Captured, Captured: amount}
}

func back(n int, amount int64, keys ...string) payments.Refund {
	return payments.Refund{RefundID: fmt.Sprintf("re_%d", n), PaymentID: fmt.Sprintf("pay_%d", n), Amount: amount, Currency: "EUR", Keys: keys}
}

func without(rec harness.Record, query string) harness.Record {
	delete(rec.Rows, query)
	return rec
}

// aSale is a record in which order 1 was sold for pay_1, and order 2 went back.
func aSale(t *testing.T, change func(l *payments.Ledger)) harness.Record {
	t.Helper()
	rec := recordOf()
	putOrder(rec, 1, [3]string{"CONFIRMED", "SOLD", "CAPTURED"}, 4500.0)
	putOrder(rec, 2, [3]string{"RELEASED", "", "REFUNDED"}, 4500.0)
	l := payments.Ledger{Payments: []payments.Payment{taken(1, 4500), taken(2, 4500)}, Refunds: []payments.Refund{back(2, 4500, "k")}}
	change(&l)
	return withLedger(t, rec, l)
}

func TestCaptureGoesSomewhere(t *testing.T) {
	judge := captureGoesSomewhere().Judge
	expectVerdict(t, judge(aSale(t, func(*payments.Ledger) {})), harness.Pass, "sold for 4500 EUR, gone back 4500 EUR")
	for problem, change := range map[string]func(l *payments.Ledger){
		"bought a seat and went back":          func(l *payments.Ledger) { l.Refunds = append(l.Refunds, back(1, 4500, "x")) },
		"bought no seat and did not go back":   func(l *payments.Ledger) { l.Refunds = nil },
		"went back as 4499 EUR":                func(l *payments.Ledger) { l.Refunds[0].Amount = 4499 },
		"went back as 4500 USD":                func(l *payments.Ledger) { l.Refunds[0].Currency = "USD" },
		"captured nothing of its amount":       func(l *payments.Ledger) { l.Payments[0].Status, l.Payments[0].Captured = payments.Declined, 0 },
		"payment pay_1 of 4499 EUR":            func(l *payments.Ledger) { l.Payments[0].Captured = 4499 },
		"payment pay_1 of 4500 JPY":            func(l *payments.Ledger) { l.Payments[0].Currency = "JPY" },
		"payment pay_9 of 4500 EUR":            func(l *payments.Ledger) { l.Payments = append(l.Payments, taken(9, 4500)) },
		"1 did not, such as: payment pay_2 of": func(l *payments.Ledger) { l.Refunds[0].PaymentID = "pay_7" },
	} {
		expectVerdict(t, judge(aSale(t, change)), harness.Failed, problem)
	}
	expectVerdict(t, judge(withLedger(t, recordOf(), payments.Ledger{})), harness.Unknown, "no order")
	expectVerdict(t, judge(without(aSale(t, func(*payments.Ledger) {}), "table:refunds")), harness.Unknown, "table:refunds could not be read")
	expectVerdict(t, judge(without(aSale(t, func(*payments.Ledger) {}), "ledger:payments")), harness.Unknown, "ledger:payments")
}

func TestPaymentsAreKnown(t *testing.T) {
	judge := paymentsAreKnown().Judge
	expectVerdict(t, judge(aSale(t, func(*payments.Ledger) {})), harness.Pass, "2 payments")
	expectVerdict(t, judge(aSale(t, func(l *payments.Ledger) {
		p := taken(9, 0)
		p.Status, p.Reference = payments.Pending, uid("c", 1)
		l.Payments = append(l.Payments, p)
	})), harness.Pass, "3 payments")
	for problem, change := range map[string]func(l *payments.Ledger){
		"is no charge of ours":                    func(l *payments.Ledger) { l.Payments = append(l.Payments, taken(9, 4500)) },
		"is a charge of another order":            func(l *payments.Ledger) { l.Payments[0].Intent = uid("h", 2) },
		"is known as 4500 EUR captured":           func(l *payments.Ledger) { l.Payments[0].Captured = 9000 },
		"is known as captured":                    func(l *payments.Ledger) { l.Payments[0].Status = payments.Declined },
		"pay_2, which the provider does not know": func(l *payments.Ledger) { l.Payments = l.Payments[:1] },
	} {
		expectVerdict(t, judge(aSale(t, change)), harness.Failed, problem)
	}
	expectVerdict(t, judge(withLedger(t, recordOf(), payments.Ledger{})), harness.Unknown, "no order")
	expectVerdict(t, judge(without(aSale(t, func(*payments.Ledger) {}), "table:charges")), harness.Unknown, "table:charges")
}

func TestRefundedOnce(t *testing.T) {
	call := func(seq, status, received, answered int) harness.UpstreamCall {
		return harness.UpstreamCall{Seq: seq, Upstream: "payments", Method: "POST", Path: "/refunds", Request: `{"payment_id":"pay_2"}`, Status: status, Received: msec(received), Answered: msec(answered)}
	}
	record := func(l payments.Ledger, calls ...harness.UpstreamCall) harness.Record {
		rec := withLedger(t, recordOf(replied(desync(), 200, "{}")), l)
		rec.Upstream = calls
		return rec
	}
	once, twoKeys := payments.Ledger{Refunds: []payments.Refund{back(2, 4500, "k")}}, payments.Ledger{Refunds: []payments.Refund{back(2, 4500, "k", "l")}}
	none, one := refundedOnce(0).Judge, refundedOnce(1).Judge
	expectVerdict(t, none(record(once, call(1, 503, 10, 11), call(2, 201, 20, 21))), harness.Pass, "2 calls, 1 refunds")
	expectVerdict(t, none(record(once, call(1, 201, 10, 0), call(2, 200, 20, 21))), harness.Pass, "2 calls")  // the first answer was lost
	expectVerdict(t, none(record(once, call(1, 201, 10, 15), call(2, 200, 12, 16))), harness.Pass, "2 calls") // both were under way
	expectVerdict(t, none(record(once, call(1, 201, 10, 11), call(2, 200, 20, 21))), harness.Failed, "in call 2")
	expectVerdict(t, one(record(once, call(1, 201, 10, 11), call(2, 200, 20, 21))), harness.Pass, "2 calls")
	expectVerdict(t, one(record(once, call(1, 201, 10, 11), call(2, 200, 20, 21), call(3, 200, 30, 31))), harness.Failed, "in call 3")
	expectVerdict(t, none(record(twoKeys, call(1, 201, 10, 11))), harness.Failed, "under 2 keys")
	expectVerdict(t, none(withLedger(t, recordOf(), once)), harness.Unknown, "nobody did anything")
	expectVerdict(t, none(without(record(once), "ledger:payments")), harness.Unknown, "could not be read")
}

func TestNothingOverdue(t *testing.T) {
	judge := nothingOverdue().Judge
	at := func(now string, states [3]string) harness.Record {
		rec := recordOf()
		putOrder(rec, 1, states, nil)
		rec.History.Events = []harness.Event{{Subject: subjectServerTime, Attrs: map[string]string{attrNow: now}}}
		return rec
	}
	held, flying := [3]string{"RESERVED", "HELD", ""}, [3]string{"RESERVED", "QUARANTINED", "CHARGING"}
	expectVerdict(t, judge(at("2031-01-01T00:07:00Z", held)), harness.Pass, "1 holds")
	expectVerdict(t, judge(at("2031-01-01T00:08:01Z", held)), harness.Pass, "1 holds") // within the slack
	expectVerdict(t, judge(at("2031-01-01T00:08:03Z", held)), harness.Failed, "is RESERVED at")
	expectVerdict(t, judge(at("2031-01-01T00:14:59Z", flying)), harness.Pass, "1 charges")
	expectVerdict(t, judge(at("2031-01-01T00:15:03Z", flying)), harness.Failed, "is CHARGING at")
	expectVerdict(t, judge(at("2031-01-01T01:00:00Z", [3]string{"EXPIRED", "", "REFUND_RESOLVED"})), harness.Pass, "1 holds")
	expectVerdict(t, judge(at("soon", held)), harness.Unknown, "not known")
	expectVerdict(t, judge(without(at("2031-01-01T00:07:00Z", held), "table:holds")), harness.Unknown, "not known")
}

func TestSeatsAddUp(t *testing.T) {
	judge := seatsAddUp().Judge
	list := func(free, held, quarantined, sold int) harness.Operation {
		return replied(seats(0, "member-1", 1), 200, fmt.Sprintf(
			`{"show_id":1,"seats":[{"seat":"a","state":"FREE"},{"seat":"b","state":"SOLD"},{"seat":"c","state":"HELD"}],"free":%d,"held":%d,"quarantined":%d,"sold":%d}`, free, held, quarantined, sold))
	}
	large := replied(seats(0, "member-1", 1), 200, `{"seats":[`+strings.Repeat(" ", outputCap))
	expectVerdict(t, judge(recordOf(list(1, 1, 0, 1), large)), harness.Pass, "1 answers")
	expectVerdict(t, judge(recordOf(list(1, 0, 1, 1))), harness.Failed, "1 of 1 do not")
	expectVerdict(t, judge(recordOf(list(1, 1, 0, 1), list(2, 1, 0, 1))), harness.Failed, "1 of 2 do not")
	expectVerdict(t, judge(recordOf(replied(seats(0, "member-1", 1), 200, `[]`))), harness.Failed, "1 of 0")
	expectVerdict(t, judge(recordOf(large)), harness.Unknown, "nobody was told")
}

func TestSeatsAgree(t *testing.T) {
	judge := seatsAgree().Judge
	rec := func(events ...harness.Event) harness.Record {
		return harness.Record{History: harness.History{Events: events}}
	}
	count := harness.Event{Subject: subjectSamples, Attrs: map[string]string{attrSamples: "9"}}
	torn := tornEvent(msec(1), msec(2), []harness.Row{{"seat": "S-1", "state": "SOLD", "hold_state": "EXPIRED"}})
	expectVerdict(t, judge(rec(count)), harness.Pass, "9 snapshots")
	expectVerdict(t, judge(rec(count, torn)), harness.Failed, "at 1 or more of 9")
	expectVerdict(t, judge(rec(torn)), harness.Failed, "at 1 or more")
	expectVerdict(t, judge(rec(harness.Event{Subject: subjectSamples, Attrs: map[string]string{attrSamples: "0"}})), harness.Unknown, "no snapshot")
	expectVerdict(t, judge(rec()), harness.Unknown, "no snapshot")
}

func TestToldIsStored(t *testing.T) {
	judge := toldIsStored().Judge
	world := func(op harness.Operation) harness.Record {
		rec := recordOf(op)
		putOrder(rec, 1, [3]string{"CONFIRMED", "SOLD", "CAPTURED"}, 4500.0)
		putOrder(rec, 2, [3]string{"RELEASED", "", "CHARGING"}, nil)
		return rec
	}
	paid := func(n int, charge string) harness.Operation {
		return replied(charge0(n), 201, fmt.Sprintf(`{"hold_id":"%s","charge_id":"%s","state":"CAPTURED"}`, uid("h", n), charge))
	}
	for _, op := range []harness.Operation{
		granted(claim(0, "member-1", 1, "S-1"), 1, "S-1"), granted(claimBest(0, "member-2", 1), 2, "S-2"), paid(1, uid("c", 1)),
		replied(release(0, "member-2", uid("h", 2)), 200, "{}"), replied(charge0(2), 202, fmt.Sprintf(`{"charge_id":"%s"}`, uid("c", 2))),
	} {
		expectVerdict(t, judge(world(op)), harness.Pass, "1 answers")
	}
	for _, op := range []harness.Operation{
		granted(claim(0, "member-2", 1, "S-1"), 1, "S-1"), granted(claim(0, "member-1", 1, "S-2"), 1, "S-2"), granted(claim(0, "member-9", 1, "S-9"), 9, "S-9"),
		paid(1, uid("c", 2)), paid(2, uid("c", 2)), replied(charge0(2), 202, fmt.Sprintf(`{"charge_id":"%s"}`, uid("c", 9))),
		replied(release(0, "member-1", uid("h", 1)), 200, "{}"), replied(claim(0, "member-1", 1, "S-1"), 201, "yours"),
	} {
		expectVerdict(t, judge(world(op)), harness.Failed, "1 of 1 answers are not so")
	}
	expectVerdict(t, judge(world(denied(claim(0, "member-1", 1, "S-1"), 409, "seat-taken", ""))), harness.Unknown, "nobody was told")
	expectVerdict(t, judge(without(world(paid(1, uid("c", 1))), "table:holds")), harness.Unknown, "table:holds")
}

func charge0(n int) harness.Request {
	return charge(0, fmt.Sprintf("member-%d", n), uid("h", n), "card")
}

func TestSecondAttempts(t *testing.T) {
	judge, demanding := secondAttempts(false).Judge, secondAttempts(true).Judge
	declined := denied(charge0(1), 402, "payment-declined", "")
	flying := between(denied(charge0(1), 409, "charge-in-flight", ""), 30, 40)
	again := between(replied(charge0(1), 201, "{}"), 30, 40)
	expectVerdict(t, demanding(recordOf(declined, again)), harness.Pass, "1 such charges")
	expectVerdict(t, demanding(recordOf(declined, flying)), harness.Failed, "1 of 1 were")
	expectVerdict(t, demanding(recordOf(declined, between(replied(charge0(1), 500, ""), 30, 40))), harness.Failed, "1 of 1 were")
	expectVerdict(t, demanding(recordOf(declined, between(declined, 15, 25), flying)), harness.Failed, "1 of 1 were")                               // two that were declined
	expectVerdict(t, demanding(recordOf(between(replied(charge0(1), 202, "{}"), 5, 8), declined, flying)), harness.Unknown, "after a declined one") // one may be in flight
	expectVerdict(t, demanding(recordOf(declined, between(flying, 15, 25))), harness.Unknown, "after a declined one")                               // they overlapped
	expectVerdict(t, demanding(recordOf(declined, between(denied(charge0(2), 409, "charge-in-flight", ""), 30, 40))), harness.Unknown, "after a declined one")
	expectVerdict(t, judge(recordOf(declined)), harness.Pass, "0 such charges")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "after a declined one")
}
