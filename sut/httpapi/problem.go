// Package httpapi is what every design's HTTP side shares: problem documents
// (RFC 9457), who the caller is, what a request says about its cause, strict
// JSON in and out, and the middleware around all handlers.
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

// WriteProblem answers with a problem document.
func WriteProblem(w http.ResponseWriter, p *Problem) {
	doc := map[string]any{}
	maps.Copy(doc, p.Members)
	doc["type"] = "/problems/" + p.Type
	doc["title"] = p.Title
	doc["status"] = p.Status
	doc["detail"] = p.Detail
	maps.Copy(w.Header(), p.Header.Clone())
	write(w, p.Status, "application/problem+json", doc)
}

// WriteJSON answers with v as application/json.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	write(w, status, "application/json", v)
}

func write(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil { // our own types always marshal; this is for the day they don't
		status, contentType = http.StatusInternalServerError, "application/problem+json"
		body = []byte(`{"type":"/problems/internal","title":"A fault of the server","status":500,"detail":"the answer could not be written as JSON"}`)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that went away needs no answer
}
