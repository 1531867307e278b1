// Package upstream owns the wire between the server under test and an
// upstream system: an HTTP/1.1 proxy with an exact ledger ([Wire]), and the
// client for the WireMock behind it ([WireMock]), which is the second
// observer of the same calls.
//
// A call has four stamps. Received: its last byte is here. Forwarded: its
// last byte was written towards WireMock. Accepted: the whole answer came
// back, so the upstream has done its work. Answered: the answer was written
// to a caller that was still there. Between Received and Forwarded, and
// between Accepted and Answered, faults act.
//
// A call that was received goes on to the upstream whatever becomes of its
// caller, as a request does that is already on a real network.
//
// What must not happen here: sending a call twice (which is why net/http's
// Transport has no place on this path), giving a number for a count that
// could not be read, judging anything.
package upstream
