package wirehttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/overbook/overbook/harness/load"
)

// Bounds of an answer. What goes beyond is a bad answer, not a cut one.
const (
	headMax    = 64 << 10 // one header block, and all trailers
	bodyMax    = 8 << 20
	interimMax = 32 // 1xx answers before the final one
	lineMax    = 4 << 10
)

// An answer is a whole HTTP answer.
type answer struct {
	status int
	header map[string]string // canonical names; of a repeated field the first value
	body   []byte            // its first outputCap bytes
	size   int               // of the whole body
}

// A parser reads one HTTP/1.x answer from whatever pieces it is fed. It is
// strict: what two parsers could read in two ways is an error. Bytes after
// the answer are ignored; a connection that has them is not used again.
type parser struct {
	method  string // of the request: an answer to HEAD has no body
	step    func(*parser, []byte) (rest []byte, err error)
	buf     []byte // the piece of a header block or line that is here so far
	a       answer
	left    int // bytes of the body or chunk still to come
	interim int
	trailer int  // bytes of trailers so far
	atEnd   bool // the body ends with the connection
	closing bool // the server said that it closes the connection, or never said that it keeps it
	surplus bool // more came than the answer
	done    bool
	err     error
}

func newParser(method string) *parser { return &parser{method: method, step: (*parser).head} }

// answer gives the answer, once it is whole.
func (p *parser) answer() answer { return p.a }

// feed takes the next bytes and reports whether the answer is whole. After
// the end or an error it changes nothing any more.
func (p *parser) feed(b []byte) (done bool, err error) {
	for len(b) > 0 && !p.done && p.err == nil {
		b, p.err = p.step(p, b)
	}
	p.surplus = p.surplus || len(b) > 0
	return p.done, p.err
}

// reusable reports whether the connection may carry another request: the
// answer is whole, nothing came after it, and the server keeps the connection.
func (p *parser) reusable() bool {
	return p.done && p.err == nil && !p.atEnd && !p.closing && !p.surplus
}

// end says that no more bytes come, because of cause (io.EOF for an orderly
// end), and whether that makes the answer whole.
func (p *parser) end(cause error) (done bool, err error) {
	switch {
	case p.done || p.err != nil:
	case !errors.Is(cause, io.EOF):
		p.err = cause
	case p.atEnd:
		p.done = true
	case p.a.status == 0 && len(p.buf) == 0:
		p.err = load.Errorf(load.ClassClosed, "the server closed the connection without an answer")
	default:
		p.err = load.Errorf(load.ClassClosed, "the server closed the connection in the middle of the answer")
	}
	return p.done, p.err
}

func bad(format string, args ...any) error { return load.Errorf(load.ClassAnswer, format, args...) }

// head collects a header block and reads it.
func (p *parser) head(b []byte) ([]byte, error) {
	from := max(len(p.buf)-3, 0)
	p.buf = append(p.buf, b...)
	end := bytes.Index(p.buf[from:], []byte("\r\n\r\n"))
	if end < 0 {
		if len(p.buf) > headMax {
			return nil, bad("header block of more than %d bytes", headMax)
		}
		return nil, p.plausible()
	}
	end += from
	if end > headMax {
		return nil, bad("header block of more than %d bytes", headMax)
	}
	block, rest := string(p.buf[:end]), bytes.Clone(p.buf[end+4:])
	p.buf = nil
	return rest, p.readHead(block)
}

// plausible refuses at once what can never become an answer, so that garbage
// is not waited for.
func (p *parser) plausible() error {
	const start = "HTTP/1."
	n := min(len(p.buf), len(start))
	if string(p.buf[:n]) != start[:n] {
		return bad("not an HTTP/1 answer: %q", p.buf[:min(len(p.buf), 32)])
	}
	return nil
}

func (p *parser) readHead(block string) error {
	lines := strings.Split(block, "\r\n")
	status, err := readStatus(lines[0])
	if err != nil {
		return err
	}
	fields, err := readFields(lines[1:])
	if err != nil {
		return err
	}
	if status == 101 {
		return bad("101 Switching Protocols, which was not asked for")
	}
	if status < 200 {
		if p.interim++; p.interim > interimMax {
			return bad("more than %d interim answers", interimMax)
		}
		return nil
	}
	p.a.status, p.a.header = status, map[string]string{}
	p.closing = strings.HasPrefix(lines[0], "HTTP/1.0") // keep-alive is not its default, and not worth guessing
	for _, f := range fields {
		p.closing = p.closing || (f.name == "Connection" && httpguts.HeaderValuesContainsToken([]string{f.value}, "close"))
		if _, seen := p.a.header[f.name]; !seen {
			p.a.header[f.name] = f.value
		}
	}
	return p.frame(fields)
}

// frame decides where the body ends.
func (p *parser) frame(fields []field) error {
	var lengths, codings []string
	for _, f := range fields {
		switch f.name {
		case "Content-Length":
			lengths = append(lengths, f.value)
		case "Transfer-Encoding":
			codings = append(codings, f.value)
		}
	}
	length := -1
	for _, text := range lengths {
		n, err := readNumber(text, 10)
		if err != nil || (length >= 0 && n != length) {
			return bad("Content-Length %q", lengths)
		}
		length = n
	}
	switch {
	case len(codings) > 1 || (len(codings) == 1 && !strings.EqualFold(codings[0], "chunked")):
		return bad("Transfer-Encoding %q, of which only chunked is known", codings)
	case len(codings) == 1 && length >= 0:
		return bad("both Content-Length and Transfer-Encoding")
	case p.method == "HEAD" || p.a.status == 204 || p.a.status == 304:
		p.done = true
	case len(codings) == 1:
		p.step = (*parser).chunkSize
	case length > bodyMax:
		return bad("body of %d bytes; at most %d are read", length, bodyMax)
	case length >= 0:
		p.left, p.step, p.done = length, (*parser).fixed, length == 0
	default:
		p.atEnd, p.step = true, (*parser).untilEnd
	}
	return nil
}

func (p *parser) take(b []byte) error {
	if p.a.size += len(b); p.a.size > bodyMax {
		return bad("body of more than %d bytes", bodyMax)
	}
	p.a.body = append(p.a.body, b[:min(len(b), outputCap-len(p.a.body))]...)
	return nil
}

func (p *parser) fixed(b []byte) ([]byte, error) {
	n := min(len(b), p.left)
	p.left -= n
	p.done = p.left == 0
	return b[n:], p.take(b[:n])
}

func (p *parser) untilEnd(b []byte) ([]byte, error) { return nil, p.take(b) }

// line collects one line; ok is false until it is whole.
func (p *parser) line(b []byte) (text string, ok bool, rest []byte, err error) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		i = len(b) - 1
	}
	p.buf = append(p.buf, b[:i+1]...)
	rest = b[i+1:]
	if len(p.buf) > lineMax {
		return "", false, nil, bad("line of more than %d bytes in a chunked body", lineMax)
	}
	if p.buf[len(p.buf)-1] != '\n' {
		return "", false, rest, nil
	}
	text, ok = strings.CutSuffix(string(p.buf), "\r\n")
	p.buf = p.buf[:0]
	if !ok {
		return "", false, nil, bad("line without CR in a chunked body")
	}
	return text, true, rest, nil
}

func (p *parser) chunkSize(b []byte) ([]byte, error) {
	text, ok, rest, err := p.line(b)
	if !ok {
		return rest, err
	}
	text, _, _ = strings.Cut(text, ";") // extensions are ignored
	n, err := readNumber(strings.TrimRight(text, " \t"), 16)
	switch {
	case err != nil:
		return nil, bad("chunk size %q", text)
	case n > bodyMax:
		return nil, bad("chunk of %d bytes; at most %d are read", n, bodyMax)
	case n == 0:
		p.step = (*parser).trailers
	default:
		p.left, p.step = n, (*parser).chunk
	}
	return rest, nil
}

func (p *parser) chunk(b []byte) ([]byte, error) {
	n := min(len(b), p.left)
	if p.left -= n; p.left == 0 {
		p.step = (*parser).chunkEnd
	}
	return b[n:], p.take(b[:n])
}

func (p *parser) chunkEnd(b []byte) ([]byte, error) {
	text, ok, rest, err := p.line(b)
	if !ok {
		return rest, err
	}
	if text != "" {
		return nil, bad("chunk longer than its size")
	}
	p.step = (*parser).chunkSize
	return rest, nil
}

func (p *parser) trailers(b []byte) ([]byte, error) {
	text, ok, rest, err := p.line(b)
	if !ok {
		return rest, err
	}
	if text == "" {
		p.done = true
		return rest, nil
	}
	if p.trailer += len(text); p.trailer > headMax {
		return nil, bad("trailers of more than %d bytes", headMax)
	}
	_, err = readFields([]string{text})
	return rest, err
}

func readStatus(line string) (int, error) {
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	n, err := readNumber(code, 10)
	if (version != "HTTP/1.1" && version != "HTTP/1.0") || err != nil || len(code) != 3 || n < 100 || n > 599 {
		return 0, bad("status line %q", line[:min(len(line), 64)])
	}
	return n, nil
}

func readFields(lines []string) ([]field, error) {
	fields := make([]field, 0, len(lines))
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, bad("header line %q", line[:min(len(line), 64)])
		}
		fields = append(fields, field{textproto.CanonicalMIMEHeaderKey(name), value})
	}
	return fields, nil
}

// readNumber reads digits alone: no sign, no space, no underscore.
func readNumber(text string, base int) (int, error) {
	if text == "" || len(text) > 15 {
		return 0, fmt.Errorf("number %q", text)
	}
	n, err := strconv.ParseUint(text, base, 62)
	return int(n), err
}
