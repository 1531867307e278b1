package tickets

import (
	"context"
	"errors"
	"net/http"

	"github.com/overbook/overbook/sut/httpapi"
)

func (s *Service) deleteHold(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	id, err := holdID(r, unknownHold)
	if err != nil {
		return httpapi.Answer{}, err
	}
	if err := asked(r, &struct{}{}); err != nil {
		return httpapi.Answer{}, err
	}
	var answer httpapi.Answer
	err = s.store.changeOrder(r.Context(), id, causeOf(httpapi.CauseOf(r), who.Name), func(ctx context.Context, o *order) (bool, error) {
		now := s.cfg.Clock.Now()
		ended, over, err := o.over(ctx, who, now)
		if err != nil || over != nil {
			answer = answerOf(over)
			return ended, err
		}
		if err := o.release(ctx, now); err != nil {
			return false, err
		}
		state := seatFree
		if o.seat.state == seatQuarantined {
			state = seatQuarantined
		}
		answer = httpapi.JSON(http.StatusOK, map[string]any{"hold_id": id, "state": o.hold.state, "seat": o.hold.seat, "seat_state": state})
		return true, nil
	})
	if errors.Is(err, errNoOrder) {
		err = unknownHold.Err()
	}
	return answer, err
}
