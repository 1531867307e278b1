// Package httpapi is what every design's HTTP side shares: problem documents
// (RFC 9457), who the caller is and what they may call, what a request says
// about its cause and its operation's key, strict JSON in and out, answers that
// are built once, the clock for tests, and the middleware around all handlers.
//
// What must not happen here: words of one design (seats, slots, tickets), the
// database, upstream systems.
package httpapi

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
)

// A Problem is an answer of RFC 9457. Type is the stable word at the end of
// its type, "/problems/<Type>"; Members are extension members.
type Problem struct {
	Type    string
	Title   string
	Status  int
	Detail  string
	Members map[string]any
	Header  http.Header // extra header lines, e.g. Retry-After
}

// Err makes the problem an error, for handlers to give.
func (p *Problem) Err() error { return &problemError{p} }

// problemError carries a problem where an error is wanted.
type problemError struct{ problem *Problem }

func (e *problemError) Error() string { return e.problem.Type + ": " + e.problem.Detail }

// ProblemOf finds the problem that an error was made of.
func ProblemOf(err error) (*Problem, bool) {
	e, ok := errors.AsType[*problemError](err)
	if !ok {
		return nil, false
	}
	return e.problem, true
}

// With gives a copy with another detail.
func (p *Problem) With(detail string) *Problem {
	q := *p
	q.Detail = detail
	return &q
}

// WithMembers gives a copy with extension members.
func (p *Problem) WithMembers(members map[string]any) *Problem {
	q := *p
	q.Members = maps.Clone(members)
	return &q
}

// The problems that every design has.
var (
	Unauthorized = &Problem{
		Type: "unauthorized", Title: "Who is calling?", Status: http.StatusUnauthorized,
		Detail: "send Authorization: Bearer student-<n>",
		Header: http.Header{"Www-Authenticate": {"Bearer"}},
	}
	TokenExpired = &Problem{
		Type: "token-expired", Title: "The token has expired", Status: http.StatusUnauthorized,
		Detail: "sign in again and send the new token",
		Header: http.Header{"Www-Authenticate": {`Bearer error="invalid_token"`}},
	}
	Forbidden = &Problem{
		Type: "forbidden", Title: "Not yours to do", Status: http.StatusForbidden,
		Detail: "this call is for callers of another kind",
	}
	KeyMissing = &Problem{
		Type: "key-missing", Title: "The operation has no key", Status: http.StatusBadRequest,
		Detail: "send one Idempotency-Key header, made before the first attempt and sent again with every retry",
	}
	KeyInvalid = &Problem{
		Type: "key-invalid", Title: "The operation's key is unfit", Status: http.StatusBadRequest,
		Detail: "send exactly one Idempotency-Key header of 1 to 128 visible ASCII characters without spaces",
	}
	UnsupportedMediaType = &Problem{
		Type: "unsupported-media-type", Title: "The body is not JSON", Status: http.StatusUnsupportedMediaType,
		Detail: "send the body as application/json",
	}
	BadRequest = &Problem{Type: "bad-request", Title: "The request can't be read", Status: http.StatusBadRequest}
	TooLarge   = &Problem{
		Type: "too-large", Title: "The body is too large", Status: http.StatusRequestEntityTooLarge,
		Detail: "a body may have at most 64 KiB",
	}
	NotFound = &Problem{
		Type: "not-found", Title: "No such address", Status: http.StatusNotFound,
		Detail: "nothing is served at this path",
	}
	MethodNotAllowed = &Problem{
		Type: "method-not-allowed", Title: "No such method here", Status: http.StatusMethodNotAllowed,
		Detail: "this path is served with another method, see Allow",
	}
	Busy = &Problem{
		Type: "busy", Title: "Try again in a moment", Status: http.StatusServiceUnavailable,
		Detail: "the server could not do this within its time limits; nothing is lost by trying again",
		Header: http.Header{"Retry-After": {"1"}},
	}
	Internal = &Problem{
		Type: "internal", Title: "A fault of the server", Status: http.StatusInternalServerError,
		Detail: "the server met something it did not expect; its log has the request id",
	}
)

// An Answer is what is sent: built once, so that it can be stored and sent
// again byte for byte.
type Answer struct {
	Status      int
	ContentType string
	Body        []byte
	Header      http.Header // extra header lines
	Kind        string      // the word it is counted by: "ok", or a problem's type
}

// KindOK is the kind of an answer that is no problem.
const KindOK = "ok"

// Answer renders the problem.
func (p *Problem) Answer() Answer {
	doc := map[string]any{}
	maps.Copy(doc, p.Members)
	doc["type"] = "/problems/" + p.Type
	doc["title"] = p.Title
	doc["status"] = p.Status
	doc["detail"] = p.Detail
	a := render(p.Status, "application/problem+json", doc)
	a.Header, a.Kind = p.Header.Clone(), p.Type
	return a
}

// JSON renders v as application/json.
func JSON(status int, v any) Answer { return render(status, "application/json", v) }

func render(status int, contentType string, v any) Answer {
	body, err := json.Marshal(v)
	if err != nil { // our own types always marshal; this is for the day they don't
		return Internal.With("the answer could not be written as JSON").Answer()
	}
	return Answer{Status: status, ContentType: contentType, Body: append(body, '\n'), Kind: KindOK}
}

// Send sends the answer.
func (a Answer) Send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.Header)
	w.Header().Set("Content-Type", a.ContentType)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // a client that went away needs no answer
}

// WriteProblem answers with a problem document.
func WriteProblem(w http.ResponseWriter, p *Problem) { p.Answer().Send(w) }

// WriteJSON answers with v as application/json.
func WriteJSON(w http.ResponseWriter, status int, v any) { JSON(status, v).Send(w) }
