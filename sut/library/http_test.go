package library

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestHTTP(t *testing.T) {
	w := newWorld(t, "A-1", "A-2")
	r := w.start(func(c *Config) { c.CacheTTL = time.Nanosecond })
	mine := r.prepare(student(1), "A-1")
	expired := r.prepare(student(1), "A-2")
	done := r.confirm(student(1), mine)
	tests := []struct {
		name, method, path, student, body string
		status                            int
		problem                           string
	}{
		{"no identity", "POST", "/library/actions", "staff-1", `{"seat":"A-1"}`, 401, "unauthorized"},
		{"identity before lookup", "POST", "/library/actions/nonsense/confirm", "nobody", "", 401, "unauthorized"},
		{"bad seat", "POST", "/library/actions", "student-1", `{"seat":"A 1"}`, 400, "bad-request"},
		{"no seat", "POST", "/library/actions", "student-1", `{}`, 400, "bad-request"},
		{"unknown member", "POST", "/library/actions", "student-1", `{"seat":"A-1","x":1}`, 400, "bad-request"},
		{"unknown action", "POST", "/library/actions/6f1e0c5e-8f0e-4a6e-9a53-000000000000/confirm", "student-1", "", 404, "unknown-action"},
		{"no id at all", "POST", "/library/actions/nonsense/confirm", "student-1", "", 404, "unknown-action"},
		{"somebody else's", "POST", "/library/actions/" + mine + "/confirm", "student-2", "", 404, "unknown-action"},
		{"unknown intent", "GET", "/library/intents/nonsense", "student-1", "", 404, "unknown-intent"},
		{"somebody else's intent", "GET", "/library/intents/" + done.str("intent_id"), "student-2", "", 404, "unknown-intent"},
		{"own intent", "GET", "/library/intents/" + done.str("intent_id"), "student-1", "", 200, ""},
		{"wait for nonsense", "POST", "/library/waits", "student-1", `{"seats":["?"]}`, 400, "bad-request"},
		{"seats", "GET", "/library/seats", "student-1", "", 200, ""},
		{"charge", "GET", "/library/charges/current", "student-1", "", 200, ""},
		{"health", "GET", "/healthz", "", "", 200, ""},
		{"clock", "GET", "/testing/clock", "", "", 200, ""},
		{"clock without offset", "POST", "/testing/clock", "", `{}`, 400, "bad-request"},
		{"wrong method", "GET", "/library/actions", "student-1", "", 405, "method-not-allowed"},
		{"nowhere", "GET", "/nowhere", "student-1", "", 404, "not-found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := r.call(tt.method, tt.path, tt.student, tt.body)
			if a.status != tt.status || a.err != nil {
				t.Fatalf("answer %+v, want %d", a, tt.status)
			}
			if want := "/problems/" + tt.problem; tt.problem != "" && a.str("type") != want {
				t.Errorf("type %q, want %q", a.str("type"), want)
			}
		})
	}
	if a := r.call("POST", "/testing/clock", "", `{"offset_ms":121000}`); a.status != http.StatusOK || a.doc["offset_ms"] != 121000.0 {
		t.Errorf("clock: %+v", a)
	}
	if a := r.confirm(student(1), expired); a.status != http.StatusGone || a.str("type") != "/problems/action-expired" {
		t.Errorf("expired: %+v, want 410", a)
	}
	if a := r.confirm(student(1), mine); a.status != http.StatusCreated || a.str("intent_id") != done.str("intent_id") {
		t.Errorf("a consumed action does not expire: %+v", a)
	}
	w.wellRecorded()
}

func TestReads(t *testing.T) {
	w := newWorld(t, "A-1", "A-2")
	w.pyxis.rejected[student(9)] = true
	r := w.start(func(c *Config) { c.CacheTTL = time.Hour })
	if a := r.call("GET", "/library/charges/current", student(1), ""); a.status != http.StatusOK || a.doc["charge"] != nil {
		t.Errorf("no charge: %+v", a)
	}
	for range 3 {
		r.call("GET", "/library/charges/current", student(1), "")
		r.call("GET", "/library/seats", student(1), "")
		r.call("GET", "/library/seats", student(2), "")
	}
	if c, s := w.pyxis.readsOf("/charges/current"), w.pyxis.readsOf("/seats"); c != 1 || s != 1 {
		t.Errorf("%d charge reads and %d seat reads upstream, want 1 and 1", c, s)
	}
	if a := r.call("GET", "/library/charges/current", student(9), ""); a.status != http.StatusForbidden || a.str("type") != "/problems/credential-rejected" {
		t.Errorf("rejected credential: %+v, want 403", a)
	}
	if a := r.call("GET", "/metrics", "", ""); a.status != http.StatusOK {
		t.Errorf("metrics: %+v", a)
	}
}

func TestNoClockOutsideTestMode(t *testing.T) {
	w := newWorld(t)
	r := w.start(func(c *Config) { c.TestMode = false })
	if a := r.call("POST", "/testing/clock", "", `{"offset_ms":1}`); a.status != http.StatusNotFound || !strings.HasSuffix(a.str("type"), "not-found") {
		t.Errorf("answer %+v, want 404", a)
	}
}
