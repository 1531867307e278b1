package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/wire/upstream"
)

// double is one upstream system of a run: the stateful double in our process,
// the WireMock mappings that proxy to it, and the wire in front of WireMock.
// It implements [harness.Upstream].
type double struct {
	harness.Double
	wire   *upstream.Wire
	base   string // of the double itself
	prefix string // of the mappings in WireMock
	runID  string
	rec    *recorder
	close  func(context.Context) error

	mu    sync.Mutex
	heals []func()
}

// startDouble puts the three together. On error nothing is left running.
func (s *session) startDouble(ctx context.Context, d harness.Double, seed uint64, callers []string) (_ *double, err error) {
	var undo []func(context.Context) error
	closeAll := func(ctx context.Context) error {
		var errs []error
		for _, back := range slices.Backward(undo) {
			errs = append(errs, back(ctx))
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the double %s: %w", d.Name, err), closeAll(context.WithoutCancel(ctx)))
		}
	}()
	base, stop, err := serve(ctx, d.New(seed))
	if err != nil {
		return nil, err
	}
	undo = append(undo, stop)
	prefix := "/" + s.id + "/" + d.Name
	remove, err := s.c.wiremock.Load(ctx, d.Mappings, map[string]string{"double.url": s.c.parts.WireMock.Reach(base), "prefix": prefix})
	if err != nil {
		return nil, fmt.Errorf("load WireMock mappings: %w", err)
	}
	undo = append(undo, remove)
	wire, err := upstream.Start(ctx, upstream.Config{
		Clock: s.rec.clock, Name: d.Name, Target: s.c.parts.WireMock.URL() + prefix, Callers: callers, RunID: s.id,
	})
	if err != nil {
		return nil, err
	}
	undo = append(undo, func(context.Context) error { return wire.Close() })
	return &double{Double: d, wire: wire, base: base, prefix: prefix, runID: s.id, rec: s.rec, close: closeAll}, nil
}

// serve runs a handler on a free loopback port.
func serve(ctx context.Context, h http.Handler) (base string, stop func(context.Context) error, err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: adminDeadline}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return "http://" + l.Addr().String(), func(context.Context) error {
		err := server.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

func (d *double) Calls() []harness.UpstreamCall { return d.wire.Calls() }

// Inject installs the fault and notes each time it strikes in the history.
func (d *double) Inject(f harness.UpstreamFault) func() {
	act := f.Do
	f.Do = func(ctx context.Context, c harness.UpstreamCall) {
		d.rec.event(harness.Event{Kind: harness.EventFault, Subject: d.Name, Text: fmt.Sprintf("%s: call %d %s %s, %s", f.Name, c.Seq, c.Method, c.Path, f.At)})
		if act != nil {
			act(ctx, c)
		}
	}
	undo := d.wire.Inject(f)
	heal := sync.OnceFunc(func() {
		undo()
		d.rec.event(harness.Event{Kind: harness.EventHeal, Subject: d.Name, Text: f.Name})
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heals = append(d.heals, heal)
	return heal
}

// heal takes back every fault that is still installed.
func (d *double) heal() {
	d.mu.Lock()
	heals := d.heals
	d.heals = nil
	d.mu.Unlock()
	for _, h := range heals {
		h()
	}
}

func (d *double) Configure(ctx context.Context, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("configure %s: %w", d.Name, err)
	}
	_, err = d.ask(ctx, http.MethodPost, "/__double/config", body)
	return err
}

func (d *double) Ledger(ctx context.Context) (json.RawMessage, error) {
	return d.ask(ctx, http.MethodGet, "/__double/ledger", nil)
}

func (d *double) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, adminDeadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s of double %s: %w", method, path, d.Name, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("answered %d: %s", res.StatusCode, lastLines(string(answer), 5))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s of double %s: %w", method, path, d.Name, err)
	}
	return answer, nil
}

// counts asks both observers, after quiescence, what they counted: each kind
// of call in total, and for each value of the field that the double counts by.
func (s *session) counts(ctx context.Context, d *double) []harness.UpstreamCount {
	quiet := d.wire.Quiesce(ctx)
	calls := d.wire.Calls()
	var counts []harness.UpstreamCount
	add := func(c harness.UpstreamCount, n int, err error) {
		if err = errors.Join(quiet, err, d.wire.Err()); err != nil {
			n, c.Error = -1, err.Error()
		}
		c.WireMock = n
		counts = append(counts, c)
	}
	for _, what := range d.Count {
		method, path, _ := strings.Cut(what, " ")
		n, err := s.c.wiremock.Count(ctx, method, d.prefix+path, d.runID)
		add(harness.UpstreamCount{Upstream: d.Name, Method: method, Path: path, Ledger: d.wire.Count(method, path)}, n, err)
		field := d.CountBy[what]
		if field == "" {
			continue
		}
		ledger := forwardedBy(calls, method, path, field)
		journal, err := s.c.wiremock.Tally(ctx, method, d.prefix+path, d.runID, field)
		seen := maps.Clone(ledger)
		maps.Copy(seen, journal)
		for _, key := range slices.Sorted(maps.Keys(seen)) {
			add(harness.UpstreamCount{Upstream: d.Name, Method: method, Path: path, Key: key, Ledger: ledger[key]}, journal[key], err)
		}
	}
	return counts
}

// forwardedBy counts the calls that went on to the upstream by a field of
// their JSON body; a body without it counts as "".
func forwardedBy(calls []harness.UpstreamCall, method, path, field string) map[string]int {
	n := map[string]int{}
	for _, c := range calls {
		if c.Method != method || c.Path != path || c.Forwarded == 0 {
			continue
		}
		n[upstream.FieldOf([]byte(c.Request), field)]++
	}
	return n
}

func envName(name string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

func joinLines(lines []string) string { return strings.Join(lines, "\n") }

// seedOf gives the double its own stream of the run's seed.
func seedOf(s harness.Seed, name string) uint64 { return s.Rand("double " + name).Uint64() }
