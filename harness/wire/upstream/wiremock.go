package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	mock "github.com/wiremock/go-wiremock"
)

const (
	adminDeadline = 10 * time.Second // of one admin call, when ctx has none that is earlier
	adminCalls    = 8                // go-wiremock calls at once, abandoned ones included
	adminBody     = 64 << 20         // of an admin answer: 20,000 entries of the journal
)

// ErrNoCount is wrapped by every error of [WireMock.Count]: the count is
// unknown, which is not zero. [WireMock.Load] wraps it when the journal cannot
// be counted in from the start.
var ErrNoCount = errors.New("WireMock's count is unknown")

// A WireMock is the client of a running WireMock. Use go-wiremock where it
// has the call, the admin API's JSON where it has not. Every call ends with
// its context, at the latest after 10 s.
//
// The journal of WireMock can be switched off, limited, or emptied by
// somebody else, and none of it shows in a count. Therefore [WireMock.Load]
// leaves a marker in the journal, older than all calls of the run, and Count
// gives a number only while the marker is still there: the journal drops its
// oldest entries first.
type WireMock struct {
	base   string
	http   *http.Client
	client *mock.Client
	slots  chan struct{} // bounds the goroutines that wait for go-wiremock

	mu      sync.Mutex
	markers map[string]string // by prefix: the path of the marker
}

// NewWireMock makes a client for the WireMock at a base URL such as
// "http://127.0.0.1:35357" (with or without "/__admin"). It connects to nothing yet.
func NewWireMock(adminBase string) *WireMock {
	base := strings.TrimSuffix(strings.TrimSuffix(adminBase, "/"), "/__admin")
	return &WireMock{
		base:    base,
		http:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: maxIdleTime}},
		client:  mock.NewClient(base),
		slots:   make(chan struct{}, adminCalls),
		markers: make(map[string]string),
	}
}

// URL is the base URL of the mocked systems, without the prefix of a run.
func (m *WireMock) URL() string { return m.base }

// Health asks whether WireMock serves.
func (m *WireMock) Health(ctx context.Context) error {
	var answer struct{ Status, Message string }
	if err := m.admin(ctx, http.MethodGet, "/health", nil, http.StatusOK, &answer); err != nil {
		return fmt.Errorf("ask WireMock at %s for its health: %w", m.base, err)
	}
	if answer.Status != "healthy" {
		return fmt.Errorf("WireMock at %s is %q: %s", m.base, answer.Status, answer.Message)
	}
	return nil
}

// Count gives how many requests of the run WireMock's journal holds for this
// method and path (with the prefix of the mappings, without the query).
// Proxied requests are in the journal once the double has answered: ask after
// [Wire.Quiesce]. When the journal cannot vouch for the number, the error
// wraps [ErrNoCount].
func (m *WireMock) Count(ctx context.Context, method, pathWithPrefix, runID string) (int, error) {
	if runID == "" {
		return 0, fmt.Errorf("count %s %s: %w: no run to count for", method, pathWithPrefix, ErrNoCount)
	}
	n, err := m.journal(ctx, mock.NewRequest(method, mock.URLPathEqualTo(pathWithPrefix)).WithHeader(RunHeader, mock.EqualTo(runID)))
	if err != nil {
		return 0, fmt.Errorf("count %s %s of run %s: %w: %w", method, pathWithPrefix, runID, ErrNoCount, err)
	}
	// After the number, so that it vouches for what was counted.
	if err := m.checkMarker(ctx, pathWithPrefix); err != nil {
		return 0, fmt.Errorf("count %s %s of run %s: %w: %w", method, pathWithPrefix, runID, ErrNoCount, err)
	}
	return n, nil
}

// journal counts the journal's entries that match.
func (m *WireMock) journal(ctx context.Context, r *mock.Request) (int, error) {
	var n int64
	err := m.wrapped(ctx, func() (err error) {
		n, err = m.client.GetCountRequests(r)
		return err
	})
	if err != nil {
		return 0, err
	}
	if n < 0 {
		return 0, errors.New("the request journal is disabled; start WireMock without --no-request-journal")
	}
	return int(n), nil
}

// checkMarker looks whether the journal still has its entry from before the run.
func (m *WireMock) checkMarker(ctx context.Context, path string) error {
	marker := m.markerFor(path)
	if marker == "" {
		return fmt.Errorf("no mappings were loaded by this client for %s, so nothing shows that the journal is whole", path)
	}
	return m.seesMarker(ctx, marker)
}

func (m *WireMock) seesMarker(ctx context.Context, marker string) error {
	n, err := m.journal(ctx, mock.NewRequest(http.MethodPost, mock.URLPathEqualTo(marker)))
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("the journal has lost entries (its marker is there %d times, not once): "+
			"a journal limit was reached, or somebody reset it; start WireMock without --max-request-journal-entries", n)
	}
	return nil
}

// markerFor gives the marker of the longest loaded prefix of the path.
func (m *WireMock) markerFor(path string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	best, marker := -1, ""
	for prefix, path2 := range m.markers {
		if len(prefix) > best && strings.HasPrefix(path, prefix+"/") {
			best, marker = len(prefix), path2
		}
	}
	return marker
}

// mark puts a new marker for the prefix into the journal.
func (m *WireMock) mark(ctx context.Context, prefix string) error {
	marker := prefix + "/__overbook/marker/" + uuid.NewString()
	// The stub is there only so that WireMock does not print an unmatched request.
	stub := mock.Post(mock.URLPathEqualTo(marker)).WillReturnResponse(mock.NewResponse().WithStatus(http.StatusNoContent))
	if err := m.wrapped(ctx, func() error { return m.client.StubFor(stub) }); err != nil {
		return fmt.Errorf("install the journal's marker: %w", err)
	}
	err := m.call(ctx, http.MethodPost, m.base+marker, nil, http.StatusNoContent, nil)
	if err == nil {
		err = m.seesMarker(ctx, marker)
	}
	if err != nil {
		err = fmt.Errorf("mark the journal: %w: %w", ErrNoCount, err)
	} else {
		m.mu.Lock()
		m.markers[prefix] = marker
		m.mu.Unlock()
	}
	return errors.Join(err, m.wrapped(ctx, func() error { return m.client.DeleteStub(stub) }))
}

// ResetJournal empties the journal, for all runs that share this WireMock,
// and marks it anew for the mappings that this client has loaded. Calls of
// another client's runs lose their marker, so their counts become unknown.
func (m *WireMock) ResetJournal(ctx context.Context) error {
	if err := m.wrapped(ctx, m.client.DeleteAllRequests); err != nil {
		return fmt.Errorf("reset WireMock's journal: %w", err)
	}
	m.mu.Lock()
	prefixes := make([]string, 0, len(m.markers))
	for prefix := range m.markers {
		prefixes = append(prefixes, prefix)
	}
	m.mu.Unlock()
	for _, prefix := range prefixes {
		if err := m.mark(ctx, prefix); err != nil {
			return fmt.Errorf("reset WireMock's journal: %w", err)
		}
	}
	return nil
}

// wrapped gives a go-wiremock call the deadline that it lacks. A call that
// outlives it keeps its goroutine, which ends with WireMock's connection, and
// its slot; when all slots are taken, calls are refused.
func (m *WireMock) wrapped(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, adminDeadline)
	defer cancel()
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%d calls to WireMock's admin API hang: %w", adminCalls, context.Cause(ctx))
	}
	done := make(chan error, 1)
	go func() {
		done <- f()
		<-m.slots
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("WireMock's admin API does not answer: %w", context.Cause(ctx))
	}
}

// admin makes a call that go-wiremock lacks; body and into are JSON, both optional.
func (m *WireMock) admin(ctx context.Context, method, path string, body any, want int, into any) error {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return m.call(ctx, method, m.base+"/__admin"+path, sent, want, into)
}

func (m *WireMock) call(ctx context.Context, method, url string, body []byte, want int, into any) error {
	ctx, cancel := context.WithTimeout(ctx, adminDeadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.GetBody = nil // never sent twice
	req.Header.Set("Content-Type", "application/json")
	resp, err := m.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, adminBody))
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", method, url, err)
	}
	if resp.StatusCode != want {
		return fmt.Errorf("%s %s answered %d instead of %d: %.600s", method, url, resp.StatusCode, want, answer)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s %s: decode the answer: %w", method, url, err)
	}
	return nil
}
