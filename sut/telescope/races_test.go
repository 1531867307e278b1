package telescope

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCancelAndRebook(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	for i := range 4 { // more often than the quota would allow at once
		booking := wants(t, r.book(member(1), fmt.Sprint("b", i), 5), "201").str("booking_id")
		wants(t, r.cancel(member(1), fmt.Sprint("c", i), booking), "200")
	}
	wants(t, r.book(member(2), "k", 5), "201")
	if got, want := o.history(5), "CREATED"+strings.Repeat(" BOOKED CANCELLED", 4)+" BOOKED"; got != want {
		t.Errorf("history %s, want %s", got, want)
	}
	o.soundly()
}

func TestCancelledOnce(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	booking := wants(t, r.book(member(1), "k", 5), "201").str("booking_id")
	answers := burst(10, func(i int) answer { return r.cancel(member(1), fmt.Sprint("c", i), booking) })
	if diff := cmp.Diff(map[string]int{"200": 1, "409 already-cancelled": 9}, tally(answers)); diff != "" {
		t.Error(diff)
	}
	o.soundly()
}

// TestCancelVersusBook: whoever books while the slot is given back gets it or
// not, and the rest is as either order would have it.
func TestCancelVersusBook(t *testing.T) {
	o := newObservatory(t)
	o.patiently()
	r := o.start()
	for slot := 1; slot <= 10; slot++ {
		owner := member(1000 + slot)
		booking := wants(t, r.book(owner, "k", slot), "201").str("booking_id")
		answers := burst(5, func(i int) answer {
			if i == 0 {
				return r.cancel(owner, "c", booking)
			}
			return r.book(member(slot*10+i), "k", slot)
		})
		wants(t, answers[0], "200")
		won := tally(answers[1:])["201"]
		if got := tally(answers[1:]); won > 1 || got["201"]+got["409 slot-taken"] != 4 {
			t.Errorf("slot %d: %v", slot, got)
		}
		if got, want := o.history(slot), "CREATED BOOKED CANCELLED"+strings.Repeat(" BOOKED", won); got != want {
			t.Errorf("slot %d: history %s, want %s", slot, got, want)
		}
	}
	o.soundly()
}

// inOrder has requests arrive at the slot's lock one after another, and lets
// them go on together.
func (o *observatory) inOrder(slot int, sends ...func() answer) []answer {
	o.t.Helper()
	release := o.hold("select 1 from observing_slots where slot_id = $1 for update", slot)
	answers := make([]answer, len(sends))
	var done sync.WaitGroup
	for i, send := range sends {
		done.Go(func() { answers[i] = send() })
		o.awaitWaiting("sut-1", i+1)
	}
	release()
	done.Wait()
	return answers
}

func TestBookingVersusClosure(t *testing.T) {
	o := newObservatory(t)
	o.patiently()
	r := o.start()
	book := func(slot int) func() answer {
		return func() answer { return r.book(member(slot), fmt.Sprint("b", slot), slot) }
	}
	closing := func(slot int) func() answer {
		return func() answer { return r.closeSlot("staff-1", fmt.Sprint("c", slot), slot) }
	}
	first := o.inOrder(1, book(1), closing(1))
	wants(t, first[0], "201")
	if wants(t, first[1], "200"); first[1].str("flagged") != first[0].str("booking_id") {
		t.Errorf("booking first: the closure flags %s, the booking is %s", first[1].body, first[0].body)
	}
	if got := o.history(1); got != "CREATED BOOKED CLOSED FLAGGED" {
		t.Errorf("booking first: history %s", got)
	}
	second := o.inOrder(2, closing(2), book(2))
	if wants(t, second[0], "200"); second[0].doc["flagged"] != nil {
		t.Errorf("closure first: it flags %s", second[0].body)
	}
	wants(t, second[1], "409 slot-closed")
	if got := o.history(2); got != "CREATED CLOSED" {
		t.Errorf("closure first: history %s", got)
	}
	for slot := 3; slot <= 22; slot++ {
		answers := burst(2, func(i int) answer { return []func() answer{book(slot), closing(slot)}[i]() })
		wants(t, answers[1], "200")
		want := "CREATED CLOSED"
		if answers[0].kind() == "201" {
			want = "CREATED BOOKED CLOSED FLAGGED"
		} else {
			wants(t, answers[0], "409 slot-closed")
		}
		if got := o.history(slot); got != want {
			t.Errorf("slot %d: history %s, want %s", slot, got, want)
		}
	}
	o.soundly()
}

func TestCancelVersusClosure(t *testing.T) {
	o := newObservatory(t)
	o.patiently()
	r := o.start()
	for slot := 1; slot <= 10; slot++ {
		booking := wants(t, r.book(member(slot), "k", slot), "201").str("booking_id")
		answers := burst(2, func(i int) answer {
			if i == 0 {
				return r.cancel(member(slot), "c", booking)
			}
			return r.closeSlot("staff-1", fmt.Sprint("c", slot), slot)
		})
		wants(t, answers[0], "200")
		wants(t, answers[1], "200")
		want := "CREATED BOOKED CANCELLED CLOSED"
		if answers[1].str("flagged") != "" {
			want = "CREATED BOOKED CLOSED FLAGGED CANCELLED"
		}
		if got := o.history(slot); got != want {
			t.Errorf("slot %d: history %s, want %s", slot, got, want)
		}
	}
	o.soundly()
}

func TestResolution(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	resolve := func(key, booking, verdict string) answer {
		return r.send("POST", "/telescope/staff/flagged/"+booking+"/resolution", call{who: "staff-1", key: key, body: fmt.Sprintf(`{"decision":%q}`, verdict)})
	}
	kept := wants(t, r.book(member(1), "k1", 1), "201").str("booking_id")
	released := wants(t, r.book(member(1), "k2", 2), "201").str("booking_id")
	wants(t, resolve("early", kept, "keep"), "409 not-flagged")
	for slot := 1; slot <= 2; slot++ {
		wants(t, r.closeSlot("staff-1", fmt.Sprint("c", slot), slot), "200")
	}
	wants(t, r.book(member(1), "k3", 3), "409 quota-exceeded") // flagged ones count
	if a := wants(t, resolve("r1", kept, "keep"), "200"); a.body != fmt.Sprintf(`{"booking_id":%q,"slot_id":1,"decision":"keep"}`+"\n", kept) {
		t.Errorf("keep answers %s", a.body)
	}
	wants(t, resolve("r2", released, "release"), "200")
	wants(t, resolve("r3", kept, "release"), "409 not-flagged")
	wants(t, resolve("r4", released, "release"), "409 not-flagged")
	wants(t, r.cancel(member(1), "x", released), "409 already-cancelled")
	wants(t, r.book(member(1), "k4", 3), "201") // the released one does not count
	wants(t, r.reopenSlot("staff-1", "o1", 1), "200")
	if got, want := o.history(1), "CREATED BOOKED CLOSED FLAGGED KEPT REOPENED"; got != want {
		t.Errorf("history %s, want %s", got, want)
	}
	if got, want := o.history(2), "CREATED BOOKED CLOSED FLAGGED CANCELLED"; got != want {
		t.Errorf("history %s, want %s", got, want)
	}
	if got := scan[string](o, "select actor || ' ' || member from audit_history where slot_id = 2 and event = 'CANCELLED'"); got != "staff-1 member-1" {
		t.Errorf("released by, of: %s", got)
	}
	o.soundly()
}

// TestMonthIsTheObservatorys: on the last evening of a month on Hawaii it is
// the next month elsewhere.
func TestMonthIsTheObservatorys(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	slots := `{"slots":[{"slot_id":101,"starts_at":"2027-01-01T09:30:00Z","state":"open"},{"slot_id":102,"starts_at":"2027-01-01T10:00:00Z","state":"open"}]}`
	wants(t, r.send("POST", "/telescope/maintenance-imports", call{who: "staff-1", key: "i", body: slots}), "200")
	wants(t, r.book(member(1), "k1", 1), "201")
	wants(t, r.book(member(1), "k2", 2), "201")
	wants(t, r.book(member(1), "k3", 101), "409 quota-exceeded") // 23:30 of December 31
	wants(t, r.book(member(1), "k4", 102), "201")
	if got := strings.Join(o.lines("select month from active_reservations order by slot_id"), " "); got != "2026-12 2026-12 2027-01" {
		t.Errorf("months %s", got)
	}
	o.soundly()
}

// TestStorm: bookings, cancellations, closures and reopenings of a few slots
// at once leave nothing that their history does not tell.
func TestStorm(t *testing.T) {
	o := newObservatory(t)
	o.patiently()
	rs := []*replica{o.start(), o.start(func(c *Config) { c.Replica = "sut-2" })}
	var mu sync.Mutex
	var bookings []string
	owner := map[string]string{}
	answers := burst(200, func(i int) answer {
		r, slot, key := rs[i%2], i%3+1, fmt.Sprint("k", i)
		switch i % 5 {
		case 0:
			return r.closeSlot("staff-1", key, slot)
		case 1:
			return r.reopenSlot("staff-1", key, slot)
		case 2:
			mu.Lock()
			booking := "00000000-0000-0000-0000-000000000000"
			if len(bookings) > 0 {
				booking = bookings[len(bookings)-1]
			}
			who := owner[booking]
			mu.Unlock()
			if who == "" {
				who = member(i)
			}
			return r.cancel(who, key, booking)
		}
		a := r.book(member(i), key, slot)
		if a.status == 201 {
			mu.Lock()
			defer mu.Unlock()
			bookings = append(bookings, a.str("booking_id"))
			owner[a.str("booking_id")] = member(i)
		}
		return a
	})
	for kind, n := range tally(answers) {
		if !strings.HasPrefix(kind, "20") && !strings.HasPrefix(kind, "409 ") && kind != "404 unknown-booking" {
			t.Errorf("%d answers %s", n, kind)
		}
	}
	o.soundly()
}

func TestImport(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	send := func(key, body string) answer {
		return r.send("POST", "/telescope/maintenance-imports", call{who: "staff-1", key: key, body: body, contentType: "application/json"})
	}
	if a := wants(t, send("i1", importOf(101, 200, "closed")), "200"); a.body != `{"created":200,"closed":0,"reopened":0,"unchanged":0,"flagged":[]}`+"\n" {
		t.Errorf("200 new slots: %s", a.body)
	}
	if got := o.history(300); got != "CREATED CLOSED" {
		t.Errorf("history %s", got)
	}
	b1 := wants(t, r.book(member(1), "k1", 40), "201").str("booking_id")
	b2 := wants(t, r.book(member(2), "k2", 39), "201").str("booking_id")
	mixed := `{"slots":[` + strings.Join([]string{entryJSON(101, "open"), entryJSON(40, "closed"), entryJSON(39, "closed"), entryJSON(38, "closed"), entryJSON(37, "open"), entryJSON(50, "open"), entryJSON(102, "closed")}, ",") + `]}`
	if a, want := wants(t, send("i2", mixed), "200"), fmt.Sprintf(`{"created":1,"closed":3,"reopened":1,"unchanged":2,"flagged":[%q,%q]}`+"\n", b2, b1); a.body != want {
		t.Errorf("mixed import: %s, want %s", a.body, want)
	}
	if a := wants(t, send("i2", mixed), "200"); a.header.Get("Idempotency-Replayed") != "true" {
		t.Error("done twice")
	}
	before := o.lines("select slot_id || ' ' || version from observing_slots order by slot_id")
	moved := `{"slots":[` + entryJSON(60, "open") + `,{"slot_id":1,"starts_at":"2026-12-10T08:00:00Z","state":"closed"}]}`
	if a := wants(t, send("i3", moved), "409 slot-moved"); a.doc["slot_id"] != 1.0 {
		t.Errorf("moved: %s", a.body)
	}
	if diff := cmp.Diff(before, o.lines("select slot_id || ' ' || version from observing_slots order by slot_id")); diff != "" {
		t.Errorf("a refused import changed slots: %s", diff)
	}
	if got := strings.Join(o.lines("select state from observing_slots where slot_id in (37, 38, 39, 40, 50, 101, 102) order by slot_id"), " "); got != "open closed closed closed open open closed" {
		t.Errorf("states %s", got)
	}
	o.soundly()
}

// TestImportsInOppositeOrders: they name the same slots, old and new, forwards
// and backwards, while members book; nobody sees a 5xx.
func TestImportsInOppositeOrders(t *testing.T) {
	o := newObservatory(t)
	o.patiently()
	r := o.start()
	var forwards, backwards []string
	for slot := 21; slot <= 60; slot++ { // half of them are new
		forwards = append(forwards, entryJSON(slot, "closed"))
		backwards = append([]string{entryJSON(slot, "open")}, backwards...)
	}
	answers := burst(24, func(i int) answer {
		key, lines := fmt.Sprint("i", i), forwards
		switch i % 3 {
		case 2:
			return r.book(member(i), key, 21+i)
		case 1:
			lines = backwards
		}
		return r.send("POST", "/telescope/maintenance-imports", call{who: "staff-1", key: key, body: `{"slots":[` + strings.Join(lines, ",") + `]}`})
	})
	for kind, n := range tally(answers) {
		if kind != "200" && kind != "201" && kind != "409 slot-closed" && kind != "404 unknown-slot" {
			t.Errorf("%d answers %s", n, kind)
		}
	}
	if n := scan[int](o, "select count(*) from observing_slots"); n != 60 {
		t.Errorf("%d slots, want 60", n)
	}
	if n := r.meters.retries.Get(); n != 0 {
		t.Errorf("%d transactions were run again: the lock order does not hold", n)
	}
	o.soundly()
}

// TestImportsMakeTheSameSlotElsewhere: of two that make one slot at different
// times, one comes second and is refused.
func TestImportsMakeTheSameSlotElsewhere(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	other := o.session(`insert into observing_slots (slot_id, starts_at, state, version, updated_at) values (70, '2026-12-30T00:00:00Z', 'open', 1, '2026-12-01T12:00:00Z')`)
	sent := make(chan answer, 1)
	go func() {
		sent <- r.send("POST", "/telescope/maintenance-imports", call{who: "staff-1", key: "i", body: importOf(70, 2, "open")})
	}()
	o.awaitWaiting("sut-1", 1)
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(t, <-sent, "409 slot-moved")
	if n := r.meters.retries.Get(); n != 1 {
		t.Errorf("run again %d times, want once", n)
	}
	if n := scan[int](o, "select count(*) from observing_slots where slot_id in (70, 71)"); n != 1 {
		t.Errorf("%d slots, want the other's alone", n)
	}
}
