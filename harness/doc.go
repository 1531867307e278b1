// Package harness holds the words of Overbook: the types that every other
// package speaks in. It owns no behaviour beyond small pure functions on those
// types and imports the standard library alone.
//
// A [Scenario] is one named experiment. With a seed it becomes a [Plan], in
// which every choice is made. Running the plan gives a [Record] (a [History]
// of operations and events, the ledger of upstream calls, the rows that were
// read after settling). Judging the record gives a [Result] with one
// [Verdict] per check. Everything after the run is a pure function of the
// record, so stored runs can be judged and reported again.
//
// Start reading at [Scenario] and [Env].
//
// What must not happen here: starting processes, opening connections,
// printing, reading clocks, drawing random numbers.
package harness
