package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/overbook/overbook/harness/proc"
)

const dumpGrace = time.Minute // the JVM writes 29 MB of archive between SIGTERM and its end

// FindArchive looks for the start-up archive that fits the present Java and
// jar. detail says where it is.
func FindArchive(cacheDir string) (detail string, err error) {
	a, err := presentArchive(cacheDir)
	if err != nil {
		return "", err
	}
	if path := a.usable(); path != "" {
		return path, nil
	}
	return "", errors.New("none for the present Java and jar; WireMock starts without, in about twice the time")
}

func presentArchive(cacheDir string) (archive, error) {
	java, err := Java()
	if err != nil {
		return archive{}, err
	}
	jar, err := FindJar(cacheDir)
	if err != nil {
		return archive{}, err
	}
	return archiveFor(cacheDir, java, jar), nil
}

// BuildArchive makes the start-up archive for the present Java and jar: it
// runs WireMock once, has it do what scenarios make it do, and lets the JVM
// write down the classes it loaded. The archive is tried before it gets its
// final name, since the JVM dies of a damaged one. Takes about 6 s.
func BuildArchive(ctx context.Context, cacheDir string, progress func(string)) error {
	a, err := presentArchive(cacheDir)
	if err != nil {
		return err
	}
	if a.usable() != "" {
		return nil
	}
	progress("making WireMock's start-up archive (once, some seconds)")
	work, err := newScratch(cacheDir)
	if err != nil {
		return err
	}
	defer func() { _ = work.remove() }() // what stays is swept at the next start
	dir := work.dir
	part := filepath.Join(dir, "wiremock.jsa")
	if err := a.dump(ctx, dir, part); err != nil {
		return &Problem{What: "make WireMock's start-up archive", Where: a.java, Err: err, Fix: "nothing needs it: WireMock starts without, slower"}
	}
	return a.keep(ctx, part)
}

// dump runs the exercise in a JVM that writes the archive when it ends.
func (a archive) dump(ctx context.Context, dir, part string) error {
	args := append([]string{"-XX:ArchiveClassesAtExit=" + part}, wiremockFlags("", a.jar.Path, dir)...)
	p, err := proc.Start(ctx, proc.Spec{
		Name: "WireMock", Path: a.java, Args: args, Env: childEnv(Options{}), Dir: dir,
		Ready: portLine, ReadyTimeout: startTimeout, StopSignal: syscall.SIGTERM, StopGrace: dumpGrace,
	})
	if err != nil {
		return err
	}
	err = exercise(ctx, "http://127.0.0.1:"+p.Match()[1])
	return errors.Join(err, p.Stop(ctx))
}

// keep tries the archive and renames it; the size is written first, so that
// an archive without its size is never used.
func (a archive) keep(ctx context.Context, part string) error {
	info, err := os.Stat(part)
	if err != nil {
		return &Problem{What: "make WireMock's start-up archive", Why: "the JVM wrote none", Err: err}
	}
	if _, err := VersionOf(ctx, a.java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:SharedArchiveFile="+part, "-jar", a.jar.Path, "--version"); err != nil {
		return &Problem{What: "try WireMock's start-up archive", Where: part, Err: err, Fix: "nothing needs it: WireMock starts without, slower"}
	}
	if err := os.Rename(part, a.path); err != nil {
		return err
	}
	size := part + ".size"
	if err := os.WriteFile(size, []byte(strconv.FormatInt(info.Size(), 10)), 0o644); err != nil {
		return err
	}
	return os.Rename(size, a.sizePath())
}

// exercise makes WireMock load what a run needs: stubs, journal, templates,
// proxying and webhooks.
func exercise(ctx context.Context, base string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	steps := []struct{ method, path, body string }{
		{"POST", "/__admin/mappings", `{"request":{"method":"POST","urlPath":"/plain"},"response":{"status":201,"jsonBody":{"id":"{{randomValue type='UUID'}}"},"headers":{"Content-Type":"application/json"},"transformers":["response-template"],"delayDistribution":{"type":"lognormal","median":5,"sigma":0.4}},"serveEventListeners":[{"name":"webhook","parameters":{"method":"POST","url":"` + base + `/hook","body":"{{originalRequest.body}}"}}]}`},
		{"POST", "/__admin/mappings", `{"request":{"method":"POST","urlPathPattern":"/hook.*"},"response":{"status":200}}`},
		{"POST", "/__admin/mappings", `{"request":{"urlPathPattern":"/proxied/.*"},"response":{"proxyBaseUrl":"` + base + `","proxyUrlPrefixToRemove":"/proxied"}}`},
		{"POST", "/plain", `{"seat":"A-001"}`},
		{"POST", "/proxied/plain", `{"seat":"A-001"}`},
		{"GET", "/proxied/nothing", ``},
		{"POST", "/__admin/requests/count", `{"method":"POST","urlPath":"/plain"}`},
		{"POST", "/__admin/requests/find", `{"method":"POST","urlPath":"/plain","headers":{"X-Any":{"absent":true}}}`},
		{"GET", "/__admin/mappings", ``},
		{"DELETE", "/__admin/requests", ``},
		{"POST", "/__admin/reset", ``},
	}
	for _, s := range steps {
		req, err := http.NewRequestWithContext(ctx, s.method, base+s.path, strings.NewReader(s.body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if strings.HasPrefix(s.path, "/__admin") && resp.StatusCode/100 != 2 {
			return fmt.Errorf("%s %s: %s", s.method, s.path, resp.Status)
		}
	}
	return nil
}
