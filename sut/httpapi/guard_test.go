package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/httpapi"
)

func problemType(err error) string {
	if p, ok := httpapi.ProblemOf(err); ok {
		return fmt.Sprint(p.Status, " ", p.Type)
	}
	return ""
}

func TestPrincipals(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	tests := []struct {
		sent    []string
		want    string // the name
		problem string
	}{
		{[]string{"Bearer member-7"}, "member-7", ""},
		{[]string{"bearer staff-a_B-9"}, "staff-a_B-9", ""},
		{[]string{"Bearer member-7.1800000001"}, "member-7", ""},
		{[]string{"Bearer member-7.1800000000"}, "", "401 token-expired"},
		{[]string{"Bearer member-7.0"}, "", "401 token-expired"},
		{[]string{"Bearer member-7."}, "", "401 unauthorized"},
		{[]string{"Bearer member-7.1e9"}, "", "401 unauthorized"},
		{[]string{"Bearer member-7.1.2"}, "", "401 unauthorized"},
		{[]string{"Bearer student-7"}, "", "401 unauthorized"},
		{[]string{"Bearer student-7.1"}, "", "401 unauthorized"},
		{[]string{"Bearer member-"}, "", "401 unauthorized"},
		{[]string{"Bearer member"}, "", "401 unauthorized"},
		{[]string{"Bearer member-7 staff-1"}, "", "401 unauthorized"},
		{[]string{"Bearer member-" + strings.Repeat("7", 65)}, "", "401 unauthorized"},
		{[]string{"Basic member-7"}, "", "401 unauthorized"},
		{[]string{"member-7"}, "", "401 unauthorized"},
		{[]string{"Bearer member-7", "Bearer staff-1"}, "", "401 unauthorized"},
		{nil, "", "401 unauthorized"},
	}
	for _, tt := range tests {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header["Authorization"] = tt.sent
		who, err := httpapi.PrincipalOf(r, now, httpapi.RoleMember, httpapi.RoleStaff)
		if who.Name != tt.want || problemType(err) != tt.problem {
			t.Errorf("%q is %q, %v; want %q, %q", tt.sent, who.Name, err, tt.want, tt.problem)
		}
		if err == nil && !strings.HasPrefix(who.Name, string(who.Role)+"-") {
			t.Errorf("%q has the role %s", tt.sent, who.Role)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	for _, tt := range []struct {
		sent    []string
		problem string
	}{
		{nil, "400 key-missing"},
		{[]string{"a"}, ""},
		{[]string{strings.Repeat("~", 128)}, ""},
		{[]string{`"quoted/?%"`}, ""},
		{[]string{""}, "400 key-invalid"},
		{[]string{strings.Repeat("a", 129)}, "400 key-invalid"},
		{[]string{"a b"}, "400 key-invalid"},
		{[]string{"a\x7f"}, "400 key-invalid"},
		{[]string{"ä"}, "400 key-invalid"},
		{[]string{"a", "a"}, "400 key-invalid"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Header["Idempotency-Key"] = tt.sent
		key, err := httpapi.IdempotencyKey(r)
		if problemType(err) != tt.problem || (err == nil && key != tt.sent[0]) {
			t.Errorf("%q: %q, %v; want %q", tt.sent, key, err, tt.problem)
		}
	}
}

func TestReadBodyAndDecode(t *testing.T) {
	for _, tt := range []struct {
		name, body, contentType, want string
	}{
		{"nothing", "", "", ""},
		{"nothing, of whatever type", "", "text/plain", ""},
		{"white space", " \n", "", ""},
		{"an object", `{"a":1}`, "application/json", ""},
		{"with a charset", `{"a":1}`, "Application/JSON; charset=utf-8", ""},
		{"untyped", `{"a":1}`, "", ""},
		{"text", `{"a":1}`, "text/plain", "415 unsupported-media-type"},
		{"a type that is none", `{"a":1}`, ";", "415 unsupported-media-type"},
		{"too large", `{"a":1}` + strings.Repeat(" ", httpapi.BodyLimit), "application/json", "413 too-large"},
		{"too large and of another type", strings.Repeat(" ", httpapi.BodyLimit+1), "text/plain", "413 too-large"},
		{"an array", `[]`, "", "400 bad-request"},
		{"null", `null`, "", "400 bad-request"},
		{"two objects", `{}{}`, "", "400 bad-request"},
		{"an unknown member", `{"b":1}`, "", "400 bad-request"},
		{"cut off", `{"a":1`, "", "400 bad-request"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(tt.body))
		r.Header.Set("Content-Type", tt.contentType)
		r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, httpapi.BodyLimit)
		body, err := httpapi.ReadBody(r)
		if err == nil {
			err = httpapi.DecodeObject(body, &struct{ A int }{})
		}
		if got := problemType(err); got != tt.want {
			t.Errorf("%s: %q (%v), want %q", tt.name, got, err, tt.want)
		}
	}
}

func TestGuard(t *testing.T) {
	c := clock.New(0)
	var counted []string
	g := httpapi.Guard{
		Roles: []httpapi.Role{httpapi.RoleMember, httpapi.RoleStaff}, Clock: c,
		Fallback: func(*http.Request, error) *httpapi.Problem { return httpapi.Busy },
		Answered: func(operation, kind string) { counted = append(counted, operation+" "+kind) },
	}
	called := 0
	h := g.Admit("op", func(_ *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
		called++
		if who.Name == "member-0" {
			return httpapi.Answer{}, errors.New("something inside")
		}
		a := httpapi.JSON(http.StatusCreated, map[string]string{"who": who.Name})
		a.Header = http.Header{"Location": {"/here"}}
		return a, nil
	}, httpapi.RoleMember)
	ask := func(token string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	w := ask("member-1")
	if w.Code != http.StatusCreated || w.Body.String() != `{"who":"member-1"}`+"\n" || w.Header().Get("Location") != "/here" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	soon := fmt.Sprint("member-1.", c.Now().Add(time.Hour).Unix())
	ask(soon)
	for _, who := range []string{"member-0", "staff-1", "student-1"} {
		ask(who)
	}
	c.Set(2 * time.Hour)
	ask(soon)
	want := []string{"op ok", "op ok", "op busy", "op forbidden", "op unauthorized", "op token-expired"}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Error(diff)
	}
	if called != 3 {
		t.Errorf("the call itself was reached %d times, want 3", called)
	}
}

// TestAnswersAreBuiltOnce: what is sent is what was there to be stored.
func TestAnswersAreBuiltOnce(t *testing.T) {
	p := httpapi.Busy.WithMembers(map[string]any{"slot": 7})
	a := p.Answer()
	direct, again := httptest.NewRecorder(), httptest.NewRecorder()
	httpapi.WriteProblem(direct, p)
	a.Send(again)
	if direct.Body.String() != string(a.Body) || again.Body.String() != string(a.Body) || again.Header().Get("Retry-After") != "1" || a.Kind != "busy" {
		t.Errorf("%s, %s, %s", direct.Body, again.Body, a.Body)
	}
	a.Header.Set("Retry-After", "9")
	if httpapi.Busy.Header.Get("Retry-After") != "1" {
		t.Error("an answer's header is the problem's own")
	}
	broken := httpapi.JSON(http.StatusOK, func() {})
	if broken.Status != http.StatusInternalServerError || broken.Kind != "internal" || !strings.Contains(string(broken.Body), "/problems/internal") {
		t.Errorf("what can't be JSON is answered %d %s", broken.Status, broken.Body)
	}
}
