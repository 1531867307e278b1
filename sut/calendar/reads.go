package calendar

import (
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/overbook/overbook/sut/database"
	"github.com/overbook/overbook/sut/httpapi"
)

// widest is the most time that one call asks the availability of.
const widest = 31 * 24 * time.Hour

// How far the provider is with an appointment.
const (
	syncPending = "PENDING"
	syncDone    = "DONE"
	syncParked  = "PARKED" // failed too often: waits for staff
)

// A wholeView is an appointment as its member and staff see it.
type wholeView struct {
	appointmentView

	Sync      string         `json:"sync"`
	Conflicts []conflictView `json:"conflicts"` // unresolved ones, oldest first
}

// A conflictView is an unresolved conflict.
type conflictView struct {
	Conflict    string    `json:"conflict_id"`
	Resource    int64     `json:"resource_id"`
	Appointment string    `json:"appointment_id"`
	Kind        string    `json:"kind"`
	External    string    `json:"external_event"`
	FoundAt     time.Time `json:"found_at"`
	FoundBy     string    `json:"found_by"`
}

func (s *Service) getAppointment(r *http.Request, who httpapi.Principal) (httpapi.Answer, error) {
	id, err := pathID(r, "appointment", unknownAppointment)
	if err != nil {
		return httpapi.Answer{}, err
	}
	member := ""
	found, err := database.Read(r.Context(), s.store.Store, func(row pgx.CollectableRow) (v wholeView, err error) {
		var start, end time.Time
		err = row.Scan(&v.Appointment, &v.Resource, &start, &end, &v.Zone, &v.State, &v.Event, &member, &v.Sync, &v.Conflicts)
		v.Start, v.End = stamp(start), stamp(end)
		return v, err
	}, sqlAppointment, id)
	if err != nil {
		return httpapi.Answer{}, err
	}
	if len(found) == 0 || who.Role != httpapi.RoleStaff && member != who.Name {
		return httpapi.Answer{}, unknownAppointment.Err()
	}
	return httpapi.JSON(http.StatusOK, found[0]), nil
}

// An availability is when a resource is busy, in order and merged.
type availability struct {
	Busy []busyView `json:"busy"`
	AsOf *string    `json:"as_of"` // of what others have at the provider, null before the first look
}

type busyView struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

func (s *Service) getAvailability(r *http.Request, _ httpapi.Principal) (httpapi.Answer, error) {
	id, err := resourceID(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	asked, err := rangeOf(r)
	if err != nil {
		return httpapi.Answer{}, err
	}
	type piece struct {
		asOf, start, end *time.Time
	}
	pieces, err := database.Read(r.Context(), s.store.Store, func(row pgx.CollectableRow) (p piece, err error) {
		err = row.Scan(&p.asOf, &p.start, &p.end)
		return p, err
	}, sqlBusy, id, asked.start, asked.end)
	if err != nil {
		return httpapi.Answer{}, err
	}
	if len(pieces) == 0 { // a resource that nothing is of gives one, of nothing
		return httpapi.Answer{}, unknownResource.Err()
	}
	var spans []span
	for _, p := range pieces {
		if p.start != nil && p.end != nil {
			spans = append(spans, span{*p.start, *p.end})
		}
	}
	doc := availability{Busy: []busyView{}}
	if at := pieces[0].asOf; at != nil {
		told := stamp(*at)
		doc.AsOf = &told
	}
	for _, b := range merged(spans) {
		doc.Busy = append(doc.Busy, busyView{stamp(b.start), stamp(b.end)})
	}
	return httpapi.JSON(http.StatusOK, doc), nil
}

// rangeOf reads the range that is asked about. The error is made of a problem.
func rangeOf(r *http.Request) (asked span, err error) {
	query := r.URL.Query()
	for _, end := range []struct {
		name string
		to   *time.Time
	}{{"from", &asked.start}, {"to", &asked.end}} {
		if *end.to, err = time.Parse(time.RFC3339, query.Get(end.name)); err != nil {
			return span{}, httpapi.BadRequest.With(fmt.Sprintf("%q must be an instant like 2026-03-29T07:00:00Z, with its + written as %%2B", end.name)).Err()
		}
	}
	switch {
	case !asked.end.After(asked.start):
		return span{}, badRange.With(`"to" must be after "from"`).Err()
	case asked.end.Sub(asked.start) > widest:
		return span{}, badRange.With("one call may ask about 31 days at most").Err()
	}
	return asked, nil
}

// merged puts spans together that overlap or touch. They are in the order of
// their starts, and so is what it gives.
func merged(spans []span) []span {
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 && !s.start.After(out[n-1].end) {
			if s.end.After(out[n-1].end) {
				out[n-1].end = s.end
			}
			continue
		}
		out = append(out, s)
	}
	return out
}
