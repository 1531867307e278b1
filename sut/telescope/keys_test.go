package telescope

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCopiesOfOneRequest: twenty at once over two replicas, then one more after
// a restart; one booking, and the same bytes for everybody.
func TestCopiesOfOneRequest(t *testing.T) {
	o := newObservatory(t)
	o.patiently()
	rs := []*replica{o.start(), o.start(func(c *Config) { c.Replica = "sut-2" })}
	answers := burst(20, func(i int) answer { return rs[i%2].book(member(1), "k", 5) })
	if diff := cmp.Diff(map[string]int{"201": 20}, tally(answers)); diff != "" {
		t.Fatal(diff)
	}
	rs[0].end()
	answers = append(answers, o.start().book(member(1), "k", 5))
	originals := 0
	for _, a := range answers {
		if a.body != answers[0].body || a.header.Get("Location") != answers[0].header.Get("Location") || a.header.Get("Location") == "" ||
			a.header.Get("Content-Type") != answers[0].header.Get("Content-Type") {
			t.Errorf("answer %v %s differs from %v %s", a.header, a.body, answers[0].header, answers[0].body)
		}
		if a.header.Get("Idempotency-Replayed") != "true" {
			originals++
		}
	}
	if originals != 1 {
		t.Errorf("%d answers that are no replay, want 1", originals)
	}
	if got := o.history(5); got != "CREATED BOOKED" {
		t.Errorf("history %s", got)
	}
	o.soundly()
}

// TestRefusalsAreReplayed: an operation that was decided stays decided, also
// when the reason has gone.
func TestRefusalsAreReplayed(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	booking := wants(t, r.book(member(1), "k", 5), "201").str("booking_id")
	first := wants(t, r.book(member(2), "k", 5), "409 slot-taken")
	wants(t, r.cancel(member(1), "k", booking), "200")
	again := wants(t, r.book(member(2), "k", 5), "409 slot-taken")
	if again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" || again.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%v %s, want the first answer %s", again.header, again.body, first.body)
	}
	wants(t, r.book(member(2), "new", 5), "201")
	o.soundly()
}

func TestKeyReused(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	wants(t, r.book(member(1), "k", 5), "201")
	before := o.rows()
	wants(t, r.book(member(1), "k", 6), "422 key-reused")
	if after := o.rows(); after != before {
		t.Errorf("rows %s, before %s", after, before)
	}
	path := "/telescope/maintenance-imports"
	spaced := `{"slots": [ {"state":"open", "starts_at":"2026-12-10T08:30:00Z", "slot_id":1} ] }`
	first := wants(t, r.send("POST", path, call{who: "staff-1", key: "k", body: importOf(1, 1, "open")}), "200")
	if a := wants(t, r.send("POST", path, call{who: "staff-1", key: "k", body: spaced}), "200"); a.header.Get("Idempotency-Replayed") == "" || a.body != first.body {
		t.Errorf("white space and order make another request: %s", a.body)
	}
	wants(t, r.send("POST", path, call{who: "staff-1", key: "k", body: importOf(1, 1, "closed")}), "422 key-reused")
	if a := wants(t, r.send("POST", "/telescope/slots/5/reservations", call{who: member(1), key: "k", body: " {} ", contentType: "application/json; charset=utf-8"}), "201"); a.header.Get("Idempotency-Replayed") == "" {
		t.Error("an empty object is another request than no body")
	}
	o.soundly()
}

// TestKeysHaveAScope: the same key of another member, or for another type of
// operation, is another key.
func TestKeysHaveAScope(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	booking := wants(t, r.book(member(1), "k", 5), "201").str("booking_id")
	wants(t, r.book(member(2), "k", 5), "409 slot-taken")
	wants(t, r.book(member(3), "k", 6), "201")
	wants(t, r.cancel(member(1), "k", booking), "200")
	wants(t, r.closeSlot("staff-1", "k", 6), "200")
	wants(t, r.closeSlot("staff-2", "k", 6), "409 already-closed")
	if n := scan[int](o, "select count(*) from booking_operations where key = 'k'"); n != 6 {
		t.Errorf("%d operations, want 6", n)
	}
	o.soundly()
}

func TestRetention(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	first := wants(t, r.book(member(1), "k", 40), "201")
	booking := first.str("booking_id")
	at := func(after time.Duration) { t.Helper(); r.setClock(t, today.Add(after)) }

	at(23 * time.Hour)
	if a := wants(t, r.book(member(1), "k", 40), "201"); a.body != first.body {
		t.Errorf("after 23 hours: %s, want %s", a.body, first.body)
	}
	at(25 * time.Hour)
	before := o.rows()
	wants(t, r.book(member(1), "k", 40), "409 retry-window-over")
	wants(t, r.book(member(1), "k", 39), "422 key-reused")
	wants(t, r.get("/telescope/operations/k", member(1)), "200")
	at(7*24*time.Hour - time.Minute)
	wants(t, r.book(member(1), "k", 40), "409 retry-window-over")
	wants(t, r.get("/telescope/operations/k", member(1)), "200")
	if after := o.rows(); after != before {
		t.Errorf("a retry that is too late left something: rows %s, before %s", after, before)
	}

	at(8 * 24 * time.Hour)
	wants(t, r.get("/telescope/operations/k", member(1)), "404 unknown-operation")
	wants(t, r.cancel(member(1), "c", booking), "200")
	again := wants(t, r.book(member(1), "k", 40), "201")
	if again.str("booking_id") == booking || again.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("the key is not as good as new: %s", again.body)
	}
	wants(t, r.book(member(1), "k", 40), "201")
	if got := o.history(40); got != "CREATED BOOKED CANCELLED BOOKED" {
		t.Errorf("history %s", got)
	}
}

// TestForgottenKeyIsTakenOnce: copies of a request whose key was used more than
// seven days ago make one booking, whether or not the old row was purged.
func TestForgottenKeyIsTakenOnce(t *testing.T) {
	o := newObservatory(t)
	o.patiently()
	r := o.start()
	booking := wants(t, r.book(member(1), "k", 40), "201").str("booking_id")
	wants(t, r.cancel(member(1), "c", booking), "200")
	o.base.Clock.Set(time.Until(today.Add(8 * 24 * time.Hour)))
	if _, err := o.db.Exec(t.Context(), `insert into booking_operations (principal, type, key, fingerprint, status, content_type, body, created_at, completed_at)
values ('member-1', 'book', 'k', 'another', 201, 'application/json', '{}', $1, $1)
on conflict (principal, type, key) do nothing`, today.Add(-time.Hour)); err != nil { // if it was purged already
		t.Fatal(err)
	}
	answers := burst(10, func(int) answer { return r.book(member(1), "k", 40) })
	if diff := cmp.Diff(map[string]int{"201": 10}, tally(answers)); diff != "" {
		t.Error(diff)
	}
	if got := o.history(40); got != "CREATED BOOKED CANCELLED BOOKED" {
		t.Errorf("history %s", got)
	}
}

// TestRetryAfterTheSlotHasBegun: what was decided is told whatever the time.
func TestRetryAfterTheSlotHasBegun(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	r.setClock(t, time.Date(2026, 12, 10, 8, 0, 0, 0, time.UTC))
	wants(t, r.book(member(1), "k", 1), "201")
	r.setClock(t, time.Date(2026, 12, 10, 9, 0, 0, 0, time.UTC))
	if a := wants(t, r.book(member(1), "k", 1), "201"); a.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%v", a.header)
	}
	wants(t, r.book(member(1), "new", 1), "422 slot-past")
	o.soundly()
}

// TestInProgress: the first request hangs on the slot's lock, so its copy is
// told to wait, in time; then both get the same booking.
func TestInProgress(t *testing.T) {
	o := newObservatory(t)
	r := o.start(func(c *Config) { c.LockTimeout = 4 * time.Second })
	quick := o.start(func(c *Config) { c.Replica, c.LockTimeout = "sut-2", 100*time.Millisecond })
	release := o.hold("select 1 from observing_slots where slot_id = 5 for update")
	first := make(chan answer, 1)
	go func() { first <- r.book(member(1), "k", 5) }()
	o.awaitWaiting("sut-1", 1)
	a := wants(t, quick.book(member(1), "k", 5), "409 in-progress")
	if a.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", a.header)
	}
	release()
	b := wants(t, <-first, "201")
	if c := wants(t, quick.book(member(1), "k", 5), "201"); c.body != b.body {
		t.Errorf("%s, want %s", c.body, b.body)
	}
	o.soundly()
}

// TestClientLeaves: what was asked for goes on, and the key finds it.
func TestClientLeaves(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	release := o.hold("select 1 from observing_slots where slot_id = 5 for update")
	req, err := http.NewRequest("POST", r.url+"/telescope/slots/5/reservations", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer member-1")
	req.Header.Set("Idempotency-Key", "k")
	leaving := &http.Client{Transport: &http.Transport{}, Timeout: 300 * time.Millisecond}
	if resp, err := leaving.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Fatal("answered although the slot is locked")
	}
	leaving.CloseIdleConnections()
	release()
	await(t, "the booking", func() (int, bool) {
		n := scan[int](o, "select count(*) from active_reservations")
		return n, n == 1
	})
	if a := wants(t, r.book(member(1), "k", 5), "201"); a.header.Get("Idempotency-Replayed") != "true" || a.str("booking_id") != scan[string](o, "select booking_id::text from active_reservations") {
		t.Errorf("%v %s", a.header, a.body)
	}
	o.soundly()
}

func TestQuota(t *testing.T) {
	o := newObservatory(t)
	o.patiently()
	rs := []*replica{o.start(), o.start(func(c *Config) { c.Replica = "sut-2" })}
	answers := burst(30, func(i int) answer { return rs[i%2].book(member(1), fmt.Sprint("k-", i), i+1) })
	if diff := cmp.Diff(map[string]int{"201": 2, "409 quota-exceeded": 28}, tally(answers)); diff != "" {
		t.Error(diff)
	}
	o.soundly()
}
