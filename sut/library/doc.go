// Package library is the reference server of the library design: a hundred
// people confirm one seat at the same moment, and the university's slow seat
// system (pyxis) is asked once.
//
// Who owns what: [Service] starts and stops everything; store holds all SQL;
// worker claims seats and makes the upstream calls; reaper decides leases that
// ran out; waiters holds clients who wait for a terminal state; the HTTP side
// is in http.go. Who must not do what: nobody but store speaks SQL, nobody
// holds a transaction or a connection while an upstream call or a client is
// waited for, and only worker and the direct path ever call reserve.
//
// Correctness rests on Postgres: the seat's row in library_seats is locked by
// every claim and every terminal transition on that seat, in each replica, and
// a statement that runs after the lock sees what the holder before committed.
// Redis and the in-memory grouping only save work.
package library
