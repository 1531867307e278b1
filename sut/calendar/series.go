package calendar

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

func (s *Service) patchSeries(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	var in when
	id, err := pathID(r, "series", unknownSeries)
	if err != nil {
		return httpapi.Answer{}, err
	}
	op, err := asked(r, who, opMoveSeries, id.String(), &in)
	if err != nil {
		return httpapi.Answer{}, err
	}
	times, err := in.read()
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.operate(r.Context(), op, moveSeries(id, times, in.Zone))
}

// moveSeries decides a move of the principal's series: the first appointment
// goes to the given times, each other one to the same times by the clock as
// many weeks later as it is in the series. Those that are over stay.
func moveSeries(id uuid.UUID, times civil, zone string) decision {
	return func(ctx context.Context, c *change) (httpapi.Answer, error) {
		ids, err := database.Rows(ctx, c.tx, pgx.RowTo[uuid.UUID], sqlSeries, id, c.by.actor)
		if err != nil {
			return httpapi.Answer{}, fmt.Errorf("find the appointments of series %s: %w", id, err)
		}
		if len(ids) == 0 {
			return httpapi.Answer{}, unknownSeries.Err()
		}
		all, err := c.lockOwn(ctx, c.by.actor, ids)
		if err != nil {
			return httpapi.Answer{}, err
		}
		var left []*appointment
		var moves []move
		for _, a := range all {
			if c.over(a) {
				continue
			}
			to, err := times.week(int(*a.seriesNo))
			if err != nil {
				return httpapi.Answer{}, err
			}
			left, moves = append(left, a), append(moves, move{a.id, to, zone})
		}
		if len(left) == 0 {
			return refused(appointmentOver, "series_id", id), nil
		}
		no, err := c.moveAll(ctx, left, moves)
		if err != nil || no != nil {
			return answerOf(no), err
		}
		return httpapi.JSON(http.StatusOK, viewSeries(id, all)), nil
	}
}
