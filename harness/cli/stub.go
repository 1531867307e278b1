package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/overbook/overbook/harness"
)

// doubles gives the upstream doubles that the scenarios name.
func (a *app) doubles() map[string]harness.Double {
	all := map[string]harness.Double{}
	for _, s := range a.Scenarios {
		for _, d := range s.Topology(s.Defaults()).Doubles {
			all[d.Name] = d
		}
	}
	return all
}

func (a *app) stubCommand() *cobra.Command {
	var listen, seed string
	c := &cobra.Command{
		Use: "stub NAME", Short: "one stateful upstream double alone, to look at or for docker-compose.yml",
		Long:    `Serves a double without WireMock in front of it. POST /__double/config sets its behaviour, GET /__double/ledger is its truth.`,
		Example: "  overbook stub pyxis --listen 127.0.0.1:9090", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			d, ok := a.doubles()[args[0]]
			if !ok {
				return usage(fmt.Errorf("no double %q; there are %s", args[0], strings.Join(slices.Sorted(maps.Keys(a.doubles())), ", ")), "")
			}
			s, err := harness.ParseSeed(seed)
			if err != nil {
				return usage(err, "")
			}
			return a.serveStub(c.Context(), d, uint64(s), listen)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address and port; port 0 takes a free one")
	c.Flags().StringVar(&seed, "seed", "1", "of its latencies")
	return c
}

func (a *app) serveStub(ctx context.Context, d harness.Double, seed uint64, listen string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return environment(fmt.Errorf("listen for the double %s: %w", d.Name, err), portHint(err))
	}
	server := &http.Server{Handler: d.New(seed), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	fmt.Fprintf(a.out, "listening on http://%s\n", l.Addr())
	select {
	case err := <-done:
		return environment(err, "")
	case <-a.interrupted.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(closing)
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return environment(err, "")
}

// portHint says what to do about a port that is taken.
func portHint(err error) string {
	if strings.Contains(err.Error(), "address already in use") {
		return "another process has that port; use port 0 for a free one"
	}
	return ""
}
