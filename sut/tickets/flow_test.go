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
