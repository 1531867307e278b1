package tickets

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// Handler serves the ticket shop's HTTP calls.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	const member, staff = httpapi.RoleMember, httpapi.RoleStaff
	guard := httpapi.Guard{Roles: []httpapi.Role{member, staff}, Clock: s.cfg.Clock, Fallback: s.problemOf, Answered: s.meters.answered}
	for _, route := range []struct {
		pattern, operation string
		call               httpapi.Call
		allowed            []httpapi.Role
	}{
		{"POST /tickets/shows", "show", s.postShow, []httpapi.Role{staff}},
		{"GET /tickets/shows/{show}/seats", "seats", s.getSeats, []httpapi.Role{member, staff}},
		{"POST /tickets/shows/{show}/holds", "claim", s.postHold, []httpapi.Role{member}},
		{"DELETE /tickets/holds/{hold}", "release", s.deleteHold, []httpapi.Role{member}},
		{"POST /tickets/holds/{hold}/charges", "charge", s.postCharge, []httpapi.Role{member}},
		{"GET /tickets/orders/{hold}", "order", s.getOrder, []httpapi.Role{member, staff}},
		{"GET /tickets/ops/desync", "desync", s.desync, []httpapi.Role{staff}},
		{"POST /tickets/ops/refunds", "refund", s.refundNow, []httpapi.Role{staff}},
	} {
		mux.Handle(route.pattern, guard.Admit(route.operation, route.call, route.allowed...))
	}
	mux.HandleFunc("POST /tickets/provider-callbacks", s.serveCallback)
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
	broken, ours := errors.AsType[*brokenOrder](err)
	switch {
	case ours:
		log.Error("an order is not what its rules promise", "what", broken.what)
	case errors.Is(err, database.ErrOutcomeUnknown):
		log.Warn("the outcome of a call is not known")
		return outcomeUnknown
	case database.Passing(err):
		log.Warn("call could not be served")
		return httpapi.Busy
	default:
		log.Error("call failed in a way that nobody thought of")
	}
	return httpapi.Internal.WithMembers(map[string]any{"request_id": httpapi.RequestID(r.Context())})
}

// asked reads a call's body, a JSON object, into v.
func asked(r *http.Request, v any) error {
	body, err := httpapi.ReadBody(r)
	if err != nil {
		return err
	}
	return httpapi.DecodeObject(body, v)
}

// showID reads the show of the path. What can't be one is unknown.
func showID(r *http.Request) (int64, error) {
	word := r.PathValue("show")
	id, err := strconv.ParseInt(word, 10, 64)
	if err != nil || id < 1 || strconv.FormatInt(id, 10) != word {
		return 0, unknownShow.Err()
	}
	return id, nil
}

// holdID reads the hold of the path. What can't be one does not exist.
func holdID(r *http.Request, missing *httpapi.Problem) (uuid.UUID, error) {
	id, ok := orderID(r.PathValue("hold"))
	if !ok {
		return uuid.Nil, missing.Err()
	}
	return id, nil
}

// orderID reads an order's id, which is written in one way only.
func orderID(word string) (uuid.UUID, bool) {
	id, err := uuid.Parse(word)
	return id, err == nil && id.String() == word
}
