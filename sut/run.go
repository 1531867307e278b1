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
		_, _ = io.WriteString(stdout, usage(cmd.design))
		return exitStopped
	}
	chosen, _ := designNamed(cmd.design) // parseArgs knows that there is one
	if cmd.migrate {
		return runMigrate(ctx, chosen, env, stderr)
	}
	var cfg commonConfig
	given := environment(env)
	faults := append(read(given, cfg.variables()), read(given, chosen.variables)...)
	if len(faults) == 0 {
		faults = chosen.faults(cfg)
	}
	if len(faults) > 0 {
		return configFaults(stderr, faults)
	}
	cfg.clock = clock.New(cfg.clockOffset)
	cfg.log = slog.New(slog.NewTextHandler(stderr, nil))
	return serve(ctx, chosen, cfg, stdout)
}

func configFaults(stderr io.Writer, faults []string) int {
	_, _ = fmt.Fprintf(stderr, "overbook sut: the environment is not right, nothing was started:\n")
	for _, f := range faults {
		_, _ = fmt.Fprintf(stderr, "  %s\n", f)
	}
	_, _ = fmt.Fprintf(stderr, "See overbook sut --help for all variables.\n")
	return exitConfig
}

func runMigrate(ctx context.Context, chosen design, env []string, stderr io.Writer) int {
	var cfg commonConfig
	if faults := read(environment(env), []variable{cfg.database()}); len(faults) > 0 {
		return configFaults(stderr, faults)
	}
	version, err := chosen.migrate(ctx, cfg.databaseURL)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "overbook sut migrate: %v\n", err)
		return exitFailed
	}
	_, _ = fmt.Fprintf(stderr, "the %s's schema is at version %d\n", chosen.name, version)
	return exitStopped
}

// serve runs the server from start to end.
func serve(ctx context.Context, chosen design, cfg commonConfig, stdout io.Writer) int {
	log := cfg.log
	signals := make(chan os.Signal, 4) // more than four unread signals say nothing new
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.listen)
	if err != nil {
		log.Error("could not listen; choose another LISTEN address, or port 0 for any free port", "listen", cfg.listen, "error", err)
		return exitFailed
	}
	defer func() { _ = listener.Close() }() // closed by the server long since, unless starting failed
	running, err := chosen.start(ctx, cfg)
	if err != nil {
		log.Error("could not start", "error", err)
		return exitFailed
	}
	server := newServer(running.Handler(), log)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }() // ends with the server, whose end is waited for below
	_, _ = fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())

	select {
	case err := <-failed:
		log.Error("serving failed", "error", err)
		running.Close()
		return exitFailed
	case <-ctx.Done():
	case s := <-signals:
		log.Info("stopping", "signal", s.String())
	}
	return stop(ctx, cfg, running, server, signals)
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

// stop ends in good order: no new connections, no new background work; calls
// under way end; then everything is closed. A second signal ends all that at
// once.
func stop(ctx context.Context, cfg commonConfig, running service, server *http.Server, signals <-chan os.Signal) int {
	log := cfg.log
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.grace)
	defer cancel()
	done := make(chan int, 1)
	go func() { done <- stopInOrder(ctx, log, running, server) }() // a second signal leaves it to the end of the process
	select {
	case code := <-done:
		return code
	case s := <-signals:
		log.Warn("stopping at once", "signal", s.String())
		return exitFailed
	}
}

func stopInOrder(ctx context.Context, log *slog.Logger, running service, server *http.Server) int {
	answered := make(chan error, 1)
	go func() { answered <- server.Shutdown(ctx) }()
	drained := running.Drain(ctx)
	err := errors.Join(drained, <-answered)
	if err != nil {
		log.Warn("not everything ended within the grace; what was under way is cut off, and recovered by whoever comes next", "error", err)
		_ = server.Close() // it is closed either way
	}
	running.Close()
	log.Info("stopped")
	return exitStopped
}
