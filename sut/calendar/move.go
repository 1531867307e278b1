package calendar

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// rescheduleMost is how many appointments one call may move.
const rescheduleMost = 50

// A move is where an appointment shall go.
type move struct {
	appointment uuid.UUID
	to          span
	zone        string
}

func (s *Service) patchAppointment(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	var in when
	id, err := pathID(r, "appointment", unknownAppointment)
	if err != nil {
		return httpapi.Answer{}, err
	}
	op, err := asked(r, who, opMove, id.String(), &in)
	if err != nil {
		return httpapi.Answer{}, err
	}
	to, err := in.at()
	if err != nil {
		return httpapi.Answer{}, err
	}
	return s.operate(r.Context(), op, reschedule([]move{{id, to, in.Zone}}, func(moved []*appointment) any { return view(moved[0]) }))
}

// at is when a single appointment is. The error is made of a problem.
func (w when) at() (span, error) {
	times, err := w.read()
	if err != nil {
		return span{}, err
	}
	return times.week(0)
}

func (s *Service) postReschedule(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	var in struct {
		Moves []struct {
			when

			Appointment string `json:"appointment_id"`
		} `json:"moves"`
	}
	op, err := asked(r, who, opReschedule, "", &in)
	if err != nil {
		return httpapi.Answer{}, err
	}
	if len(in.Moves) == 0 || len(in.Moves) > rescheduleMost {
		return httpapi.Answer{}, httpapi.BadRequest.With(fmt.Sprintf("\"moves\" must name 1 to %d appointments, not %d", rescheduleMost, len(in.Moves))).Err()
	}
	moves, seen := make([]move, len(in.Moves)), map[uuid.UUID]bool{}
	for i, m := range in.Moves {
		id, ok := readID(m.Appointment)
		if !ok {
			return httpapi.Answer{}, unknownAppointment.Err()
		}
		if seen[id] {
			return httpapi.Answer{}, httpapi.BadRequest.With(fmt.Sprintf("\"moves\" names appointment %s twice", id)).Err()
		}
		seen[id] = true
		to, err := m.at()
		if err != nil {
			return httpapi.Answer{}, err
		}
		moves[i] = move{id, to, m.Zone}
	}
	return s.operate(r.Context(), op, reschedule(moves, func(moved []*appointment) any {
		return map[string]any{"appointments": views(moved)}
	}))
}

// reschedule decides moves of the principal's appointments: all or none,
// judged when all have moved. The answer is made of them, in the moves' order.
func reschedule(moves []move, answer func(moved []*appointment) any) decision {
	return func(ctx context.Context, c *change) (httpapi.Answer, error) {
		ids := make([]uuid.UUID, len(moves))
		for i, m := range moves {
			ids[i] = m.appointment
		}
		own, err := c.lockOwn(ctx, c.by.actor, ids)
		if err != nil {
			return httpapi.Answer{}, err
		}
		for _, a := range own {
			if c.over(a) {
				return refused(appointmentOver, "appointment_id", a.id), nil
			}
		}
		no, err := c.moveAll(ctx, own, moves)
		if err != nil || no != nil {
			return answerOf(no), err
		}
		return httpapi.JSON(http.StatusOK, answer(own)), nil
	}
}

// answerOf is the refusal, if there is one.
func answerOf(no *httpapi.Answer) httpapi.Answer {
	if no == nil {
		return httpapi.Answer{}
	}
	return *no
}

// moveAll moves each appointment, which is locked and not over, as the move of
// the same place says, and writes it down. It gives the refusal, if it is one,
// and then has changed nothing; so it has after an error made of a problem.
func (c *change) moveAll(ctx context.Context, all []*appointment, moves []move) (*httpapi.Answer, error) {
	for _, m := range moves {
		if err := m.to.ahead(c.now, c.cfg.Horizon); err != nil {
			return nil, err
		}
	}
	var taken int64
	fits, err := c.fits(ctx, func(ctx context.Context) (err error) {
		taken, err = c.shift(ctx, all, moves)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !fits {
		no := refused(timeTaken, "resource_id", taken)
		return &no, nil
	}
	for i, a := range all {
		a.start, a.end, a.zone = moves[i].to.start, moves[i].to.end, moves[i].zone
	}
	return nil, c.announce(ctx, all, eventMoved, typeMoved)
}

// shift writes the new times, resource by resource, and has the rule of overlap
// judge each resource when all of its appointments have moved. With an error it
// gives the resource at which it was met.
func (c *change) shift(ctx context.Context, all []*appointment, moves []move) (int64, error) {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, k int) int { return cmp.Compare(all[i].resource, all[k].resource) })
	for n, i := range order {
		a, m := all[i], moves[i]
		if n == 0 || all[order[n-1]].resource != a.resource {
			if _, err := c.tx.Exec(ctx, sqlDeferOverlap); err != nil {
				return a.resource, fmt.Errorf("resource %d: put off the rule of overlap: %w", a.resource, err)
			}
		}
		if err := c.one(ctx, a.id, "move it", sqlMove, a.id, m.to.start, m.to.end, m.zone); err != nil {
			return a.resource, err
		}
		if n+1 == len(order) || all[order[n+1]].resource != a.resource {
			if _, err := c.tx.Exec(ctx, sqlJudgeOverlap); err != nil {
				return a.resource, fmt.Errorf("resource %d: judge the moves: %w", a.resource, err)
			}
		}
	}
	return 0, nil
}

// over reports whether an appointment can be neither moved nor cancelled any
// more by its member.
func (c *change) over(a *appointment) bool { return !a.active() || !a.start.After(c.now) }

// lockOwn locks the member's appointments and their resources, and gives them
// in the order of the ids. One that does not exist, or is somebody else's, is a
// problem.
func (c *change) lockOwn(ctx context.Context, member string, ids []uuid.UUID) ([]*appointment, error) {
	resources, err := database.Rows(ctx, c.tx, pgx.RowTo[int64], sqlResourcesOf, ids)
	if err != nil {
		return nil, fmt.Errorf("find the resources of %d appointments: %w", len(ids), err)
	}
	for _, id := range resources {
		if _, err := c.lockResource(ctx, id); err != nil {
			return nil, err
		}
	}
	locked, err := c.lockAppointments(ctx, ids)
	if err != nil {
		return nil, err
	}
	own := make([]*appointment, len(ids))
	for i, id := range ids {
		at := slices.IndexFunc(locked, func(a appointment) bool { return a.id == id })
		if at < 0 || locked[at].member != member {
			return nil, unknownAppointment.Err()
		}
		own[i] = &locked[at]
	}
	return own, nil
}
