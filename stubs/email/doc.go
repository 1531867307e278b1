// Package email is the double of an email provider: it takes a message under
// the id of the event that it tells of, and the same id again is the same
// message. It owns the truth about which messages were accepted and how often
// each was handed over (its ledger), and counts its own calls.
//
// WireMock's mapping in this package proxies POST /messages to it. Its control
// paths (/__double/...) are reached directly only.
//
// What must not happen here: judging, or knowing the server under test. It
// fails on request only: down for a while, failing a number of times, refusing
// a kind of message for good, slow.
package email

import (
	"embed"
	"io/fs"

	"github.com/overbook/overbook/harness"
)

//go:embed mappings/*.json
var files embed.FS

// Name is the upstream's name; the server under test gets EMAIL_URL.
const Name = "email"

// Mappings gives WireMock's mappings, with ${prefix} and ${double.url} to be filled in.
func Mappings() fs.FS {
	sub, err := fs.Sub(files, "mappings")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}

// Double is the email provider for a scenario's topology.
func Double() harness.Double {
	return harness.Double{
		Name:     Name,
		New:      New,
		Mappings: Mappings(),
		Count:    []string{"POST /messages"},
		CountBy:  map[string]string{"POST /messages": "event_id"},
	}
}
