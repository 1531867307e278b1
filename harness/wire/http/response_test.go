package wirehttp

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overbook/overbook/harness/load"
)

type parsed struct {
	Status int
	Body   string
	Size   int
	Done   bool
	Err    string // class
}

// parse feeds an answer in pieces of the given size and then the end.
func parse(method, text string, piece int) parsed {
	p := newParser(method)
	done, err := false, error(nil)
	for b := []byte(text); len(b) > 0 && !done && err == nil; {
		n := min(piece, len(b))
		done, err = p.feed(b[:n])
		b = b[n:]
	}
	if !done && err == nil {
		done, err = p.end(io.EOF)
	}
	r := parsed{Done: done, Err: string(load.Classify(err))}
	if done {
		a := p.answer()
		r.Status, r.Body, r.Size = a.status, string(a.body), a.size
	}
	return r
}

var answerCases = []struct {
	name, method, text string
	want               parsed
}{
	{"length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", parsed{200, "hello", 5, true, ""}},
	{"nothing in it", "GET", "HTTP/1.1 409 Conflict\r\ncontent-length:0\r\n\r\n", parsed{409, "", 0, true, ""}},
	{"no reason", "GET", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", parsed{200, "", 0, true, ""}},
	{"equal lengths", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", parsed{200, "x", 1, true, ""}},
	{"bytes after it", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 500 ", parsed{200, "x", 1, true, ""}},
	{"chunked", "GET", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", parsed{201, "abc0123456789", 13, true, ""}},
	{"trailers", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n", parsed{200, "a", 1, true, ""}},
	{"until the end", "GET", "HTTP/1.0 200 OK\r\n\r\nall of it", parsed{200, "all of it", 9, true, ""}},
	{"interim", "POST", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", parsed{201, "ok", 2, true, ""}},
	{"head", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", parsed{200, "", 0, true, ""}},
	{"no content", "DELETE", "HTTP/1.1 204 No Content\r\n\r\n", parsed{204, "", 0, true, ""}},
	{"not modified", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", parsed{304, "", 0, true, ""}},

	{"nothing", "GET", "", parsed{Err: "closed"}},
	{"only interim", "GET", "HTTP/1.1 100 Continue\r\n\r\n", parsed{Err: "closed"}},
	{"cut in the header", "GET", "HTTP/1.1 200 OK\r\nContent", parsed{Err: "closed"}},
	{"cut in the body", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", parsed{Err: "closed"}},
	{"cut before the last chunk", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", parsed{Err: "closed"}},
	{"cut in the trailers", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", parsed{Err: "closed"}},

	{"another protocol", "GET", "SSH-2.0-OpenSSH\r\n", parsed{Err: "bad-answer"}},
	{"version 2", "GET", "HTTP/2 200 OK\r\n\r\n", parsed{Err: "bad-answer"}},
	{"version 1.2", "GET", "HTTP/1.2 200 OK\r\n\r\n", parsed{Err: "bad-answer"}},
	{"no status", "GET", "HTTP/1.1 OK\r\n\r\n", parsed{Err: "bad-answer"}},
	{"status 600", "GET", "HTTP/1.1 600 Odd\r\n\r\n", parsed{Err: "bad-answer"}},
	{"status of four digits", "GET", "HTTP/1.1 0200 OK\r\n\r\n", parsed{Err: "bad-answer"}},
	{"switch of protocols", "GET", "HTTP/1.1 101 Switching Protocols\r\n\r\n", parsed{Err: "bad-answer"}},
	{"different lengths", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", parsed{Err: "bad-answer"}},
	{"list of lengths", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx", parsed{Err: "bad-answer"}},
	{"negative length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", parsed{Err: "bad-answer"}},
	{"signed length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx", parsed{Err: "bad-answer"}},
	{"huge length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", parsed{Err: "bad-answer"}},
	{"length and chunks", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", parsed{Err: "bad-answer"}},
	{"unknown coding", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", parsed{Err: "bad-answer"}},
	{"space before the colon", "GET", "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nx", parsed{Err: "bad-answer"}},
	{"folded line", "GET", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", parsed{Err: "bad-answer"}},
	{"bare line feed", "GET", "HTTP/1.1 200 OK\r\nA: b\nContent-Length: 1\r\n\r\nx", parsed{Err: "bad-answer"}},
	{"no chunk size", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", parsed{Err: "bad-answer"}},
	{"chunk size with 0x", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", parsed{Err: "bad-answer"}},
	{"chunk too long", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", parsed{Err: "bad-answer"}},
	{"chunk line without CR", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", parsed{Err: "bad-answer"}},
	{"endless interim", "GET", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 40), parsed{Err: "bad-answer"}},
	{"endless header", "GET", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 20_000) + "\r\n", parsed{Err: "bad-answer"}},
	{"endless chunk extension", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 5000) + "\r\na\r\n0\r\n\r\n", parsed{Err: "bad-answer"}},
	{"endless trailers", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: b\r\n", 20_000) + "\r\n", parsed{Err: "bad-answer"}},
}

func TestParser(t *testing.T) {
	for _, tc := range answerCases {
		for _, piece := range []int{1, 2, 3, 7, 1 << 20} {
			if diff := cmp.Diff(tc.want, parse(tc.method, tc.text, piece)); diff != "" {
				t.Errorf("%s, in pieces of %d (-want +got):\n%s", tc.name, piece, diff)
			}
		}
	}
}

func TestParserIsOverAfterTheAnswer(t *testing.T) {
	p := newParser("GET")
	if done, err := p.feed([]byte("HTTP/1.1 204 No Content\r\n\r\n")); !done || err != nil {
		t.Fatal(done, err)
	}
	if done, err := p.feed([]byte("garbage")); !done || err != nil {
		t.Errorf("after the answer: %v %v", done, err)
	}
	if done, err := p.end(io.ErrClosedPipe); !done || err != nil {
		t.Errorf("after the answer: %v %v", done, err)
	}
}

// FuzzParser: whatever comes, the parser neither panics nor depends on how
// the bytes are cut, and keeps its bounds.
func FuzzParser(f *testing.F) {
	for _, tc := range answerCases {
		if len(tc.text) < 4096 {
			f.Add([]byte(tc.text), tc.method == "HEAD", uint8(3))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, head bool, piece uint8) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		whole := parse(method, string(b), max(len(b), 1))
		if diff := cmp.Diff(whole, parse(method, string(b), int(piece)+1)); diff != "" {
			t.Errorf("in pieces of %d (-whole +pieces):\n%s", int(piece)+1, diff)
		}
		if whole.Done == (whole.Err != "") {
			t.Errorf("neither answer nor error, or both: %+v", whole)
		}
		if whole.Done && (whole.Status < 200 || whole.Status > 599 || len(whole.Body) > outputCap || whole.Size > bodyMax || whole.Size > len(b)) {
			t.Errorf("out of bounds: %+v", whole)
		}
	})
}
