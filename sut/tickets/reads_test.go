package tickets

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

func (s *shop) hall(who string) hall {
	s.t.Helper()
	a := wants(s.t, s.send("GET", "/tickets/shows/1/seats", call{who: who}), "200")
	var h hall
	if err := json.Unmarshal([]byte(a.body), &h); err != nil {
		s.t.Fatal(err)
	}
	return h
}

func TestSeatsAndTheirCounts(t *testing.T) {
	s := newShop(t, 12)
	s.held("member-1", "A-1")
	wants(t, s.charge("member-2", s.held("member-2", "A-2")), "201")
	hold, _ := s.inFlight("member-3", "A-3")
	wants(t, s.release("member-3", hold), "200")
	h := s.hall("member-9")
	if h.Free != 9 || h.Held != 1 || h.Sold != 1 || h.Quarantined != 1 || len(h.Seats) != 12 {
		t.Errorf("seats %+v", h)
	}
	for n, want := range []string{seatHeld, seatSold, seatQuarantined, seatFree} {
		if got := h.Seats[n]; got.State != want || got.Seat != fmt.Sprintf("A-%d", n+1) {
			t.Errorf("seat %d is %+v, want A-%d %s", n, got, n+1, want)
		}
	}
}

// At every instant, free + held + quarantined + sold are all.
func TestSeatsAddUpWhileTheyAreSold(t *testing.T) {
	s := newShop(t, 30, crowded)
	selling := make(chan struct{})
	var watch sync.WaitGroup
	looks := 0
	watch.Go(func() {
		for {
			a := s.send("GET", "/tickets/shows/1/seats", call{who: "staff-1"})
			var h hall
			if err := json.Unmarshal([]byte(a.body), &h); err != nil || h.Free+h.Held+h.Quarantined+h.Sold != 30 || len(h.Seats) != 30 {
				t.Errorf("seats %s", a.body)
				return
			}
			looks++
			select {
			case <-selling:
				return
			default:
			}
		}
	})
	burst(30, func(i int) answer {
		a := s.best(member(i))
		if i%2 == 0 {
			return s.charge(member(i), a.str("hold_id"))
		}
		return s.release(member(i), a.str("hold_id"))
	})
	close(selling)
	watch.Wait()
	if h := s.hall("staff-1"); h.Sold != 15 || h.Free != 15 {
		t.Errorf("%d sold, %d free, want 15 each", h.Sold, h.Free)
	}
	t.Logf("looked %d times", looks)
	s.soundly()
}

func TestOrderIsOneDocument(t *testing.T) {
	s := newShop(t, 1)
	hold := s.held("member-1", "A-1")
	a := wants(t, s.send("GET", "/tickets/orders/"+hold, call{who: "member-1"}), "200")
	for name, want := range map[string]any{
		"hold_id": hold, "show_id": 1.0, "seat": "A-1", "login": "member-1", "state": "RESERVED", "amount": 4500.0, "currency": "EUR", "winning_charge": nil,
	} {
		if got, there := a.doc[name]; !there || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"charges", "refunds", "notices"} {
		if list, ok := a.doc[name].([]any); !ok || len(list) != 0 && name != "notices" {
			t.Errorf("%s is %v, want an empty list", name, a.doc[name])
		}
	}
	charge := wants(t, s.charge("member-1", hold), "201").str("charge_id")
	s.told(event("e1", eventCaptured, "pay_9", charge, hold, 4501), "applied")
	o := s.order(hold)
	if len(o.Charges) != 2 || o.Charges[0].Charge != charge || *o.Winner != charge || o.Charges[0].ResolvedAt == nil || !o.ExpiresAt.Equal(o.CreatedAt.Add(s.cfg.Hold)) {
		t.Errorf("order %+v", o)
	}
	if len(o.Refunds) != 1 || o.Refunds[0].Payment != "pay_9" || o.Refunds[0].Amount != 4501 || o.Refunds[0].Charge != o.Charges[1].Charge {
		t.Errorf("refunds %+v", o.Refunds)
	}
}
