// Package provision owns the real parts that scenarios stand on: a Postgres
// cluster, a WireMock, a Redis server. It finds or starts them, says exactly
// what they are, gives every scenario a database of its own, and takes
// everything down again.
//
// Order of choice, for each part: what the caller named (a URL, or one of
// OVERBOOK_PG_BIN, OVERBOOK_WIREMOCK_JAR, OVERBOOK_REDIS_BIN, OVERBOOK_JAVA),
// local binaries, Docker, and else a [*Problem] with the fix for this platform.
//
// It uses harness/proc for child processes and harness/clock for waiting.
//
// What must not happen here: downloading or installing anything outside the
// functions whose names begin with Fetch, Install or Build; running Postgres
// as root; leaving anything running after an error or after Close; printing.
package provision
