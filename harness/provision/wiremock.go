package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/overbook/overbook/harness/proc"
)

// WireMock is a server that is up, ours or given by URL.
type WireMock struct {
	running
	url   string
	reach string // host name by which it reaches this machine; "" is as we do
}

const healthTimeout = 10 * time.Second

func upWireMock(ctx context.Context, o Options) (*WireMock, error) {
	if o.WireMockURL != "" {
		return givenWireMock(ctx, o)
	}
	return choose(o,
		func() (*WireMock, error) { return localWireMock(ctx, o) },
		func() (*WireMock, error) { return dockerWireMock(ctx, o) },
		func(why string) error {
			return &Problem{What: "start WireMock", Why: why, Fix: wiremockFix() + ", or --wiremock URL"}
		})
}

func givenWireMock(ctx context.Context, o Options) (*WireMock, error) {
	u, err := url.Parse(o.WireMockURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, &Problem{What: "read the WireMock URL", Where: o.WireMockURL, Why: "it is not an http URL", Fix: "give it as http://host:8080"}
	}
	w := &WireMock{running: running{name: "WireMock"}, url: strings.TrimRight(o.WireMockURL, "/")}
	version, err := w.health(ctx)
	if err != nil {
		return nil, &Problem{What: "ask the WireMock that was named for its health", Where: w.url, Err: err, Fix: "check that it runs and the address; or leave the URL out to have one started"}
	}
	w.describe = fmt.Sprintf("WireMock %s, given at %s", version, u.Host)
	return w, nil
}

var versionField = regexp.MustCompile(`"version"\s*:\s*"([^"]+)"`)

// health asks once, and gives the version.
func (w *WireMock) health(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/__admin/health", nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET /__admin/health: %s; it needs WireMock 3", resp.Status)
	}
	if m := versionField.FindSubmatch(body); m != nil {
		return string(m[1]), nil
	}
	return "of unknown version", nil
}

// localWireMock starts the pinned jar on the local Java.
func localWireMock(ctx context.Context, o Options) (*WireMock, error) {
	java, err := Java()
	if err != nil {
		return nil, err
	}
	jar, err := FindJar(o.CacheDir)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(o.WorkDir, "wiremock")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, &Problem{What: "make WireMock's directory", Where: root, Err: err}
	}
	archive := archiveFor(o.CacheDir, java, jar)
	args := wiremockFlags(archive.usable(), jar.Path, root)
	process, err := proc.Start(ctx, proc.Spec{
		Name: "WireMock", Path: java, Args: args, Env: childEnv(o), Dir: root,
		Log: filepath.Join(o.WorkDir, "wiremock.log"), Ready: portLine,
		ReadyTimeout: startTimeout, StopGrace: stopGrace,
	})
	if err != nil {
		return nil, &Problem{What: "bring up WireMock", Where: java + " -jar " + jar.Path, Err: err, Fix: wiremockStartFix(err)}
	}
	w := &WireMock{running: running{name: "WireMock", process: process}, url: "http://127.0.0.1:" + process.Match()[1]}
	version, err := w.health(ctx)
	if err != nil {
		return nil, errors.Join(&Problem{What: "ask the WireMock just started for its health", Where: w.url, Err: err}, process.Kill())
	}
	w.describe = fmt.Sprintf("WireMock %s, local %s", version, java)
	if !jar.Pinned {
		w.describe += ", jar " + jar.Path
	}
	return w, nil
}

var portLine = regexp.MustCompile(`(?m)^port:\s+(\d+)`)

// wiremockFlags: C1 and the serial collector halve the CPU of short runs.
func wiremockFlags(archive, jar, root string) []string {
	args := []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xms64m", "-Xmx1g"}
	if archive != "" {
		args = append(args, "-XX:SharedArchiveFile="+archive)
	}
	args = append(args, "-jar", jar, "--port", "0", "--bind-address", "127.0.0.1", "--root-dir", root)
	return append(args, wiremockServing...)
}

// wiremockServing: threads and accept queue keep a burst of 100 from waiting
// in line (the defaults are 25 and 50). The journal has neither a limit nor a
// switch: a reached limit would make counts silently wrong.
var wiremockServing = []string{
	"--disable-banner", "--disable-request-logging", "--disable-gzip",
	"--container-threads", "200", "--jetty-accept-queue-size", "4096",
}

func wiremockStartFix(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "UnsupportedClassVersionError"):
		return "WireMock needs Java 11 or newer; name one by OVERBOOK_JAVA"
	case strings.Contains(text, "corrupt jarfile"), strings.Contains(text, "Unable to access jarfile"):
		return wiremockFix()
	}
	return ""
}

// URL is the base URL, without a slash at the end.
func (w *WireMock) URL() string { return w.url }

func (w *WireMock) close(ctx context.Context) error {
	w.closing.Store(true)
	switch {
	case w.process != nil:
		return w.process.Kill() // it has nothing to save, and SIGTERM takes a quarter of a second
	case w.container != nil:
		return w.container.remove(ctx)
	}
	return nil
}
