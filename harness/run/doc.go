// Package run conducts ONE run: up, drive, settle, collect, check, down. It
// puts the wires around the server under test, gives the scenario its
// [harness.Env], records everything on one clock, and hands a finished record
// to the checks.
//
// A [Conductor] holds what the runs of one invocation share: the database
// cluster, the WireMock process, Redis, the migrated template databases. Each
// run has its own database, doubles, wires and server processes, and leaves
// none of them behind.
//
// It must not print, decide exit codes, know any particular design, or retry
// anything: an attempt that failed is in the history.
//
// Start reading at [Conductor.Run].
package run
