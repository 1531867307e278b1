package calendar

import (
	"errors"
	"net/http"

	"github.com/overbook/overbook/sut/httpapi"
)

// errNotBuilt is of calls that nobody has built yet.
var errNotBuilt = errors.New("not built yet")

func (s *Service) postResource(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) getResource(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) getAvailability(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) postAppointment(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) patchAppointment(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) patchSeries(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) postReschedule(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) deleteAppointment(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) getAppointment(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) postSync(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) postResolution(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}
