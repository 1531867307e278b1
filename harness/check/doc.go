// Package check judges records: SQL invariants over stored rows, response
// tallies, upstream counts, transactions seen open during upstream calls,
// latency limits, and the conditions under which a run may be judged at all.
//
// Every judgement is a pure function of a [harness.Record]; nothing here opens
// a connection, reads a clock or knows what a library is. It must not import
// load, run or a wire. What was not observed is Unknown, never Pass.
//
// Start reading at [Judge].
package check
