package calendar

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/httpapi"
)

func (s *Service) deleteAppointment(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	id, err := pathID(r, "appointment", unknownAppointment)
	if err != nil {
		return httpapi.Answer{}, err
	}
	op, err := asked(r, who, opCancel, id.String(), &struct{}{})
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.operate(r.Context(), op, cancel(id))
}

// cancel decides a cancellation by the appointment's member. Its time is free
// with the commit; the provider's event is deleted later.
func cancel(id uuid.UUID) decision {
	return func(ctx context.Context, c *change) (httpapi.Answer, error) {
		own, err := c.lockOwn(ctx, c.by.actor, []uuid.UUID{id})
		if err != nil {
			return httpapi.Answer{}, err
		}
		a := own[0]
		if c.over(a) {
			return refused(appointmentOver, "appointment_id", id), nil
		}
		if err := c.end(ctx, a, stateCancelled, "", true); err != nil {
			return httpapi.Answer{}, err
		}
		return httpapi.JSON(http.StatusOK, map[string]any{"appointment_id": id, "state": a.state}), nil
	}
}
