// Package pyxis is the double of a university's seat system: students hold
// seats, at most one each, and a reservation is a charge. It owns the truth
// about who holds what (its ledger of charges) and counts its own calls.
//
// WireMock's mappings in this package proxy the three calls of the system to
// it. Its control paths (/__double/...) are reached directly only.
//
// What must not happen here: judging, or knowing the server under test. It is
// meant to be imperfect on request only: a check-then-act window, latency,
// failures, rejected students.
package pyxis

import (
	"embed"
	"io/fs"

	"github.com/overbook/overbook/harness"
)

//go:embed mappings/*.json
var files embed.FS

// Name is the upstream's name; the server under test gets PYXIS_URL.
const Name = "pyxis"

// Mappings gives WireMock's mappings, with ${prefix} and ${double.url} to be filled in.
func Mappings() fs.FS {
	sub, err := fs.Sub(files, "mappings")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}

// Double is pyxis for a scenario's topology.
func Double() harness.Double {
	return harness.Double{
		Name:     Name,
		New:      New,
		Mappings: Mappings(),
		Count:    []string{"POST /reserve", "GET /charges/current", "GET /seats"},
		CountBy:  map[string]string{"POST /reserve": "seat"},
	}
}
