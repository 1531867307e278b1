package calendar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// An appointmentAnswer is what an answer says of one appointment. Sync and
// Conflicts are of a read alone.
type appointmentAnswer struct {
	ID         string           `json:"appointment_id"`
	ResourceID int64            `json:"resource_id"`
	Start      time.Time        `json:"start"`
	End        time.Time        `json:"end"`
	Zone       string           `json:"time_zone"`
	State      string           `json:"state"`
	EventID    string           `json:"event_id"`
	Sync       string           `json:"sync"`
	Conflicts  []conflictAnswer `json:"conflicts"`
}

// A conflictAnswer is an unresolved conflict as staff see it.
type conflictAnswer struct {
	ID            string    `json:"conflict_id"`
	ResourceID    int64     `json:"resource_id"`
	AppointmentID string    `json:"appointment_id"`
	Kind          string    `json:"kind"`
	ExternalEvent string    `json:"external_event"`
	FoundAt       time.Time `json:"found_at"`
	FoundBy       string    `json:"found_by"`
}

// A seriesAnswer is what a weekly booking or a move of a series is answered.
type seriesAnswer struct {
	SeriesID     string              `json:"series_id"`
	Appointments []appointmentAnswer `json:"appointments"`
}

// A resourceAnswer is how a resource is.
type resourceAnswer struct {
	ID         int64  `json:"resource_id"`
	State      string `json:"state"`
	Contract   string `json:"provider_contract"`
	Policy     string `json:"conflict_policy"`
	Limit      int    `json:"conflict_limit"`
	Creation   string `json:"creation"`
	Unresolved int    `json:"unresolved"`
	Pending    int    `json:"pending"`
}

// An availabilityAnswer says when a resource is busy.
type availabilityAnswer struct {
	Busy []interval `json:"busy"`
	AsOf *time.Time `json:"as_of"`
}

// An interval is half open.
type interval struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

func (i interval) overlaps(o interval) bool { return i.Start.Before(o.End) && o.Start.Before(i.End) }

func (i interval) String() string {
	return i.Start.UTC().Format(wallForm) + " to " + i.End.UTC().Format(wallForm)
}

func (a appointmentAnswer) interval() interval { return interval{a.Start, a.End} }

// refused is the error of an answer that is not what a preparation needs.
func refused(op harness.Operation, want string) error {
	return fmt.Errorf("%s of %s: got %d %s %s, want %s", op.Kind, op.Caller, op.Status, op.Err, op.Output, want)
}

// appointmentOf reads a 201 to a booking or a 200 to a move or a read.
func appointmentOf(op harness.Operation) (a appointmentAnswer, err error) {
	if op.Status != http.StatusCreated && op.Status != http.StatusOK {
		return a, refused(op, "an appointment")
	}
	if err = op.Decode(&a); err == nil && a.ID == "" {
		err = refused(op, "an appointment")
	}
	return a, err
}

// seriesOf reads a 201 to a weekly booking or a 200 to a move of a series.
func seriesOf(op harness.Operation) (s seriesAnswer, err error) {
	if op.Status != http.StatusCreated && op.Status != http.StatusOK {
		return s, refused(op, "a series")
	}
	if err = op.Decode(&s); err == nil && s.SeriesID == "" {
		err = refused(op, "a series")
	}
	return s, err
}

// resourceOf reads a 200 to a question for a resource, to an activation or to
// a deactivation.
func resourceOf(op harness.Operation) (r resourceAnswer, err error) {
	if op.Status != http.StatusOK {
		return r, refused(op, "a resource")
	}
	return r, op.Decode(&r)
}

// conflictsOf reads a 200 to staff's question for conflicts.
func conflictsOf(op harness.Operation) ([]conflictAnswer, error) {
	var list struct {
		Conflicts []conflictAnswer `json:"conflicts"`
	}
	if op.Status != http.StatusOK {
		return nil, refused(op, "the conflicts")
	}
	return list.Conflicts, op.Decode(&list)
}

// appointmentsTold are the appointments that a write's 2xx tells of: one, those
// of a series, or those of a reschedule. Of a cancellation there is only the id
// and the state.
func appointmentsTold(op harness.Operation) ([]appointmentAnswer, error) {
	var doc struct {
		appointmentAnswer
		Appointments []appointmentAnswer `json:"appointments"`
	}
	if err := json.Unmarshal([]byte(op.Output), &doc); err != nil {
		return nil, fmt.Errorf("operation %s: decode answer: %w", op.ID, err)
	}
	if doc.ID != "" {
		return []appointmentAnswer{doc.appointmentAnswer}, nil
	}
	return doc.Appointments, nil
}

// The calls of the contract, by what they do.
const (
	callAdd, callActivate, callDeactivate, callResource, callAvailability = "add", "activate", "deactivate", "resource", "availability"
	callBook, callMove, callMoveSeries, callReschedule, callCancel        = "book", "move", "move-series", "reschedule", "cancel"
	callRead, callSync, callConflicts, callResolve                        = "read", "sync", "conflicts", "resolve"
)

// callOf names the call that an operation is, by its method and path, whatever
// its kind; "" for what is none of the design's.
func callOf(op harness.Operation) string {
	path, _, _ := strings.Cut(op.Path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 2 || parts[0] != "calendar" {
		return ""
	}
	shape := op.Method + " " + parts[1]
	if len(parts) > 2 {
		shape += " *"
	}
	if len(parts) > 3 {
		shape += " " + strings.Join(parts[3:], "/")
	}
	return map[string]string{
		"POST resources": callAdd, "POST resources * activation": callActivate, "DELETE resources * activation": callDeactivate,
		"GET resources *": callResource, "GET resources * availability": callAvailability, "POST resources * appointments": callBook,
		"PATCH appointments *": callMove, "PATCH series *": callMoveSeries, "POST reschedules": callReschedule, "DELETE appointments *": callCancel,
		"GET appointments *": callRead, "POST appointments * sync": callSync, "GET conflicts": callConflicts, "POST conflicts * resolution": callResolve,
	}[shape]
}

// target is the id in an operation's path: of a resource, an appointment, a
// series or a conflict.
func target(op harness.Operation) string {
	path, _, _ := strings.Cut(op.Path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 3 {
		return ""
	}
	return parts[2]
}

// inputOf are words of a request's body.
func inputOf(op harness.Operation) map[string]any {
	var doc map[string]any
	if json.Unmarshal(op.Input, &doc) != nil {
		return nil
	}
	return doc
}

// movesOf are the moves of a reschedule.
func movesOf(op harness.Operation) []move {
	var body struct {
		Moves []move `json:"moves"`
	}
	if json.Unmarshal(op.Input, &body) != nil {
		return nil
	}
	return body.Moves
}
