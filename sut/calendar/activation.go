package calendar

import (
	"net/http"

	"github.com/overbook/overbook/sut/httpapi"
)

func (s *Service) postActivation(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) deleteActivation(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}

func (s *Service) getConflicts(*http.Request, httpapi.Principal) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}
