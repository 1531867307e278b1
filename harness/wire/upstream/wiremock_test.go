package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/proc"
	"github.com/overbook/overbook/harness/provision"
	"github.com/overbook/overbook/harness/wire/upstream"
)

var portLine = regexp.MustCompile(`^port:\s+(\d+)`)

// java starts a WireMock with more flags than provisioning would give it.
func java(t *testing.T, flags ...string) (base string, p *proc.Process) {
	t.Helper()
	launcher, err := provision.Java()
	if err != nil {
		t.Skip(err)
	}
	cache, err := provision.DefaultCacheDir()
	if err != nil {
		t.Skip(err)
	}
	jar, err := provision.FindJar(cache)
	if err != nil {
		t.Skip(err)
	}
	args := append([]string{
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-jar", jar.Path,
		"--port", "0", "--bind-address", "127.0.0.1", "--root-dir", t.TempDir(), "--disable-banner",
		"--disable-request-logging", "--container-threads", "150", "--jetty-accept-queue-size", "4096",
	}, flags...)
	p, err = proc.Start(t.Context(), proc.Spec{
		Name: "WireMock", Path: launcher, Args: args, Env: []string{"PATH=" + os.Getenv("PATH")},
		Ready: portLine, ReadyTimeout: time.Minute, StopGrace: bound,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return "http://127.0.0.1:" + p.Match()[1], p
}

const hello = `{"request": {"method": "POST", "urlPath": "${prefix}/hello"}, "response": {"status": 201, "body": "${greeting}"}}`

func vars(prefix string) map[string]string {
	return map[string]string{"prefix": prefix, "greeting": `say "hi"`, "double.url": "http://127.0.0.1:9"}
}

func load(t *testing.T, m *upstream.WireMock, prefix string) (remove func(context.Context) error) {
	t.Helper()
	remove, err := m.Load(t.Context(), fstest.MapFS{"hello.json": {Data: []byte(hello)}}, vars(prefix))
	if err != nil {
		t.Fatal(err)
	}
	return remove
}

// post makes n calls of a run at once, directly.
func post(t *testing.T, url, run string, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			resp, body, err := call(t, "POST", url, "the same", upstream.RunHeader, run)
			if err != nil || resp.StatusCode != 201 || body != `say "hi"` {
				t.Errorf("call: %v %q %v", resp, body, err)
			}
		})
	}
	wg.Wait()
}

func wantCount(t *testing.T, m *upstream.WireMock, path, run string, want int) {
	t.Helper()
	if n, err := m.Count(t.Context(), "POST", path, run); err != nil || n != want {
		t.Errorf("count of %s in %s: %d, %v; want %d", path, run, n, err, want)
	}
}

func wantNoCount(t *testing.T, m *upstream.WireMock, path, run, why string) {
	t.Helper()
	n, err := m.Count(t.Context(), "POST", path, run)
	if !errors.Is(err, upstream.ErrNoCount) || !strings.Contains(fmt.Sprint(err), why) {
		t.Errorf("count of %s: %d, %v; want an error about %q", path, n, err, why)
	}
}

func TestWireMockCountsPerRunAndPrefix(t *testing.T) {
	base, _ := java(t)
	m := upstream.NewWireMock(base + "/__admin/")
	if err := m.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	watch := clock.New()
	if err := m.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("warm-up took %s", watch.Now())
	removeA := load(t, m, "/a/pyxis")
	removeB := load(t, m, "/b/pyxis")
	wantCount(t, m, "/a/pyxis/hello", "run-a", 0)
	post(t, base+"/a/pyxis/hello", "run-a", 60)
	post(t, base+"/b/pyxis/hello?x=1", "run-b", 40)
	post(t, base+"/a/pyxis/hello", "run-c", 1)
	wantCount(t, m, "/a/pyxis/hello", "run-a", 60)
	wantCount(t, m, "/b/pyxis/hello", "run-b", 40)
	wantCount(t, m, "/a/pyxis/hello", "run-b", 0)
	wantCount(t, m, "/a/pyxis/hell", "run-a", 0)
	wantNoCount(t, m, "/c/pyxis/hello", "run-a", "no mappings were loaded")
	wantNoCount(t, m, "/a/pyxis/hello", "", "no run")

	if err := m.ResetJournal(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, m, "/a/pyxis/hello", "run-a", 0)
	other := upstream.NewWireMock(base)
	if err := other.ResetJournal(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoCount(t, m, "/a/pyxis/hello", "run-a", "lost entries")

	if err := errors.Join(removeA(t.Context()), removeB(t.Context()), removeA(t.Context())); err != nil {
		t.Error(err)
	}
	if resp, _, err := call(t, "POST", base+"/a/pyxis/hello", ""); err != nil || resp.StatusCode != 404 {
		t.Errorf("the mapping is still there: %v %v", resp, err)
	}
	wantNoCount(t, m, "/a/pyxis/hello", "run-a", "no mappings were loaded")
}

func TestWireMockThatCannotCountGivesNoNumber(t *testing.T) {
	t.Parallel()
	t.Run("journal disabled", func(t *testing.T) {
		t.Parallel()
		base, _ := java(t, "--no-request-journal")
		m := upstream.NewWireMock(base)
		_, err := m.Load(t.Context(), fstest.MapFS{"hello.json": {Data: []byte(hello)}}, vars("/r"))
		if !errors.Is(err, upstream.ErrNoCount) || !strings.Contains(fmt.Sprint(err), "journal is disabled") {
			t.Errorf("load: %v", err)
		}
		wantNoCount(t, m, "/r/hello", "run", "journal is disabled")
	})
	t.Run("journal disabled later", func(t *testing.T) {
		t.Parallel()
		var count atomic.Int64
		count.Store(1) // the marker
		url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/requests/count"):
				_, _ = fmt.Fprintf(w, `{"count": %d, "requestJournalDisabled": false}`, count.Load())
			case strings.HasSuffix(r.URL.Path, "/mappings"):
				w.WriteHeader(http.StatusCreated)
			case strings.Contains(r.URL.Path, "/marker/"):
				w.WriteHeader(http.StatusNoContent)
			}
		})
		m := upstream.NewWireMock(url)
		load(t, m, "/r")
		wantCount(t, m, "/r/hello", "run", 1)
		count.Store(-1)
		wantNoCount(t, m, "/r/hello", "run", "journal is disabled")
	})
	t.Run("limit reached", func(t *testing.T) {
		t.Parallel()
		base, _ := java(t, "--max-request-journal-entries", "20")
		m := upstream.NewWireMock(base)
		load(t, m, "/r/pyxis")
		post(t, base+"/r/pyxis/hello", "run", 10)
		wantCount(t, m, "/r/pyxis/hello", "run", 10)
		post(t, base+"/r/pyxis/hello", "run", 50)
		wantNoCount(t, m, "/r/pyxis/hello", "run", "lost entries")
	})
	t.Run("killed in the middle", func(t *testing.T) {
		t.Parallel()
		base, p := java(t)
		m := upstream.NewWireMock(base)
		load(t, m, "/r/pyxis")
		w := start(t, upstream.Config{Target: base + "/r/pyxis", RunID: "run"})
		if resp, _, err := call(t, "POST", w.URL("sut-1")+"/hello", ""); err != nil || resp.StatusCode != 201 {
			t.Fatalf("%v %v", resp, err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _, _ = call(t, "POST", w.URL("sut-1")+"/hello", "")
		quiesce(t, w)
		if c := w.Calls(); len(c) != 2 || c[1].Accepted != 0 || c[1].Err == "" {
			t.Errorf("ledger: %+v", c)
		}
		wantNoCount(t, m, "/r/pyxis/hello", "run", "refused")
		if err := m.Health(t.Context()); err == nil {
			t.Error("the dead WireMock is healthy")
		}
	})
}

// A WireMock that accepts connections and says nothing must not hold us up.
func TestAdminCallsHaveADeadline(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := upstream.NewWireMock("http://" + l.Addr().String())
	for name, f := range map[string]func(context.Context) error{
		"health": m.Health,
		"reset":  m.ResetJournal,
		"load": func(ctx context.Context) error {
			_, err := m.Load(ctx, fstest.MapFS{"hello.json": {Data: []byte(hello)}}, vars("/r"))
			return err
		},
		"count": func(ctx context.Context) error {
			_, err := m.Count(ctx, "POST", "/r/hello", "run")
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func TestLoadNamesTheFileThatIsWrong(t *testing.T) {
	m := upstream.NewWireMock("http://127.0.0.1:1")
	for _, tc := range []struct{ text, prefix, want string }{
		{`{"request": {"urlPath": "${prefx}/a"}}`, "/r", "sub/bad.json: unknown variable ${prefx}; known: double.url, greeting, prefix"},
		{`{"request": `, "/r", "sub/bad.json: after filling in"},
		{`{"mappings": 7}`, "/r", `sub/bad.json: "mappings" must be a list`},
		{`{"mappings": []}`, "/r", "no *.json file with a mapping"},
		{hello, "r", `prefix "r" is not of the form`},
		{hello, "/r/", `prefix "/r/" is not of the form`},
		{hello, "/r", "connection refused"},
	} {
		_, err := m.Load(t.Context(), fstest.MapFS{"sub/bad.json": {Data: []byte(tc.text)}, "README.md": {Data: []byte("${no}")}}, vars(tc.prefix))
		if !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s: %v, want %q", tc.text, err, tc.want)
		}
	}
}

func TestLoadLeavesNothingAfterAnError(t *testing.T) {
	base, _ := java(t)
	m := upstream.NewWireMock(base)
	_, err := m.Load(t.Context(), fstest.MapFS{
		"a.json": {Data: []byte(hello)},
		"b.json": {Data: []byte(`{"request": {"methud": "GET"}, "response": {}}`)},
	}, vars("/r"))
	if !strings.Contains(fmt.Sprint(err), "methud") {
		t.Errorf("%v", err)
	}
	if resp, _, err := call(t, http.MethodPost, base+"/r/hello", ""); err != nil || resp.StatusCode != 404 {
		t.Errorf("a mapping stayed: %v %v", resp, err)
	}
	load(t, m, "/r")
	if _, err := m.Load(t.Context(), fstest.MapFS{"a.json": {Data: []byte(hello)}}, vars("/r")); !strings.Contains(fmt.Sprint(err), "in use") {
		t.Errorf("the prefix was given twice: %v", err)
	}
}
