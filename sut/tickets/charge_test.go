package tickets

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestChargeTellsWhatTheProviderSays(t *testing.T) {
	s := newShop(t, 20)
	for n, c := range []struct {
		how            reaction
		answer, states string
	}{
		{captures, "201", "CONFIRMED SOLD CAPTURED"},
		{declines, "402 payment-declined", "RESERVED HELD DECLINED"},
		{waits, "202", "RESERVED HELD CHARGING"},
		{silent, "202", "RESERVED HELD CHARGING"},
		{working, "202", "RESERVED HELD CHARGING"},
		{down, "202", "RESERVED HELD CHARGING"},
		{nonsense, "202", "RESERVED HELD CHARGING"},
		{refuses, "503 payment-unavailable", "RESERVED HELD FAILED"},
		{otherMoney, "409 payment-refunded", "RESERVED HELD REFUNDING PENDING"},
	} {
		who := member(n)
		hold := wants(t, s.best(who), "201").str("hold_id")
		s.provider.on("card-"+who, c.how)
		a := s.charge(who, hold)
		if a.kind() != c.answer || s.states(hold) != c.states {
			t.Errorf("%s: answer %d %s, order %q, want %s, %q", c.how, a.status, a.body, s.states(hold), c.answer, c.states)
		}
		if a.str("charge_id") != s.order(hold).Charges[0].Charge {
			t.Errorf("%s: answer %s does not name the charge", c.how, a.body)
		}
		switch a.status {
		case http.StatusAccepted:
			if a.header.Get("Location") != "/tickets/orders/"+hold || a.str("state") != "CHARGING" || a.str("hold_id") != hold {
				t.Errorf("%s: answer %s at %q", c.how, a.body, a.header.Get("Location"))
			}
		case http.StatusServiceUnavailable:
			if a.header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", c.how)
			}
		}
	}
	if n := scan[int64](s, "select amount from refunds"); n != 4499 {
		t.Errorf("refund of %d, want what was captured, 4499", n)
	}
	s.soundly()
}

func TestChargeOfAProviderThatIsNotThere(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nobody listens there now
	s := newShop(t, 1, func(c *Config) { c.PaymentsURL = "http://" + l.Addr().String() })
	hold := s.held("member-1", "A-1")
	wants(t, s.charge("member-1", hold), "503 payment-unavailable")
	wants(t, s.charge("member-1", hold), "503 payment-unavailable") // it may be tried again
	s.is(hold, "RESERVED HELD FAILED,FAILED")
	s.soundly()
}

func TestChargeDoesNotWaitForEver(t *testing.T) {
	s := newShop(t, 1, func(c *Config) { c.PaymentTimeout = 50 * time.Millisecond })
	hold := s.held("member-1", "A-1")
	open := s.provider.gate("card-member-1")
	defer open()
	wants(t, s.charge("member-1", hold), "202")
	s.is(hold, "RESERVED HELD CHARGING")
}

func TestWhatTheProviderIsSent(t *testing.T) {
	s := newShop(t, 1)
	hold := s.held("member-1", "A-1")
	charge := wants(t, s.charge("member-1", hold), "201").str("charge_id")
	want := providerCall{
		key: charge, op: "charge-member-1", traceparent: traceparent, contentType: "application/json",
		Reference: charge, Intent: hold, Amount: 4500, Currency: "EUR", Card: "card-member-1", payment: "pay_1",
	}
	if got := s.provider.charges(); len(got) != 1 || got[0] != want {
		t.Errorf("provider got %+v, want %+v", got, want)
	}
	stored := scan[string](s, `select concat_ws(' ', c.overbook_op, h.overbook_op, c.card, c.intent, c.traceparent) from charges c join holds h using (hold_id)`)
	if stored != "charge-member-1 claim-member-1 card-member-1 "+hold+" "+traceparent {
		t.Errorf("stored %q", stored)
	}
	ops := s.lines("select subject || ' ' || to_state || ' ' || overbook_op || ' ' || actor from ticket_audit order by seq")
	if got := strings.Join(ops, ", "); got != "hold RESERVED claim-member-1 member-1, charge CHARGING charge-member-1 member-1, "+
		"charge CAPTURED charge-member-1 member-1, hold CONFIRMED charge-member-1 member-1" {
		t.Errorf("history %s", got)
	}
}

// While the provider thinks, the charge is stored and no transaction is open.
func TestNothingIsOpenWhileTheProviderIsWaitedFor(t *testing.T) {
	s := newShop(t, 1)
	hold := s.held("member-1", "A-1")
	open := s.provider.gate("card-member-1")
	done := make(chan answer, 1)
	go func() { done <- s.charge("member-1", hold) }()
	<-s.provider.at
	s.is(hold, "RESERVED HELD CHARGING")
	if n := scan[int](s, "select count(*) from pg_stat_activity where application_name = 'sut-1' and datname = current_database() and xact_start is not null and state <> 'active'"); n != 0 {
		t.Errorf("%d transactions are open", n)
	}
	if charge := wants(t, s.charge("member-1", hold), "409 charge-in-flight").str("charge_id"); charge != s.provider.charges()[0].Reference {
		t.Errorf("charge-in-flight names %s", charge)
	}
	open()
	wants(t, <-done, "201")
	s.soundly()
}

func TestTenChargesOfOneHoldAtOnce(t *testing.T) {
	s := newShop(t, 1, crowded)
	hold := s.held("member-1", "A-1")
	s.provider.on("card-member-1", waits)
	got := tally(burst(10, func(int) answer { return s.charge("member-1", hold) }))
	if got["202"] != 1 || got["409 charge-in-flight"] != 9 || len(s.provider.charges()) != 1 {
		t.Errorf("answers %v, %d charges at the provider", got, len(s.provider.charges()))
	}
	s.soundly()
}

func TestChargeIsRefused(t *testing.T) {
	s := newShop(t, 3)
	hold := s.held("member-1", "A-1")
	wants(t, s.charge("member-2", hold), "404 unknown-hold")
	wants(t, s.charge("member-1", "00000000-0000-0000-0000-000000000001"), "404 unknown-hold")
	wants(t, s.charge("member-1", strings.ToUpper(hold)), "404 unknown-hold")
	wants(t, s.charge("member-1", hold), "201")
	if a := wants(t, s.charge("member-1", hold), "409 hold-over"); a.str("state") != "CONFIRMED" {
		t.Errorf("answer %s", a.body)
	}
	late := s.held("member-1", "A-2")
	s.later(s.cfg.Hold)
	if a := wants(t, s.charge("member-1", late), "409 hold-over"); a.str("state") != "EXPIRED" {
		t.Errorf("answer %s", a.body)
	}
	s.is(late, "EXPIRED -")
	gone := s.held("member-1", "A-3")
	wants(t, s.release("member-1", gone), "200")
	if a := wants(t, s.charge("member-1", gone), "409 hold-over"); a.str("state") != "RELEASED" {
		t.Errorf("answer %s", a.body)
	}
	if n := len(s.provider.charges()); n != 1 {
		t.Errorf("the provider got %d charges, want 1", n)
	}
	s.soundly()
}

func TestAnotherCardAfterADecline(t *testing.T) {
	s := newShop(t, 1)
	hold := s.held("member-1", "A-1")
	s.provider.on("card-member-1", declines)
	wants(t, s.charge("member-1", hold), "402 payment-declined")
	s.provider.on("card-member-1", captures)
	wants(t, s.charge("member-1", hold), "201")
	s.is(hold, "CONFIRMED SOLD DECLINED,CAPTURED")
	s.soundly()
}

func TestChargeGoesOnWhenItsClientLeaves(t *testing.T) {
	s := newShop(t, 1)
	hold := s.held("member-1", "A-1")
	open := s.provider.gate("card-member-1")
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/tickets/holds/"+hold+"/charges", strings.NewReader(`{"card":"card-member-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer member-1")
	gone := make(chan error, 1)
	go func() {
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		gone <- err
	}()
	<-s.provider.at
	leave()
	if err := <-gone; err == nil {
		t.Fatal("the client did not leave")
	}
	open()
	eventually(t, "the seat to be sold", func() (string, bool) { got := s.states(hold); return got, got == "CONFIRMED SOLD CAPTURED" })
	s.soundly()
}

// The callback may be faster than the answer.
func TestAnswerAfterTheCallback(t *testing.T) {
	s := newShop(t, 2)
	for who, c := range map[string]struct{ seat, kind, answer, states string }{
		"member-1": {"A-1", eventCaptured, "201", "CONFIRMED SOLD CAPTURED"},
		"member-2": {"A-2", eventDeclined, "402 payment-declined", "RESERVED HELD DECLINED"},
	} {
		hold := s.held(who, c.seat)
		open := s.provider.gate("card-" + who)
		if c.kind == eventDeclined {
			s.provider.on("card-"+who, declines)
		}
		done := make(chan answer, 1)
		go func() { done <- s.charge(who, hold) }()
		<-s.provider.at
		calls := s.provider.charges()
		sent := calls[len(calls)-1]
		s.told(event("e"+who, c.kind, sent.payment, sent.Reference, hold, 4500), "applied")
		open()
		wants(t, <-done, c.answer)
		s.is(hold, c.states)
	}
	s.soundly()
}

// The hold's time may be over when the provider answers.
func TestAnswerAfterTheHoldRanOut(t *testing.T) {
	t.Parallel()
	for policy, c := range map[string]struct{ answer, states string }{
		policyQuarantine: {"201", "CONFIRMED SOLD CAPTURED"},
		policyRelease:    {"409 payment-refunded", "EXPIRED - REFUNDING PENDING"},
	} {
		t.Run(policy, func(t *testing.T) {
			s := newShop(t, 1, func(c *Config) { c.Policy = policy })
			hold := s.held("member-1", "A-1")
			open := s.provider.gate("card-member-1")
			done := make(chan answer, 1)
			go func() { done <- s.charge("member-1", hold) }()
			<-s.provider.at
			s.later(s.cfg.Hold)
			open()
			wants(t, <-done, c.answer)
			s.is(hold, c.states)
			s.soundly()
		})
	}
}

// What can't be stored is found out later: the client is told so.
func TestOutcomeThatCannotBeStored(t *testing.T) {
	s := newShop(t, 1, func(c *Config) { c.LockTimeout, c.StatementTimeout = 100*time.Millisecond, time.Second })
	hold := s.held("member-1", "A-1")
	open := s.provider.gate("card-member-1")
	done := make(chan answer, 1)
	go func() { done <- s.charge("member-1", hold) }()
	<-s.provider.at
	unlock := s.lock("select from holds for update")
	open()
	if a := wants(t, <-done, "503 outcome-unknown"); a.header.Get("Retry-After") == "" {
		t.Error("outcome-unknown without Retry-After")
	}
	unlock()
	s.is(hold, "RESERVED HELD CHARGING")
	sent := s.provider.charges()[0]
	s.told(event("e1", eventCaptured, sent.payment, sent.Reference, hold, 4500), "applied")
	s.is(hold, "CONFIRMED SOLD CAPTURED")
	s.soundly()
}
