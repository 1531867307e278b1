package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/google/uuid"
)

type requestIDKey struct{}

// RequestID is the id that the middleware gave the request, "" outside it.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// Wrap puts the middleware around a mux: a request id (the caller's own when
// it is fit to be logged), the body limit, problem documents for unknown
// paths and methods, and a 500 problem instead of a dead connection when a
// handler panics.
func Wrap(mux *http.ServeMux, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !visible.MatchString(id) {
			id = uuid.NewString()
		}
		w.Header().Set("X-Request-Id", id)
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		r.Body = http.MaxBytesReader(w, r.Body, BodyLimit)
		answer := &answerOnce{ResponseWriter: w}
		defer func() {
			fault := recover()
			if fault == nil {
				return
			}
			if err, ok := fault.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(fault)
			}
			log.Error("handler panicked", "request", id, "method", r.Method, "path", r.URL.Path, "panic", fault, "stack", string(debug.Stack()))
			if !answer.begun {
				WriteProblem(w, Internal.WithMembers(map[string]any{"request_id": id}))
			}
		}()
		route(mux, answer, r)
	})
}

// route serves with the mux, but answers its plain-text 404 and 405 as problems.
func route(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	if _, pattern := mux.Handler(r); pattern != "" {
		mux.ServeHTTP(w, r)
		return
	}
	probe := &headerOnly{header: http.Header{}}
	mux.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		p := *MethodNotAllowed
		p.Header = http.Header{"Allow": probe.header["Allow"]}
		WriteProblem(w, &p)
		return
	}
	WriteProblem(w, NotFound)
}

// answerOnce knows whether an answer has begun.
type answerOnce struct {
	http.ResponseWriter
	begun bool
}

func (a *answerOnce) WriteHeader(status int) {
	a.begun = true
	a.ResponseWriter.WriteHeader(status)
}

func (a *answerOnce) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answerOnce) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// headerOnly keeps a handler's status and header and drops its body.
type headerOnly struct {
	header http.Header
	status int
}

func (h *headerOnly) Header() http.Header         { return h.header }
func (h *headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (h *headerOnly) WriteHeader(status int)      { h.status = status }

// A StudentHandler serves a call of a known student. The error it gives, if
// any, is answered: one made of a [Problem] with that, any other as fallback says.
type StudentHandler func(w http.ResponseWriter, r *http.Request, student string) error

// ForStudents checks who is calling before anything else happens, and turns
// the handler's error into an answer. fallback maps errors that are not
// problems; it must not give nil.
func ForStudents(h StudentHandler, fallback func(*http.Request, error) *Problem) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		student, ok := Student(r)
		if !ok {
			WriteProblem(w, Unauthorized)
			return
		}
		err := h(w, r, student)
		if err == nil {
			return
		}
		p, ok := ProblemOf(err)
		if !ok {
			p = fallback(r, err)
		}
		WriteProblem(w, p)
	})
}
