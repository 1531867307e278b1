// Package calendar is the double of a calendar provider: it keeps calendars
// with the events of this client and of others, says when they are busy, takes
// events under ids that the client chooses, and hands out tokens that rotate.
// It owns the truth about what stands in each calendar and in which order that
// came about (its ledger), and counts its own calls. How it behaves is chosen
// for each calendar, and other people's events appear when they are told to.
//
// WireMock's mappings in this package proxy the calls of the provider to it.
// Its control paths (/__double/...) are reached directly only.
//
// What must not happen here: judging, or knowing the server under test; an
// order of events that depends on timing where a scenario has named a moment.
package calendar

import (
	"embed"
	"io/fs"

	"github.com/overbook/overbook/harness"
)

//go:embed mappings/*.json
var files embed.FS

// Name is the upstream's name; the server under test gets CALENDAR_URL.
const Name = "calendar"

// The calls of the provider, by the names that the stats have for them.
const (
	getFreebusy = "GET /freebusy"
	getEvents   = "GET /events"
	getEvent    = "GET /events/{event_id}"
	postEvents  = "POST /events"
	putEvent    = "PUT /events/{event_id}"
	deleteEvent = "DELETE /events/{event_id}"
	postToken   = "POST /token"
)

// Mappings gives WireMock's mappings, with ${prefix} and ${double.url} to be filled in.
func Mappings() fs.FS {
	sub, err := fs.Sub(files, "mappings")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}

// Double is the calendar provider for a scenario's topology. Both observers
// count by exact path, so that the calls of /events/{event_id}, which has as
// many paths as there are events, are in the double's own stats alone.
func Double() harness.Double {
	return harness.Double{
		Name:     Name,
		New:      New,
		Mappings: Mappings(),
		Count:    []string{postEvents, postToken, getFreebusy, getEvents},
		CountBy:  map[string]string{postEvents: "event_id", postToken: "calendar"},
	}
}
