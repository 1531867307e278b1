// Package tickets holds the scenarios of design S, the ticket shop: seats are
// held for eight minutes and paid through an external provider, which tells
// what became of a payment at least once, perhaps late, perhaps after the hold
// was over.
//
// Each scenario is a Go value with what it tries, its checks and its witness;
// the SQL invariants stand in invariants/. The package also owns the courier,
// which delivers the provider's callbacks as recorded calls. It must not know
// how the server is built: it uses the HTTP contract and the tables of
// docs/reference-server-tickets.md alone, and it must not decide anything that
// the plan does not: who wins a race is the server's business.
package tickets

import (
	"embed"
	"slices"

	"github.com/overbook/overbook/harness"
)

//go:embed invariants/*.sql
var invariants embed.FS

// where is the folder of this package in the repository, for readers of a
// violated rule.
const where = "scenarios/tickets"

// All gives the scenarios of this design, in the order in which they run.
func All() []harness.Scenario { return slices.Concat(races(), paying(), crashes(), sales()) }
