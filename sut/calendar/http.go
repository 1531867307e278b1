package calendar

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
	"github.com/overbook/overbook/sut/idempotency"
)

// A route is one call that is served.
type route struct {
	pattern, operation string // the operation's name is for counting
	call               httpapi.Call
	allowed            []httpapi.Role
}

// routes are all calls but those that every design has.
func (s *Service) routes() []route {
	member, staff := []httpapi.Role{httpapi.RoleMember}, []httpapi.Role{httpapi.RoleStaff}
	both := []httpapi.Role{httpapi.RoleMember, httpapi.RoleStaff}
	return []route{
		{"POST /calendar/resources", "resource", s.postResource, staff},
		{"POST /calendar/resources/{id}/activation", "activate", s.postActivation, staff},
		{"DELETE /calendar/resources/{id}/activation", "deactivate", s.deleteActivation, staff},
		{"GET /calendar/resources/{id}", "show-resource", s.getResource, staff},
		{"GET /calendar/resources/{id}/availability", "availability", s.getAvailability, both},
		{"POST /calendar/resources/{id}/appointments", opBook, s.postAppointment, member},
		{"PATCH /calendar/appointments/{appointment}", opMove, s.patchAppointment, member},
		{"PATCH /calendar/series/{series}", opMoveSeries, s.patchSeries, member},
		{"POST /calendar/reschedules", opReschedule, s.postReschedule, member},
		{"DELETE /calendar/appointments/{appointment}", opCancel, s.deleteAppointment, member},
		{"GET /calendar/appointments/{appointment}", "appointment", s.getAppointment, both},
		{"POST /calendar/appointments/{appointment}/sync", "sync", s.postSync, staff},
		{"GET /calendar/conflicts", "conflicts", s.getConflicts, staff},
		{"POST /calendar/conflicts/{conflict}/resolution", opResolve, s.postResolution, staff},
	}
}

// Handler serves the calendar's HTTP calls.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	guard := httpapi.Guard{
		Roles: []httpapi.Role{httpapi.RoleMember, httpapi.RoleStaff}, Clock: s.cfg.Clock,
		Fallback: s.problemOf, Answered: s.meters.answered,
	}
	for _, r := range s.routes() {
		mux.Handle(r.pattern, guard.Admit(r.operation, r.call, r.allowed...))
	}
	httpapi.ServeHealth(mux, s.cfg.Replica)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		s.meters.write(w)
	})
	if s.cfg.TestMode {
		httpapi.ServeClock(mux, s.cfg.Clock)
	}
	return httpapi.Wrap(mux, s.log)
}

// problemOf maps errors from inside to problems.
func (s *Service) problemOf(r *http.Request, err error) *httpapi.Problem {
	log := s.log.With("request", httpapi.RequestID(r.Context()), "method", r.Method, "path", r.URL.Path, "error", err)
	switch {
	case errors.Is(err, database.ErrOutcomeUnknown):
		log.Warn("the outcome of a call is not known")
		return outcomeUnknown
	case overlaps(err): // the rule was broken by the commit itself: nothing is stored of that
		return timeTaken
	case database.Passing(err):
		log.Warn("call could not be served")
		return httpapi.Busy
	}
	log.Error("call failed in a way that nobody thought of")
	return httpapi.Internal.WithMembers(map[string]any{"request_id": httpapi.RequestID(r.Context())})
}

// asked reads a write: its key, and its body into v, which is what the
// fingerprint is of, with the target.
func asked(r *http.Request, who httpapi.Principal, kind, target string, v any) (operation, error) {
	key, err := httpapi.IdempotencyKey(r)
	if err != nil {
		return operation{}, err
	}
	body, err := httpapi.ReadBody(r)
	if err != nil {
		return operation{}, err
	}
	if err := httpapi.DecodeObject(body, v); err != nil {
		return operation{}, err
	}
	fingerprint, err := idempotency.Fingerprint(kind, target, body)
	if err != nil {
		return operation{}, httpapi.BadRequest.With(err.Error()).Err()
	}
	return operation{
		scope:       idempotency.Scope{Principal: who.Name, Type: kind, Key: key},
		fingerprint: fingerprint, by: causeOf(httpapi.CauseOf(r), who.Name),
	}, nil
}

// read reads the body of a call without a key, a JSON object, into v.
func read(r *http.Request, v any) error {
	body, err := httpapi.ReadBody(r)
	if err != nil {
		return err
	}
	return httpapi.DecodeObject(body, v)
}

// resourceID reads the resource of the path. What can't be one is unknown.
func resourceID(r *http.Request) (int64, error) {
	word := r.PathValue("id")
	id, err := strconv.ParseInt(word, 10, 64)
	if err != nil || id < 1 || strconv.FormatInt(id, 10) != word {
		return 0, unknownResource.Err()
	}
	return id, nil
}

// pathID reads an id of the path. What can't be one does not exist.
func pathID(r *http.Request, name string, missing *httpapi.Problem) (uuid.UUID, error) {
	id, ok := readID(r.PathValue(name))
	if !ok {
		return uuid.Nil, missing.Err()
	}
	return id, nil
}

// readID reads an id, which is written in one way only.
func readID(word string) (uuid.UUID, bool) {
	id, err := uuid.Parse(word)
	return id, err == nil && id.String() == word
}
