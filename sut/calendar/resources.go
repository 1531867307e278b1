package calendar

import (
	"context"

	"github.com/overbook/overbook/sut/httpapi"
)

// showResource is the answer of GET /calendar/resources/{id}, also what an
// activation and its end are answered with.
func (s *Service) showResource(context.Context, int64) (httpapi.Answer, error) {
	return httpapi.Answer{}, errNotBuilt
}
