// Package sut is the reference server as a command: it reads the environment,
// starts a design's service behind an HTTP listener, says when it is ready and
// ends in good order. The contract is docs/reference-server.md.
//
// What must not happen here: anything of a design's substance. Nothing below
// this package imports the harness, nor the harness anything of it.
package sut

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/overbook/overbook/sut/clock"
	"github.com/overbook/overbook/sut/library"
)

// Exit codes.
const (
	exitStopped = 0 // on request
	exitFailed  = 1 // while serving, or a second signal cut the end short
	exitConfig  = 4 // nothing was started
)

// Bounds of the HTTP listener. A header may come slowly: the harness holds its
// last byte back until all racers are there.
const (
	headerTimeout = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	headerMax     = 64 << 10
	streamsMost   = 1000
)

// Run is the sut command. args are what follows "sut"; env are "NAME=value"
// lines as of os.Environ. It returns the exit code, after the context ended or
// the process got SIGTERM or SIGINT.
func Run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	cmd, err := parseArgs(args)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "overbook sut: %v\nSee overbook sut --help.\n", err)
		return exitConfig
	}
	if cmd.help {
		_, _ = io.WriteString(stdout, usage())
		return exitStopped
	}
	if cmd.migrate {
		return runMigrate(ctx, env, stderr)
	}
	cfg, faults := readConfig(env)
	if len(faults) > 0 {
		return configFaults(stderr, faults)
	}
	cfg.library.Clock = clock.New(cfg.clockOffset)
	cfg.library.Log = slog.New(slog.NewTextHandler(stderr, nil))
	return serve(ctx, cfg, stdout)
}

func configFaults(stderr io.Writer, faults []string) int {
	_, _ = fmt.Fprintf(stderr, "overbook sut: the environment is not right, nothing was started:\n")
	for _, f := range faults {
		_, _ = fmt.Fprintf(stderr, "  %s\n", f)
	}
	_, _ = fmt.Fprintf(stderr, "See overbook sut --help for all variables.\n")
	return exitConfig
}

func runMigrate(ctx context.Context, env []string, stderr io.Writer) int {
	cfg, _ := readConfig(env)
	if !postgresURL(cfg.library.DatabaseURL) {
		return configFaults(stderr, []string{fmt.Sprintf("DATABASE_URL=%q: want a Postgres URL (required), e.g. DATABASE_URL=postgres://overbook@127.0.0.1:5432/overbook", cfg.library.DatabaseURL)})
	}
	version, err := library.Migrate(ctx, cfg.library.DatabaseURL)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "overbook sut migrate: %v\n", err)
		return exitFailed
	}
	_, _ = fmt.Fprintf(stderr, "the library's schema is at version %d\n", version)
	return exitStopped
}

// serve runs the server from start to end.
func serve(ctx context.Context, cfg processConfig, stdout io.Writer) int {
	log := cfg.library.Log
	signals := make(chan os.Signal, 4) // more than four unread signals say nothing new
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.listen)
	if err != nil {
		log.Error("could not listen; choose another LISTEN address, or port 0 for any free port", "listen", cfg.listen, "error", err)
		return exitFailed
	}
	defer func() { _ = listener.Close() }() // closed by the server long since, unless starting failed
	service, err := library.Start(ctx, cfg.library)
	if err != nil {
		log.Error("could not start", "error", err)
		return exitFailed
	}
	server := newServer(service.Handler(), log)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }() // ends with the server, whose end is waited for below
	_, _ = fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())

	select {
	case err := <-failed:
		log.Error("serving failed", "error", err)
		service.Close()
		return exitFailed
	case <-ctx.Done():
	case s := <-signals:
		log.Info("stopping", "signal", s.String())
	}
	return stop(ctx, cfg, service, server, signals)
}

func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerMax,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsMost},
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server
}

// stop ends in good order: no new connections, no new claims; calls under way
// end; clients who still wait get their 202; then everything is closed. A
// second signal ends all that at once.
func stop(ctx context.Context, cfg processConfig, service *library.Service, server *http.Server, signals <-chan os.Signal) int {
	log := cfg.library.Log
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.grace)
	defer cancel()
	done := make(chan int, 1)
	go func() { done <- stopInOrder(ctx, log, service, server) }() // a second signal leaves it to the end of the process
	select {
	case code := <-done:
		return code
	case s := <-signals:
		log.Warn("stopping at once", "signal", s.String())
		return exitFailed
	}
}

func stopInOrder(ctx context.Context, log *slog.Logger, service *library.Service, server *http.Server) int {
	answered := make(chan error, 1)
	go func() { answered <- server.Shutdown(ctx) }()
	drained := service.Drain(ctx)
	err := errors.Join(drained, <-answered)
	if err != nil {
		log.Warn("not everything ended within the grace; what is RESERVING will be decided by a reaper", "error", err)
		_ = server.Close() // it is closed either way
	}
	service.Close()
	log.Info("stopped")
	return exitStopped
}
