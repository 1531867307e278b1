// Package wirehttp owns the client wire: HTTP/1.1 and HTTP/2 calls whose
// every byte and instant is known, alone, as a burst that is released at one
// barrier, or as an open loop of clients who arrive by a schedule.
//
// It never uses net/http's Transport, because that may send a request a second
// time without saying so. Here every call is attempted once, and what is not
// certain about it is reported as uncertain. Outside of open loops every call
// has a connection of its own (every target, with HTTP/2).
//
// # Bursts
//
// A burst connects all its racers, sends every request but for a held part,
// waits until the kernels of the servers have acknowledged the rest, makes
// sure that no server has answered yet, and only then lets the held parts go:
//
//   - HTTP/1.1 holds the last byte of the header block and whatever follows
//     it, so that no server can start its handler early. All held parts are
//     handed to the kernel in one io_uring submission, or, where io_uring is
//     not allowed, by one locked thread.
//   - HTTP/2 holds the last frame of every stream and writes all of them at
//     once. A server may start a handler when it has the headers, and only the
//     end of the body is held from it: an answer before the release fails the
//     burst, but a handler that starts early and answers late is not noticed.
//
// # Open loops
//
// The scheduler starts each client at its time and waits for nothing else, so
// that a slow server meets more clients at once, not fewer. A client's first call
// is Intended at its arrival: what it waits for (the generator, a connection, the
// server) is in its response time. Calls share a bounded pool of kept HTTP/1.1
// connections, served in the order in which they were asked for. A connection that the server has
// closed meanwhile is noticed before it is used; one that dies after all,
// with the request on it, leaves the call as Info, and it is counted.
//
// # Stamps
//
// With an open loop Sent is the instant after the system call that took the
// request, and Answered when the answer was read. With a burst:
//
// Intended is the instant before the release. Sent is when the held part left
// our kernel, by the kernel's own time stamp. Where there is none (part of it
// had to wait for room, or the kernel does not stamp) it is the instant after
// the system call that took it, an upper bound: with io_uring one call takes
// all of them. Spread is from the release to the last Sent. Answered is when
// the last byte reached our kernel, where it stamps and the connection carries
// one request; else when it was read.
//
// MaxInFlight counts a request from its Sent until its answer reached our
// kernel. With HTTP/2 the kernel cannot tell the answers of one connection
// apart: a look at the connection right after the last frames, in the same
// io_uring submission where there is one, shows whether anything was answered
// by then. Requests of which it cannot be told are left out, so that the
// figure is never too great.
//
// # Outcomes
//
// 2xx is ok; 4xx is fail; 3xx, 5xx and every ending without a whole answer
// after the request could have taken effect are info; fail without a status
// means that the server certainly never had the whole request.
//
// What must not happen here: retries, judgement, waiting without a deadline,
// or goroutines that outlive the call that started them. The package imports
// harness/load for the accounting of requests. Bursts need Linux.
package wirehttp
