package calendar

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// After its window a key stands for nothing any more: the token is judged anew.
func TestTokenKeysAreForgotten(t *testing.T) {
	for window, want := range map[time.Duration]int{1: 400, time.Minute: 200} {
		h := newProvider(1, window)
		for i, status := range []int{200, want} {
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/token", strings.NewReader(`{"calendar":"cal-1","refresh_token":"r-0"}`))
			r.Header.Set("Idempotency-Key", "key")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != status {
				t.Errorf("call %d with a window of %s: %d %s, want %d", i+1, window, w.Code, w.Body, status)
			}
		}
	}
}
