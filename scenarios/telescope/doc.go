// Package telescope holds the scenarios of design T, telescope slots: members
// reserve thirty-minute slots, staff close and reopen them, and of every slot
// there is one authoritative reservation.
//
// Each scenario is a Go value with what it tries, its checks and its witness;
// the SQL invariants stand in invariants/. It must not know how the server is
// built: it uses the HTTP contract and the tables of
// docs/reference-server-telescope.md alone, and it must not decide anything
// that the plan does not: who wins a race is the server's business.
package telescope

import (
	"embed"

	"github.com/overbook/overbook/harness"
)

//go:embed invariants/*.sql
var invariants embed.FS

// where is the folder of this package in the repository, for readers of a
// violated rule.
const where = "scenarios/telescope"

// All gives the scenarios of this design, in the order in which they run.
func All() []harness.Scenario {
	return []harness.Scenario{}
}
