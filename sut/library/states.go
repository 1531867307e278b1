package library

import "time"

// States of an intent.
const (
	stateRequested = "REQUESTED"
	stateWaiting   = "WAITING_FOR_SEAT"
	stateReserving = "RESERVING"
	stateSucceeded = "SUCCEEDED"
	stateRace      = "FAILED_RACE"
	stateAuth      = "FAILED_AUTH"
	stateUpstream  = "FAILED_UPSTREAM"
)

// Kinds of intents: an immediate one is answered once, a wait goes on until a
// seat is free.
const (
	kindImmediate = "immediate"
	kindWait      = "wait"
)

// Paths from confirm to pyxis.
const (
	pathDirect = "direct"
	pathIntent = "intent"
)

// terminal reports whether a state never changes again.
func terminal(state string) bool {
	switch state {
	case stateSucceeded, stateRace, stateAuth, stateUpstream:
		return true
	}
	return false
}

// A record is what is told about an intent.
type record struct {
	IntentID, ActionID, Student, Seat, State, Kind string
}

// An intent is a claimed unit of work: RESERVING, under a fence.
type intent struct {
	record

	Path        string
	Fence       int64
	LockedUntil time.Time
	Traceparent string
	Op          string
	Looks       int // fruitless looks of a wait in a row
}

// An ending is what is to be stored about an attempt.
type ending struct {
	State    string // terminal, or WAITING_FOR_SEAT for a wait that goes on
	Outcome  string // of the attempt on the seat, the last_outcome of the seat's row
	Decisive bool   // somebody holds the seat: others who want it now have lost
	ChargeID string
	Failure  string
	Reason   string
	Next     time.Time // of a wait that goes on
}
