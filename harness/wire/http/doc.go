// Package wirehttp owns the client wire: HTTP/1.1 and HTTP/2 calls whose
// every byte and instant is known, alone or as a burst that is released at one
// barrier.
//
// It never uses net/http's Transport, because that may send a request a second
// time without saying so. Here every call has a connection of its own (every
// target, with HTTP/2), is attempted once, and what is not certain about it is
// reported as uncertain.
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
// # Stamps
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
