package upstream_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/overbook/overbook/harness/wire/upstream"
)

// scripted is a target that answers every request with the same bytes and
// gives what it read of the last one. It closes after an answer that says so.
func scripted(t *testing.T, answer string) (url string, last func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var read string
	var wg sync.WaitGroup
	one := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			mu.Lock()
			read = fmt.Sprintf("%s %s length=%d chunked=%v expect=%q %s", r.Method, r.RequestURI, r.ContentLength, r.TransferEncoding, r.Header.Get("Expect"), body)
			mu.Unlock()
			if _, err := io.WriteString(c, answer); err != nil || !keeps(answer) {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { one(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String(), func() string {
		mu.Lock()
		defer mu.Unlock()
		return read
	}
}

// keeps reports whether the connection stays open after the answer.
func keeps(answer string) bool {
	return (strings.Contains(answer, "Content-Length") || strings.Contains(answer, "chunked")) && !strings.Contains(answer, "Connection: close")
}

func TestAnswersOfAllForms(t *testing.T) {
	for _, tc := range []struct {
		name, answer string
		status       int
		body         string
		broken       bool
	}{
		{"length", "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", 201, "ok", false},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", 200, "ok", false},
		{"until close", "HTTP/1.1 200 OK\r\n\r\nok", 200, "ok", false},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nok", 200, "ok", false},
		{"no content", "HTTP/1.1 204 No Content\r\nX-Content-Length: x\r\n\r\n", 204, "", false},
		{"early hints first", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\nno", 409, "no", false},
		{"two answers", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n", 200, "ok", false},
		{"cut short", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nok\r\n", 0, "", true},
		{"nonsense", "ok\r\n\r\n", 0, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url, _ := scripted(t, tc.answer)
			w := start(t, upstream.Config{Target: url})
			for i := range 3 {
				resp, body, err := call(t, "POST", w.URL("sut-1")+"/x", "{}")
				if (err != nil) != tc.broken {
					t.Fatalf("call %d: %v", i+1, err)
				}
				if err == nil && (resp.StatusCode != tc.status || body != tc.body) {
					t.Errorf("call %d: %d %q", i+1, resp.StatusCode, body)
				}
			}
			quiesce(t, w)
			for _, c := range w.Calls() {
				if (c.Accepted == 0) != tc.broken || c.Forwarded == 0 {
					t.Errorf("ledger: %+v", c)
				}
			}
		})
	}
}

func TestRequestsOfAllForms(t *testing.T) {
	for _, tc := range []struct{ name, request, want string }{
		{"length", "POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", `POST /p/a?b=c length=2 chunked=[] expect="" {}`},
		{"chunked", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", `POST /p/a length=2 chunked=[] expect="" {}`},
		{"continue", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}", `POST /p/a length=2 chunked=[] expect="" {}`},
		{"empty POST", "POST /a HTTP/1.1\r\nHost: x\r\n\r\n", `POST /p/a length=0 chunked=[] expect="" `},
		{"GET", "GET /a%20b HTTP/1.1\r\nHost: x\r\n\r\n", `GET /p/a%20b length=0 chunked=[] expect="" `},
		{"absolute", "GET http://elsewhere/a?x HTTP/1.1\r\nHost: elsewhere\r\n\r\n", `GET /p/a?x length=0 chunked=[] expect="" `},
		{"HTTP/1.0", "POST /a HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}", `POST /p/a length=2 chunked=[] expect="" {}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url, last := scripted(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			w := start(t, upstream.Config{Target: url + "/p"})
			c := dial(t, w.URL("sut-1"))
			if _, err := io.WriteString(c, tc.request); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, nil)
			if err == nil && resp.StatusCode == http.StatusContinue {
				resp, err = http.ReadResponse(in, nil)
			}
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v %v", resp, err)
			}
			_ = resp.Body.Close()
			if got := last(); got != tc.want {
				t.Errorf("the target read %q, want %q", got, tc.want)
			}
		})
	}
}

// Connections that the upstream closes while they are idle cost no call.
func TestIdleConnectionsThatWereClosed(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(ok))
	defer target.Close()
	w := start(t, upstream.Config{Target: target.URL})
	for i := range 20 {
		if resp, body, err := call(t, "POST", w.URL("sut-1")+"/x", "{}"); err != nil || resp.StatusCode != 201 {
			t.Fatalf("call %d: %v %q %v", i+1, resp, body, err)
		}
		quiesce(t, w)
		target.CloseClientConnections()
	}
}
