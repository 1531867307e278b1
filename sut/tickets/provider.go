package tickets

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
	"strings"
	"time"

	"github.com/overbook/overbook/sut/clock"
)

// answerMost is the most that is read of an answer of the provider, in bytes.
const answerMost = 1 << 20

// A verdict is what an answer of the provider says of a charge.
type verdict int

const (
	unknown  verdict = iota // no decision, or no answer: it may have been taken
	decided                 // captured or declined
	awaited                 // taken on, not decided
	notTaken                // surely not taken
)

// provider talks to the payment provider. One call is one request on the wire:
// neither a redirect nor a dead connection makes it a second one.
type provider struct {
	url     string
	timeout time.Duration
	http    *http.Client
	meters  *meters
}

func newProvider(cfg Config, m *meters) *provider {
	return &provider{
		url: strings.TrimRight(cfg.PaymentsURL, "/"), timeout: cfg.PaymentTimeout, meters: m,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:            (&net.Dialer{Timeout: cfg.PaymentTimeout}).DialContext,
				MaxIdleConns:           cfg.PoolSize,
				MaxIdleConnsPerHost:    cfg.PoolSize,
				IdleConnTimeout:        5 * time.Second, // drop it before the provider does: that would leave a charge open
				MaxResponseHeaderBytes: answerMost,
				DisableCompression:     true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// close drops idle connections.
func (p *provider) close() { p.http.CloseIdleConnections() }

// charge sends a charge. The payment is of a verdict decided or awaited; the
// error says why it is neither.
func (p *provider) charge(ctx context.Context, c charge, by cause) (payment, verdict, error) {
	status, body, err := p.call(ctx, "charge", http.MethodPost, "/charges", c.id.String(), by, map[string]any{
		"reference": c.id.String(), "intent": c.intent, "amount": c.amount, "currency": c.currency, "card": c.card,
	})
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return payment{}, notTaken, err
	}
	if err != nil {
		return payment{}, unknown, err
	}
	strange := fmt.Errorf("the payment provider answered %d %.200q to charge %s", status, body, c.id)
	switch {
	case status == http.StatusCreated || status == http.StatusOK:
	case status >= 400 && status < 500 && status != http.StatusConflict:
		return payment{}, notTaken, strange
	default:
		return payment{}, unknown, strange
	}
	var told payment
	if json.Unmarshal(body, &told) != nil || told.ID == "" || told.Reference != c.id.String() || told.Intent != c.intent {
		return payment{}, unknown, strange
	}
	switch told.Status {
	case paymentCaptured, declined:
		if told.Amount < 1 {
			return payment{}, unknown, strange
		}
		return told, decided, nil
	case pending:
		return told, awaited, nil
	}
	return payment{}, unknown, strange
}

// payments asks what became of a charge: every payment that was made for it,
// oldest first, or that the provider knows none.
func (p *provider) payments(ctx context.Context, reference string, by cause) (list []payment, known bool, err error) {
	status, body, err := p.call(ctx, "payments", http.MethodGet, "/charges/"+url.PathEscape(reference), "", by, nil)
	if err != nil {
		return nil, false, err
	}
	if status == http.StatusNotFound {
		return nil, false, nil
	}
	var told struct {
		Payments []payment `json:"payments"`
	}
	if status != http.StatusOK || json.Unmarshal(body, &told) != nil {
		return nil, false, fmt.Errorf("the payment provider answered %d %.200q to what became of charge %s", status, body, reference)
	}
	return told.Payments, true, nil
}

// refund gives back what was captured. nil: it is done. An error says that it
// may or may not be.
func (p *provider) refund(ctx context.Context, r refund, by cause) error {
	status, body, err := p.call(ctx, "refund", http.MethodPost, "/refunds", r.id.String(), by, map[string]any{
		"payment_id": r.payment, "amount": r.amount, "currency": r.currency,
	})
	if err != nil {
		return err
	}
	type refunded struct {
		Payment  string `json:"payment_id"`
		Amount   int64  `json:"amount"`
		Currency string `json:"currency"`
		Status   string `json:"status"`
	}
	var told refunded // all of it: part of the money would not be what was asked for
	if status != http.StatusCreated && status != http.StatusOK || json.Unmarshal(body, &told) != nil || told != (refunded{r.payment, r.amount, r.currency, "succeeded"}) {
		return fmt.Errorf("the payment provider answered %d %.200q to refund %s", status, body, r.id)
	}
	return nil
}

// call sends one request and reads the whole answer, within the timeout.
func (p *provider) call(ctx context.Context, what, method, path, key string, by cause, doc any) (status int, answer []byte, err error) {
	began := clock.Mono()
	defer func() { p.meters.providerCall(what, status, clock.Mono()-began) }()
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := p.request(ctx, method, path, key, by, doc)
	if err != nil {
		return 0, nil, err
	}
	res, err := p.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("no answer from the payment provider: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(res.Body, answerMost))
	if err != nil {
		return 0, nil, fmt.Errorf("the payment provider's answer broke off: %w", err)
	}
	return res.StatusCode, answer, nil
}

func (p *provider) request(ctx context.Context, method, path, key string, by cause, doc any) (*http.Request, error) {
	body := []byte{}
	if doc != nil {
		var err error
		if body, err = json.Marshal(doc); err != nil {
			return nil, fmt.Errorf("write the call of the payment provider: %w", err)
		}
	}
	// The transport sends a request a second time if it can get the body twice
	// (GetBody), or if there is none. It can't get this one, also not of a question.
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, fmt.Errorf("write the call of the payment provider: %w", err)
	}
	if doc != nil {
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range map[string]string{"Idempotency-Key": key, "Traceparent": by.traceparent, "X-Overbook-Op": by.op} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}
