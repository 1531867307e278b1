package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// connKey finds the caller's connection in a request's context.
type connKey struct{}

// serve carries one call. Once the body is read, nothing here depends on the
// caller's connection (or the request's context) until the answer is written.
func (w *Wire) serve(caller string, rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			http.Error(rw, fmt.Sprintf("overbook's upstream wire carries at most %d bytes", maxBody), http.StatusRequestEntityTooLarge)
			return
		}
		reset(rw) // the call was never received whole: there is no line for it
		return
	}
	call, err := w.ledger.arrive(caller, r, body)
	if err != nil {
		http.Error(rw, "overbook's upstream wire refuses the call: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer w.ledger.reach(call.Seq, ended)
	defer func() {
		v := recover()
		if v == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
			panic(v)
		}
		if v != nil {
			w.ledger.panicked(call.Seq, v)
			w.fail(call.Seq, "panic on the wire")
			reset(rw)
		}
	}()
	w.carry(call, rw, r, body)
}

// carry takes a received call through its moments.
func (w *Wire) carry(call harness.UpstreamCall, rw http.ResponseWriter, r *http.Request, body []byte) {
	if drop := w.moment(harness.MomentReceived, call); drop {
		w.fail(call.Seq, "dropped before it was forwarded")
		w.ledger.reach(call.Seq, returned)
		reset(rw)
		return
	}
	answer, err := w.forward(call.Seq, r, body)
	if err != nil {
		line := w.fail(call.Seq, err.Error())
		w.ledger.reach(call.Seq, returned)
		if line.Forwarded != 0 {
			reset(rw) // it may have been accepted: no status may pretend to know
			return
		}
		http.Error(rw, "overbook's upstream wire: "+err.Error(), http.StatusBadGateway)
		return
	}
	call = w.ledger.note(call.Seq, func(c *harness.UpstreamCall) {
		c.Status, c.Response, c.Accepted = answer.status, capped(answer.body), w.config.Clock.Now()
	})
	w.ledger.reach(call.Seq, returned)
	if drop := w.moment(harness.MomentAccepted, call); drop {
		w.fail(call.Seq, "answer dropped")
		reset(rw)
		return
	}
	w.answer(call.Seq, rw, r, answer)
}

// moment lets the fault act that the call meets, if any, and says whether it drops the call.
func (w *Wire) moment(m harness.Moment, call harness.UpstreamCall) (drop bool) {
	f := w.faults.at(m, call)
	if f == nil {
		return false
	}
	call = w.ledger.note(call.Seq, func(c *harness.UpstreamCall) {
		if c.Fault != "" {
			c.Fault += ", "
		}
		c.Fault += f.label()
	})
	if m == harness.MomentAccepted {
		w.ledger.moving.add(-1)
		defer w.ledger.moving.add(1)
	}
	f.run(w.ctx, call)
	return f.Drop
}

func (w *Wire) fail(seq int, why string) harness.UpstreamCall {
	return w.ledger.note(seq, func(c *harness.UpstreamCall) { c.Err = why })
}

// forward makes the one attempt to have the upstream answer.
func (w *Wire) forward(seq int, r *http.Request, body []byte) (*answer, error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.config.Deadline)
	defer cancel()
	conn, err := w.pool.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the upstream: %w", err)
	}
	keep := false
	defer func() { w.pool.put(conn, keep) }()
	if err := conn.SetDeadline(clock.Wall().Add(w.config.Deadline)); err != nil {
		return nil, fmt.Errorf("set the deadline of the upstream call: %w", err)
	}
	if err := w.pool.write(conn, r, body, w.config.RunID); err != nil {
		return nil, fmt.Errorf("send the call to the upstream: %w", err)
	}
	w.ledger.note(seq, func(c *harness.UpstreamCall) { c.Forwarded = w.config.Clock.Now() })
	a, err := conn.read(r.Method)
	if err != nil {
		return nil, fmt.Errorf("read the upstream's answer: %w", err)
	}
	keep = a.keep
	return a, nil
}

// answer passes the upstream's answer on, if the caller is still there.
func (w *Wire) answer(seq int, rw http.ResponseWriter, r *http.Request, a *answer) {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	if gone(conn) {
		w.fail(seq, "the caller was gone before the answer")
		reset(rw)
		return
	}
	maps.Copy(rw.Header(), a.header)
	if r.Method != http.MethodHead && a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		rw.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	rc := http.NewResponseController(rw)
	err := rc.SetWriteDeadline(clock.Wall().Add(w.config.Deadline))
	if err == nil {
		rw.WriteHeader(a.status)
		_, err = rw.Write(a.body)
	}
	if err == nil || errors.Is(err, http.ErrBodyNotAllowed) {
		err = rc.Flush()
	}
	if err == nil {
		err = rc.SetWriteDeadline(time.Time{})
	}
	if err == nil && refused(conn) {
		err = errors.New("the caller refused it")
	}
	if err != nil {
		w.fail(seq, "pass the answer on: "+err.Error())
		return
	}
	w.ledger.note(seq, func(c *harness.UpstreamCall) { c.Answered = w.config.Clock.Now() })
}

// reset ends the caller's connection with a TCP reset.
func reset(rw http.ResponseWriter) {
	conn, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the connection is gone or taken: nothing to reset
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only on a dead connection
	}
	_ = conn.Close()
}
