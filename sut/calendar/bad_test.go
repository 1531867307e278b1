package calendar

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is refused without being an operation leaves nothing behind, not even
// its key.
func TestNothingIsStoredOfWhatCannotBe(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	before := o.sum()
	ok := times("03-11T09:00", "03-11T10:00")
	const book, move, swap = "POST /calendar/resources/1/appointments", "PATCH /calendar/appointments/", "POST /calendar/reschedules"
	in := func(zone, start, end string) string {
		return fmt.Sprintf(`{"start":%q,"end":%q,"time_zone":%q}`, start, end, zone)
	}
	for _, c := range []struct{ what, body, want string }{
		{book, in("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T03:30"), "422 time-gap"},
		{book, in("Europe/Berlin", "2026-10-25T01:30", "2026-10-25T02:30"), "422 time-ambiguous"},
		{book, in("Europe/Atlantis", "2026-03-11T09:00", "2026-03-11T10:00"), "422 unknown-time-zone"},
		{book, in("Local", "2026-03-11T09:00", "2026-03-11T10:00"), "422 unknown-time-zone"},
		{book, in("Etc/UTC", "2026-03-11T09:00", "2026-03-11T09:00"), "422 bad-range"},
		{book, in("Etc/UTC", "2026-03-11T09:00", "2026-03-12T09:01"), "422 bad-range"},
		{book, in("Etc/UTC", "2026-03-01T08:00", "2026-03-01T09:00"), "422 bad-range"}, // this very instant
		{book, in("Etc/UTC", "2028-02-29T07:30", "2028-02-29T08:01"), "422 bad-range"}, // a minute beyond the horizon
		{book, in("Etc/UTC", "0000-01-01T07:30", "0000-01-01T08:01"), "422 bad-range"},
		{book, "{" + ok + `,"start_fold":"first"}`, "422 unknown-word"},
		{book, "{" + ok + `,"end_fold":""}`, "422 unknown-word"},
		{book, "{" + ok + `,"weekly":1}`, "400 bad-request"},
		{book, "{" + ok + `,"weekly":"2"}`, "400 bad-request"},
		{book, "{" + ok + `,"title":"x"}`, "400 bad-request"},
		{book, in("", "2026-03-11T09:00", "2026-03-11T10:00"), "400 bad-request"},
		{book, in("Etc/UTC", "2026-03-11T09:00Z", "2026-03-11T10:00Z"), "400 bad-request"},
		{book, in("Etc/UTC", "2026-03-11T09:00", ""), "400 bad-request"},
		{book, "", "400 bad-request"},
		{book, "[]", "400 bad-request"},
		{book, "{" + ok, "400 bad-request"},
		{"POST /calendar/resources/9/appointments", "{" + ok + "}", "404 unknown-resource"},
		{"POST /calendar/resources/01/appointments", "{" + ok + "}", "404 unknown-resource"},
		{"POST /calendar/resources/x/appointments", "{" + ok + "}", "404 unknown-resource"},
		{move + id, in("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T03:30"), "422 time-gap"},
		{move + id, in("Etc/UTC", "2026-02-11T09:00", "2026-02-11T10:00"), "422 bad-range"},
		{move + id, "{}", "400 bad-request"},
		{move + "no-uuid", "{" + ok + "}", "404 unknown-appointment"},
		{move + "00000000-0000-4000-8000-000000000000", "{" + ok + "}", "404 unknown-appointment"},
		{"PATCH /calendar/series/" + id, "{" + ok + "}", "404 unknown-series"},
		{swap, `{"moves":[]}`, "400 bad-request"},
		{swap, `{"moves":[` + to(id, "03-11T09:00", "03-11T10:00") + "," + to(id, "03-12T09:00", "03-12T10:00") + `]}`, "400 bad-request"},
		{swap, `{"moves":[` + strings.TrimSuffix(strings.Repeat(to(id, "03-11T09:00", "03-11T10:00")+",", 51), ",") + `]}`, "400 bad-request"},
		{swap, `{"moves":[{"appointment_id":"x",` + ok + `}]}`, "404 unknown-appointment"},
		{"DELETE /calendar/appointments/00000000-0000-4000-8000-000000000000", "", "404 unknown-appointment"},
		{"DELETE /calendar/appointments/" + id, `{"why":"x"}`, "400 bad-request"},
	} {
		method, path, _ := strings.Cut(c.what, " ")
		if got := o.keyed(method, path, "member-1", "key", c.body); got.kind() != c.want {
			t.Errorf("%s %s: %d %s, want %s", c.what, c.body, got.status, got.body, c.want)
		}
	}
	if diff := cmp.Diff(before, o.sum()); diff != "" {
		t.Error("something was stored:", diff)
	}
	twice := wants(t, o.keyed("POST", "/calendar/resources/1/appointments", "member-1", "key", in("Europe/Berlin", "2026-10-25T01:30", "2026-10-25T02:30")), "422 time-ambiguous")
	if diff := cmp.Diff([]any{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"}, twice.doc["choices"]); diff != "" {
		t.Error(diff)
	}
	wants(t, o.keyed("POST", "/calendar/resources/1/appointments", "member-1", "key", "{"+ok+"}"), "201") // the key is as new
	wants(t, o.keyed("POST", "/calendar/resources/1/appointments", "member-1", "far", in("Etc/UTC", "2028-02-29T07:30", "2028-02-29T08:00")), "201")
}

func TestWhoMayCall(t *testing.T) {
	o := newOffice(t)
	id := o.booked("member-1", "b-1", 1, "03-10T09:00", "03-10T10:00")
	before := o.sum()
	for _, c := range []struct{ what, who, key, want string }{
		{"POST /calendar/resources", "member-1", "", "403 forbidden"},
		{"POST /calendar/resources", "", "", "401 unauthorized"},
		{"POST /calendar/resources", "student-1", "", "401 unauthorized"},
		{"GET /calendar/resources/1", "member-1", "", "403 forbidden"},
		{"GET /calendar/conflicts", "member-1", "", "403 forbidden"},
		{"POST /calendar/resources/1/activation", "member-1", "", "403 forbidden"},
		{"POST /calendar/resources/1/appointments", "staff-1", "k", "403 forbidden"},
		{"POST /calendar/resources/1/appointments", "member-1", "", "400 key-missing"},
		{"PATCH /calendar/appointments/" + id, "member-1", "", "400 key-missing"},
		{"DELETE /calendar/appointments/" + id, "member-1", "", "400 key-missing"},
		{"DELETE /calendar/appointments/" + id, "member-1.1000000000", "k", "401 token-expired"},
		{"POST /calendar/reschedules", "member-1", "a key", "400 key-invalid"},
		{"POST /calendar/appointments/" + id + "/sync", "member-1", "", "403 forbidden"},
		{"POST /calendar/conflicts/" + id + "/resolution", "member-1", "k", "403 forbidden"},
		{"POST /calendar/conflicts/" + id + "/resolution", "staff-1", "", "400 key-missing"},
		{"PUT /calendar/appointments/" + id, "member-1", "", "405 method-not-allowed"},
		{"GET /calendar/nothing", "member-1", "", "404 not-found"},
	} {
		method, path, _ := strings.Cut(c.what, " ")
		if got := o.send(method, path, call{who: c.who, key: c.key}); got.kind() != c.want {
			t.Errorf("%s by %q: %d %s, want %s", c.what, c.who, got.status, got.body, c.want)
		}
	}
	if diff := cmp.Diff(before, o.sum()); diff != "" {
		t.Error("something was stored:", diff)
	}
}

func TestAddingResources(t *testing.T) {
	o := newOffice(t)
	before := o.sum()
	for body, want := range map[string]string{
		`{"resource_id":1,"calendar":"cal-9","refresh_token":"r-9"}`:   "409 resource-exists",
		`{"resource_id":9,"calendar":"cal-1","refresh_token":"r-9"}`:   "409 resource-exists",
		`{"resource_id":0,"calendar":"cal-9","refresh_token":"r-9"}`:   "400 bad-request",
		`{"resource_id":9,"calendar":"","refresh_token":"r-9"}`:        "400 bad-request",
		`{"resource_id":9,"calendar":"cal 9","refresh_token":"r-9"}`:   "400 bad-request",
		`{"resource_id":9,"calendar":"cal-9"}`:                         "400 bad-request",
		`{"resource_id":"9","calendar":"cal-9","refresh_token":"r-9"}`: "400 bad-request",
		``: "400 bad-request",
	} {
		if got := o.send("POST", "/calendar/resources", call{who: "staff-1", body: body}); got.kind() != want {
			t.Errorf("%s: %d %s, want %s", body, got.status, got.body, want)
		}
	}
	if diff := cmp.Diff(before, o.sum()); diff != "" {
		t.Error("something was stored:", diff)
	}
	a := wants(t, o.send("POST", "/calendar/resources", call{who: "staff-1", body: `{"resource_id":9,"calendar":"cal-9","refresh_token":"r-9"}`, op: "x-9"}), "201")
	if diff := cmp.Diff(map[string]any{"resource_id": 9.0, "state": "INACTIVE"}, a.doc); diff != "" || a.header.Get("Location") != "/calendar/resources/9" {
		t.Error(diff, a.header)
	}
	got := wants(t, o.send("GET", "/calendar/resources/9", call{who: "staff-1"}), "200")
	want := map[string]any{
		"resource_id": 9.0, "state": "INACTIVE", "provider_contract": nil, "conflict_policy": nil, "conflict_limit": nil,
		"creation": "RUNNING", "unresolved": 0.0, "pending": 0.0,
	}
	if diff := cmp.Diff(want, got.doc); diff != "" {
		t.Error(diff)
	}
	wants(t, o.send("GET", "/calendar/resources/10", call{who: "staff-1"}), "404 unknown-resource")
	if got := scan[string](o, `select concat_ws(' ', state, refresh_token, generation, overbook_op) from accounts join (select resource_id, overbook_op from resources) r using (resource_id) where resource_id = 9`); got != "OK r-9 0 x-9" {
		t.Errorf("account %q", got)
	}
}
