package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

// errClosed ends calls that the closing wire cannot carry any more.
var errClosed = errors.New("the wire was closed")

// A ledger keeps one line per received call, in order of arrival. When it is
// full, further calls are refused and the overflow is remembered.
type ledger struct {
	clock clock.Clock
	name  string
	max   int

	mu        sync.Mutex
	calls     []harness.UpstreamCall
	progress  []progress     // beside calls
	forwarded map[string]int // by "METHOD path"
	refused   int
	panics    []string // the first few
	closed    bool

	pending gauge // received, not yet accepted or given up
	moving  gauge // running, but for those whose answer a fault has in hand
	running gauge // received, handler not yet ended
}

type progress uint8

const (
	onItsWay progress = iota // may still reach the upstream
	returned                 // accepted or given up
	ended
)

func newLedger(c Config) *ledger {
	return &ledger{clock: c.Clock, name: c.Name, max: c.MaxCalls, forwarded: make(map[string]int)}
}

// arrive writes the line of a call whose body was read. Order, number and
// stamp are given under one lock, so that they agree.
func (l *ledger) arrive(caller string, r *http.Request, body []byte) (harness.UpstreamCall, error) {
	c := harness.UpstreamCall{
		Upstream: l.name,
		Caller:   caller,
		Method:   r.Method,
		Path:     r.URL.EscapedPath(), // as WireMock matches it
		Query:    r.URL.RawQuery,
		Op:       r.Header.Get("X-Overbook-Op"),
		TraceID:  traceID(r.Header.Get("Traceparent")),
		Request:  capped(body),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return c, errClosed
	case len(l.calls) >= l.max:
		l.refused++
		return c, fmt.Errorf("the ledger is full: %d calls", l.max)
	}
	c.Seq = len(l.calls) + 1
	c.Received = l.clock.Now()
	l.calls = append(l.calls, c)
	l.progress = append(l.progress, onItsWay)
	l.pending.add(1)
	l.moving.add(1)
	l.running.add(1)
	return c, nil
}

// note changes the line of a call and gives the new one.
func (l *ledger) note(seq int, change func(*harness.UpstreamCall)) harness.UpstreamCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.calls[seq-1]
	was := c.Forwarded
	change(c)
	if was == 0 && c.Forwarded != 0 {
		l.forwarded[c.Method+" "+c.Path]++
	}
	return *c
}

// reach moves a call forward in its life; it never goes back.
func (l *ledger) reach(seq int, p progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.progress[seq-1]
	if p <= was {
		return
	}
	l.progress[seq-1] = p
	if was == onItsWay {
		l.pending.add(-1)
	}
	if p == ended {
		l.moving.add(-1)
		l.running.add(-1)
	}
}

func (l *ledger) snapshot() []harness.UpstreamCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

func (l *ledger) count(method, path string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forwarded[method+" "+path]
}

func (l *ledger) inFlight() int { return l.pending.value() }

func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *ledger) panicked(seq int, v any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.panics) < 8 { // one is enough to distrust the run
		l.panics = append(l.panics, fmt.Sprintf("panic while carrying call %d: %v", seq, v))
	}
}

func (l *ledger) overflowed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused > 0
}

func (l *ledger) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	if l.refused > 0 {
		errs = append(errs, fmt.Errorf("the ledger of upstream %s is full at %d calls; %d more were refused", l.name, l.max, l.refused))
	}
	for _, p := range l.panics {
		errs = append(errs, errors.New(p))
	}
	return errors.Join(errs...)
}

// unfinished describes up to eight calls that have not ended.
func (l *ledger) unfinished() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for i, p := range l.progress {
		if p == ended {
			continue
		}
		c := l.calls[i]
		line := fmt.Sprintf("#%d %s %s from %s, received at %s", c.Seq, c.Method, c.Path, c.Caller, c.Received.Round(time.Millisecond))
		if c.Fault != "" {
			line += " (fault: " + c.Fault + ")"
		}
		if lines = append(lines, line); len(lines) == 8 {
			return append(lines, "...")
		}
	}
	return lines
}

// traceID takes the trace id out of a W3C traceparent ("00-<trace>-<span>-<flags>").
func traceID(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return ""
	}
	return parts[1]
}

func capped(body []byte) string { return string(body[:min(len(body), ledgerBody)]) }

// A gauge is a number that can be waited for to be zero.
type gauge struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n falls to zero; nil when nobody waits
}

func (g *gauge) add(d int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n += d
	if g.n == 0 && g.zero != nil {
		close(g.zero)
		g.zero = nil
	}
}

func (g *gauge) value() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// await reports whether the gauge was zero at some instant before ctx ended.
func (g *gauge) await(ctx context.Context) bool {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return true
	}
	if g.zero == nil {
		g.zero = make(chan struct{})
	}
	zero := g.zero
	g.mu.Unlock()
	select {
	case <-zero:
		return true
	case <-ctx.Done():
		return false
	}
}
