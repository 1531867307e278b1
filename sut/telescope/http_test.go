package telescope

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// TestCalls goes through the table of the contract, line by line.
func TestCalls(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	booked := wants(t, r.book(member(1), "b1", 3), "201")
	booking := booked.str("booking_id")
	if want := fmt.Sprintf(`{"booking_id":%q,"slot_id":3,"member":"member-1","starts_at":"2026-12-10T09:30:00Z","state":"active"}`+"\n", booking); booked.body != want {
		t.Errorf("booking answers %s, want %s", booked.body, want)
	}
	if booked.header.Get("Location") != "/telescope/reservations/"+booking || booked.header.Get("Content-Type") != "application/json" {
		t.Errorf("header %v", booked.header)
	}
	wants(t, r.book(member(2), "b2", 3), "409 slot-taken")

	closed := wants(t, r.closeSlot("staff-1", "c1", 3), "200")
	if want := fmt.Sprintf(`{"slot_id":3,"state":"closed","flagged":%q}`+"\n", booking); closed.body != want {
		t.Errorf("closure answers %s, want %s", closed.body, want)
	}
	wants(t, r.closeSlot("staff-1", "c2", 3), "409 already-closed")
	if a := wants(t, r.closeSlot("staff-1", "c3", 4), "200"); a.body != `{"slot_id":4,"state":"closed","flagged":null}`+"\n" {
		t.Errorf("closure of a free slot answers %s", a.body)
	}
	wants(t, r.book(member(2), "b3", 4), "409 slot-closed")
	wants(t, r.book(member(2), "b4", 3), "409 slot-closed")

	flagged := wants(t, r.get("/telescope/staff/flagged", "staff-1"), "200")
	line := flagged.doc["flagged"].([]any)[0].(map[string]any)
	if line["booking_id"] != booking || line["slot_id"] != 3.0 || line["member"] != "member-1" || line["flag_state"] != "open" || line["starts_at"] != "2026-12-10T09:30:00Z" || line["flagged_at"] == "" {
		t.Errorf("flagged: %s", flagged.body)
	}
	account := wants(t, r.get("/telescope/account/reservations", member(1)), "200")
	if !strings.Contains(account.body, fmt.Sprintf(`{"reservations":[{"booking_id":%q,"slot_id":3,"starts_at":"2026-12-10T09:30:00Z","month":"2026-12","state":"flagged"}],"history":[{"event":"BOOKED","slot_id":3,"booking_id":%q,"at":"2026-12-01T12:`, booking, booking)) ||
		!strings.Contains(account.body, `"event":"FLAGGED"`) {
		t.Errorf("account: %s", account.body)
	}
	if a := wants(t, r.get("/telescope/account/reservations", member(9)), "200"); a.body != `{"reservations":[],"history":[]}`+"\n" {
		t.Errorf("account of nobody: %s", a.body)
	}
	if a := wants(t, r.reopenSlot("staff-1", "r1", 3), "200"); a.body != `{"slot_id":3,"state":"open"}`+"\n" {
		t.Errorf("reopening answers %s", a.body)
	}
	wants(t, r.reopenSlot("staff-1", "r2", 3), "409 already-open")
	if a := r.get("/telescope/staff/flagged", "staff-1"); a.body != `{"flagged":[]}`+"\n" {
		t.Errorf("flagged after the reopening: %s", a.body)
	}
	cancelled := wants(t, r.cancel(member(1), "x1", booking), "200")
	if want := fmt.Sprintf(`{"booking_id":%q,"slot_id":3,"state":"cancelled"}`+"\n", booking); cancelled.body != want {
		t.Errorf("cancellation answers %s, want %s", cancelled.body, want)
	}
	wants(t, r.cancel(member(1), "x2", booking), "409 already-cancelled")
	if got, want := o.history(3), "CREATED BOOKED CLOSED FLAGGED REOPENED CANCELLED"; got != want {
		t.Errorf("history %s, want %s", got, want)
	}
	o.soundly()
}

// TestSlotIsToldToEachAsTheyMay: the booking's id is for its member and staff.
func TestSlotIsToldToEachAsTheyMay(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	booking := wants(t, r.book(member(1), "b1", 3), "201").str("booking_id")
	tests := map[string]string{
		member(1): fmt.Sprintf(`{"slot_id":3,"starts_at":"2026-12-10T09:30:00Z","state":"open","reserved":true,"mine":true,"booking_id":%q}`, booking),
		member(2): `{"slot_id":3,"starts_at":"2026-12-10T09:30:00Z","state":"open","reserved":true,"mine":false,"booking_id":null}`,
		"staff-1": fmt.Sprintf(`{"slot_id":3,"starts_at":"2026-12-10T09:30:00Z","state":"open","reserved":true,"mine":false,"booking_id":%q}`, booking),
	}
	for who, want := range tests {
		if a := r.get("/telescope/slots/3", who); a.status != http.StatusOK || a.body != want+"\n" {
			t.Errorf("%s is told %d %s, want %s", who, a.status, a.body, want)
		}
	}
	if a := r.get("/telescope/slots/4", member(1)); a.body != `{"slot_id":4,"starts_at":"2026-12-10T10:00:00Z","state":"open","reserved":false,"mine":false,"booking_id":null}`+"\n" {
		t.Errorf("a free slot: %s", a.body)
	}
	day := await(t, "the day's schedule with the booking", func() (answer, bool) {
		a := r.get("/telescope/days/2026-12-09/slots", member(2)) // 09:30 of the 10th in UTC is the evening before on Hawaii
		return a, strings.Contains(a.body, `"taken"`)
	})
	if strings.Contains(day.body, "member-1") || strings.Contains(day.body, booking) {
		t.Errorf("the public schedule tells names: %s", day.body)
	}
}

// TestRefusals: bad input gets the right answer, leaves nothing, and tells
// nothing of the inside.
func TestRefusals(t *testing.T) { //nolint:tparallel // each compares the rows before and after
	o := newObservatory(t)
	r := o.start()
	mine := wants(t, r.book(member(1), "mine", 1), "201").str("booking_id")
	slot, unknown := "/telescope/slots/3/", uuid.NewString()
	entries := func(s string) string { return `{"slots":[` + s + `]}` }
	const imports = "/telescope/maintenance-imports"
	tests := []struct {
		name, method, path string
		call               call
		want               string
	}{
		{"nobody", "POST", slot + "reservations", call{key: "k"}, "401 unauthorized"},
		{"a student", "POST", slot + "reservations", call{who: "student-1", key: "k"}, "401 unauthorized"},
		{"no name", "POST", slot + "reservations", call{who: "member-", key: "k"}, "401 unauthorized"},
		{"identity before lookup", "POST", "/telescope/slots/99/reservations", call{key: "k"}, "401 unauthorized"},
		{"identity before the key", "POST", slot + "reservations", call{}, "401 unauthorized"},
		{"expired token", "POST", slot + "reservations", call{who: fmt.Sprint("member-1.", today.Add(-time.Second).Unix()), key: "k"}, "401 token-expired"},
		{"expired token, on a read", "GET", "/telescope/account/reservations", call{who: fmt.Sprint("member-1.", today.Unix())}, "401 token-expired"},
		{"staff books", "POST", slot + "reservations", call{who: "staff-1", key: "k"}, "403 forbidden"},
		{"staff cancels", "DELETE", "/telescope/reservations/" + mine, call{who: "staff-1", key: "k"}, "403 forbidden"},
		{"staff's account", "GET", "/telescope/account/reservations", call{who: "staff-1"}, "403 forbidden"},
		{"member closes", "POST", slot + "closure", call{who: "member-1", key: "k"}, "403 forbidden"},
		{"member reopens", "POST", slot + "reopening", call{who: "member-1", key: "k"}, "403 forbidden"},
		{"member imports", "POST", imports, call{who: "member-1", key: "k", body: entries("")}, "403 forbidden"},
		{"member sees the flagged", "GET", "/telescope/staff/flagged", call{who: "member-1"}, "403 forbidden"},
		{"member resolves", "POST", "/telescope/staff/flagged/" + mine + "/resolution", call{who: "member-1", key: "k", body: `{"decision":"keep"}`}, "403 forbidden"},
		{"no key", "POST", slot + "reservations", call{who: "member-1"}, "400 key-missing"},
		{"no key to cancel", "DELETE", "/telescope/reservations/" + mine, call{who: "member-1"}, "400 key-missing"},
		{"two keys", "POST", slot + "reservations", call{who: "member-1", keys: []string{"a", "b"}}, "400 key-invalid"},
		{"the same key twice", "POST", slot + "reservations", call{who: "member-1", keys: []string{"a", "a"}}, "400 key-invalid"},
		{"empty key", "POST", slot + "reservations", call{who: "member-1", keys: []string{""}}, "400 key-invalid"},
		{"key too long", "POST", slot + "reservations", call{who: "member-1", key: strings.Repeat("k", 129)}, "400 key-invalid"},
		{"key with a space", "POST", slot + "reservations", call{who: "member-1", key: "a b"}, "400 key-invalid"},
		{"key with an umlaut", "POST", slot + "reservations", call{who: "member-1", key: "ä"}, "400 key-invalid"},
		{"unknown slot", "POST", "/telescope/slots/999/reservations", call{who: "member-1", key: "k"}, "404 unknown-slot"},
		{"no slot at all", "POST", "/telescope/slots/abc/reservations", call{who: "member-1", key: "k"}, "404 unknown-slot"},
		{"slot in other words", "POST", "/telescope/slots/+3/reservations", call{who: "member-1", key: "k"}, "404 unknown-slot"},
		{"slot beyond all numbers", "POST", "/telescope/slots/92233720368547758070/reservations", call{who: "member-1", key: "k"}, "404 unknown-slot"},
		{"close an unknown slot", "POST", "/telescope/slots/999/closure", call{who: "staff-1", key: "k"}, "404 unknown-slot"},
		{"reopen an unknown slot", "POST", "/telescope/slots/999/reopening", call{who: "staff-1", key: "k"}, "404 unknown-slot"},
		{"see an unknown slot", "GET", "/telescope/slots/999", call{who: "member-1"}, "404 unknown-slot"},
		{"somebody else's booking", "DELETE", "/telescope/reservations/" + mine, call{who: "member-2", key: "k"}, "404 unknown-booking"},
		{"unknown booking", "DELETE", "/telescope/reservations/" + unknown, call{who: "member-1", key: "k"}, "404 unknown-booking"},
		{"no booking at all", "DELETE", "/telescope/reservations/abc", call{who: "member-1", key: "k"}, "404 unknown-booking"},
		{"resolve an unknown booking", "POST", "/telescope/staff/flagged/" + unknown + "/resolution", call{who: "staff-1", key: "k", body: `{"decision":"keep"}`}, "404 unknown-booking"},
		{"wrong content type", "POST", slot + "reservations", call{who: "member-1", key: "k", body: "{}", contentType: "text/plain"}, "415 unsupported-media-type"},
		{"form", "POST", imports, call{who: "staff-1", key: "k", body: "slots=1", contentType: "application/x-www-form-urlencoded"}, "415 unsupported-media-type"},
		{"malformed JSON", "POST", slot + "reservations", call{who: "member-1", key: "k", body: `{"a"`, contentType: "application/json"}, "400 bad-request"},
		{"something behind the JSON", "POST", slot + "reservations", call{who: "member-1", key: "k", body: `{}{}`}, "400 bad-request"},
		{"no object", "POST", slot + "reservations", call{who: "member-1", key: "k", body: `null`}, "400 bad-request"},
		{"unknown member of the body", "POST", slot + "reservations", call{who: "member-1", key: "k", body: `{"member":"member-2"}`}, "400 bad-request"},
		{"a body of 1 MB", "POST", imports, call{who: "staff-1", key: "k", body: `{"slots":[` + strings.Repeat(" ", 1<<20) + `]}`, contentType: "application/json"}, "413 too-large"},
		{"import of nothing", "POST", imports, call{who: "staff-1", key: "k", body: entries("")}, "400 bad-request"},
		{"import without slots", "POST", imports, call{who: "staff-1", key: "k"}, "400 bad-request"},
		{"import of a slot twice", "POST", imports, call{who: "staff-1", key: "k", body: entries(entryJSON(90, "open") + "," + entryJSON(90, "closed"))}, "400 bad-request"},
		{"import of too many", "POST", imports, call{who: "staff-1", key: "k", body: importOf(100, 501, "open")}, "400 bad-request"},
		{"import of slot 0", "POST", imports, call{who: "staff-1", key: "k", body: entries(entryJSON(0, "open"))}, "400 bad-request"},
		{"import off the half hour", "POST", imports, call{who: "staff-1", key: "k", body: entries(`{"slot_id":90,"starts_at":"2026-12-24T08:10:00Z","state":"open"}`)}, "400 bad-request"},
		{"import of no date", "POST", imports, call{who: "staff-1", key: "k", body: entries(`{"slot_id":90,"starts_at":"tomorrow","state":"open"}`)}, "400 bad-request"},
		{"import of another state", "POST", imports, call{who: "staff-1", key: "k", body: entries(entryJSON(90, "broken"))}, "400 bad-request"},
		{"resolution that is none", "POST", "/telescope/staff/flagged/" + mine + "/resolution", call{who: "staff-1", key: "k", body: `{"decision":"perhaps"}`}, "400 bad-request"},
		{"operation of no type", "GET", "/telescope/operations/mine?type=steal", call{who: "member-1"}, "400 bad-request"},
		{"somebody else's operation", "GET", "/telescope/operations/mine", call{who: "member-2"}, "404 unknown-operation"},
		{"operation of another type", "GET", "/telescope/operations/mine?type=cancel", call{who: "member-1"}, "404 unknown-operation"},
		{"no day", "GET", "/telescope/days/yesterday/slots", call{who: "member-1"}, "400 bad-request"},
		{"wrong method", "PUT", slot + "reservations", call{who: "member-1"}, "405 method-not-allowed"},
		{"nowhere", "GET", "/telescope/nowhere", call{who: "member-1"}, "404 not-found"},
		{"clock without offset", "POST", "/testing/clock", call{body: `{}`}, "400 bad-request"},
	}
	before := o.rows()
	inside := regexp.MustCompile(`goroutine|\.go:|SQLSTATE|panic|select |insert `)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := r.send(tt.method, tt.path, tt.call)
			wants(t, a, tt.want)
			if a.header.Get("Content-Type") != "application/problem+json" || a.doc["status"] != float64(a.status) || a.str("title") == "" || a.str("detail") == "" {
				t.Errorf("no problem document: %v %s", a.header, a.body)
			}
			if inside.MatchString(a.body) {
				t.Errorf("tells of the inside: %s", a.body)
			}
			if after := o.rows(); after != before {
				t.Errorf("left something behind: rows %s, before %s", after, before)
				before = after
			}
		})
	}
}

// entryJSON is one entry of an import, of a slot from 1 on.
func entryJSON(slot int, state string) string {
	starts := time.Date(2026, 12, 10, 8, 0, 0, 0, time.UTC).Add(time.Duration(slot) * 30 * time.Minute)
	return fmt.Sprintf(`{"slot_id":%d,"starts_at":%q,"state":%q}`, slot, starts.Format(time.RFC3339), state)
}

// importOf is an import of n slots from the first on.
func importOf(first, n int, state string) string {
	lines := make([]string, n)
	for i := range n {
		lines[i] = entryJSON(first+i, state)
	}
	return `{"slots":[` + strings.Join(lines, ",") + `]}`
}

func TestSlotThatHasBegun(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	r.setClock(t, time.Date(2026, 12, 10, 8, 30, 0, 0, time.UTC)) // slot 1 begins now
	before := o.rows()
	wants(t, r.book(member(1), "k", 1), "422 slot-past")
	if after := o.rows(); after != before {
		t.Errorf("rows %s, before %s", after, before)
	}
	wants(t, r.book(member(1), "k", 2), "201") // nothing of the key was kept
	o.soundly()
}

// setClock moves server time to now.
func (r *replica) setClock(t *testing.T, now time.Time) {
	t.Helper()
	offset := time.Until(now).Milliseconds()
	if a := r.send("POST", "/testing/clock", call{body: fmt.Sprintf(`{"offset_ms":%d}`, offset)}); a.status != http.StatusOK || a.doc["offset_ms"] != float64(offset) {
		t.Fatalf("clock: %d %s", a.status, a.body)
	}
}

func TestTokenExpiresInServerTime(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	token := fmt.Sprint("member-1.", today.Add(time.Hour).Unix())
	wants(t, r.book(token, "k", 1), "201")
	if m := scan[string](o, "select member from active_reservations"); m != "member-1" {
		t.Errorf("booked for %s", m)
	}
	r.setClock(t, today.Add(time.Hour+time.Second))
	wants(t, r.book(token, "k", 1), "401 token-expired")
	wants(t, r.book("member-1", "k", 1), "201") // a new token, the same principal
}

func TestCauseIsPassedOn(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	booking := wants(t, r.book(member(1), "b1", 1), "201").str("booking_id")
	if got := scan[string](o, "select overbook_op from booking_operations"); got != "op-b1" {
		t.Errorf("operation is of %q", got)
	}
	if got := scan[string](o, "select overbook_op || ' ' || actor from audit_history where event = 'BOOKED'"); got != "op-b1 member-1" {
		t.Errorf("history row is of %q", got)
	}
	var payload, want map[string]any
	if err := json.Unmarshal([]byte(scan[string](o, "select payload::text from outbox where type = 'telescope.booked'")), &payload); err != nil {
		t.Fatal(err)
	}
	want = map[string]any{"event": "BOOKED", "slot_id": 1.0, "booking_id": booking, "member": "member-1", "actor": "member-1", "traceparent": traceparent, "op": "op-b1"}
	if diff := cmp.Diff(want, payload); diff != "" {
		t.Error(diff)
	}
}

func TestSurroundings(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	if a := wants(t, r.get("/healthz", ""), "200"); a.str("replica") != "sut-1" {
		t.Errorf("health: %s", a.body)
	}
	wants(t, r.get("/testing/clock", ""), "200")
	wants(t, r.book(member(1), "k", 1), "201")
	wants(t, r.book(member(1), "k", 1), "201")
	wants(t, r.book(member(2), "k", 1), "409 slot-taken")
	metrics := r.get("/metrics", "").body
	for _, line := range []string{
		`overbook_telescope_answers_total{operation="book",type="ok"} 1`, `overbook_telescope_answers_total{operation="book",type="slot-taken"} 1`,
		`overbook_telescope_answers_total{operation="book",type="replayed"} 1`, "overbook_telescope_transaction_retries_total 0",
		"overbook_telescope_outbox_oldest_pending_seconds ", "overbook_telescope_outbox_parked_total 0", "overbook_telescope_schedule_age_seconds ",
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("metrics lack %s:\n%s", line, metrics)
		}
	}
	other := o.start(func(c *Config) { c.TestMode = false })
	wants(t, other.send("POST", "/testing/clock", call{body: `{"offset_ms":1}`}), "404 not-found")
}

func TestOperationLookup(t *testing.T) {
	o := newObservatory(t)
	r := o.start()
	key := `a/b?c#d%41"{}`
	booked := wants(t, r.book(member(1), key, 1), "201")
	a := wants(t, r.get("/telescope/operations/"+url.PathEscape(key)+"?type=book", member(1)), "200")
	if a.str("key") != key || a.str("type") != "book" || a.doc["status"] != 201.0 || !strings.HasPrefix(a.str("completed_at"), "2026-12-01T12:") {
		t.Errorf("operation: %s", a.body)
	}
	if !strings.Contains(a.body, `"body":`+strings.TrimSpace(booked.body)) {
		t.Errorf("operation %s does not have the body %s", a.body, booked.body)
	}
	wants(t, r.closeSlot("staff-1", "c", 2), "200")
	wants(t, r.book(member(1), "refused", 2), "409 slot-closed")
	if a := wants(t, r.get("/telescope/operations/refused", member(1)), "200"); a.doc["status"] != 409.0 || a.doc["body"].(map[string]any)["type"] != "/problems/slot-closed" {
		t.Errorf("operation: %s", a.body)
	}
	wants(t, r.get("/telescope/operations/c?type=close", "staff-1"), "200")
	wants(t, r.get("/telescope/operations/c?type=close", "staff-2"), "404 unknown-operation")
}
