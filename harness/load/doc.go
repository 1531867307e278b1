// Package load owns the accounting of load: how many requests were planned,
// ready, sent, answered, timed out or never sent; how many were in flight at
// once; how far behind its schedule a generator was; and whether an error was
// made by our own machine or by the server. It also plans arrivals, from a
// generator of random numbers that is handed in.
//
// Everything here is a pure function. The package opens no connection, starts
// no goroutine and reads no clock; the wires bring the stamps. It is imported
// by the client wire (package wirehttp), which reports bursts in its words.
package load
