package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// A Class says who caused an error of a call, and how.
type Class string

// The classes. The text of an operation's error starts with its class.
const (
	ClassPorts     Class = "client-no-port"   // our machine has no free port or address
	ClassFiles     Class = "client-no-file"   // our process or machine has no free file descriptor
	ClassMemory    Class = "client-no-memory" // our machine has no buffer space
	ClassWaiting   Class = "client-no-turn"   // no connection of our pool became free in time
	ClassRequest   Class = "client-request"   // the request cannot be written as HTTP
	ClassCancelled Class = "client-cancelled" // we gave up before the deadline
	ClassHeld      Class = "not-released"     // the burst it belonged to did not take place
	ClassTimeout   Class = "timeout"          // no connection or no whole answer before the deadline
	ClassRefused   Class = "refused"          // nobody listens
	ClassReset     Class = "reset"            // the other side reset the connection
	ClassClosed    Class = "closed"           // the other side closed the connection
	ClassLost      Class = "client-gone"      // the client went away on purpose
	ClassAnswer    Class = "bad-answer"       // what came is not a well-formed answer
	ClassOther     Class = "error"            // anything else
)

var classes = []Class{
	ClassPorts, ClassFiles, ClassMemory, ClassWaiting, ClassRequest, ClassCancelled, ClassHeld,
	ClassTimeout, ClassRefused, ClassReset, ClassClosed, ClassLost, ClassAnswer, ClassOther,
}

// ClientSide reports whether our own side is to blame, so that the error says
// nothing about the server.
func (c Class) ClientSide() bool {
	return strings.HasPrefix(string(c), "client-") || c == ClassHeld
}

// A ClassedError is an error whose class its maker knows.
type ClassedError struct {
	Class Class
	Err   error
}

// Error gives the error's text, without the class.
func (e *ClassedError) Error() string { return e.Err.Error() }

// Unwrap gives the error that was classed.
func (e *ClassedError) Unwrap() error { return e.Err }

// Errorf makes an error of a known class.
func Errorf(c Class, format string, args ...any) error {
	return &ClassedError{Class: c, Err: fmt.Errorf(format, args...)}
}

// Classify gives the class of an error of a call; "" for nil.
func Classify(err error) Class {
	var classed *ClassedError
	var network net.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &classed):
		return classed.Class
	case isAny(err, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE):
		return ClassPorts
	case isAny(err, syscall.EMFILE, syscall.ENFILE):
		return ClassFiles
	case isAny(err, syscall.ENOBUFS, syscall.ENOMEM):
		return ClassMemory
	case errors.Is(err, context.Canceled):
		return ClassCancelled
	case isAny(err, os.ErrDeadlineExceeded, context.DeadlineExceeded, syscall.ETIMEDOUT):
		return ClassTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return ClassRefused
	case isAny(err, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED):
		return ClassReset
	case isAny(err, io.EOF, io.ErrUnexpectedEOF):
		return ClassClosed
	case errors.As(err, &network) && network.Timeout():
		return ClassTimeout
	}
	return ClassOther
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// Describe gives "class: text", the form in which an operation keeps an
// error; "" for nil.
func Describe(err error) string {
	if err == nil {
		return ""
	}
	return string(Classify(err)) + ": " + err.Error()
}

// ClassOf reads the class back from an operation's error. "" stands for no
// error; a text that Describe did not write is ClassOther.
func ClassOf(text string) Class {
	if text == "" {
		return ""
	}
	prefix, _, _ := strings.Cut(text, ":")
	for _, c := range classes {
		if prefix == string(c) {
			return c
		}
	}
	return ClassOther
}
