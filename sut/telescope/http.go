package telescope

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
	"github.com/overbook/overbook/sut/idempotency"
)

// Handler serves the telescope's HTTP calls.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	const member, staff = httpapi.RoleMember, httpapi.RoleStaff
	guard := httpapi.Guard{Roles: []httpapi.Role{member, staff}, Clock: s.cfg.Clock, Fallback: s.problemOf, Answered: s.meters.answered}
	for _, route := range []struct {
		pattern, operation string
		call               httpapi.Call
		allowed            []httpapi.Role
	}{
		{"POST /telescope/slots/{id}/reservations", opBook, s.postReservation, []httpapi.Role{member}},
		{"DELETE /telescope/reservations/{booking}", opCancel, s.deleteReservation, []httpapi.Role{member}},
		{"POST /telescope/slots/{id}/closure", opClose, s.postClosure, []httpapi.Role{staff}},
		{"POST /telescope/slots/{id}/reopening", opReopen, s.postReopening, []httpapi.Role{staff}},
		{"POST /telescope/maintenance-imports", opImport, s.postImport, []httpapi.Role{staff}},
		{"POST /telescope/staff/flagged/{booking}/resolution", opResolve, s.postResolution, []httpapi.Role{staff}},
		{"GET /telescope/staff/flagged", "flagged", s.getFlagged, []httpapi.Role{staff}},
		{"GET /telescope/operations/{key}", "operation", s.getOperation, []httpapi.Role{member, staff}},
		{"GET /telescope/account/reservations", "account", s.getAccount, []httpapi.Role{member}},
		{"GET /telescope/slots/{id}", "slot", s.getSlot, []httpapi.Role{member, staff}},
		{"GET /telescope/days/{date}/slots", "day", s.getDay, []httpapi.Role{member, staff}},
	} {
		mux.Handle(route.pattern, guard.Admit(route.operation, route.call, route.allowed...))
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
		fingerprint: fingerprint, cause: httpapi.CauseOf(r),
	}, nil
}

// slotID reads the slot of the path. What can't be one is unknown.
func slotID(r *http.Request) (int64, error) {
	word := r.PathValue("id")
	id, err := strconv.ParseInt(word, 10, 64)
	if err != nil || id < 1 || strconv.FormatInt(id, 10) != word {
		return 0, unknownSlot.Err()
	}
	return id, nil
}

func bookingID(r *http.Request) (string, error) {
	id, err := uuid.Parse(r.PathValue("booking"))
	if err != nil {
		return "", unknownBooking.Err()
	}
	return id.String(), nil
}

// onSlot serves a write on one slot that takes no body.
func (s *Service) onSlot(r *http.Request, who httpapi.Principal, kind string, decide func(int64) decision) (httpapi.Answer, error) {
	id, err := slotID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	op, err := asked(r, who, kind, strconv.FormatInt(id, 10), &struct{}{})
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.operate(r.Context(), op, decide(id))
}

func (s *Service) postReservation(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	answer, err := s.onSlot(r, who, opBook, book)
	if err == nil && answer.Status == http.StatusCreated {
		answer.Header = located(answer)
	}
	return answer, err
}

// located adds where the booking is, also to an answer of long ago.
func located(a httpapi.Answer) http.Header {
	var b reservation
	if json.Unmarshal(a.Body, &b) != nil || b.Booking == "" {
		return a.Header
	}
	h := a.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Location", "/telescope/reservations/"+b.Booking)
	return h
}

func (s *Service) deleteReservation(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	id, err := bookingID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	op, err := asked(r, who, opCancel, id, &struct{}{})
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.operate(r.Context(), op, cancel(id))
}

func (s *Service) postClosure(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	return s.onSlot(r, who, opClose, closure)
}

func (s *Service) postReopening(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	return s.onSlot(r, who, opReopen, reopening)
}

func (s *Service) postImport(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	var in maintenance
	op, err := asked(r, who, opImport, "", &in)
	if err == nil {
		err = in.check()
	}
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.operate(r.Context(), op, maintain(in.Slots))
}

func (s *Service) postResolution(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	id, err := bookingID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	var in struct {
		Decision string `json:"decision"`
	}
	op, err := asked(r, who, opResolve, id, &in)
	if err == nil && in.Decision != decisionRelease && in.Decision != decisionKeep {
		err = httpapi.BadRequest.With("\"decision\" must be release or keep").Err()
	}
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.operate(r.Context(), op, resolution(id, in.Decision))
}

func (s *Service) getSlot(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	id, err := slotID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.slot(r.Context(), id, who)
}

func (s *Service) getAccount(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	return s.account(r.Context(), who.Name)
}

func (s *Service) getFlagged(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	return s.flagged(r.Context())
}

func (s *Service) getOperation(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	kind := opBook
	if r.URL.Query().Has("type") {
		kind = r.URL.Query().Get("type")
	}
	if !slices.Contains([]string{opBook, opCancel, opClose, opReopen, opImport, opResolve}, kind) {
		return httpapi.Answer{}, httpapi.BadRequest.With("type must be book, cancel, close, reopen, import or resolve").Err()
	}
	return s.lookUp(r.Context(), idempotency.Scope{Principal: who.Name, Type: kind, Key: r.PathValue("key")})
}

func (s *Service) getDay(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	day, err := s.schedule.day(r.Context(), r.PathValue("date"))
	if err != nil {
		return httpapi.Answer{}, err
	}
	return httpapi.JSON(http.StatusOK, day), nil
}
