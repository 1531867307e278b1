package wirehttp

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/overbook/overbook/harness"
)

// The fields that the wire adds to every request.
const (
	headerOp    = "X-Overbook-Op"
	headerTrace = "traceparent"
	userAgent   = "overbook"
)

// ours are the fields that a request may not set itself, in lower case: the
// ones that identify it and the ones that frame it.
var ours = []string{
	"host", "x-overbook-op", "traceparent", "content-length", "transfer-encoding",
	"connection", "upgrade", "te", "trailer", "expect", "keep-alive", "proxy-connection",
}

// A field is one header field of a request.
type field struct{ name, value string }

// A target is where a request goes.
type target struct {
	base   string // as given
	tls    bool
	host   string // host and port as in the URL: the Host field
	name   string // host alone, for certificates
	addr   string // host and port, for dialling
	prefix string // path before the request's path, without a slash at the end
}

func parseTarget(baseURL string) (target, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return target{}, badRequest("base URL: %w", err)
	}
	t := target{base: baseURL, host: u.Host, name: u.Hostname(), prefix: strings.TrimRight(u.EscapedPath(), "/")}
	port := u.Port()
	switch u.Scheme {
	case "http":
		port = orElse(port, "80")
	case "https":
		t.tls, port = true, orElse(port, "443")
	default:
		return target{}, badRequest("base URL %q: want http:// or https://, like http://127.0.0.1:8080", baseURL)
	}
	if t.name == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return target{}, badRequest("base URL %q: want scheme, host, port and perhaps a path, like http://127.0.0.1:8080", baseURL)
	}
	t.addr = net.JoinHostPort(t.name, port)
	return t, nil
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// scheme is the pseudo field of HTTP/2.
func (t target) scheme() string {
	if t.tls {
		return "https"
	}
	return "http"
}

// fieldsOf gives the request's own fields in alphabetical order, with the
// content type of a body, or says why the request cannot be written.
func fieldsOf(r harness.Request) ([]field, error) {
	if !httpguts.ValidHeaderFieldName(r.Method) { // both are tokens
		return nil, badRequest("method %q is not a token", r.Method)
	}
	if !strings.HasPrefix(r.Path, "/") || strings.ContainsFunc(r.Path, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '#' }) {
		return nil, badRequest("path %q: want an absolute, escaped path like /seats?free=1", r.Path)
	}
	var fields []field
	typed := false
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		value, lower := r.Header[name], strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return nil, badRequest("header field %q: name or value holds characters that HTTP forbids", name)
		case slices.Contains(ours, lower):
			return nil, badRequest("header field %q is set by the wire, not by the request", name)
		}
		typed = typed || lower == "content-type"
		fields = append(fields, field{name, value})
	}
	if len(r.Body) > 0 && !typed {
		fields = append(fields, field{"Content-Type", "application/json"})
	}
	return fields, nil
}

// hasLength reports whether the request states a length: when it has a body,
// or a method that servers expect one of.
func (ra *racer) hasLength() bool {
	return len(ra.req.Body) > 0 || slices.Contains([]string{"POST", "PUT", "PATCH"}, ra.req.Method)
}

// wire1 writes the request as HTTP/1.1: the header block without its last
// byte, and that byte with the body. No server can act on the first part.
func (ra *racer) wire1() (head, held []byte) {
	b := make([]byte, 0, 512)
	line := func(parts ...string) {
		for _, p := range parts {
			b = append(b, p...)
		}
		b = append(b, "\r\n"...)
	}
	line(ra.req.Method, " ", ra.target.prefix, ra.req.Path, " HTTP/1.1")
	line("Host: ", ra.target.host)
	line("User-Agent: ", userAgent)
	line(headerOp, ": ", ra.op.ID)
	line(headerTrace, ": ", ra.trace)
	for _, f := range ra.fields {
		line(f.name, ": ", f.value)
	}
	if ra.hasLength() {
		line("Content-Length: ", strconv.Itoa(len(ra.req.Body)))
	}
	line() // no "Connection: close": it would make the server work in the middle of a burst
	last := len(b) - 1
	return b[:last:last], append([]byte{b[last]}, ra.req.Body...)
}

// TraceID gives the trace id of an operation: 32 hex digits that depend on
// the run and the operation alone.
func TraceID(runID, opID string) string { return hex.EncodeToString(traceHash(runID, opID)[:16]) }

// Traceparent gives the operation's traceparent field: version 00, its
// [TraceID], a span id, and the flag that asks for sampling.
func Traceparent(runID, opID string) string {
	return "00-" + TraceID(runID, opID) + "-" + hex.EncodeToString(traceHash(runID, opID)[16:24]) + "-01"
}

func traceHash(runID, opID string) []byte {
	sum := sha256.Sum256([]byte(runID + "\x00" + opID))
	sum[0] |= 1 // neither id may be all zeros
	sum[16] |= 1
	return sum[:]
}
