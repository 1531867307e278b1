package calendar

import (
	"net/http"

	"github.com/overbook/overbook/sut/httpapi"
)

var shortly = http.Header{"Retry-After": {"1"}}

func problem(status int, kind, title, detail string) *httpapi.Problem {
	return &httpapi.Problem{Type: kind, Title: title, Status: status, Detail: detail}
}

// passing is what time may cure: it says when to come back.
func passing(status int, kind, title, detail string) *httpapi.Problem {
	p := problem(status, kind, title, detail)
	p.Header = shortly
	return p
}

// Refusals that decide an operation: they are stored like any other answer.
var (
	timeTaken = problem(http.StatusConflict, "overlap", "The time is taken",
		"another appointment of the resource is at that time; nothing was changed, choose another time")
	resourceNotActive = problem(http.StatusConflict, "resource-inactive", "No bookings for this resource",
		"the resource is not active; choose another one, or ask again later")
	appointmentOver = problem(http.StatusConflict, "appointment-over", "The appointment is over",
		"it was cancelled or rejected, or it has begun; nothing was changed")
	alreadyResolved = problem(http.StatusConflict, "already-resolved", "The conflict is resolved",
		"somebody or something has resolved it before; nothing was changed")
	beingResolved = problem(http.StatusConflict, "being-resolved", "The conflict is being resolved",
		"its appointment has ended, and the conflict is resolved once the calendar provider has deleted the event; nothing was changed")
)

// Nothing of that name, or not the caller's. Nothing is stored of these.
var (
	unknownResource    = problem(http.StatusNotFound, "unknown-resource", "No such resource", "there is no resource with this id")
	unknownAppointment = problem(http.StatusNotFound, "unknown-appointment", "No such appointment", "there is no appointment with this id for you")
	unknownSeries      = problem(http.StatusNotFound, "unknown-series", "No such series", "there is no series with this id for you")
	unknownConflict    = problem(http.StatusNotFound, "unknown-conflict", "No such conflict", "there is no conflict with this id")
)

// Times that can't be booked. Nothing is stored of these.
var (
	timeGap = problem(http.StatusUnprocessableEntity, "time-gap", "The time does not exist there",
		"clocks are turned on over it on that day; choose a time before or after")
	timeAmbiguous = problem(http.StatusUnprocessableEntity, "time-ambiguous", "The time exists twice there",
		"clocks are turned back over it on that day; say which of the choices is meant with a fold, \"earlier\" or \"later\"")
	unknownTimeZone = problem(http.StatusUnprocessableEntity, "unknown-time-zone", "No such time zone",
		"\"time_zone\" must be a name of the IANA time zone database, like Europe/Berlin")
	badRange    = problem(http.StatusUnprocessableEntity, "bad-range", "Not a time that can be booked", "")
	unknownWord = problem(http.StatusUnprocessableEntity, "unknown-word", "A word that means nothing here", "")
)

// Refusals of staff's calls, which have no keys.
var (
	resourceExists = problem(http.StatusConflict, "resource-exists", "The resource is there already",
		"a resource with this id or of this calendar was made before; nothing was changed")
	notParked = problem(http.StatusConflict, "not-parked", "Nothing waits for staff",
		"the appointment's synchronisation was not parked; nothing was changed")
	activationBusy = passing(http.StatusConflict, "activation-busy", "One activation at a time",
		"a resource is being activated; wait until that has ended")
	alreadyActive = problem(http.StatusConflict, "already-active", "The resource is active",
		"nothing was changed; end its activation first, if its guarantees shall be others")
	notActive           = problem(http.StatusConflict, "not-active", "The resource is not active", "nothing was changed")
	providerUnavailable = passing(http.StatusServiceUnavailable, "provider-unavailable", "The calendar provider can't be reached", "the resource stays as it was; try again in a moment")
	authorisationFailed = passing(http.StatusServiceUnavailable, "authorisation-failed", "The calendar provider refuses us", "the resource stays as it was; try again with a new \"refresh_token\"")
)

// Keys.
var (
	keyReused = problem(http.StatusUnprocessableEntity, "key-reused", "The key belongs to another request",
		"under this key you have asked for something else; make a new key for a new operation")
	inProgress = passing(http.StatusConflict, "in-progress", "The operation is still at work",
		"the first request under this key has not ended; send it again, with the same key, in a moment")
	retryWindowOver = problem(http.StatusConflict, "retry-window-over", "Too late for a retry",
		"the operation was done long ago and nothing was done now: look at your appointments before you do anything new, and then use a new key")
	outcomeUnknown = passing(http.StatusServiceUnavailable, "outcome-unknown", "It is not known whether this was done",
		"the database did not say whether it was stored; send the same request with the same key to find out")
)
