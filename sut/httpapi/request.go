package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
)

// BodyLimit is the most bytes a request's body may have.
const BodyLimit = 64 << 10

// studentName is what a bearer token must look like to be a student.
var studentName = regexp.MustCompile(`^student-[A-Za-z0-9_-]{1,64}$`)

// Student gives the caller's name from the bearer token, or false when there
// is none or it is not a student's.
func Student(r *http.Request) (string, bool) {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || !studentName.MatchString(token) {
		return "", false
	}
	return token, true
}

// IdempotencyKey gives the key under which the caller does an operation. The
// error is made of a [Problem].
func IdempotencyKey(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	switch {
	case len(keys) == 0:
		return "", KeyMissing.Err()
	case len(keys) > 1 || !visible.MatchString(keys[0]):
		return "", KeyInvalid.Err()
	}
	return keys[0], nil
}

// A Cause is what a request says about the operation that made it, to be
// passed on to whatever the request leads to. Empty when not sent or not fit
// to be passed on.
type Cause struct {
	Traceparent string // W3C Trace Context
	Op          string // X-Overbook-Op
}

var (
	traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	visible     = regexp.MustCompile(`^[\x21-\x7e]{1,128}$`)
)

// CauseOf reads a request's cause.
func CauseOf(r *http.Request) Cause {
	var c Cause
	if v := r.Header.Get("Traceparent"); traceparent.MatchString(v) {
		c.Traceparent = v
	}
	if v := r.Header.Get("X-Overbook-Op"); visible.MatchString(v) {
		c.Op = v
	}
	return c
}

// ReadJSON reads the body into v: one JSON value, no unknown members, nothing
// after it. The error is made of a [Problem].
func ReadJSON(r *http.Request, v any) error {
	if ct := r.Header.Get("Content-Type"); ct != "" {
		if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/json" {
			return BadRequest.With("the body must be application/json, not " + ct).Err()
		}
	}
	return decode(r.Body, v)
}

// ReadBody reads the whole body, which must be application/json unless it is
// empty. The error is made of a [Problem].
func ReadBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return nil, TooLarge.Err()
		}
		return nil, BadRequest.With("the body ends early").Err()
	}
	ct := r.Header.Get("Content-Type")
	if len(body) == 0 || ct == "" {
		return body, nil
	}
	if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/json" {
		return nil, UnsupportedMediaType.Err()
	}
	return body, nil
}

// DecodeObject reads a body into v as [ReadJSON] does; it must be a JSON
// object. An empty body is an empty object.
func DecodeObject(body []byte, v any) error {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) == 0 {
		trimmed = []byte("{}")
	}
	if trimmed[0] != '{' {
		return BadRequest.With("the body must be a JSON object").Err()
	}
	return decode(bytes.NewReader(trimmed), v)
}

func decode(body io.Reader, v any) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return bodyProblem(err).Err()
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return TooLarge.Err()
		}
		return BadRequest.With("the body must be one JSON value and nothing after it").Err()
	}
	return nil
}

func bodyProblem(err error) *Problem {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return TooLarge
	}
	if errors.Is(err, io.EOF) {
		return BadRequest.With("the body is empty; it must be a JSON object")
	}
	return BadRequest.With("the body is not what this call takes: " + strings.TrimPrefix(err.Error(), "json: "))
}
