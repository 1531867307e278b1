// Package pgwire owns the Postgres wire: a protocol proxy between the servers
// under test and a real Postgres, which knows where statements and
// transactions begin and end, records them, and can hold, fail or lose them
// at named moments.
//
// # What it passes on
//
// Messages go on byte for byte, in their order, a copy of them is decoded.
// Wishes for encryption are answered with no, as the wire has to read what is
// said; authentication goes through untouched (channel binding needs TLS and
// is therefore not possible). Cancel requests go to the database on which
// their session was opened. Connections for replication are passed on blindly
// and are not in the record. Rows stream; a unit is read whole before it goes
// on, as are answers that are held (1 GiB each at most).
//
// # Units and transactions
//
// A [harness.Unit] is all up to a Sync, a Query, a Flush or a function call.
// Statements are known by their text through named statements, PREPARE and
// portals. A portal that is read in pieces is one execution. Forwarded is
// stamped before the first byte goes to Postgres, Delivered before the first
// one goes to the server, so that no effect has an earlier stamp than its
// cause. Between a Flush and the next Sync Postgres tells no status: it is
// worked out from the statements' tags. A unit with several transactions
// bears the number of the last and counts as committed when one of them is.
// The end of a connection inside of a transaction is a unit without
// statements, with Err.
//
// # Moments
//
// All that stops units stands on one point: encounter and interceptor, in
// intercept.go. Faults and meetings meet units that arrive after they were
// put in place. While there is any (or with Split) the units of one session
// go one at a time, also where they were sent without waiting; what the
// server sees stays the same.
//
// A unit that commits (one statement outside of BEGIN, a pipelined batch, a
// transaction that is sent as a whole) has a moment at which all is executed
// and nothing is committed only when it is taken apart: behind a Flush of ours
// instead of the Sync or the COMMIT; a query of one text by BEGIN and COMMIT
// of ours around it; one that ends with a COMMIT of its own before that. That
// is done only where a fault or a meeting at after-statement or before-commit
// matches the unit (or with Split), and the server sees the answers it would
// have seen.
//
// Some can't be taken apart: COPY from the client, a function call, a query
// with more behind its COMMIT, and queries of statements that may mean
// something else in a transaction block (VACUUM, SET LOCAL, CALL, most DDL).
// At before-commit these are held before they are forwarded, and have no
// after-statement where they commit. Of a batch all statements before the
// commit are one step.
//
// Errors are real: what fails a statement is a statement that raises the
// state in Postgres in its place, what fails a commit is a ROLLBACK. States
// after which Postgres closes the connection (57P01, 53300 and the like) are
// FATAL and do so. Errors don't act in a transaction that has failed already.
//
// # What must not happen here
//
// Judging anything; sending a unit twice; changing a byte where nothing acts;
// a wait without an end when either side goes away.
package pgwire
