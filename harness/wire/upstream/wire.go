package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
)

const (
	// RunHeader marks every forwarded call with its run, so that one WireMock
	// can count for several.
	RunHeader = "X-Overbook-Run"

	defaultMaxCalls = 100_000
	defaultDeadline = 60 * time.Second
	closeDeadline   = 10 * time.Second
	maxBody         = 16 << 20 // of a request or an answer; larger ones are refused
	ledgerBody      = 16 << 10 // of each body in the ledger
)

// A Config says what a wire connects.
type Config struct {
	Clock    clock.Clock
	Name     string        // of the upstream: "pyxis"
	Target   string        // base URL with the path prefix of this run's mappings, http only
	Callers  []string      // replica names; each gets a listener, by which it is known
	RunID    string        // value of [RunHeader]
	MaxCalls int           // the ledger's bound; 0 takes 100,000
	Deadline time.Duration // of one forwarded call, connecting included; 0 takes 60 s
	_        struct{}
}

// A Wire is a running proxy. Its methods may be called from any goroutine,
// also after Close.
type Wire struct {
	config  Config
	ledger  *ledger
	faults  *faults
	pool    *pool
	servers []*http.Server
	urls    map[string]string
	serving chan error // one value per listener, when it has ended

	ctx    context.Context // ends with Close: holds and delays end, too
	cancel context.CancelFunc
	close  func() error // once
}

// Start listens on a free loopback port for each caller and serves until
// Close. ctx bounds the start alone.
func Start(ctx context.Context, c Config) (*Wire, error) {
	if c.MaxCalls == 0 {
		c.MaxCalls = defaultMaxCalls
	}
	if c.Deadline == 0 {
		c.Deadline = defaultDeadline
	}
	target, err := url.Parse(c.Target)
	if err != nil {
		return nil, fmt.Errorf("start wire to upstream %s: parse target: %w", c.Name, err)
	}
	if target.Scheme != "http" || target.Host == "" || target.RawQuery != "" {
		return nil, fmt.Errorf("start wire to upstream %s: target %q is not of the form http://host:port/prefix", c.Name, c.Target)
	}
	w := &Wire{
		config:  c,
		ledger:  newLedger(c),
		faults:  &faults{},
		pool:    newPool(c.Clock, target),
		urls:    make(map[string]string, len(c.Callers)),
		serving: make(chan error, len(c.Callers)),
	}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.close = sync.OnceValue(w.shut)
	for _, caller := range c.Callers {
		if err := w.listen(ctx, caller); err != nil {
			return nil, errors.Join(fmt.Errorf("start wire to upstream %s for %s: %w", c.Name, caller, err), w.Close())
		}
	}
	return w, nil
}

// listen opens one caller's door.
func (w *Wire) listen(ctx context.Context, caller string) error {
	if _, twice := w.urls[caller]; twice {
		return fmt.Errorf("caller %q is named twice", caller)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.serve(caller, rw, r) //nolint:contextcheck // a call outlives its caller
		}),
		ReadHeaderTimeout: w.config.Deadline,
		ErrorLog:          log.New(io.Discard, "", 0), // what matters is in the ledger
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	w.urls[caller] = "http://" + l.Addr().String()
	w.servers = append(w.servers, s)
	go func() { w.serving <- s.Serve(l) }() // Close closes s and receives
	return nil
}

// URL is the base URL that the caller has to use, without a path; "" for an
// unknown caller.
func (w *Wire) URL(caller string) string { return w.urls[caller] }

// Calls gives a snapshot of the ledger, in order of arrival. A call that is
// still going on has the stamps it has reached.
func (w *Wire) Calls() []harness.UpstreamCall { return w.ledger.snapshot() }

// Count gives how many calls of this method and path (without the query) were
// written to the upstream whole: what WireMock should have counted, once the
// wire is quiescent. A call that a fault dropped at [harness.MomentReceived],
// or that could not be sent whole, is in the ledger but not in this number.
func (w *Wire) Count(method, path string) int { return w.ledger.count(method, path) }

// InFlight gives how many calls were received and are not yet accepted (or
// given up): those that may still change what the upstream holds.
func (w *Wire) InFlight() int { return w.ledger.inFlight() }

// Overflow reports whether calls were refused because the ledger was full.
// Counts are then worthless.
func (w *Wire) Overflow() bool { return w.ledger.overflowed() }

// Err gives the reasons for which nothing that this wire counted may be
// trusted: an overflow, or a panic in a fault's Do. nil when there are none.
func (w *Wire) Err() error { return w.ledger.trouble() }

// Inject installs a fault. heal takes it back: later calls do not meet it,
// calls that it delays or holds go on at once (to its Drop, if it has one).
// An unknown moment is a bug of the scenario and panics.
//
// Every fault counts the calls it matches (moment, method, path, caller) for
// itself, whether or not an earlier fault was used for them. At
// [harness.MomentAccepted] the n-th call is the n-th whose answer came.
//
// A Drop at [harness.MomentReceived] keeps the call from the upstream; at
// [harness.MomentAccepted] the work is done and the answer lost.
func (w *Wire) Inject(f harness.UpstreamFault) (heal func()) {
	if f.At != harness.MomentReceived && f.At != harness.MomentAccepted {
		panic(fmt.Sprintf("upstream fault %q: no such moment: %q", f.Name, f.At))
	}
	return w.faults.install(f)
}

// Quiesce waits until no call is under way, whether or not its caller is
// still there; then Count is what WireMock has seen and the ledger's lines are
// complete. Calls whose answer a fault has in hand (delays, holds) are not
// waited for. The wait ends with ctx, at the latest after twice the deadline
// of a call; the error then names calls.
func (w *Wire) Quiesce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*w.config.Deadline)
	defer cancel()
	if w.ledger.moving.await(ctx) {
		return nil
	}
	return fmt.Errorf("wait for quiescence of upstream %s: %w; under way: %s",
		w.config.Name, ctx.Err(), strings.Join(w.ledger.unfinished(), ", "))
}

// Close refuses new calls, ends holds and delays, closes every connection
// and waits for what is running (10 s at most). The ledger stays readable.
func (w *Wire) Close() error { return w.close() }

func (w *Wire) shut() error {
	w.ledger.close()
	for _, s := range w.servers {
		// The listener's own error is of no use to anybody; Serve's is awaited below.
		_ = s.Close()
	}
	w.cancel() // only now: what was held meets a caller that is gone, not a 502
	w.pool.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeDeadline)
	defer cancel()
	var errs []error
	for range w.servers {
		if err := <-w.serving; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, fmt.Errorf("serve: %w", err))
		}
	}
	if !w.ledger.running.await(ctx) {
		errs = append(errs, fmt.Errorf("calls still running after %s: %s", closeDeadline, strings.Join(w.ledger.unfinished(), ", ")))
	}
	if len(errs) > 0 {
		return fmt.Errorf("close wire to upstream %s: %w", w.config.Name, errors.Join(errs...))
	}
	return nil
}
