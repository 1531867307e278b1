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
// Intended is the instant before the release. Sent is the instant by which
// the held part was in the kernel: for one thread, after that connection's
// own write; for io_uring and for HTTP/2, where one system call carries all
// of them, after that call, so that it is an upper bound for each. Spread is
// the first to the last hand-over, from before the first to after the last
// system call: also an upper bound. Answered is when the last byte was read.
// MaxInFlight counts a request only from its Sent to its end and leaves out
// those whose answers were there when the release returned: a lower bound.
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
