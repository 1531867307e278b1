package email_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/stubs/double"
	"github.com/overbook/overbook/stubs/email"
)

// call calls the handler without a network; key "" sends no Idempotency-Key.
func call(tb testing.TB, h http.Handler, method, path, key, body string) (int, string) {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), method, path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func message(event, kind string, slot int) string {
	return fmt.Sprintf(`{"event_id":%q,"to":"member-1","kind":%q,"slot_id":%d,"booking_id":"b-1"}`, event, kind, slot)
}

func send(tb testing.TB, h http.Handler, event, kind string) (int, string) {
	tb.Helper()
	return call(tb, h, "POST", "/messages", event, message(event, kind, 7))
}

func configure(tb testing.TB, h http.Handler, change string) {
	tb.Helper()
	if status, answer := call(tb, h, "POST", "/__double/config", "", change); status != 200 {
		tb.Fatalf("configure %s: %d %s", change, status, answer)
	}
}

func get[T any](tb testing.TB, h http.Handler, path string) (v T) {
	tb.Helper()
	_, answer := call(tb, h, "GET", path, "", "")
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		tb.Fatalf("%s: %s: %v", path, answer, err)
	}
	return v
}

func TestAnswers(t *testing.T) {
	h := email.New(1)
	if _, ledger := call(t, h, "GET", "/__double/ledger", "", ""); ledger != "[]" {
		t.Errorf("the ledger of nothing: %s", ledger)
	}
	accepted := func(n int) string { return fmt.Sprintf(`{"message_id":"message-%d"}`, n) }
	for _, step := range []struct {
		key, body string
		status    int
		answer    string
	}{
		{"e-1", message("e-1", "BOOKED", 7), 202, accepted(1)},
		{"e-2", message("e-2", "FLAGGED", 7), 202, accepted(2)},
		{"e-1", message("e-1", "BOOKED", 7), 202, accepted(1)},
		{"e-1", message("e-1", "BOOKED", 8), 409, `{"error":"event_differs"}`},
		{"", message("e-3", "BOOKED", 7), 400, `{"error":"key_missing"}`},
		{"e-4", message("e-3", "BOOKED", 7), 400, `{"error":"key_differs"}`},
		{"e-3", message("e-3", "CLOSED", 7), 400, `{"error":"bad_request"}`},
		{"e-3", message("e-3", "BOOKED", 0), 400, `{"error":"bad_request"}`},
		{"e-3", `{"event_id":"e-3","to":"","kind":"BOOKED","slot_id":7,"booking_id":"b-1"}`, 400, `{"error":"bad_request"}`},
		{"e-3", `{"event_id":"e-3","to":"member-1","kind":"BOOKED","slot_id":7}`, 400, `{"error":"bad_request"}`},
		{"e-3", `{"event_id":"e-3","to":"member-1","kind":"BOOKED","slot_id":"7","booking_id":"b-1"}`, 400, `{"error":"bad_request"}`},
		{"e-3", `{`, 400, `{"error":"bad_request"}`},
	} {
		if status, answer := call(t, h, "POST", "/messages", step.key, step.body); status != step.status || answer != step.answer {
			t.Errorf("%s with key %q: %d %s, want %d %s", step.body, step.key, status, answer, step.status, step.answer)
		}
	}
	entries := get[[]email.Entry](t, h, "/__double/ledger")
	for i := range entries {
		if entries[i].AtMS <= 0 {
			t.Errorf("row %d has no time", i)
		}
		entries[i].AtMS = 0
	}
	want := []email.Entry{
		{Message: email.Message{EventID: "e-1", Kind: "BOOKED", To: "member-1", SlotID: 7, BookingID: "b-1"}, Deliveries: 2, MessageID: "message-1"},
		{Message: email.Message{EventID: "e-2", Kind: "FLAGGED", To: "member-1", SlotID: 7, BookingID: "b-1"}, Deliveries: 1, MessageID: "message-2"},
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Error(diff)
	}
	stats := get[double.Stats](t, h, "/__double/stats")
	if stats.Calls["POST /messages"] != 12 || stats.Decisions["POST /messages 202 accepted"] != 3 || stats.Decisions["POST /messages 400 bad_request"] != 6 {
		t.Errorf("stats: %+v", stats)
	}
}

// The run stores the ledger as plain rows: these are the columns that checks read.
func TestLedgerRows(t *testing.T) {
	h := email.New(1)
	send(t, h, "e-1", "CANCELLED")
	row := get[[]map[string]any](t, h, "/__double/ledger")[0]
	delete(row, "at_ms")
	want := map[string]any{
		"event_id": "e-1", "kind": "CANCELLED", "to": "member-1", "slot_id": 7.0, "booking_id": "b-1", "deliveries": 1.0, "message_id": "message-1",
	}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Error(diff)
	}
}

func TestOutages(t *testing.T) {
	h := email.New(1)
	var got []int
	sendAll := func(events ...string) {
		for _, e := range events {
			kind, id, _ := strings.Cut(e, " ")
			status, _ := send(t, h, id, kind)
			got = append(got, status)
		}
	}
	configure(t, h, `{"mode": "down"}`)
	sendAll("BOOKED e-1", "BOOKED e-2")
	configure(t, h, `{"mode": "up", "fail_first": 2}`)
	sendAll("BOOKED e-1", "BOOKED e-2", "BOOKED e-1")
	configure(t, h, `{"refuse_kinds": ["FLAGGED"]}`)
	sendAll("FLAGGED e-3", "BOOKED e-4", "FLAGGED e-3")
	configure(t, h, `{"refuse_kinds": []}`)
	sendAll("FLAGGED e-3")
	if diff := cmp.Diff([]int{503, 503, 503, 503, 202, 422, 202, 422, 202}, got); diff != "" {
		t.Error(diff)
	}
	var ids []string
	for _, e := range get[[]email.Entry](t, h, "/__double/ledger") {
		ids = append(ids, fmt.Sprintf("%s x %d", e.EventID, e.Deliveries))
	}
	if diff := cmp.Diff([]string{"e-1 x 1", "e-4 x 1", "e-3 x 1"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestConfigIsMergedAndWrongOnesChangeNothing(t *testing.T) {
	h := email.New(1)
	configure(t, h, `{"fail_first": 3, "refuse_kinds": ["FLAGGED"]}`)
	configure(t, h, `{"latency_ms": 0.5}`)
	_, before := call(t, h, "GET", "/__double/config", "", "")
	if want := `{"mode":"up","fail_first":3,"refuse_kinds":["FLAGGED"],"latency_ms":0.5}`; before != want {
		t.Errorf("config: %s\nwant    %s", before, want)
	}
	for _, bad := range []string{
		`{"mod": "down"}`, `{"mode": "sideways"}`, `{"fail_first": -1}`, `{"fail_first": "2"}`, `{"refuse_kinds": ["booked"]}`,
		`{"mode": "down", "latency_ms": -1}`, `{"latency_ms": 1e9}`, `{} {}`, `{} ]`, `[]`, ``,
	} {
		if status, answer := call(t, h, "POST", "/__double/config", "", bad); status != 400 || !strings.Contains(answer, "configure email") {
			t.Errorf("%s: %d %s", bad, status, answer)
		}
	}
	if _, after := call(t, h, "GET", "/__double/config", "", ""); after != before {
		t.Errorf("a refused change changed the configuration to %s", after)
	}
}

func TestLatencyIsWaited(t *testing.T) {
	h := email.New(1)
	configure(t, h, `{"latency_ms": 20}`)
	watch := clock.New()
	send(t, h, "e-1", "BOOKED")
	if d := watch.Now(); d < 20*time.Millisecond {
		t.Errorf("the call took %s", d)
	}
}

func TestSameEventAtOnceIsOneMessage(t *testing.T) {
	h := email.New(1)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { send(t, h, "e-1", "BOOKED") })
	}
	all.Wait()
	entries := get[[]email.Entry](t, h, "/__double/ledger")
	if len(entries) != 1 || entries[0].Deliveries != 50 {
		t.Errorf("ledger: %+v, want one row with 50 deliveries", entries)
	}
}

func TestDoubleIsWhatTheContractNames(t *testing.T) {
	d := email.Double()
	if d.Name != "email" || d.New == nil || d.Mappings == nil {
		t.Errorf("the double: %+v", d)
	}
	if diff := cmp.Diff([]string{"POST /messages"}, d.Count); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"POST /messages": "event_id"}, d.CountBy); diff != "" {
		t.Error(diff)
	}
}
