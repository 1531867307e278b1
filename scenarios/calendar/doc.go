// Package calendar holds the scenarios of design C, appointments: the database
// excludes that two appointments of a resource overlap; the calendar at an
// external provider, which other people write to and which may have no atomic
// hold, is brought to what the rows say, and what could not be excluded there
// is a conflict on record.
//
// Each scenario is a Go value with what it tries, its checks and its witness;
// the SQL invariants stand in invariants/. The package must not know how the
// server is built: it uses the HTTP contract and the tables of
// docs/reference-server-calendar.md alone, and it must not decide anything that
// the plan does not: who wins a race is the server's business.
//
// A scenario is put together from these:
//
//   - [scenario] fills in what all share; [topology] is the usual one,
//     [onReplicas] and [variant] make another of a scenario.
//   - A plan can't know the day on which it is carried out. So it names times as
//     a [span] of minutes, counted from [origin], and [resource]s, which
//     [chooseResources] draws; [setUp] has staff create and activate them.
//   - requests.go has a function for each call of the contract, and a kind for
//     each; [appointmentOf], [seriesOf] and others read the answers.
//   - [finish] ends every drive: it waits until nothing is left to synchronise
//     and each calendar has been looked at since, moves the clock over claims
//     that nobody holds any more, and asks for what staff can see.
//   - [awaitSynced], [awaitState] and [awaitConflicts] wait in the middle of a
//     drive; [configure] changes what the provider does, [behaviour] is what it
//     does for a resource when nothing is odd.
//   - [standing] are the checks of every scenario, [served] those of one in
//     which nothing is broken; an [allowance] says what can't be demanded.
//     [linearizable] is for those in which nobody else writes to the calendars.
//   - [booksOf] reads both sides from a record: our rows, and the provider's ledger.
package calendar

import (
	"embed"
	"slices"

	"github.com/overbook/overbook/harness"
)

//go:embed invariants/*.sql
var invariants embed.FS

// where is the folder of this package in the repository, for readers of a
// violated rule.
const where = "scenarios/calendar"

// All gives the scenarios of this design, in the order in which they run.
func All() []harness.Scenario { return slices.Concat(races(), crashes(), faults(), providerRaces()) }
