package httpapi_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/sut/httpapi"
)

func TestStudent(t *testing.T) {
	tests := map[string]string{
		"":                       "",
		"Bearer student-7":       "student-7",
		"bearer student-a_B-9":   "student-a_B-9",
		"Bearer staff-1":         "",
		"Bearer student-":        "",
		"Basic student-7":        "",
		"Bearer student-7 extra": "",
		"student-7":              "",
	}
	for header, want := range tests {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		if got, ok := httpapi.Student(r); got != want || ok != (want != "") {
			t.Errorf("Student(%q) = %q, %v; want %q", header, got, ok, want)
		}
	}
}

func TestCauseIsPassedOnOnlyWhenFit(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	good := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r.Header.Set("Traceparent", good)
	r.Header.Set("X-Overbook-Op", "op-17")
	if diff := cmp.Diff(httpapi.Cause{Traceparent: good, Op: "op-17"}, httpapi.CauseOf(r)); diff != "" {
		t.Error(diff)
	}
	r.Header.Set("Traceparent", "nonsense")
	r.Header.Set("X-Overbook-Op", strings.Repeat("x", 200))
	if diff := cmp.Diff(httpapi.Cause{}, httpapi.CauseOf(r)); diff != "" {
		t.Error(diff)
	}
}

func TestReadJSONIsStrict(t *testing.T) {
	tests := []struct {
		name, body, contentType string
		want                    int // status of the problem, 0 for none
	}{
		{"good", `{"seat":"A-1"}`, "application/json", 0},
		{"good with charset", `{"seat":"A-1"}`, "application/json; charset=utf-8", 0},
		{"no content type", `{"seat":"A-1"}`, "", 0},
		{"empty", ``, "", 400},
		{"unknown member", `{"seat":"A-1","x":1}`, "", 400},
		{"two values", `{"seat":"A-1"}{}`, "", 400},
		{"wrong type", `{"seat":1}`, "", 400},
		{"form", `seat=A-1`, "application/x-www-form-urlencoded", 400},
		{"too large", `{"seat":"` + strings.Repeat("x", httpapi.BodyLimit) + `"}`, "", 413},
		{"too large behind the value", `{"seat":"A-1"}` + strings.Repeat(" ", httpapi.BodyLimit), "", 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.contentType)
			r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, httpapi.BodyLimit)
			var in struct {
				Seat string `json:"seat"`
			}
			err := httpapi.ReadJSON(r, &in)
			got := 0
			if p, ok := httpapi.ProblemOf(err); ok {
				got = p.Status
			}
			if got != tt.want {
				t.Errorf("status %d (%v), want %d", got, err, tt.want)
			}
		})
	}
}

func TestMiddleware(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /boom", func(http.ResponseWriter, *http.Request) { panic("at the disco") })
	mux.Handle("GET /me", httpapi.ForStudents(func(w http.ResponseWriter, _ *http.Request, student string) error {
		if student == "student-0" {
			return errors.New("something inside")
		}
		httpapi.WriteJSON(w, http.StatusOK, map[string]string{"student": student})
		return nil
	}, func(*http.Request, error) *httpapi.Problem { return httpapi.Busy }))
	h := httpapi.Wrap(mux, slog.New(slog.DiscardHandler))

	tests := []struct {
		method, path, auth string
		status             int
		problem            string
	}{
		{"GET", "/me", "Bearer student-1", 200, ""},
		{"GET", "/me", "", 401, "/problems/unauthorized"},
		{"GET", "/me", "Bearer student-0", 503, "/problems/busy"},
		{"POST", "/me", "Bearer student-1", 405, "/problems/method-not-allowed"},
		{"GET", "/nowhere", "", 404, "/problems/not-found"},
		{"GET", "/boom", "", 500, "/problems/internal"},
	}
	for _, tt := range tests {
		t.Run(tt.method+tt.path+tt.auth, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil)
			r.Header.Set("Authorization", tt.auth)
			r.Header.Set("X-Request-Id", "r-1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Errorf("status %d, want %d", w.Code, tt.status)
			}
			if got := w.Header().Get("X-Request-Id"); got != "r-1" {
				t.Errorf("request id %q, want the caller's", got)
			}
			var doc struct {
				Type   string `json:"type"`
				Status int    `json:"status"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
				t.Fatalf("answer %q: %v", w.Body, err)
			}
			if doc.Type != tt.problem {
				t.Errorf("type %q, want %q", doc.Type, tt.problem)
			}
			if tt.problem != "" && (doc.Status != tt.status || w.Header().Get("Content-Type") != "application/problem+json") {
				t.Errorf("problem says status %d as %s", doc.Status, w.Header().Get("Content-Type"))
			}
			if tt.status == 503 && w.Header().Get("Retry-After") == "" {
				t.Error("busy without Retry-After")
			}
			if tt.status == 405 && w.Header().Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
}
