package tickets

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/payments"
)

// casting stores what the plan chose.
func casting(t *testing.T, rec harness.Record, choices any) harness.Record {
	t.Helper()
	text, err := json.Marshal(choices)
	if err != nil {
		t.Fatal(err)
	}
	rec.Plan.Choices = text
	return rec
}

func playedBy(parts ...string) cast { return cast{Show: show{ID: 1}, Parts: parts} }

func TestEnds(t *testing.T) {
	judge := ends("as they should", map[string]string{"payer": "CONFIRMED: CAPTURED", "dropper": "RELEASED: REFUNDED or RELEASED: DECLINED", others: "EXPIRED"}).Judge
	orders := func() harness.Record {
		rec := casting(t, recordOf(), playedBy("payer", "dropper"))
		putOrder(rec, 1, [3]string{"CONFIRMED", "SOLD", "CAPTURED"}, 4500.0)
		putOrder(rec, 2, [3]string{"RELEASED", "", "REFUNDED"}, 4500.0)
		putRow(rec, "refunds", harness.Row{"refund_id": uid("r", 2), "charge_id": uid("c", 2), "state": "DONE"})
		putOrder(rec, 3, [3]string{"EXPIRED", "", ""}, nil)
		return rec
	}
	expectVerdict(t, judge(orders()), harness.Pass, "dropper 1 x RELEASED: REFUNDED; others 1 x EXPIRED; payer 1 x CONFIRMED: CAPTURED")
	rec := orders()
	rec.Rows["table:charges"].Rows[1]["state"] = "DECLINED"
	expectVerdict(t, judge(rec), harness.Failed, "ended as RELEASED: DECLINED+DONE")
	rec.Rows["table:refunds"].Rows[0]["charge_id"] = uid("c", 9)
	expectVerdict(t, judge(rec), harness.Pass, "dropper 1 x RELEASED: DECLINED")
	rec = orders()
	putRow(rec, "charges", harness.Row{"charge_id": uid("c", 7), "hold_id": uid("h", 1), "state": "CAPTURED"})
	expectVerdict(t, judge(rec), harness.Failed, "of member-1, payer, ended as CONFIRMED: CAPTURED CAPTURED; want CONFIRMED: CAPTURED")
	putOrder(rec, 4, [3]string{"RESERVED", "HELD", ""}, nil)
	expectVerdict(t, judge(rec), harness.Failed, "2 did not")
	expectVerdict(t, judge(without(orders(), "table:refunds")), harness.Unknown, "refunds could not be read")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "no cast")
	expectVerdict(t, judge(casting(t, recordOf(), playedBy("payer"))), harness.Unknown, "no order of dropper")
	stranger := casting(t, recordOf(), playedBy("stranger"))
	putOrder(stranger, 1, [3]string{"EXPIRED", "", ""}, nil)
	expectVerdict(t, judge(stranger), harness.Failed, "want none")
}

func TestCasts(t *testing.T) {
	c := playedBy("a", "b")
	for login, want := range map[string]string{"member-1": "a", "member-2": "b", "member-3": others, "member-0": others, "staff-1": others} {
		if got := c.partOf(login); got != want {
			t.Errorf("%s plays %s, want %s", login, got, want)
		}
	}
	drawn, err := chooseCast("a", "b")(rand.New(rand.NewPCG(1, 2)), harness.Params{"orders": "3"}) //nolint:gosec // a plan, not a secret
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, part := range drawn.(cast).Parts {
		n[part]++
	}
	if n["a"] != 3 || n["b"] != 3 || len(drawn.(cast).Show.Seats) != 6 {
		t.Errorf("drawn: %+v", drawn)
	}
}

// told is a delivery of an event, answered.
func told(event string, status int, result string) harness.Operation {
	return replied(callback(0, fmt.Appendf(nil, `{"event_id":%q}`, event), ""), status, fmt.Sprintf(`{"result":%q}`, result))
}

func TestOneEffectPerEvent(t *testing.T) {
	judge := oneEffectPerEvent().Judge
	news, copied := told("evt_1", 200, "applied"), told("evt_1", 200, "duplicate")
	expectVerdict(t, judge(recordOf(news, copied, copied, told("evt_2", 200, "noted"))), harness.Pass, "2 events, up to 3 copies")
	expectVerdict(t, judge(recordOf(copied, news)), harness.Pass, "1 events")
	expectVerdict(t, judge(recordOf(news, told("evt_1", 200, "noted"))), harness.Failed, "evt_1 was news before")
	expectVerdict(t, judge(recordOf(news, told("evt_1", 409, ""))), harness.Failed, "a copy of evt_1")
	expectVerdict(t, judge(recordOf(copied, copied)), harness.Failed, "all 2 copies of evt_1 were duplicates")
	expectVerdict(t, judge(recordOf(news, told("evt_1", 0, ""))), harness.Unknown, "was not answered")
	expectVerdict(t, judge(recordOf(news)), harness.Unknown, "no callback was delivered twice")
}

func TestNobodyTold(t *testing.T) {
	expectVerdict(t, nobodyTold().Judge(recordOf(harness.Operation{Kind: kindCharge, Status: 202})), harness.Pass, "no callback")
	expectVerdict(t, nobodyTold().Judge(recordOf()), harness.Unknown, "nobody paid")
	expectVerdict(t, nobodyTold().Judge(recordOf(told("evt_1", 200, "applied"))), harness.Unknown, "1 callbacks were delivered")
}

// twicePaid is an order with two captured payments, pay_1 and pay_2, that was
// won by the n-th.
func twicePaid(t *testing.T, part string, winner int, origin string) harness.Record {
	t.Helper()
	rec := casting(t, recordOf(), playedBy(part))
	putRow(rec, "holds", harness.Row{"hold_id": uid("h", 1), "login": "member-1", "state": "CONFIRMED", "winning_charge": uid("c", winner)})
	for n := 1; n <= 2; n++ {
		putRow(rec, "charges", harness.Row{"charge_id": uid("c", n), "hold_id": uid("h", 1), "payment_id": fmt.Sprintf("pay_%d", n), "state": "CAPTURED", "origin": origin})
	}
	first, second := taken(1, 4500), taken(2, 4500)
	second.Intent = first.Intent
	return withLedger(t, rec, payments.Ledger{Payments: []payments.Payment{first, second}})
}

func TestFirstToldWins(t *testing.T) {
	judge := firstToldWins().Judge
	expectVerdict(t, judge(twicePaid(t, partFirstWins, 1, "request")), harness.Pass, "1 orders")
	expectVerdict(t, judge(twicePaid(t, partSecondWins, 2, "provider")), harness.Pass, "1 orders")
	expectVerdict(t, judge(twicePaid(t, partTheirsWins, 2, "provider")), harness.Pass, "1 orders")
	expectVerdict(t, judge(twicePaid(t, partFirstWins, 2, "request")), harness.Failed, "pays second, of a charge by request; want one that pays first")
	expectVerdict(t, judge(twicePaid(t, partOwnWins, 1, "provider")), harness.Failed, "want one that request")
	expectVerdict(t, judge(twicePaid(t, partFirstWins, 9, "request")), harness.Failed, "is none")
	expectVerdict(t, judge(twicePaid(t, partAtOnce, 1, "request")), harness.Unknown, "no order had two payments")
	expectVerdict(t, judge(without(twicePaid(t, partFirstWins, 1, "request"), "table:seats")), harness.Unknown, "seats could not be read")
	rec := twicePaid(t, partFirstWins, 1, "request")
	rec.Plan.Choices = nil
	expectVerdict(t, judge(rec), harness.Unknown, "no cast")
}

func TestCrossedIsNothing(t *testing.T) {
	judge := crossedIsNothing().Judge
	crossed := func(ops ...harness.Operation) harness.Record {
		return withLedger(t, recordOf(ops...), payments.Ledger{Callbacks: []payments.Callback{
			{EventID: "evt_1", Body: json.RawMessage(`{}`)}, {EventID: "evt_2", Body: json.RawMessage(`{}`), Crossed: true},
		}})
	}
	own := told("evt_1", 200, "applied")
	expectVerdict(t, judge(crossed(own, told("evt_2", 404, ""), told("evt_2", 404, ""))), harness.Pass, "2 deliveries")
	expectVerdict(t, judge(crossed(own, told("evt_2", 200, "noted"))), harness.Pass, "1 deliveries")
	expectVerdict(t, judge(crossed(own, told("evt_2", 200, "applied"))), harness.Failed, "1 of 1 were")
	expectVerdict(t, judge(crossed(own, told("evt_2", 500, ""))), harness.Failed, "1 of 1 were")
	expectVerdict(t, judge(crossed(own, told("evt_2", 0, ""))), harness.Unknown, "no such callback was answered")
	expectVerdict(t, judge(without(crossed(own), "ledger:payments")), harness.Unknown, "ledger could not be read")
}

func TestOneIntent(t *testing.T) {
	judge := oneIntent().Judge
	attempts := func() harness.Record {
		rec := twicePaid(t, partSameCard, 1, "request")
		for _, c := range rec.Rows["table:charges"].Rows {
			c["intent"] = uid("h", 1)
		}
		return rec
	}
	expectVerdict(t, judge(attempts()), harness.Pass, "1 orders with several attempts")
	rec := attempts()
	rec.Rows["table:charges"].Rows[1]["intent"] = "another"
	expectVerdict(t, judge(rec), harness.Failed, "has the intent another")
	rec = attempts()
	rec.Rows["ledger:payments"].Rows[1]["intent"] = "another"
	expectVerdict(t, judge(rec), harness.Failed, `payment pay_2 has the intent "another"`)
	expectVerdict(t, judge(withLedger(t, attempts(), payments.Ledger{Payments: []payments.Payment{taken(1, 4500)}})), harness.Unknown, "no order had two")
	expectVerdict(t, judge(without(attempts(), "table:charges")), harness.Unknown, "charges could not be read")
}

func TestDesyncTells(t *testing.T) {
	line := func(payment string, attempts int, parked bool) string {
		return fmt.Sprintf(`{"payment_id":%q,"amount":4500,"refund":{"state":"PENDING","attempts":%d,"last_error":"503","parked":%t}}`, payment, attempts, parked)
	}
	look := func(kind, lines string) harness.Operation {
		op := replied(desync(), 200, `{"captured_without_seat":[`+lines+`],"unresolved":[]}`)
		op.Kind = kind
		return op
	}
	owed := look(kindDesyncOwed, line("pay_1", 1, false)+","+line("pay_2", 2, false))
	parked, done := look(kindDesyncParked, line("pay_1", 3, true)+","+line("pay_2", 3, true)), look(kindDesyncDone, "")
	judge := desyncTells(2, false).Judge
	expectVerdict(t, judge(recordOf(owed, done)), harness.Pass, "2 looks")
	expectVerdict(t, desyncTells(2, true).Judge(recordOf(owed, parked, done)), harness.Pass, "3 looks")
	for _, bad := range []struct{ lines, word string }{
		{line("pay_1", 1, false), "lists 1 payments, and 2 are owed"},
		{line("pay_1", 1, false) + "," + line("pay_1", 1, false), "lists 2 payments"},
		{line("pay_1", 1, false) + "," + line("pay_2", 1, true), "pay_2 is parked: true"},
		{line("pay_1", 1, false) + "," + line("pay_2", 0, false), "does not tell of the attempt"},
		{`{"payment_id":"pay_1","amount":4500,"refund":null}`, "no refund that is pending"},
		{`7`, "can't be read"},
	} {
		expectVerdict(t, judge(recordOf(look(kindDesyncOwed, bad.lines), done)), harness.Failed, bad.word)
	}
	expectVerdict(t, judge(recordOf(owed, look(kindDesyncDone, line("pay_1", 1, false)))), harness.Failed, "lists 1 payments, and 0 are owed")
	expectVerdict(t, desyncTells(2, true).Judge(recordOf(owed, done)), harness.Unknown, "2 of 3 looks")
	failed := owed
	failed.Status = 503
	expectVerdict(t, judge(recordOf(failed, done)), harness.Unknown, "1 of 2 looks")
}

func TestEventsAreReal(t *testing.T) {
	judge := eventsAreReal().Judge
	events := func(ids ...string) harness.Record {
		rec := recordOf()
		for _, id := range ids {
			putRow(rec, "provider_events", harness.Row{"event_id": id})
		}
		return withLedger(t, rec, payments.Ledger{Callbacks: []payments.Callback{{EventID: "evt_1", Body: json.RawMessage(`{}`)}}})
	}
	expectVerdict(t, judge(events("evt_1")), harness.Pass, ": 1")
	expectVerdict(t, judge(events("evt_1", "evt_forged_1")), harness.Failed, "the provider never told it")
	expectVerdict(t, judge(events()), harness.Unknown, "no event was taken")
	expectVerdict(t, judge(without(events("evt_1"), "table:provider_events")), harness.Unknown, "could not be read")
}

func TestEndsByTheClock(t *testing.T) {
	judge := endsByTheClock().Judge
	const end = "2031-01-01T00:08:00"
	order := func(policy, state, decided, ended string) harness.Record {
		rec := recordOf()
		putOrder(rec, 1, [3]string{state, "", "CAPTURED"}, 4500.0)
		h, c := rec.Rows["table:holds"].Rows[0], rec.Rows["table:charges"].Rows[0]
		h["policy"], h["ended_at"], c["resolved_at"] = policy, ended, decided
		return rec
	}
	before, at, after := "2031-01-01T00:07:59.999999+00:00", end+"+00:00", end+".000001+00:00"
	expectVerdict(t, judge(order(policyRelease, "CONFIRMED", before, before)), harness.Pass, "1 before, 0 at or after")
	expectVerdict(t, judge(order(policyRelease, "EXPIRED", at, at)), harness.Pass, "0 before, 1 at or after")
	expectVerdict(t, judge(order(policyQuarantine, "CONFIRMED", after, after)), harness.Pass, "0 before, 1 at or after")
	expectVerdict(t, judge(order(policyRelease, "CONFIRMED", at, at)), harness.Failed, "want EXPIRED")
	expectVerdict(t, judge(order(policyRelease, "CONFIRMED", after, after)), harness.Failed, "want EXPIRED")
	expectVerdict(t, judge(order(policyRelease, "EXPIRED", before, after)), harness.Failed, "want CONFIRMED")
	expectVerdict(t, judge(order(policyQuarantine, "EXPIRED", after, after)), harness.Failed, "want CONFIRMED")
	expectVerdict(t, judge(order(policyRelease, "EXPIRED", after, before)), harness.Failed, "1 did not")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "nothing was captured")
	expectVerdict(t, judge(without(recordOf(), "table:holds")), harness.Unknown, "holds could not be read")
}
