package tickets

import (
	"fmt"
	"strings"
	"testing"
)

// A story is what happens to one order whose charge, of reference R, is in
// flight, and what its states are after each step.
type story struct {
	name, policy string
	steps        []step
}

type step struct{ what, want string }

var stories = []story{
	{"captured in time", policyQuarantine, []step{
		{"captured R pay_1 e1: applied", "CONFIRMED SOLD CAPTURED"},
		{"captured R pay_1 e1: duplicate", "CONFIRMED SOLD CAPTURED"},
		{"captured R pay_1 e2: noted", "CONFIRMED SOLD CAPTURED"},
		{"declined R pay_1 e3: noted", "CONFIRMED SOLD CAPTURED"}, // reordered
		{"run out", "CONFIRMED SOLD CAPTURED"},
		{"refunded R pay_1 e4: 409 not-refundable", "CONFIRMED SOLD CAPTURED"},
	}},
	{"declined, another card", policyQuarantine, []step{
		{"declined R pay_1 e1: applied", "RESERVED HELD DECLINED"},
		{"declined R pay_1 e2: noted", "RESERVED HELD DECLINED"},
		{"charge", "CONFIRMED SOLD DECLINED,CAPTURED"},
	}},
	{"declined, captured by another attempt of the provider's own", policyQuarantine, []step{
		{"declined R pay_1 e1: applied", "RESERVED HELD DECLINED"},
		{"captured R pay_9 e2: applied", "CONFIRMED SOLD DECLINED,CAPTURED"},
		{"captured R pay_9 e3: noted", "CONFIRMED SOLD DECLINED,CAPTURED"},
	}},
	{"another attempt's capture comes before the first one's decline", policyQuarantine, []step{
		{"captured R pay_9 e2: applied", "CONFIRMED SOLD CAPTURED"},
		{"declined R pay_1 e1: applied", "CONFIRMED SOLD CAPTURED,DECLINED"},
	}},
	{"two payments captured", policyQuarantine, []step{
		{"captured R pay_1 e1: applied", "CONFIRMED SOLD CAPTURED"},
		{"captured R pay_9 e2: applied", "CONFIRMED SOLD CAPTURED,REFUNDING PENDING"},
		{"captured R pay_9 e3: noted", "CONFIRMED SOLD CAPTURED,REFUNDING PENDING"},
		{"refunded R pay_9 e4: applied", "CONFIRMED SOLD CAPTURED,REFUNDED DONE"},
		{"refunded R pay_9 e5: noted", "CONFIRMED SOLD CAPTURED,REFUNDED DONE"},
		{"captured R pay_9 e6: noted", "CONFIRMED SOLD CAPTURED,REFUNDED DONE"},
	}},
	{"an attempt of the provider's own wins while the charge is in flight", policyQuarantine, []step{
		{"captured X pay_9 e1: applied", "CONFIRMED SOLD CHARGING,CAPTURED"},
		{"captured R pay_1 e2: applied", "CONFIRMED SOLD REFUNDING,CAPTURED PENDING"},
	}},
	{"wrong amount", policyQuarantine, []step{
		{"captured R pay_1 e1 4499: applied", "RESERVED HELD REFUNDING PENDING"},
		{"charge", "CONFIRMED SOLD REFUNDING,CAPTURED PENDING"},
	}},
	{"late capture, quarantined", policyQuarantine, []step{
		{"run out", "RESERVED QUARANTINED CHARGING"},
		{"captured R pay_1 e1: applied", "CONFIRMED SOLD CAPTURED"},
	}},
	{"late decline, quarantined", policyQuarantine, []step{
		{"run out", "RESERVED QUARANTINED CHARGING"},
		{"declined R pay_1 e1: applied", "EXPIRED - DECLINED"},
		{"captured R pay_9 e2: applied", "EXPIRED - DECLINED,REFUNDING PENDING"},
	}},
	{"wrong amount, quarantined", policyQuarantine, []step{
		{"run out", "RESERVED QUARANTINED CHARGING"},
		{"captured R pay_1 e1 4501: applied", "EXPIRED - REFUNDING PENDING"},
	}},
	{"late capture before the tick, quarantine", policyQuarantine, []step{
		{"later", "RESERVED HELD CHARGING"},
		{"captured R pay_1 e1: applied", "CONFIRMED SOLD CAPTURED"},
	}},
	{"late decline before the tick, quarantine", policyQuarantine, []step{
		{"later", "RESERVED HELD CHARGING"},
		{"declined R pay_1 e1: applied", "EXPIRED - DECLINED"},
	}},
	{"late capture before the tick, release", policyRelease, []step{
		{"later", "RESERVED HELD CHARGING"},
		{"captured R pay_1 e1: applied", "EXPIRED - REFUNDING PENDING"},
		{"refunded R pay_1 e2: applied", "EXPIRED - REFUNDED DONE"},
		{"captured R pay_1 e3: noted", "EXPIRED - REFUNDED DONE"},
	}},
	{"late capture, released, sold to another", policyRelease, []step{
		{"run out", "EXPIRED - CHARGING"},
		{"another buys", "EXPIRED - CHARGING"},
		{"captured R pay_1 e1: applied", "EXPIRED - REFUNDING PENDING"},
	}},
	{"nothing keeps a seat whose charge is over, though captured money comes later", policyQuarantine, []step{
		{"declined R pay_1 e1: applied", "RESERVED HELD DECLINED"},
		{"later", "RESERVED HELD DECLINED"},
		{"captured R pay_9 e2: applied", "EXPIRED - DECLINED,REFUNDING PENDING"},
	}},
	{"released with a charge in flight, captured", policyQuarantine, []step{
		{"release", "RELEASED QUARANTINED CHARGING"},
		{"run out", "RELEASED QUARANTINED CHARGING"},
		{"captured R pay_1 e1: applied", "RELEASED - REFUNDING PENDING"},
	}},
	{"released with a charge in flight, declined", policyQuarantine, []step{
		{"release", "RELEASED QUARANTINED CHARGING"},
		{"declined R pay_1 e1: applied", "RELEASED - DECLINED"},
	}},
	{"released in quarantine", policyQuarantine, []step{
		{"run out", "RESERVED QUARANTINED CHARGING"},
		{"release", "RELEASED QUARANTINED CHARGING"},
		{"give up", "RELEASED - REFUND_RESOLVED"},
	}},
	{"hard timeout, captured at last", policyQuarantine, []step{
		{"run out", "RESERVED QUARANTINED CHARGING"},
		{"give up", "EXPIRED - REFUND_RESOLVED"},
		{"another buys", "EXPIRED - REFUND_RESOLVED"},
		{"captured R pay_1 e1: applied", "EXPIRED - REFUND_RESOLVED PENDING"},
		{"captured R pay_1 e1: duplicate", "EXPIRED - REFUND_RESOLVED PENDING"},
		{"captured R pay_1 e2: noted", "EXPIRED - REFUND_RESOLVED PENDING"},
		{"refunded R pay_1 e3: applied", "EXPIRED - REFUND_RESOLVED DONE"},
		{"captured R pay_1 e4: noted", "EXPIRED - REFUND_RESOLVED DONE"},
	}},
	{"hard timeout, declined at last, then captured by another attempt", policyQuarantine, []step{
		{"run out", "RESERVED QUARANTINED CHARGING"},
		{"give up", "EXPIRED - REFUND_RESOLVED"},
		{"declined R pay_1 e1: applied", "EXPIRED - REFUND_RESOLVED"},
		{"declined R pay_1 e2: noted", "EXPIRED - REFUND_RESOLVED"},
		{"captured R pay_9 e3: applied", "EXPIRED - REFUND_RESOLVED,REFUNDING PENDING"},
	}},
	{"a declined payment that is captured after all", policyQuarantine, []step{
		{"declined R pay_1 e1: applied", "RESERVED HELD DECLINED"},
		{"captured R pay_1 e2: applied", "RESERVED HELD DECLINED PENDING"},
		{"captured R pay_1 e3: noted", "RESERVED HELD DECLINED PENDING"},
		{"refunded R pay_1 e4: applied", "RESERVED HELD DECLINED DONE"},
	}},
	{"refund of what is not known, or not captured", policyQuarantine, []step{
		{"refunded R pay_1 e1: 404 unknown-payment", "RESERVED HELD CHARGING"},
		{"declined R pay_1 e2: applied", "RESERVED HELD DECLINED"},
		{"refunded R pay_1 e1: 409 not-refundable", "RESERVED HELD DECLINED"},
	}},
}

func TestStories(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{policyQuarantine, policyRelease} {
		t.Run(policy, func(t *testing.T) {
			s := newShop(t, len(stories), func(c *Config) { c.Policy = policy })
			for n, y := range stories {
				if y.policy == policy {
					s.tells(n, y)
				}
			}
			s.soundly()
		})
	}
}

// A plot is a story that is under way.
type plot struct {
	*shop

	n                          int
	seat, member, hold, charge string
}

// tells a story with a seat and a member of its own.
func (s *shop) tells(n int, y story) {
	s.t.Helper()
	p := plot{shop: s, n: n, seat: fmt.Sprintf("A-%d", n+1), member: member(n)}
	p.hold, p.charge = s.inFlight(p.member, p.seat)
	for _, st := range y.steps {
		p.does(st.what)
		if got := s.states(p.hold); got != st.want {
			s.t.Fatalf("%s: after %q the order is %q, want %q", y.name, st.what, got, st.want)
		}
	}
}

// does one step of a story.
func (p plot) does(what string) {
	p.t.Helper()
	switch what {
	case "later":
		p.later(p.cfg.Hold)
	case "run out":
		p.later(p.cfg.Hold)
		p.runOut(p.hold)
		p.runOut(p.hold) // a second time changes nothing
	case "give up":
		p.giveUp(p.hold)
	case "release":
		wants(p.t, p.release(p.member, p.hold), "200")
	case "charge":
		p.provider.on("card-"+p.member, captures)
		wants(p.t, p.shop.charge(p.member, p.hold), "201")
	case "another buys":
		other := fmt.Sprint("member-other-", p.n)
		wants(p.t, p.shop.charge(other, p.held(other, p.seat)), "201")
	default:
		p.hears(what)
	}
}

// hears has a callback come, as "captured R pay_1 e1 4499: applied".
func (p plot) hears(what string) {
	p.t.Helper()
	said, want, _ := strings.Cut(what, ": ")
	words := append(strings.Fields(said), "4500")
	amount := int64(0)
	if _, err := fmt.Sscan(words[4], &amount); err != nil {
		p.t.Fatal(err)
	}
	reference := p.charge
	if words[1] == "X" {
		reference = "of-its-own"
	}
	own := fmt.Sprintf("-story-%d", p.n)
	body := event(words[3]+own, "payment."+words[0], words[2]+own, reference, p.hold, amount)
	if strings.Contains(want, " ") {
		before := p.rows()
		wants(p.t, p.tell(body), want)
		if after := p.rows(); after != before {
			p.t.Fatalf("%q was refused and changed something:\n%s\n%s", what, before, after)
		}
		return
	}
	p.told(body, want)
}

// A payment that one order has can't pay for another.
func TestPaymentOfAnotherOrder(t *testing.T) {
	s := newShop(t, 2)
	one := s.held("member-1", "A-1")
	wants(t, s.charge("member-1", one), "201") // pay_1
	two, charge := s.inFlight("member-2", "A-2")
	before := s.rows()
	for _, reference := range []string{charge, "of-its-own"} {
		for _, kind := range []string{eventCaptured, eventDeclined} {
			wants(t, s.tell(event("e1", kind, "pay_1", reference, two, 4500)), "404 unknown-payment")
		}
	}
	if after := s.rows(); after != before {
		t.Errorf("refused callbacks changed something:\n%s\n%s", before, after)
	}
	s.is(two, "RESERVED HELD CHARGING")
	s.soundly()
}

func TestTenCopiesOfOneCallbackAtOnce(t *testing.T) {
	s := newShop(t, 3, crowded)
	for n, kind := range []string{eventCaptured, eventDeclined, eventCaptured} {
		who := member(n)
		hold, charge := s.inFlight(who, fmt.Sprintf("A-%d", n+1))
		if n == 2 {
			wants(t, s.release(who, hold), "200")
		}
		body := event(fmt.Sprint("e", n), kind, fmt.Sprint("pay-", n), charge, hold, 4500)
		results := map[string]int{}
		for _, a := range burst(10, func(int) answer { return s.tell(body) }) {
			results[wants(t, a, "200").str("result")]++
		}
		if results["applied"] != 1 || results["duplicate"] != 9 {
			t.Errorf("%s: results %v", kind, results)
		}
	}
	if n := scan[int](s, "select count(*) from refunds"); n != 1 {
		t.Errorf("%d refunds, want 1", n)
	}
	s.soundly()
	s.calmly()
}

// Ten events of their own about one capture: one effect.
func TestTenEventsOfOneCaptureAtOnce(t *testing.T) {
	s := newShop(t, 1, releasing, crowded)
	hold, charge := s.inFlight("member-1", "A-1")
	s.later(s.cfg.Hold)
	results := map[string]int{}
	for _, a := range burst(10, func(i int) answer {
		return s.tell(event(fmt.Sprint("e", i), eventCaptured, "pay_1", charge, hold, 4500))
	}) {
		results[wants(t, a, "200").str("result")]++
	}
	if results["applied"] != 1 || results["noted"] != 9 {
		t.Errorf("results %v", results)
	}
	s.is(hold, "EXPIRED - REFUNDING PENDING")
	s.soundly()
}

// A copy waits for the first one's work, also when that is of no use.
func TestCopyWaitsForTheFirst(t *testing.T) {
	s := newShop(t, 1)
	hold, charge := s.inFlight("member-1", "A-1")
	unlock := s.lock("select from seats for update")
	body := event("e1", eventCaptured, "pay_1", charge, hold, 4500)
	done := make(chan answer, 2)
	for range 2 {
		go func() { done <- s.tell(body) }()
	}
	s.awaitWaiting(2) // one for the seat, one for the hold
	if n := len(done); n != 0 {
		t.Errorf("%d answers before the first one's work was done", n)
	}
	unlock()
	got := map[string]int{(<-done).str("result"): 1}
	got[(<-done).str("result")]++
	if got["applied"] != 1 || got["duplicate"] != 1 {
		t.Errorf("results %v", got)
	}
	s.soundly()
}

// One event id that is used for two orders at once: the second copy is told so.
func TestEventOfTwoOrdersAtOnce(t *testing.T) {
	s := newShop(t, 8, crowded)
	for round := range 4 {
		one, chargeOne := s.inFlight(member(2*round), fmt.Sprintf("A-%d", 2*round+1))
		two, chargeTwo := s.inFlight(member(2*round+1), fmt.Sprintf("A-%d", 2*round+2))
		results := map[string]int{}
		for _, a := range burst(2, func(i int) answer {
			if i == 0 {
				return s.tell(event(fmt.Sprint("e", round), eventCaptured, fmt.Sprint("pay-1", round), chargeOne, one, 4500))
			}
			return s.tell(event(fmt.Sprint("e", round), eventCaptured, fmt.Sprint("pay-2", round), chargeTwo, two, 4500))
		}) {
			results[wants(t, a, "200").str("result")]++
		}
		if results["applied"] != 1 || results["duplicate"] != 1 {
			t.Errorf("results %v", results)
		}
	}
	s.soundly()
}

// Whoever comes first decides, and never both.
func TestCaptureAgainstExpiry(t *testing.T) {
	s := newShop(t, 12, releasing, crowded)
	holds, charges := make([]string, 12), make([]string, 12)
	for n := range holds {
		holds[n], charges[n] = s.inFlight(member(n), fmt.Sprintf("A-%d", n+1))
	}
	s.later(s.cfg.Hold)
	burst(36, func(i int) answer {
		n := i / 3
		switch i % 3 {
		case 0:
			s.runOut(holds[n])
			return answer{}
		case 1:
			return s.best(fmt.Sprint("member-new-", n)) // wants what becomes free
		}
		return s.tell(event(fmt.Sprint("e", n), eventCaptured, fmt.Sprint("pay-", n), charges[n], holds[n], 4500))
	})
	for _, hold := range holds {
		s.is(hold, "EXPIRED - REFUNDING PENDING")
	}
	s.soundly()
	s.calmly()
}

func TestReleaseAgainstCapture(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{policyQuarantine, policyRelease} {
		t.Run(policy, func(t *testing.T) {
			s := newShop(t, 12, func(c *Config) { c.Policy = policy }, crowded)
			holds, charges := make([]string, 12), make([]string, 12)
			for n := range holds {
				holds[n], charges[n] = s.inFlight(member(n), fmt.Sprintf("A-%d", n+1))
			}
			answers := burst(24, func(i int) answer {
				n := i / 2
				if i%2 == 0 {
					return s.release(member(n), holds[n])
				}
				return s.tell(event(fmt.Sprint("e", n), eventCaptured, fmt.Sprint("pay-", n), charges[n], holds[n], 4500))
			})
			for n, hold := range holds {
				want := map[string]string{"200": "RELEASED - REFUNDING PENDING", "409 hold-over": "CONFIRMED SOLD CAPTURED"}[answers[2*n].kind()]
				wants(t, answers[2*n+1], "200")
				if s.states(hold) != want {
					t.Errorf("release was answered %s, the order is %q", answers[2*n].body, s.states(hold))
				}
			}
			s.soundly()
			s.calmly()
		})
	}
}
