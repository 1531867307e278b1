package telescope

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// answerMost is the most that is read of an answer of the provider, in bytes.
const answerMost = 64 << 10

// provider talks to the email provider. One post is one request on the wire:
// neither a redirect nor a dead connection makes it a second one.
type provider struct {
	url     string
	timeout time.Duration
	http    *http.Client
	meters  *meters
}

func newProvider(cfg Config, m *meters) *provider {
	return &provider{
		url: strings.TrimRight(cfg.EmailURL, "/") + "/messages", timeout: cfg.EmailTimeout, meters: m,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:            (&net.Dialer{Timeout: cfg.EmailTimeout}).DialContext,
				MaxIdleConns:           mailLanes,
				MaxIdleConnsPerHost:    mailLanes,
				IdleConnTimeout:        5 * time.Second, // drop it before the provider does: that would cost an attempt
				MaxResponseHeaderBytes: answerMost,
				DisableCompression:     true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// close drops idle connections.
func (p *provider) close() { p.http.CloseIdleConnections() }

// post hands over one mail and gives the provider's id for it. An error says
// that the provider may or may not have it.
func (p *provider) post(ctx context.Context, letter mail) (message string, err error) {
	began, status := clock.Mono(), 0
	defer func() { p.meters.emailCall(status, clock.Mono()-began) }()
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := p.request(ctx, letter)
	if err != nil {
		return "", err
	}
	res, err := p.http.Do(req)
	if err != nil {
		return "", fmt.Errorf("no answer from the email provider: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, answerMost))
	if err != nil {
		return "", fmt.Errorf("the email provider's answer broke off: %w", err)
	}
	status = res.StatusCode
	if status != http.StatusAccepted {
		return "", fmt.Errorf("the email provider answered %d %.200q, not 202", status, body)
	}
	var answer struct {
		Message string `json:"message_id"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Message == "" {
		return "", fmt.Errorf("the email provider answered 202 %.200q, without a message_id", body)
	}
	return answer.Message, nil
}

func (p *provider) request(ctx context.Context, letter mail) (*http.Request, error) {
	body, err := json.Marshal(map[string]any{
		"event_id": letter.event, "to": letter.to, "kind": letter.kind, "slot_id": letter.slot, "booking_id": letter.booking,
	})
	if err != nil {
		return nil, fmt.Errorf("write the mail of event %s: %w", letter.event, err)
	}
	// The transport takes a request with an Idempotency-Key for one that it may
	// send twice, if it can get the body twice (GetBody). It can't get this one.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, fmt.Errorf("write the mail of event %s: %w", letter.event, err)
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", letter.event)
	if letter.traceparent != "" {
		req.Header.Set("Traceparent", letter.traceparent)
	}
	if letter.op != "" {
		req.Header.Set("X-Overbook-Op", letter.op)
	}
	return req, nil
}
