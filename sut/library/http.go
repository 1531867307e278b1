package library

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/httpapi"
	"github.com/overbook/overbook/sut/upstream"
)

// The library's own problems.
var (
	seatTaken = &httpapi.Problem{
		Type: "seat-taken", Title: "Somebody else has the seat", Status: http.StatusConflict,
		Detail: "the seat went to another student; choose another one",
	}
	credentialRejected = &httpapi.Problem{
		Type: "credential-rejected", Title: "The seat system does not accept your credential", Status: http.StatusForbidden,
		Detail: "nothing was reserved; sign in to the seat system again",
	}
	upstreamFailed = &httpapi.Problem{
		Type: "upstream-failed", Title: "The seat system failed", Status: http.StatusBadGateway,
		Detail: "nothing is reserved for you by this action; prepare a new one to try again",
	}
	unknownAction = &httpapi.Problem{
		Type: "unknown-action", Title: "No such action", Status: http.StatusNotFound,
		Detail: "you have no action with this id",
	}
	unknownIntent = &httpapi.Problem{
		Type: "unknown-intent", Title: "No such intent", Status: http.StatusNotFound,
		Detail: "you have no intent with this id",
	}
	actionExpired = &httpapi.Problem{
		Type: "action-expired", Title: "The action has expired", Status: http.StatusGone,
		Detail: "it was prepared too long ago and was never confirmed; prepare a new one",
	}
	upstreamUnreadable = &httpapi.Problem{
		Type: "upstream-failed", Title: "The seat system gives no answer", Status: http.StatusBadGateway,
		Detail: "try again in a moment",
	}
)

var seatName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// wantedMost is how many seats a wait may name.
const wantedMost = 100

// Handler serves the library's HTTP calls.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	student := func(h httpapi.StudentHandler) http.Handler { return httpapi.ForStudents(h, s.problemOf) }
	mux.Handle("POST /library/actions", student(s.postAction))
	mux.Handle("POST /library/actions/{id}/confirm", student(s.postConfirm))
	mux.Handle("GET /library/intents/{id}", student(s.getIntent))
	mux.Handle("POST /library/waits", student(s.postWait))
	mux.Handle("GET /library/seats", student(s.getSeats))
	mux.Handle("GET /library/charges/current", student(s.getCharge))
	httpapi.ServeHealth(mux, s.cfg.Replica)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		s.metrics.write(w)
	})
	if s.cfg.TestMode {
		httpapi.ServeClock(mux, s.cfg.Clock)
	}
	return httpapi.Wrap(mux, s.log)
}

// problemOf maps errors from inside to problems. What is wrong with the
// database passes: the client may try again and gets the same intent.
func (s *Service) problemOf(r *http.Request, err error) *httpapi.Problem {
	switch {
	case errors.Is(err, upstream.ErrRejected):
		return credentialRejected
	case errors.Is(err, upstream.ErrUnavailable):
		return upstreamUnreadable
	}
	s.log.Warn("call could not be served", "request", httpapi.RequestID(r.Context()), "method", r.Method, "path", r.URL.Path, "error", err)
	return httpapi.Busy
}

func (s *Service) postAction(w http.ResponseWriter, r *http.Request, student string) error {
	var in struct {
		Seat string `json:"seat"`
	}
	if err := httpapi.ReadJSON(r, &in); err != nil {
		return err
	}
	if !seatName.MatchString(in.Seat) {
		return badSeat(in.Seat)
	}
	id, expires, err := s.store.prepare(r.Context(), student, in.Seat, s.cfg.ActionTTL)
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusCreated, map[string]string{
		"action_id": id, "seat": in.Seat, "expires_at": expires.Format(time.RFC3339Nano),
	})
	return nil
}

func badSeat(name string) error {
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	return httpapi.BadRequest.With("\"seat\" must be like A-001 (letters, digits, . _ -, up to 32), not \"" + name + "\"").Err()
}

func (s *Service) postConfirm(w http.ResponseWriter, r *http.Request, student string) error {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return unknownAction.Err()
	}
	rec, err := s.confirm(r.Context(), student, id.String(), httpapi.CauseOf(r))
	if err != nil {
		return err
	}
	return answerConfirm(w, rec)
}

// answerConfirm says what became of an intent; problems carry it too.
func answerConfirm(w http.ResponseWriter, r record) error {
	body := intentBody(r)
	switch r.State {
	case stateSucceeded:
		httpapi.WriteJSON(w, http.StatusCreated, body)
		return nil
	case stateRace:
		return seatTaken.WithMembers(body).Err()
	case stateAuth:
		return credentialRejected.WithMembers(body).Err()
	case stateUpstream:
		return upstreamFailed.WithMembers(body).Err()
	}
	w.Header().Set("Location", "/library/intents/"+r.IntentID)
	httpapi.WriteJSON(w, http.StatusAccepted, body)
	return nil
}

func intentBody(r record) map[string]any {
	body := map[string]any{
		"intent_id": r.IntentID, "action_id": r.ActionID, "student": r.Student, "state": r.State, "kind": r.Kind, "seat": r.Seat,
	}
	if r.Seat == "" || r.State == stateWaiting {
		body["seat"] = nil // a wait has no seat yet
	}
	return body
}

func (s *Service) getIntent(w http.ResponseWriter, r *http.Request, student string) error {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return unknownIntent.Err()
	}
	rec, known, err := s.store.lookUpIntent(r.Context(), id.String())
	if err != nil {
		return err
	}
	if !known || rec.Student != student {
		return unknownIntent.Err()
	}
	httpapi.WriteJSON(w, http.StatusOK, intentBody(rec))
	return nil
}

func (s *Service) postWait(w http.ResponseWriter, r *http.Request, student string) error {
	var in struct {
		Seats []string `json:"seats"`
	}
	if err := httpapi.ReadJSON(r, &in); err != nil {
		return err
	}
	if len(in.Seats) > wantedMost {
		return httpapi.BadRequest.With("\"seats\" may name at most 100 seats").Err()
	}
	var wanted []string
	for _, seat := range in.Seats {
		if !seatName.MatchString(seat) {
			return badSeat(seat)
		}
		if !slices.Contains(wanted, seat) {
			wanted = append(wanted, seat)
		}
	}
	c := consent{actionID: uuid.NewString(), intentID: uuid.NewString(), student: student, cause: httpapi.CauseOf(r)}
	if err := s.store.registerWait(r.Context(), c, wanted, s.cfg.ActionTTL); err != nil {
		return err
	}
	return answerConfirm(w, record{IntentID: c.intentID, ActionID: c.actionID, Student: student, State: stateRequested, Kind: kindWait})
}

func (s *Service) getSeats(w http.ResponseWriter, r *http.Request, student string) error {
	list, err := s.freeSeats(r.Context(), upstream.Caller{Student: student, Cause: httpapi.CauseOf(r)})
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, map[string]any{"seats": list.V})
	return nil
}

func (s *Service) getCharge(w http.ResponseWriter, r *http.Request, student string) error {
	charge, err := s.currentCharge(r.Context(), upstream.Caller{Student: student, Cause: httpapi.CauseOf(r)})
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, map[string]any{"charge": charge})
	return nil
}
