package tickets

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

func member(n int) string { return fmt.Sprintf("member-%d", n) }

func TestClaimIsRefusedInOrder(t *testing.T) {
	s := newShop(t, 2)
	s.show(2, 3, "")
	mine := s.held("member-1", "A-1")
	s.held("member-2", "A-2")
	hold3 := func(who, body string) answer {
		return s.send("POST", "/tickets/shows/3/holds", call{who: who, body: body})
	}
	soon := s.clock.Now().Add(90*time.Second + time.Millisecond)
	wants(t, s.send("POST", "/tickets/shows", call{who: "staff-1", body: fmt.Sprintf(
		`{"show_id":3,"on_sale_at":%q,"price":1,"currency":"USD","seats":["A-1"]}`, stamp(soon))}), "201")
	before := s.rows()

	wants(t, s.send("POST", "/tickets/shows/9/holds", call{who: "member-3", body: `{"seat":"A-1"}`}), "404 unknown-show")
	wants(t, s.send("POST", "/tickets/shows/01/holds", call{who: "member-3", body: `{"seat":"A-1"}`}), "404 unknown-show")
	wants(t, s.claim("member-3", "A-3"), "404 unknown-seat") // show 2 has one of that name
	wants(t, hold3("member-1", `{"seat":"A-2"}`), "404 unknown-seat")
	for _, body := range []string{`{"seat":"A-1"}`, `{"best_available":true}`} {
		early := wants(t, hold3("member-1", body), "409 not-on-sale") // though member-1 has a checkout
		if after, err := strconv.Atoi(early.header.Get("Retry-After")); err != nil || after < 60 || after > 91 {
			t.Errorf("Retry-After %q, want whole seconds until the sale begins", early.header.Get("Retry-After"))
		}
	}
	for _, a := range []answer{s.claim("member-1", "A-2"), s.claim("member-1", "A-1"), s.best("member-1")} { // though they are taken
		if wants(t, a, "409 checkout-active"); a.str("hold_id") != mine || a.str("seat") != "A-1" {
			t.Errorf("checkout-active says %s, want hold %s", a.body, mine)
		}
	}
	wants(t, s.claim("member-3", "A-1"), "409 seat-taken")
	wants(t, s.best("member-3"), "409 sold-out")
	if after := s.rows(); after != before {
		t.Errorf("refused calls changed something:\n%s\n%s", before, after)
	}
	s.later(91 * time.Second)
	wants(t, hold3("member-3", `{"best_available":true}`), "201")
	s.soundly()
}

func TestOneCheckoutWhateverTheShow(t *testing.T) {
	s := newShop(t, 1)
	s.show(2, 1, "")
	hold := s.held("member-1", "A-1")
	a := s.send("POST", "/tickets/shows/2/holds", call{who: "member-1", body: `{"best_available":true}`})
	if wants(t, a, "409 checkout-active"); a.str("hold_id") != hold {
		t.Errorf("checkout-active says %s, want hold %s", a.body, hold)
	}
	wants(t, s.release("member-1", hold), "200")
	wants(t, s.send("POST", "/tickets/shows/2/holds", call{who: "member-1", body: `{"best_available":true}`}), "201")
	s.soundly()
}

func TestHundredOnOneSeat(t *testing.T) {
	s := newShop(t, 1, crowded)
	got := tally(burst(100, func(i int) answer { return s.claim(member(i), "A-1") }))
	if got["201"] != 1 || got["409 seat-taken"] != 99 {
		t.Errorf("answers %v", got)
	}
	s.soundly()
	s.calmly()
}

// calmly checks that nothing deadlocked, and that no transaction ran again.
func (s *shop) calmly() {
	s.t.Helper()
	if n := s.service.meters.retries.Get(); n != 0 {
		s.t.Errorf("%d transactions ran again", n)
	}
	if n := scan[int](s, sqlDeadlocks); n != s.deadlocks {
		s.t.Errorf("%d deadlocks", n-s.deadlocks)
	}
}

func TestBestAvailable(t *testing.T) {
	s := newShop(t, 80, crowded)
	answers := burst(300, func(i int) answer { return s.best(member(i)) })
	if got := tally(answers); got["201"] != 80 || got["409 sold-out"] != 220 {
		t.Errorf("answers %v", got)
	}
	var seats []string
	for _, a := range answers {
		if a.status == 201 {
			seats = append(seats, a.str("seat"))
		}
	}
	if slices.Sort(seats); len(slices.Compact(seats)) != 80 {
		t.Errorf("seats %v, want each once", seats)
	}
	s.soundly()
	s.calmly()
}

func TestBestIsTheBest(t *testing.T) {
	s := newShop(t, 12)
	first := wants(t, s.best("member-1"), "201")
	for n, want := range []string{"A-2", "A-3", "A-4"} {
		if got := wants(t, s.best(member(n+2)), "201").str("seat"); got != want {
			t.Errorf("best is %s, want %s", got, want)
		}
	}
	wants(t, s.release("member-1", first.str("hold_id")), "200")
	if got := wants(t, s.best("member-9"), "201").str("seat"); got != "A-1" {
		t.Errorf("best is %s, want A-1, which came back", got)
	}
}

// A seat that another claim is at may yet come back, so that it isn't sold out.
func TestSoldOutIsNotSaidTooEarly(t *testing.T) {
	s := newShop(t, 2)
	giveBack := s.lock("select from seats for update") // two claims that will fail
	done := make(chan answer, 2)
	for n := range 2 {
		go func() { done <- s.best(member(n)) }()
	}
	s.awaitWaiting(2)
	giveBack()
	for range 2 {
		wants(t, <-done, "201")
	}
	wants(t, s.best("member-9"), "409 sold-out")
	s.soundly()
	s.calmly()
}

func TestSoldOutWhenTheClaimsThatWereWaitedForSucceed(t *testing.T) {
	s := newShop(t, 1)
	commit := s.lockOnly("select from seats for update")
	done := make(chan answer, 2)
	go func() { done <- s.best("member-1") }()
	go func() { done <- s.claim("member-2", "A-1") }()
	s.awaitWaiting(2)
	commit(`with h as (insert into holds (hold_id, show_id, seat, login, state, amount, currency, policy, created_at, expires_at)
		values (gen_random_uuid(), 1, 'A-1', 'member-3', 'RESERVED', 1, 'EUR', 'release', now(), now() + '1 hour') returning hold_id)
		update seats set state = 'HELD', hold_id = (select hold_id from h)`)
	got := []string{(<-done).kind(), (<-done).kind()}
	slices.Sort(got)
	if !slices.Equal(got, []string{"409 seat-taken", "409 sold-out"}) {
		t.Errorf("answers %v", got)
	}
}

func TestClaimGivesUpWaitingInTime(t *testing.T) {
	s := newShop(t, 1, func(c *Config) { c.LockTimeout, c.StatementTimeout = 100*time.Millisecond, time.Second })
	s.lock("select from seats for update")
	for _, a := range burst(2, func(i int) answer {
		if i == 0 {
			return s.best("member-1")
		}
		return s.claim("member-2", "A-1")
	}) {
		if wants(t, a, "503 busy"); a.header.Get("Retry-After") == "" {
			t.Error("busy without Retry-After")
		}
	}
}

// Who can't win waits for nobody: refusals read and lock nothing.
func TestLosersWaitForNobody(t *testing.T) {
	s := newShop(t, 1, func(c *Config) { c.LockTimeout, c.StatementTimeout = 100*time.Millisecond, time.Second })
	s.held("member-1", "A-1")
	s.lock("select from seats, holds, shows for update")
	wants(t, s.claim("member-2", "A-1"), "409 seat-taken")
	wants(t, s.best("member-2"), "409 sold-out")
	wants(t, s.best("member-1"), "409 checkout-active")
}

func TestTwoTabs(t *testing.T) {
	s := newShop(t, 200, crowded)
	for round := range 10 {
		who, free := member(round), scan[string](s, "select seat from seats where state = 'FREE' order by rank limit 1") // which is the best, too
		answers := burst(8, func(i int) answer {
			switch i % 4 {
			case 0:
				return s.claim(who, free)
			case 1:
				return s.claim(who, fmt.Sprintf("A-%d", 100+8*round+i))
			}
			return s.best(who)
		})
		got := tally(answers)
		if got["201"] != 1 || got["409 checkout-active"] != 7 {
			t.Fatalf("round %d: answers %v", round, got)
		}
		holds := map[string]int{}
		for _, a := range answers {
			holds[a.str("hold_id")]++
		}
		if len(holds) != 1 {
			t.Fatalf("round %d: holds %v, want all answers to name the one", round, holds)
		}
		for hold := range holds {
			wants(t, s.charge(who, hold), "201") // the seat is gone for the next round
		}
	}
	s.soundly()
	s.calmly()
}

func TestClaimEndsTheOwnHoldThatHasRunOut(t *testing.T) {
	s := newShop(t, 2, crowded)
	first := s.held("member-1", "A-1")
	s.later(s.cfg.Hold)
	second := s.held("member-1", "A-1") // the same seat: it was freed before
	s.is(first, "EXPIRED -")
	s.is(second, "RESERVED HELD")
	s.later(s.cfg.Hold - time.Second)
	wants(t, s.claim("member-1", "A-2"), "409 checkout-active")
	s.later(time.Second)
	got := tally(burst(6, func(i int) answer { return s.claim("member-1", fmt.Sprintf("A-%d", i%2+1)) }))
	if got["201"] != 1 || got["409 checkout-active"] != 5 {
		t.Errorf("answers %v", got)
	}
	if op := scan[string](s, "select string_agg(distinct actor || overbook_op, ',') from ticket_audit where to_state = 'EXPIRED'"); op != "server" {
		t.Errorf("the ends of holds that ran out are written down as of %q, want the server alone", op)
	}
	s.soundly()
	s.calmly()
}

func TestClaimBesideAnOwnPaymentThatKeepsTheSeat(t *testing.T) {
	s := newShop(t, 2)
	hold, _ := s.inFlight("member-1", "A-1")
	s.later(s.cfg.Hold)
	if a := wants(t, s.claim("member-1", "A-2"), "409 checkout-active"); a.str("hold_id") != hold {
		t.Errorf("checkout-active says %s, want hold %s", a.body, hold)
	}
	s.is(hold, "RESERVED HELD CHARGING")
}

func TestClaimBesideAnOwnPaymentUnderRelease(t *testing.T) {
	s := newShop(t, 2, releasing)
	hold, charge := s.inFlight("member-1", "A-1")
	s.later(s.cfg.Hold)
	other := s.held("member-1", "A-1")
	s.is(hold, "EXPIRED - CHARGING")
	s.told(event("e1", eventCaptured, "pay_1", charge, hold, 4500), "applied")
	s.is(hold, "EXPIRED - REFUNDING PENDING")
	s.is(other, "RESERVED HELD")
	s.soundly()
}

func TestReleases(t *testing.T) {
	s := newShop(t, 2)
	hold := s.held("member-1", "A-1")
	before := s.rows()
	wants(t, s.release("member-2", hold), "404 unknown-hold")
	wants(t, s.release("member-1", "nothing"), "404 unknown-hold")
	wants(t, s.release("member-1", "00000000-0000-0000-0000-000000000001"), "404 unknown-hold")
	if after := s.rows(); after != before {
		t.Errorf("refused calls changed something:\n%s\n%s", before, after)
	}
	a := wants(t, s.release("member-1", hold), "200")
	if a.str("state") != "RELEASED" || a.str("seat") != "A-1" || a.str("seat_state") != "FREE" {
		t.Errorf("release says %s", a.body)
	}
	if a := wants(t, s.release("member-1", hold), "409 hold-over"); a.str("state") != "RELEASED" {
		t.Errorf("second release says %s", a.body)
	}
	other := s.held("member-2", "A-1") // another's now: the first one's end must not touch it
	wants(t, s.release("member-1", hold), "409 hold-over")
	s.later(s.cfg.Hold)
	if a := wants(t, s.release("member-2", other), "409 hold-over"); a.str("state") != "EXPIRED" {
		t.Errorf("release after it ran out says %s", a.body)
	}
	s.is(other, "EXPIRED -")
	s.soundly()
}

func TestReleaseWithAPaymentInFlight(t *testing.T) {
	s := newShop(t, 2)
	hold, charge := s.inFlight("member-1", "A-1")
	if a := wants(t, s.release("member-1", hold), "200"); a.str("seat_state") != "QUARANTINED" {
		t.Errorf("release says %s", a.body)
	}
	wants(t, s.claim("member-2", "A-1"), "409 seat-taken")
	grabbed := s.held("member-1", "A-2") // drop and grab
	s.told(event("e1", eventCaptured, "pay_1", charge, hold, 4500), "applied")
	s.is(hold, "RELEASED - REFUNDING PENDING")
	s.is(grabbed, "RESERVED HELD")
	s.held("member-2", "A-1")
	s.soundly()
}

func TestReleaseWithAPaymentInFlightUnderRelease(t *testing.T) {
	s := newShop(t, 1, releasing)
	hold, charge := s.inFlight("member-1", "A-1")
	if a := wants(t, s.release("member-1", hold), "200"); a.str("seat_state") != "FREE" {
		t.Errorf("release says %s", a.body)
	}
	other := s.held("member-2", "A-1")
	s.told(event("e1", eventCaptured, "pay_1", charge, hold, 4500), "applied")
	s.is(hold, "RELEASED - REFUNDING PENDING")
	s.is(other, "RESERVED HELD")
	s.soundly()
}
