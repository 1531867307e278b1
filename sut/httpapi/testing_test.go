package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/httpapi"
)

func TestClockIsStoppedAndGoesOn(t *testing.T) {
	c, mux := clock.New(0), http.NewServeMux()
	httpapi.ServeClock(mux, c)
	post := func(body string) (int, map[string]any) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/testing/clock", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		var doc map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		return w.Code, doc
	}
	const at = "2031-01-01T00:08:00.000001Z"
	if status, doc := post(`{"offset_ms":1000,"stopped_at":"` + at + `"}`); status != http.StatusOK || doc["now"] != at || doc["stopped_at"] != at || doc["offset_ms"] != 1000.0 {
		t.Errorf("stopped: %d %v", status, doc)
	}
	if status, doc := post(`{"offset_ms":2000,"stopped_at":null}`); status != http.StatusOK || doc["stopped_at"] != nil || time.Until(c.Now()).Round(time.Second) != 2*time.Second {
		t.Errorf("going on: %d %v", status, doc)
	}
	if status, doc := post(`{"offset_ms":1,"stopped_at":"noon"}`); status != http.StatusBadRequest {
		t.Errorf("a time that is none: %d %v", status, doc)
	}
}
