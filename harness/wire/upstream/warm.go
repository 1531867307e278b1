package upstream

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/overbook/overbook/harness/clock"
)

const (
	warmSize   = 100                    // calls at once, about as many as a run will make
	warmBursts = 8                      // at most
	warmTime   = 200 * time.Millisecond // after which no further burst starts
	warmRun    = "warm-up"              // in place of a run's id
)

//go:embed warm.json
var warmMapping embed.FS

// Warm has a fresh WireMock proxy bursts of 100 calls, so that its code is
// compiled and its threads and connections exist before anything is measured:
// at most 8 bursts, and none begins after 200 ms. The calls go to a target of
// our own under a prefix of their own, so no run's count sees them; they stay
// in the journal until [WireMock.ResetJournal].
func (m *WireMock) Warm(ctx context.Context) error {
	if err := m.warm(ctx); err != nil {
		return fmt.Errorf("warm up WireMock at %s: %w", m.base, err)
	}
	return nil
}

func (m *WireMock) warm(ctx context.Context) (err error) {
	target, stop, err := warmTarget(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	prefix := "/overbook-warm-up/" + uuid.NewString()
	remove, err := m.Load(ctx, warmMapping, map[string]string{VarPrefix: prefix, VarDoubleURL: target})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()

	transport := &http.Transport{MaxIdleConnsPerHost: warmSize}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: adminDeadline}
	watch := clock.New()
	for burst := 0; burst < warmBursts && watch.Now() < warmTime; burst++ {
		group, ctx := errgroup.WithContext(ctx)
		for range warmSize {
			group.Go(func() error { return warmCall(ctx, client, m.base+prefix+"/call") })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func warmCall(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"warm":true}`))
	if err != nil {
		return err
	}
	req.Header.Set(RunHeader, warmRun)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("a proxied call was answered %d instead of %d", resp.StatusCode, http.StatusNoContent)
	}
	return nil
}

// warmTarget serves 204 to everything.
func warmTarget(ctx context.Context) (url string, stop func() error, err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{
		ReadHeaderTimeout: adminDeadline,
		ErrorLog:          log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				w.WriteHeader(http.StatusNoContent)
			}
		}),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return "http://" + l.Addr().String(), func() error {
		err := server.Close()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	}, nil
}
