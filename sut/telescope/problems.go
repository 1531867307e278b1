package telescope

import (
	"net/http"

	"github.com/overbook/overbook/sut/httpapi"
)

var shortly = http.Header{"Retry-After": {"1"}}

// Problems that decide an operation: they are stored like any other answer.
var (
	slotTaken = &httpapi.Problem{
		Type: "slot-taken", Title: "Somebody has the slot", Status: http.StatusConflict,
		Detail: "choose another slot",
	}
	slotClosed = &httpapi.Problem{
		Type: "slot-closed", Title: "The slot is closed", Status: http.StatusConflict,
		Detail: "staff have closed it; choose another slot",
	}
	quotaExceeded = &httpapi.Problem{
		Type: "quota-exceeded", Title: "Two reservations a month", Status: http.StatusConflict,
		Detail: "you have two active reservations in the slot's month; cancel one, or choose a slot in another month",
	}
	alreadyCancelled = &httpapi.Problem{
		Type: "already-cancelled", Title: "The booking is no longer active", Status: http.StatusConflict,
		Detail: "it was cancelled before; nothing was changed",
	}
	alreadyClosed = &httpapi.Problem{
		Type: "already-closed", Title: "The slot is closed already", Status: http.StatusConflict,
		Detail: "nothing was changed",
	}
	alreadyOpen = &httpapi.Problem{
		Type: "already-open", Title: "The slot is open already", Status: http.StatusConflict,
		Detail: "nothing was changed",
	}
	notFlagged = &httpapi.Problem{
		Type: "not-flagged", Title: "Nothing to decide", Status: http.StatusConflict,
		Detail: "the booking does not wait for a decision: its slot is open, or it was cancelled or decided before",
	}
	slotMoved = &httpapi.Problem{
		Type: "slot-moved", Title: "A slot has another start", Status: http.StatusConflict,
		Detail: "a slot stays where it is; nothing of the import was done",
	}
)

// Problems of which nothing is stored.
var (
	unknownSlot = &httpapi.Problem{
		Type: "unknown-slot", Title: "No such slot", Status: http.StatusNotFound,
		Detail: "there is no slot with this id",
	}
	unknownBooking = &httpapi.Problem{
		Type: "unknown-booking", Title: "No such booking", Status: http.StatusNotFound,
		Detail: "there is no booking with this id for you",
	}
	unknownOperation = &httpapi.Problem{
		Type: "unknown-operation", Title: "No such operation", Status: http.StatusNotFound,
		Detail: "you have done nothing under this key and of this type, it was not done, or it is too long ago",
	}
	slotPast = &httpapi.Problem{
		Type: "slot-past", Title: "The slot has begun", Status: http.StatusUnprocessableEntity,
		Detail: "choose a slot that lies ahead",
	}
	keyReused = &httpapi.Problem{
		Type: "key-reused", Title: "The key belongs to another request", Status: http.StatusUnprocessableEntity,
		Detail: "under this key you have asked for something else; make a new key for a new operation",
	}
	inProgress = &httpapi.Problem{
		Type: "in-progress", Title: "The operation is still at work", Status: http.StatusConflict,
		Detail: "the first request under this key has not ended; send it again, with the same key, in a moment",
		Header: shortly,
	}
	retryWindowOver = &httpapi.Problem{
		Type: "retry-window-over", Title: "Too late for a retry", Status: http.StatusConflict,
		Detail: "the operation was done long ago and nothing was done now: look into the account's history before you do anything new, and then use a new key",
	}
	outcomeUnknown = &httpapi.Problem{
		Type: "outcome-unknown", Title: "It is not known whether this was done", Status: http.StatusServiceUnavailable,
		Detail: "the database did not say whether it was stored; send the same request with the same key to find out",
		Header: shortly,
	}
)
