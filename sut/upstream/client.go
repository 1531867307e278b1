// Package upstream talks to pyxis, the university's seat system. It owns the
// HTTP client, its deadlines, the circuit breaker, and the judgement of what
// an answer (or the lack of one) allows to be concluded about a reservation.
//
// A reserve call leaves this process at most once: no hidden resend, no
// retry after a first byte. What must not happen here: the database, states
// of intents, decisions about what to do next.
package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/overbook/overbook/sut/httpapi"
)

// bodyMax is the most that is read of an answer's body, in bytes. A seat list
// of ten thousand seats fits; what is longer counts as no answer.
const bodyMax = 1 << 20

// Config says where pyxis is and how patient and how cautious to be.
type Config struct {
	URL             string        // base, may have a path prefix
	Timeout         time.Duration // of one call, machine time
	BreakerFailures int           // consecutive failures that open the breaker
	BreakerOpen     time.Duration // how long it stays open, machine time
	BreakerProbes   int           // calls let through while half open
	OnBreaker       func(from, to string)
	OnCall          func(call string, status int, took time.Duration) // status 0: no answer
}

// A Client calls pyxis. Safe for concurrent use.
type Client struct {
	cfg     Config
	http    *http.Client
	breaker *gobreaker.CircuitBreaker[answer]
}

// New gives a client; no connection is made yet.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || base.Scheme == "" || base.Host == "" {
		return nil, fmt.Errorf("pyxis address %q: not a URL with scheme and host", cfg.URL)
	}
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	dialer := &net.Dialer{Timeout: cfg.Timeout}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &watchedConn{Conn: conn}, nil
		},
		MaxIdleConns:        512,
		MaxIdleConnsPerHost: 512, // a burst of direct calls must not pay for new connections each round
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
	}
	c := &Client{cfg: cfg, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.breaker = newBreaker(cfg)
	return c, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// A Caller is on whose behalf a call is made.
type Caller struct {
	Student string
	Cause   httpapi.Cause
}

// A Charge is a reservation as pyxis knows it.
type Charge struct {
	ID        string `json:"charge_id"`
	Seat      string `json:"seat"`
	Student   string `json:"student"`
	Reference string `json:"reference,omitempty"` // intent id, when pyxis tells
}

// A Seat is one line of pyxis' list.
type Seat struct {
	Seat string `json:"seat"`
	Free bool   `json:"free"`
}

// Errors of reads. ErrRejected: pyxis does not accept the student's credential.
// ErrUnavailable: no usable answer, or none was asked for (breaker open).
var (
	ErrRejected    = errors.New("pyxis rejects the student's credential")
	ErrUnavailable = errors.New("pyxis gives no usable answer")
)

// CurrentCharge reads the student's charge; nil when there is none. Never cached.
func (c *Client) CurrentCharge(ctx context.Context, who Caller) (*Charge, error) {
	a, err := c.call(ctx, who, call{name: "charge", method: http.MethodGet, path: "/charges/current?student=" + url.QueryEscape(who.Student)})
	if err != nil {
		return nil, readError(err)
	}
	switch a.status {
	case http.StatusOK:
		var charge Charge
		if err := json.Unmarshal(a.body, &charge); err != nil || charge.ID == "" {
			return nil, fmt.Errorf("read the current charge: answer %.200q: %w", a.body, ErrUnavailable)
		}
		return &charge, nil
	case http.StatusNotFound:
		return nil, nil //nolint:nilnil // no charge is an answer
	}
	return nil, statusError("read the current charge", a.status)
}

// Seats reads the list of seats. Never cached.
func (c *Client) Seats(ctx context.Context, who Caller) ([]Seat, error) {
	a, err := c.call(ctx, who, call{name: "seats", method: http.MethodGet, path: "/seats"})
	if err != nil {
		return nil, readError(err)
	}
	if a.status != http.StatusOK {
		return nil, statusError("read the seats", a.status)
	}
	var list struct {
		Seats []Seat `json:"seats"`
	}
	if err := json.Unmarshal(a.body, &list); err != nil || list.Seats == nil {
		return nil, fmt.Errorf("read the seats: answer %.200q: %w", a.body, ErrUnavailable)
	}
	return list.Seats, nil
}

func statusError(doing string, status int) error {
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return fmt.Errorf("%s: status %d: %w", doing, status, ErrRejected)
	}
	return fmt.Errorf("%s: status %d: %w", doing, status, ErrUnavailable)
}

func readError(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

// A call is one HTTP exchange to be made.
type call struct {
	name, method, path string
	body               []byte
	watch              *watch // nil: nobody asks whether it left
}

// An answer is whatever pyxis said, whole.
type answer struct {
	status int
	body   []byte
}

// call makes the exchange through the breaker. The error means that there was
// no whole answer; 5xx is an answer.
func (c *Client) call(ctx context.Context, who Caller, k call) (answer, error) {
	a, err := c.breaker.Execute(func() (answer, error) {
		began := nowMono()
		a, err := c.exchange(ctx, who, k)
		if c.cfg.OnCall != nil {
			c.cfg.OnCall(k.name, a.status, nowMono()-began)
		}
		if err == nil && a.status >= 500 {
			return a, serverFaultError(a.status)
		}
		return a, err
	})
	if fault := serverFaultError(0); errors.As(err, &fault) {
		return a, nil
	}
	return a, err
}

func (c *Client) exchange(ctx context.Context, who Caller, k call) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if k.watch != nil {
		ctx = httptrace.WithClientTrace(ctx, k.watch.trace())
	}
	var body io.Reader
	if k.body != nil {
		// Not a *bytes.Reader in sight of NewRequest: that would set GetBody,
		// and with it the transport may send the request a second time.
		body = io.NopCloser(bytes.NewReader(k.body))
	}
	req, err := http.NewRequestWithContext(ctx, k.method, c.cfg.URL+k.path, body)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: %w", k.method, k.path, err)
	}
	req.ContentLength = int64(len(k.body))
	req.Header.Set("Authorization", "Bearer "+who.Student)
	if k.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if who.Cause.Traceparent != "" {
		req.Header.Set("Traceparent", who.Cause.Traceparent)
	}
	if who.Cause.Op != "" {
		req.Header.Set("X-Overbook-Op", who.Cause.Op)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if k.watch != nil {
			if _, _, refused := k.watch.seal(); refused != nil { // the transport does not hand our error on
				err = &guardError{refused}
			}
		}
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end or given up; nothing to do about an error
	got, err := io.ReadAll(io.LimitReader(resp.Body, bodyMax+1))
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: read the answer: %w", k.method, k.path, err)
	}
	if len(got) > bodyMax {
		return answer{}, fmt.Errorf("%s %s: the answer has more than %d bytes", k.method, k.path, bodyMax)
	}
	return answer{status: resp.StatusCode, body: got}, nil
}
