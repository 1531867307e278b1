// Package payments is the double of a payment provider: it takes charges under
// idempotency keys, decides on them at once or when told to, gives money back
// once a payment, and has callbacks to deliver. It owns the truth about which
// payments were captured and which went back (its ledger), and counts its own
// calls. How it behaves is chosen for each card.
//
// It sends nothing by itself. A callback that is due waits in the ledger for
// whoever delivers it, so that each delivery can be part of a run's history.
//
// WireMock's mappings in this package proxy the three calls of the provider to
// it. Its control paths (/__double/...) are reached directly only.
//
// What must not happen here: judging, or knowing the server under test; money
// as anything but an integer of minor units.
package payments

import (
	"embed"
	"io/fs"

	"github.com/overbook/overbook/harness"
)

//go:embed mappings/*.json
var files embed.FS

// Name is the upstream's name; the server under test gets PAYMENTS_URL.
const Name = "payments"

// The calls of the provider, by the names that the stats have for them.
const (
	postCharges = "POST /charges"
	getCharges  = "GET /charges/{reference}"
	postRefunds = "POST /refunds"
)

// Mappings gives WireMock's mappings, with ${prefix} and ${double.url} to be filled in.
func Mappings() fs.FS {
	sub, err := fs.Sub(files, "mappings")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}

// Double is the payment provider for a scenario's topology. Both observers
// count by exact path, so that GET /charges/{reference}, which has as many
// paths as there are references, is in the double's own stats alone.
func Double() harness.Double {
	return harness.Double{
		Name:     Name,
		New:      New,
		Mappings: Mappings(),
		Count:    []string{postCharges, postRefunds},
		CountBy:  map[string]string{postCharges: "reference", postRefunds: "payment_id"},
	}
}
