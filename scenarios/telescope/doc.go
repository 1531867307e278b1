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
	"slices"

	"github.com/overbook/overbook/harness"
)

//go:embed invariants/*.sql
var invariants embed.FS

// where is the folder of this package in the repository, for readers of a
// violated rule.
const where = "scenarios/telescope"

// All gives the scenarios of this design, in the order in which they run.
func All() []harness.Scenario { return slices.Concat(races(), faults(), staffCrashPoints()) }

// races gives the scenarios in which nothing breaks but an answer of Postgres.
func races() []harness.Scenario {
	list := []harness.Scenario{
		twoMembersOneSlot(), onReplicas(twoMembersOneSlot(), "two members book one slot at two of three replicas"),
		twoMembersInOrder(),
		hundredOnOneSlot(), onReplicas(hundredOnOneSlot(), "a hundred members book one slot at three replicas"),
		bookingVersusClosure(), onReplicas(bookingVersusClosure(), "a booking and a closure meet at different replicas, many slots at once"),
		forcedOrder(bookingFirst), forcedOrder(closureFirst),
		closureStorm(), onReplicas(closureStorm(), "the storm over three replicas"),
		sameKeyRetries(), onReplicas(sameKeyRetries(), "the copies of one booking arrive at three replicas"), sameKeyRefused(), sameKeyDifferentBody(),
		foreignKey(),
		quota(), onReplicas(quota(), "one member books many slots of one month at three replicas"), quotaAtMonthBorder(), quotaFlagged(),
		staffResolution(), onReplicas(staffResolution(), "the two who decide about a flag meet at different replicas"),
		cancelAndRebook(), cancelVersusBook(), onReplicas(cancelVersusBook(), "the cancellations and the booking meet at three replicas"),
		maintenanceImport(), onReplicas(maintenanceImport(), "the imports and the bookings meet at three replicas"),
		staleSchedule(),
	}
	for _, h := range holdings {
		list = append(list, blockedLock(h))
	}
	return append(list, deadlock(), onReplicas(deadlock(), "the imports meet at three replicas"), deadlockInjected(), badInput())
}
