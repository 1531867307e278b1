package wirehttp

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/load"
)

// outputCap is how much of an answer's body an operation keeps.
const outputCap = 16 << 10

// keptHeaders are the fields of an answer that an operation keeps.
var keptHeaders = []string{"Content-Type", "Location", "Retry-After", "Idempotency-Replayed"}

// A racer is one request on its way to becoming an operation.
type racer struct {
	op      harness.Operation
	req     harness.Request
	target  target
	fields  []field
	trace   string
	timeout time.Duration

	sent     time.Duration // all of the request is in the kernel
	ended    time.Duration // answered, broken off or given up
	exposed  bool          // the server may have enough of the request to act on it
	landed   time.Duration // the last byte of the answer reached our kernel; 0 when that is not known
	answered bool          // a whole answer came
	soon     bool          // ended before the release returned, and nobody knows when
	err      error
}

// newRacer fills what is known before anything is sent; a request that can't
// be written as HTTP is in err.
func (c *Client) newRacer(baseURL, burst string, burstTimeout time.Duration, r harness.Request) *racer {
	id := c.cfg.OpID()
	ra := &racer{req: r, timeout: c.cfg.Timeout, trace: Traceparent(c.cfg.RunID, id)}
	if burstTimeout > 0 {
		ra.timeout = burstTimeout
	}
	if r.Timeout > 0 {
		ra.timeout = r.Timeout
	}
	ra.op = harness.Operation{
		ID: id, Process: r.Process, Kind: r.Kind, Burst: burst, Server: r.Server,
		Caller: r.Caller, Key: headerOf(r, "Idempotency-Key"),
		Method: r.Method, Path: r.Path, Input: inputOf(r.Body),
	}
	if ra.target, ra.err = parseTarget(baseURL); ra.err != nil {
		return ra
	}
	ra.fields, ra.err = fieldsOf(r)
	return ra
}

// inputOf is the body as a record can hold it: one that is no JSON, as sent to
// see what the server makes of it, becomes a string.
func inputOf(body json.RawMessage) json.RawMessage {
	if len(body) == 0 || json.Valid(body) {
		return body
	}
	text, _ := json.Marshal(string(body)) // a string can always be written
	return text
}

// headerOf gives the request's header by its name, in whatever case it is written.
func headerOf(r harness.Request, name string) string {
	for k, v := range r.Header {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// fail ends the racer with an error; the first one stays.
func (ra *racer) fail(err error) {
	if ra.err == nil && !ra.answered {
		ra.err = err
	}
}

// answer ends the racer with a whole answer.
func (ra *racer) answer(a answer, at time.Duration) {
	ra.answered, ra.ended = true, at
	ra.op.Status = a.status
	ra.op.Output = string(a.body)
	for _, name := range keptHeaders {
		if v, ok := a.header[name]; ok {
			if ra.op.Header == nil {
				ra.op.Header = map[string]string{}
			}
			ra.op.Header[name] = v
		}
	}
}

// operation gives the record of the racer as it now stands.
func (ra *racer) operation() harness.Operation {
	op := ra.op
	op.Sent = ra.sent
	if ra.answered {
		op.Answered = ra.ended
		op.Outcome = outcomeOf(op.Status)
		return op
	}
	if ra.err == nil {
		ra.err = load.Errorf(load.ClassOther, "ended without an answer and without a reason")
	}
	op.Err = load.Describe(ra.err)
	op.Outcome = harness.Fail
	if ra.exposed {
		op.Outcome = harness.Info
	}
	return op
}

// outcomeOf says what a status lets the client conclude. A redirect says
// neither that the call took effect nor that it did not.
func outcomeOf(status int) harness.Outcome {
	switch {
	case status >= 200 && status < 300:
		return harness.OK
	case status >= 400 && status < 500:
		return harness.Fail
	}
	return harness.Info
}

// giveUp is the error of a racer whose time is over.
func (ra *racer) giveUp() error {
	return load.Errorf(load.ClassTimeout, "no whole answer within %s of the release", ra.timeout)
}

// heldBack is the error of a racer whose burst was not released.
func heldBack(why error) error {
	return load.Errorf(load.ClassHeld, "the burst was not released: %w", why)
}

func badRequest(format string, args ...any) error {
	return &load.ClassedError{Class: load.ClassRequest, Err: fmt.Errorf(format, args...)}
}
