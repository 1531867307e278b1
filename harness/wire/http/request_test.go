package wirehttp

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/clock"
	"github.com/overbook/overbook/harness/load"
)

func fixedClient() *Client {
	return New(Config{Clock: clock.New(), RunID: "run", OpID: func() string { return "op-1" }})
}

func TestWireFormat(t *testing.T) {
	r := harness.Request{
		Method: "POST", Path: "/library/actions?x=%20", Body: json.RawMessage(`{"seat":"A-001"}`),
		Header: map[string]string{"Idempotency-Key": "k", "Authorization": "Bearer student-1"},
	}
	ra := fixedClient().newRacer("http://127.0.0.1:8080/base/", "", 0, r)
	if ra.err != nil {
		t.Fatal(ra.err)
	}
	head, held := ra.wire1()
	want := strings.ReplaceAll(`POST /base/library/actions?x=%20 HTTP/1.1
Host: 127.0.0.1:8080
User-Agent: overbook
X-Overbook-Op: op-1
traceparent: `+Traceparent("run", "op-1")+`
Authorization: Bearer student-1
Idempotency-Key: k
Content-Type: application/json
Content-Length: 16

{"seat":"A-001"}`, "\n", "\r\n")
	if diff := cmp.Diff(want, string(head)+string(held)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if string(held) != "\n"+`{"seat":"A-001"}` {
		t.Errorf("held part %q, want the last byte of the header and the body", held)
	}
}

func TestTraceparent(t *testing.T) {
	a, b, c := Traceparent("run", "op-1"), Traceparent("run", "op-2"), Traceparent("other", "op-1")
	if a == b || a == c || len(a) != 55 || a[:3] != "00-" || a[52:] != "-01" || a[3:35] != TraceID("run", "op-1") {
		t.Errorf("%s %s %s", a, b, c)
	}
	if strings.Trim(a[3:35], "0") == "" || strings.Trim(a[36:52], "0") == "" {
		t.Errorf("an id of %s is all zeros", a)
	}
}

func TestRequestsThatCannotBeWritten(t *testing.T) {
	good := func() harness.Request { return harness.Request{Method: "GET", Path: "/"} }
	for name, spoil := range map[string]func(*harness.Request){
		"no method":          func(r *harness.Request) { r.Method = "" },
		"method":             func(r *harness.Request) { r.Method = "GET /" },
		"relative path":      func(r *harness.Request) { r.Path = "seats" },
		"path with a space":  func(r *harness.Request) { r.Path = "/a b" },
		"path with a line":   func(r *harness.Request) { r.Path = "/a\r\nX: y" },
		"path with fragment": func(r *harness.Request) { r.Path = "/a#b" },
		"field with a line":  func(r *harness.Request) { r.Header = map[string]string{"A": "b\r\nC: d"} },
		"field name":         func(r *harness.Request) { r.Header = map[string]string{"A B": "c"} },
		"host":               func(r *harness.Request) { r.Header = map[string]string{"host": "x"} },
		"length":             func(r *harness.Request) { r.Header = map[string]string{"content-length": "3"} },
		"identity":           func(r *harness.Request) { r.Header = map[string]string{"X-OVERBOOK-OP": "x"} },
	} {
		r := good()
		spoil(&r)
		op := fixedClient().Do(t.Context(), "http://127.0.0.1:1", r)
		if op.Outcome != harness.Fail || op.Sent != 0 || load.ClassOf(op.Err) != load.ClassRequest {
			t.Errorf("%s: %+v", name, op)
		}
	}
	for _, url := range []string{"", "127.0.0.1:80", "ftp://x", "http://", "http://x?y", "http://u@x", "http://x y"} {
		op := fixedClient().Do(t.Context(), url, good())
		if op.Outcome != harness.Fail || load.ClassOf(op.Err) != load.ClassRequest {
			t.Errorf("base URL %q: %+v", url, op)
		}
	}
}

// TestWireFormatIsReadByNetHTTP: any request that is accepted is read back as
// it was meant by a parser that is not ours.
func TestWireFormatIsReadByNetHTTP(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := harness.Request{
			Method: rapid.SampledFrom([]string{"GET", "POST", "PUT", "DELETE", "PATCH"}).Draw(t, "method"),
			Path:   "/" + rapid.StringMatching(`[a-z0-9/._~-]{0,20}(\?[a-z=&%]{0,3})?`).Draw(t, "path"),
			Header: rapid.MapOfN(rapid.StringMatching(`X-[A-Z][a-z0-9]{0,8}`), rapid.StringMatching(`[!-~]([ -~]{0,20}[!-~])?`), 0, 4).Draw(t, "header"),
			Body:   rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body"),
		}
		ra := fixedClient().newRacer("http://h:1", "", 0, r)
		if ra.err != nil {
			t.Skip("refused")
		}
		head, held := ra.wire1()
		if _, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head))); err == nil {
			t.Fatal("the part that goes first is a whole request")
		}
		got, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(head), bytes.NewReader(held))))
		if err != nil {
			if strings.Contains(err.Error(), "invalid URL escape") {
				t.Skip(err)
			}
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		if err != nil || got.Method != r.Method || got.RequestURI != r.Path || !bytes.Equal(body, r.Body) || got.Header.Get(headerOp) != "op-1" {
			t.Fatalf("%v: %s %s %q", err, got.Method, got.RequestURI, body)
		}
		for name, value := range r.Header {
			if got.Header.Get(name) != value {
				t.Fatalf("field %s: %q, want %q", name, got.Header.Get(name), value)
			}
		}
	})
}

func TestOutcomes(t *testing.T) {
	for status, want := range map[int]harness.Outcome{
		200: harness.OK, 201: harness.OK, 202: harness.OK, 204: harness.OK, 301: harness.Info, 303: harness.Info,
		400: harness.Fail, 409: harness.Fail, 429: harness.Fail, 500: harness.Info, 502: harness.Info, 503: harness.Info,
	} {
		if got := outcomeOf(status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}

func TestDo(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/library/intents/7")
		w.WriteHeader(201)
		_, _ = io.WriteString(w, r.Header.Get(headerOp))
	}))
	defer s.Close()
	op := fixedClient().Do(t.Context(), s.URL, harness.Request{Kind: "prepare", Process: 3, Server: "sut-2", Method: "POST", Path: "/library/actions", Timeout: 5 * time.Second})
	want := harness.Operation{
		ID: "op-1", Process: 3, Kind: "prepare", Server: "sut-2", Method: "POST", Path: "/library/actions", Status: 201,
		Header: map[string]string{"Location": "/library/intents/7", "Content-Type": "text/plain; charset=utf-8"}, Output: "op-1", Outcome: harness.OK,
		Intended: op.Intended, Sent: op.Sent, Answered: op.Answered,
	}
	if op.Intended <= 0 || op.Sent < op.Intended || op.Answered < op.Sent {
		t.Errorf("stamps %v %v %v", op.Intended, op.Sent, op.Answered)
	}
	if op.ID != want.ID || op.Status != want.Status || op.Output != want.Output || op.Outcome != want.Outcome || op.Server != want.Server ||
		op.Process != want.Process || op.Kind != want.Kind || !cmp.Equal(op.Header, want.Header) || op.Err != "" {
		t.Errorf("got %+v\nwant %+v", op, want)
	}
}

func TestDoOverTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	defer s.Close()
	op := trust(fixedClient(), s).Do(t.Context(), s.URL, harness.Request{Method: "GET", Path: "/"})
	if op.Output != "HTTP/1.1" || op.Outcome != harness.OK {
		t.Errorf("%+v", op)
	}
}

// trust makes the client trust the test server's certificate.
func trust(c *Client, s *httptest.Server) *Client {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	c.cfg.TLS = &tls.Config{RootCAs: pool}
	return c
}
