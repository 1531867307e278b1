package calendar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/overbook/overbook/sut/httpapi"
)

// A series has so many appointments, in as many weeks.
const (
	weeklyLeast = 2
	weeklyMost  = 53
)

// A wish is what somebody wants to book: one appointment, or one a week.
type wish struct {
	resource int64
	zone     string
	spans    []span
	series   bool
}

func (s *Service) postAppointment(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	var in struct {
		when

		Weekly *int `json:"weekly"`
	}
	id, err := resourceID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	op, err := asked(r, who, opBook, strconv.FormatInt(id, 10), &in)
	if err != nil {
		return httpapi.Answer{}, err
	}
	w := wish{resource: id, zone: in.Zone, series: in.Weekly != nil}
	weeks := 1
	if w.series {
		weeks = *in.Weekly
		if weeks < weeklyLeast || weeks > weeklyMost {
			return httpapi.Answer{}, httpapi.BadRequest.With(fmt.Sprintf("\"weekly\" must be %d to %d, or be left out", weeklyLeast, weeklyMost)).Err()
		}
	}
	times, err := in.read()
	if err != nil {
		return httpapi.Answer{}, err
	}
	for n := range weeks {
		at, err := times.week(n)
		if err != nil {
			return httpapi.Answer{}, err
		}
		w.spans = append(w.spans, at)
	}
	answer, err := s.operate(r.Context(), op, book(w))
	if err == nil && answer.Status == http.StatusCreated {
		answer.Header = located(answer)
	}
	return answer, err
}

// located adds where the appointment is, also to an answer of long ago. A
// series is nowhere to be seen as one.
func located(a httpapi.Answer) http.Header {
	var v appointmentView
	if json.Unmarshal(a.Body, &v) != nil || v.Appointment == "" {
		return a.Header
	}
	h := a.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Location", "/calendar/appointments/"+v.Appointment)
	return h
}

// book decides a booking by the operation's principal: all appointments of the
// wish or none.
func book(w wish) decision {
	return func(ctx context.Context, c *change) (httpapi.Answer, error) {
		res, err := c.lockResource(ctx, w.resource)
		if errors.Is(err, errNoResource) {
			err = unknownResource.Err()
		}
		if err != nil {
			return httpapi.Answer{}, err
		}
		for _, at := range w.spans {
			if err := at.ahead(c.now, c.cfg.Horizon); err != nil {
				return httpapi.Answer{}, err
			}
		}
		if res.state != resourceActive {
			return refused(resourceNotActive, "resource_id", res.id), nil
		}
		booked := w.appointments(c.by.actor)
		fits, err := c.fits(ctx, func(ctx context.Context) error { return c.insert(ctx, booked) })
		if err != nil {
			return httpapi.Answer{}, err
		}
		if !fits {
			return refused(timeTaken, "resource_id", res.id), nil
		}
		if err := c.announce(ctx, booked, stateBooked, typeBooked); err != nil {
			return httpapi.Answer{}, err
		}
		if w.series {
			return httpapi.JSON(http.StatusCreated, viewSeries(*booked[0].series, booked)), nil
		}
		return httpapi.JSON(http.StatusCreated, view(booked[0])), nil
	}
}

// appointments are what the wish comes to, with the ids that they will have for
// ever, here and at the provider.
func (w wish) appointments(member string) []*appointment {
	var series *uuid.UUID
	if w.series {
		id := uuid.New()
		series = &id
	}
	booked := make([]*appointment, len(w.spans))
	for n, at := range w.spans {
		a := &appointment{
			id: uuid.New(), resource: w.resource, member: member, start: at.start, end: at.end, zone: w.zone,
			state: stateBooked, series: series,
		}
		a.eventID = "appointment-" + a.id.String()
		if w.series {
			no := int32(n) //nolint:gosec // 52 at most
			a.seriesNo = &no
		}
		booked[n] = a
	}
	return booked
}

// fits runs do under a savepoint and reports whether the one rule of overlap
// lets it stand. If not, nothing of it is left, and the transaction goes on.
func (c *change) fits(ctx context.Context, do func(ctx context.Context) error) (bool, error) {
	savepoint, err := c.tx.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("set a savepoint: %w", err)
	}
	err = do(ctx)
	switch {
	case err == nil:
		return true, wrapped(savepoint.Commit(ctx), "release the savepoint")
	case overlaps(err):
		return false, wrapped(savepoint.Rollback(ctx), "roll back to the savepoint")
	}
	return false, err
}

// insert writes the rows of new appointments.
func (c *change) insert(ctx context.Context, booked []*appointment) error {
	for _, a := range booked {
		err := c.one(ctx, a.id, "book it", sqlInsert, a.id, a.resource, a.member, a.start, a.end, a.zone, a.eventID, a.series, a.seriesNo, c.by.op, c.now)
		if err != nil {
			return err
		}
	}
	return nil
}

// announce writes down what happened to each, and has the provider told.
func (c *change) announce(ctx context.Context, all []*appointment, event, kind string) error {
	for _, a := range all {
		if err := c.note(ctx, a, event, ""); err != nil {
			return err
		}
		if err := c.tell(ctx, a, kind); err != nil {
			return err
		}
	}
	return nil
}

// An appointmentView is an appointment as writes answer it.
type appointmentView struct {
	Appointment string `json:"appointment_id"`
	Resource    int64  `json:"resource_id"`
	Start       string `json:"start"`
	End         string `json:"end"`
	Zone        string `json:"time_zone"`
	State       string `json:"state"`
	Event       string `json:"event_id"`
}

func view(a *appointment) appointmentView {
	return appointmentView{a.id.String(), a.resource, stamp(a.start), stamp(a.end), a.zone, a.state, a.eventID}
}

func views(all []*appointment) []appointmentView {
	out := make([]appointmentView, len(all))
	for i, a := range all {
		out[i] = view(a)
	}
	return out
}

// A seriesView is a series as writes answer it, in the order of its weeks.
type seriesView struct {
	Series       string            `json:"series_id"`
	Appointments []appointmentView `json:"appointments"`
}

func viewSeries(id uuid.UUID, all []*appointment) seriesView {
	return seriesView{id.String(), views(all)}
}
