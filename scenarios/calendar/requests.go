package calendar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// The kinds of operations, as reports and checks know them. Others are given
// to requests that a check must tell from these.
const (
	kindAdd          = "add-resource"
	kindActivate     = "activate"
	kindDeactivate   = "deactivate"
	kindResource     = "resource"
	kindAvailability = "availability"
	kindBook         = "book"
	kindBookSeries   = "book-series"
	kindMove         = "move"
	kindMoveSeries   = "move-series"
	kindReschedule   = "reschedule"
	kindCancel       = "cancel"
	kindRead         = "appointment"
	kindSync         = "sync"
	kindConflicts    = "conflicts"
	kindResolve      = "resolve"
	kindClock        = "clock"
)

// Clients that are no members: members have the numbers below these.
const (
	staffProcess = 100_000
	clockProcess = 300_000
)

// Words of the contract.
const (
	contractAtomic = "atomic-hold"
	contractCheck  = "check-then-create"
	policyReject   = "reject"
	policyKeep     = "keep-and-flag"
	decisionKeep   = "keep"
	decisionCancel = "cancel"
	foldEarlier    = "earlier"
	foldLater      = "later"
)

const idempotencyKey = "Idempotency-Key"

func member(n int) string { return "member-" + strconv.Itoa(n+1) }

func staff(n int) string { return "staff-" + strconv.Itoa(n+1) }

// ask is a request without a body.
func ask(kind string, process int, who, method, path string) harness.Request {
	return harness.Request{Kind: kind, Process: process, Caller: who, Method: method, Path: path, Header: answers.Bearer(who)}
}

// send is a request with a body, and with a key unless that is "".
func send(kind string, process int, who, method, path, key string, body any) harness.Request {
	r := ask(kind, process, who, method, path)
	if key != "" {
		r.Header[idempotencyKey] = key
	}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			panic(err) // numbers and words always marshal
		}
		r.Body = text
	}
	return r
}

// A when is what a booking or a move asks for: wall-clock times as the contract
// writes them. Weekly is of a booking alone; 0 for one appointment.
type when struct {
	Start     string `json:"start"`
	End       string `json:"end"`
	Zone      string `json:"time_zone"`
	StartFold string `json:"start_fold,omitempty"`
	EndFold   string `json:"end_fold,omitempty"`
	Weekly    int    `json:"weekly,omitempty"`
}

// between asks for the time between two instants, as clocks in the zone show them.
func between(zone string, start, end time.Time) (w when) {
	w.Zone = zone
	w.Start, w.StartFold = wall(zone, start)
	w.End, w.EndFold = wall(zone, end)
	return w
}

// in is the span as clocks in the zone show it.
func (s span) in(zone string, origin time.Time) when {
	return between(zone, s.start(origin), s.end(origin))
}

// A move is one of those that a reschedule makes together.
type move struct {
	AppointmentID string `json:"appointment_id"`
	when
}

func resourcePath(id int64) string { return fmt.Sprintf("/calendar/resources/%d", id) }

func appointmentPath(id string) string { return "/calendar/appointments/" + id }

// addResource has staff make a resource known, inactive.
func addResource(r resource) harness.Request {
	return send(kindAdd, staffProcess, staff(0), http.MethodPost, "/calendar/resources", "", map[string]any{
		"resource_id": r.ID, "calendar": r.Calendar, "refresh_token": r.RefreshToken,
	})
}

// activate has staff activate a resource with its guarantees. Another refresh
// token than the one it has is given by refreshToken, "" for none.
func activate(process int, who string, r resource, refreshToken string) harness.Request {
	body := map[string]any{"provider_contract": r.Contract, "conflict_policy": r.Policy, "conflict_limit": r.Limit}
	if refreshToken != "" {
		body["refresh_token"] = refreshToken
	}
	return send(kindActivate, process, who, http.MethodPost, resourcePath(r.ID)+"/activation", "", body)
}

func deactivate(process int, who string, id int64) harness.Request {
	return ask(kindDeactivate, process, who, http.MethodDelete, resourcePath(id)+"/activation")
}

// readResource has staff ask how a resource is.
func readResource(process int, who string, id int64) harness.Request {
	return ask(kindResource, process, who, http.MethodGet, resourcePath(id))
}

// availability asks when a resource is busy, at most 31 days.
func availability(process int, who string, id int64, from, to time.Time) harness.Request {
	q := url.Values{"from": {from.UTC().Format(time.RFC3339)}, "to": {to.UTC().Format(time.RFC3339)}}
	return ask(kindAvailability, process, who, http.MethodGet, resourcePath(id)+"/availability?"+q.Encode())
}

// book is a booking, of a series when it is weekly.
func book(process int, who string, resourceID int64, w when, key string) harness.Request {
	kind := kindBook
	if w.Weekly > 0 {
		kind = kindBookSeries
	}
	return send(kind, process, who, http.MethodPost, resourcePath(resourceID)+"/appointments", key, w)
}

// moveTo moves one appointment.
func moveTo(process int, who, appointmentID string, w when, key string) harness.Request {
	return send(kindMove, process, who, http.MethodPatch, appointmentPath(appointmentID), key, w)
}

// moveSeries moves a series: the times are those of its first.
func moveSeries(process int, who, seriesID string, w when, key string) harness.Request {
	return send(kindMoveSeries, process, who, http.MethodPatch, "/calendar/series/"+seriesID, key, w)
}

// reschedule makes several moves in one transaction.
func reschedule(process int, who string, moves []move, key string) harness.Request {
	return send(kindReschedule, process, who, http.MethodPost, "/calendar/reschedules", key, map[string]any{"moves": moves})
}

func cancel(process int, who, appointmentID, key string) harness.Request {
	return send(kindCancel, process, who, http.MethodDelete, appointmentPath(appointmentID), key, nil)
}

// read asks for an appointment, as its member or staff.
func read(process int, who, appointmentID string) harness.Request {
	return ask(kindRead, process, who, http.MethodGet, appointmentPath(appointmentID))
}

// syncAgain has staff try a parked synchronisation again.
func syncAgain(process int, who, appointmentID string) harness.Request {
	return ask(kindSync, process, who, http.MethodPost, appointmentPath(appointmentID)+"/sync")
}

// conflicts has staff list the unresolved conflicts.
func conflicts(process int, who string) harness.Request {
	return ask(kindConflicts, process, who, http.MethodGet, "/calendar/conflicts")
}

// resolve has staff decide about a conflict: decisionKeep or decisionCancel.
func resolve(process int, who, conflictID, decision, key string) harness.Request {
	return send(kindResolve, process, who, http.MethodPost, "/calendar/conflicts/"+conflictID+"/resolution", key, map[string]any{"decision": decision})
}
