package tickets

import (
	"testing"
)

func TestSeatHeldPaidAndSold(t *testing.T) {
	s := newShop(t, 3)
	a := wants(t, s.claim("member-1", "A-2"), "201")
	hold := a.str("hold_id")
	if a.header.Get("Location") != "/tickets/orders/"+hold || a.str("state") != "RESERVED" || a.str("seat") != "A-2" || a.doc["amount"] != 4500.0 || a.str("currency") != "EUR" {
		t.Fatalf("hold %s, Location %s", a.body, a.header.Get("Location"))
	}
	paid := wants(t, s.charge("member-1", hold), "201")
	if paid.str("state") != "CAPTURED" || paid.str("hold_state") != "CONFIRMED" || paid.str("seat") != "A-2" {
		t.Fatalf("charge %s", paid.body)
	}
	s.is(hold, "CONFIRMED SOLD CAPTURED")
	o := s.order(hold)
	if o.Winner == nil || *o.Winner != paid.str("charge_id") || len(o.Charges) != 1 || *o.Charges[0].Captured != 4500 || *o.Charges[0].Payment != "pay_1" {
		t.Fatalf("order %+v", o)
	}
	s.told(event("e1", eventCaptured, "pay_1", paid.str("charge_id"), hold, 4500), "noted")
	s.told(event("e1", eventCaptured, "pay_1", paid.str("charge_id"), hold, 4500), "duplicate")
	s.soundly()
}

// What comes late for an order that is over touches nothing of who has the
// seat now, not even while that waits for a payment of its own.
func TestLateMoneyLeavesTheNewOwnerAlone(t *testing.T) {
	s := newShop(t, 1)
	hold, charge := s.inFlight("member-1", "A-1")
	s.told(event("e1", eventDeclined, "pay_1", charge, hold, 4500), "applied")
	wants(t, s.release("member-1", hold), "200")
	other, otherCharge := s.inFlight("member-2", "A-1")
	s.later(s.cfg.Hold)
	s.runOut(other)
	s.is(other, "RESERVED QUARANTINED CHARGING")
	s.told(event("e2", eventCaptured, "pay_9", charge, hold, 4500), "applied") // another attempt of the provider's own
	s.is(hold, "RELEASED - DECLINED,REFUNDING PENDING")
	s.is(other, "RESERVED QUARANTINED CHARGING")
	s.told(event("e3", eventCaptured, "pay_2", otherCharge, other, 4500), "applied")
	s.is(other, "CONFIRMED SOLD CAPTURED")
	s.soundly()
}
