package tickets

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/explore"
	"github.com/overbook/overbook/stubs/payments"
)

// Every scenario of crashes and the sale can be planned, and its checks decide
// nothing on an empty record, where nobody did anything.
func TestCrashesAndSalesAreWhole(t *testing.T) {
	for _, s := range append(crashes(), sales()...) {
		plan, err := s.MakePlan(1, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		for _, c := range s.Checks(plan.Params) {
			if ids[c.ID] {
				t.Errorf("%s: the id %q is used twice", s.Name, c.ID)
			}
			ids[c.ID] = true
			if v := c.Judge(harness.Record{Plan: plan}); v.Status != harness.Unknown {
				t.Errorf("%s: %s on nothing: %s %s", s.Name, c.ID, v.Status, v.Summary)
			}
		}
		if s.HasTag("race") == strings.HasPrefix(s.Name, "tickets/on-sale") {
			t.Errorf("%s has the tags %v: the default suite has no minutes for the sale, and the crashes are in it", s.Name, s.Tags)
		}
		if top := s.Topology(plan.Params); top.PostgresWire != s.HasTag("fault") {
			t.Errorf("%s: topology %+v", s.Name, top)
		}
	}
}

func leftEvent(moment string, o orderRows) harness.Event {
	return harness.Event{Subject: subjectLeft, Text: o.brief(), Attrs: map[string]string{attrOrder: uid("h", 1), attrState: o.brief(), attrMoment: moment}}
}

func TestLeftBy(t *testing.T) {
	want := orderRows{hold: "RESERVED", seat: "HELD", charge: "CHARGING", charges: 1}
	judge := leftBy("S-I8.crash", "doc", "upstream-accepted", want).Judge
	rec := recordOf()
	expectVerdict(t, judge(rec), harness.Unknown, "nobody looked")
	rec.History.Events = []harness.Event{leftEvent("before-commit", orderRows{hold: "EXPIRED"})} // of another moment
	expectVerdict(t, judge(rec), harness.Unknown, "nobody looked")
	rec.History.Events = append(rec.History.Events, leftEvent("upstream-accepted", want))
	expectVerdict(t, judge(rec), harness.Pass, "1 times")
	unknown := want // a charge that is stored after the call
	unknown.charge, unknown.charges = "", 0
	rec.History.Events = append(rec.History.Events, leftEvent("upstream-accepted", unknown))
	expectVerdict(t, judge(rec), harness.Failed, "1 of 2 times")
}

func TestBroughtBy(t *testing.T) {
	judge := broughtBy("doc", "reconciliation", 1).Judge
	rec := recordOf(replied(desync(), 200, "{}"))
	expectVerdict(t, judge(recordOf()), harness.Unknown, "nobody paid")
	expectVerdict(t, judge(rec), harness.Failed, "want 1 x reconciliation")
	putRow(rec, "charges", harness.Row{"charge_id": uid("c", 1), "captured_amount": 4500.0, "resolved_by": "reconciliation"})
	putRow(rec, "charges", harness.Row{"charge_id": uid("c", 2), "captured_amount": nil, "resolved_by": "hard-timeout"})
	expectVerdict(t, judge(rec), harness.Pass, ": 1")
	putRow(rec, "charges", harness.Row{"charge_id": uid("c", 3), "captured_amount": 4500.0, "resolved_by": "callback"})
	expectVerdict(t, judge(rec), harness.Failed, "1 x callback")
	expectVerdict(t, judge(without(rec, "table:charges")), harness.Unknown, "could not be read")
}

func TestOrderTells(t *testing.T) {
	judge := orderTells("CONFIRMED", 1).Judge
	asked := order(0, "member-1", uid("h", 1))
	asked.Kind = kindOrderAfter
	tells := func(body string) harness.Record { return recordOf(replied(asked, 200, body)) }
	expectVerdict(t, judge(tells(`{"state":"CONFIRMED","winning_charge":"c","charges":[{}]}`)), harness.Pass, ": 1")
	expectVerdict(t, judge(tells(`{"state":"RESERVED","charges":[{}]}`)), harness.Failed, "1 of 1")
	expectVerdict(t, judge(tells(`{"state":"CONFIRMED","winning_charge":"c","charges":[{},{}]}`)), harness.Failed, "1 of 1")
	expectVerdict(t, judge(recordOf(replied(asked, 500, ""))), harness.Failed, "1 of 1")
	expectVerdict(t, judge(recordOf(replied(asked, 0, ""))), harness.Unknown, "0 of 1")
}

func TestEventsOnce(t *testing.T) {
	judge := eventsOnce(1).Judge
	rec := recordOf(replied(callback(0, nil, ""), 200, `{"result":"applied"}`))
	expectVerdict(t, judge(rec), harness.Failed, "0 rows")
	putRow(rec, "provider_events", harness.Row{"event_id": "evt_1"})
	expectVerdict(t, judge(rec), harness.Pass, ": 1")
	putRow(rec, "provider_events", harness.Row{"event_id": "evt_1"})
	expectVerdict(t, judge(rec), harness.Failed, "2 rows of 1 events")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "no callback")
	expectVerdict(t, judge(without(rec, "table:provider_events")), harness.Unknown, "could not be read")
	for result, want := range map[string]string{`{"result":"duplicate"}`: "duplicate", "": "unanswered", `{"type":"/problems/busy"}`: "unanswered"} {
		if got := callbackResult(replied(callback(0, nil, ""), 200, result)); got != want {
			t.Errorf("%s is %s, want %s", result, got, want)
		}
	}
	if got := callbackResult(replied(desync(), 200, `{"result":"applied"}`)); got != "" {
		t.Errorf("no callback is %s", got)
	}
}

func TestWordOfRows(t *testing.T) {
	for want, o := range map[string]orderRows{
		pointHeld:                              {hold: "RESERVED", seat: "HELD"},
		pointInFlight:                          {hold: "RESERVED", seat: "HELD", charge: "CHARGING", charges: 1},
		pointSold:                              {hold: "CONFIRMED", seat: "SOLD", charge: "CAPTURED", charges: 1, by: "answer"},
		pointGoesBack:                          {hold: "RELEASED", charge: "REFUNDING", refund: "PENDING", charges: 1, refunds: 1, by: "callback"},
		"hold CONFIRMED, seat HELD, 1 charges": {hold: "CONFIRMED", seat: "HELD", charge: "CAPTURED", charges: 1}, // torn
		"hold RELEASED, seat none, 1 charges REFUNDING, 0 refunds none": {hold: "RELEASED", charge: "REFUNDING", charges: 1},
	} {
		if got := o.word(); !strings.HasPrefix(got, want) {
			t.Errorf("%+v is %q, want %q", o, got, want)
		}
	}
}

// pointed is a crash point as a record has it, with the operation of its retry.
func pointed(rec *harness.Record, of int, action harness.Action, at harness.Moment, state string, again harness.Operation) {
	n := len(rec.History.Events) + 1
	again.ID = fmt.Sprintf("again-%d", n)
	rec.History.Operations = append(rec.History.Operations, again)
	rec.History.Events = append(rec.History.Events, harness.Event{Kind: harness.EventPoint, Subject: "charge", Attrs: map[string]string{
		"number": strconv.Itoa(n), "of": strconv.Itoa(of), "label": string(at), "fault": string(action) + " at " + string(at), "action": string(action),
		"state": state, "retry": strconv.Itoa(again.Status), "again": again.ID,
	}})
}

func TestRecoveredAt(t *testing.T) {
	judge := recoveredAt(enumeratedCharge).Judge
	pay := charge0(1)
	fresh, flying, over := replied(pay, 201, "{}"), denied(pay, 409, "charge-in-flight", ""), denied(pay, 409, "hold-over", "")
	points := func(of int, state string, again harness.Operation) harness.Record {
		rec := recordOf()
		pointed(&rec, of, harness.ActionKill, harness.BeforeCommit, pointHeld, fresh)
		pointed(&rec, of, harness.ActionKill, harness.AfterCommit, state, again)
		return rec
	}
	expectVerdict(t, judge(points(2, pointInFlight, flying)), harness.Pass, "2 of 2 points of a charge: held at 1, in flight at 1")
	expectVerdict(t, judge(points(2, pointSold, over)), harness.Pass, "2 of 2")
	expectVerdict(t, judge(points(2, pointInFlight, fresh)), harness.Failed, "want 409 charge-in-flight") // charged twice
	expectVerdict(t, judge(points(2, pointHeld, flying)), harness.Failed, "want 201")
	expectVerdict(t, judge(points(2, "hold CONFIRMED, seat HELD", over)), harness.Failed, "nothing that a charge goes through")
	expectVerdict(t, judge(points(2, pointInFlight, replied(pay, 0, ""))), harness.Unknown, "was not answered")
	expectVerdict(t, judge(points(3, pointInFlight, flying)), harness.Unknown, "2 of 3")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "no crash point")
	broken := points(2, pointInFlight, replied(pay, 500, ""))
	expectVerdict(t, judge(broken), harness.Failed, "1 of 2")
	broken.Trouble = []harness.Trouble{{Reason: harness.ReasonEnvironment}}
	expectVerdict(t, judge(broken), harness.Unknown, "not by a sound server")
}

func TestStatesChangeAtCommit(t *testing.T) {
	type step struct {
		at    harness.Moment
		state string
	}
	sound := []step{
		{harness.BeforeCommit, pointHeld},
		{harness.AfterCommit, pointInFlight},
		{harness.MomentAccepted, pointInFlight},
		{harness.BeforeCommit, pointInFlight},
		{harness.AfterCommit, pointSold},
		{harness.BeforeResponse, pointSold},
	}
	with := func(i int, state string) []step {
		s := append([]step{}, sound...)
		s[i].state = state
		return s
	}
	faster := append([]step{{harness.BeforeCommit, pointHeld}, {harness.AfterCommit, pointSold}}, sound[2:]...) // than the death of its server
	worked := enumeratedCharge                                                                                  // of which a part is a worker's
	worked.until = enumeratedRefund.until
	for name, tc := range map[string]struct {
		e      enumerated
		action harness.Action
		steps  []step
		status harness.Status
		word   string
	}{
		"sound":                     {enumeratedCharge, harness.ActionKill, sound, harness.Pass, "held at 1, in flight at 3, sold at 2"},
		"known before the commit":   {enumeratedCharge, harness.ActionKill, with(0, pointInFlight), harness.Failed, "1 of 6 points differ"},
		"sold before the commit":    {enumeratedCharge, harness.ActionKill, with(3, pointSold), harness.Failed, `the rows say "sold", after "in flight"`},
		"forgotten":                 {enumeratedCharge, harness.ActionKill, with(5, pointInFlight), harness.Failed, "1 of 6"},
		"a step left out":           {enumeratedCharge, harness.ActionKill, with(1, pointSold), harness.Failed, "points differ"},
		"torn":                      {enumeratedCharge, harness.ActionKill, with(4, "hold CONFIRMED, seat HELD"), harness.Failed, "seat HELD"},
		"one state alone":           {enumeratedCharge, harness.ActionKill, sound[:1], harness.Unknown, "1 of 3 states"},
		"a worker goes on":          {worked, harness.ActionDrop, with(3, pointSold), harness.Pass, "sold at 3"},
		"a worker was faster":       {worked, harness.ActionKill, faster, harness.Pass, "sold at 3"},
		"nobody was faster":         {enumeratedCharge, harness.ActionKill, faster, harness.Failed, "1 of 6"},
		"a killed worker does not":  {worked, harness.ActionKill, with(3, pointSold), harness.Failed, "1 of 6"},
		"a worker does not go back": {worked, harness.ActionDrop, with(5, pointHeld), harness.Failed, "1 of 6"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := recordOf()
			for _, s := range tc.steps {
				pointed(&rec, len(tc.steps), tc.action, s.at, s.state, replied(charge0(1), 201, "{}"))
			}
			if n := len(explore.PointsOf(rec, "charge")); n != len(tc.steps) {
				t.Fatalf("%d points read back", n)
			}
			expectVerdict(t, statesChangeAtCommit(tc.e, []harness.Action{tc.action}).Judge(rec), tc.status, tc.word)
		})
	}
	expectVerdict(t, statesChangeAtCommit(enumeratedCharge, nil).Judge(recordOf()), harness.Unknown, "no crash point")
}

func TestOneChargeAnOrder(t *testing.T) {
	judge := oneChargeAnOrder().Judge
	expectVerdict(t, judge(aSale(t, func(*payments.Ledger) {})), harness.Pass, "payments of")
	expectVerdict(t, judge(aSale(t, func(l *payments.Ledger) {
		again := l.Payments[0]
		again.PaymentID = "pay_9"
		l.Payments = append(l.Payments, again)
	})), harness.Failed, "1 are more")
	expectVerdict(t, judge(recordOf()), harness.Unknown, "no order")
	expectVerdict(t, judge(without(recordOf(), "table:charges")), harness.Unknown, "could not be read")
}
