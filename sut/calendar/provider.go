package calendar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// Bounds of an answer of the provider.
const (
	answerMost = 16 << 20 // bytes that are read of it
	headerMost = 64 << 10
	quietMost  = time.Hour // for which it can keep us from calling
)

// What keeps a call of the provider from being answered.
var (
	// errAuthorisation is of a calendar whose refresh token is worth nothing: the
	// call was not sent, and none is until staff give another token.
	errAuthorisation = errors.New("the authorisation for the calendar is over: activate the resource again with a new refresh token")

	// errPassing is of a call that was not taken, for a reason that may pass.
	errPassing = errors.New("the calendar provider did not take the call")

	// errUnclear is of a call of which nobody knows what became of it.
	errUnclear = errors.New("the calendar provider gave no whole answer, the call may have been taken")

	// errStrange is of an answer that the contract does not know.
	errStrange = errors.New("the calendar provider gave a strange answer")
)

// A quietError is of a calendar that is not to be called before an instant of
// server time. The call was not taken.
type quietError struct{ until time.Time }

func (e *quietError) Error() string {
	return "the calendar provider wants no calls of this calendar before " + stamp(e.until)
}

// A request is one call of the provider.
type request struct {
	what         string // for the figures
	method, path string
	doc          any // the body, nil for none
	by           cause
}

// A reply is an answer that was read whole.
type reply struct {
	status int
	body   []byte
	header http.Header
}

// strange is the error of a reply that says nothing that can be used.
func (r reply) strange(rq request) error {
	return fmt.Errorf("%w: %d %.200q to %s %s", errStrange, r.status, r.body, rq.method, rq.path)
}

// notTaken is the error of a reply that may be another one in a while.
func (r reply) notTaken(rq request) error {
	return fmt.Errorf("%w: it answered %d %.200q to %s %s", errPassing, r.status, r.body, rq.method, rq.path)
}

// provider talks to the calendar provider, about a resource's calendar and with
// its token. One request is one on the wire: neither a redirect nor a dead
// connection makes it a second one. Only a call that was refused for its token
// (401) is made once more, with the next one.
type provider struct {
	url     string
	timeout time.Duration
	clock   *clock.Clock
	http    *http.Client
	tokens  *tokens
	meters  *meters
}

func newProvider(cfg Config, st *store, m *meters) *provider {
	p := &provider{
		url: strings.TrimRight(cfg.CalendarURL, "/"), timeout: cfg.CalendarTimeout, clock: cfg.Clock, meters: m,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:            (&net.Dialer{Timeout: cfg.CalendarTimeout}).DialContext,
				MaxIdleConns:           cfg.PoolSize,
				MaxIdleConnsPerHost:    cfg.PoolSize,
				IdleConnTimeout:        5 * time.Second, // drop it before the provider does: that would cost an attempt
				MaxResponseHeaderBytes: headerMost,
				DisableCompression:     true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	p.tokens = newTokens(cfg, st, p, m)
	return p
}

// close drops idle connections.
func (p *provider) close() { p.http.CloseIdleConnections() }

// call makes a call with the calendar's token; an expired one costs a refresh,
// whoever makes it, and the call once more.
func (p *provider) call(ctx context.Context, res resource, rq request) (reply, error) {
	held, err := p.tokens.current(ctx, res)
	if err != nil {
		return reply{}, err
	}
	for renewed := false; ; renewed = true {
		told, err := p.send(ctx, rq, "Bearer "+held.access, "")
		if err != nil {
			return reply{}, err
		}
		switch told.status {
		case http.StatusUnauthorized:
			if renewed {
				return reply{}, told.notTaken(rq) // a new token
			}
			if held, err = p.tokens.renew(ctx, res, held); err != nil {
				return reply{}, err
			}
		case http.StatusTooManyRequests:
			return reply{}, p.quiet(ctx, res, told)
		case http.StatusServiceUnavailable:
			return reply{}, told.notTaken(rq)
		default:
			return told, nil
		}
	}
}

// quiet keeps everybody from calling about the calendar for as long as the
// provider wants.
func (p *provider) quiet(ctx context.Context, res resource, told reply) error {
	wait := time.Second
	if seconds, err := strconv.Atoi(told.header.Get("Retry-After")); err == nil && seconds >= 0 {
		wait = min(time.Duration(seconds)*time.Second, quietMost)
	}
	until := p.clock.Now().Add(wait)
	if err := p.tokens.quiet(ctx, res, until); err != nil {
		return err
	}
	return &quietError{until}
}

// send sends one request and reads the whole answer, within the timeout. When
// the context ends it begins nothing, but lets what is under way end: what the
// provider did should be known.
func (p *provider) send(ctx context.Context, rq request, authorization, key string) (told reply, err error) {
	if ctx.Err() != nil {
		return reply{}, fmt.Errorf("%w: not sent, as this replica ends: %w", errPassing, context.Cause(ctx))
	}
	began := clock.Mono()
	defer func() { p.meters.providerCall(rq.what, outcomeOf(told, err), clock.Mono()-began) }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	defer cancel()
	req, err := p.request(ctx, rq, authorization, key)
	if err != nil {
		return reply{}, err
	}
	res, err := p.http.Do(req)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return reply{}, fmt.Errorf("%w: %w", errPassing, err)
	}
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errUnclear, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, answerMost))
	if err != nil {
		return reply{}, fmt.Errorf("%w: it broke off: %w", errUnclear, err)
	}
	return reply{res.StatusCode, body, res.Header}, nil
}

// outcomeOf is what a call is counted by.
func outcomeOf(told reply, err error) string {
	switch {
	case err == nil:
		return strconv.Itoa(told.status)
	case errors.Is(err, errPassing):
		return "not-sent"
	default:
		return "unclear"
	}
}

func (p *provider) request(ctx context.Context, rq request, authorization, key string) (*http.Request, error) {
	body := []byte{}
	if rq.doc != nil {
		var err error
		if body, err = json.Marshal(rq.doc); err != nil {
			return nil, fmt.Errorf("write the call of the calendar provider: %w", err)
		}
	}
	// The transport sends a request a second time if it can get the body twice
	// (GetBody), or if there is none. It can't get this one, also not of a question.
	req, err := http.NewRequestWithContext(ctx, rq.method, p.url+rq.path, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, fmt.Errorf("write the call of the calendar provider: %w", err)
	}
	if rq.doc != nil {
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range map[string]string{
		"Authorization": authorization, "Idempotency-Key": key, "Traceparent": rq.by.traceparent, "X-Overbook-Op": rq.by.op,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// query is the path of a question about a calendar.
func query(path string, res resource, more ...string) string {
	q := url.Values{"calendar": {res.calendar}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return path + "?" + q.Encode()
}
