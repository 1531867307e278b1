package payments

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// event is the body of a callback.
type event struct {
	EventID   string `json:"event_id"` // "evt_1" and so on
	Type      string `json:"type"`
	PaymentID string `json:"payment_id"`
	Reference string `json:"reference"`
	Intent    string `json:"intent"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
}

// Sign gives the Payments-Signature header of one delivery of these bytes at a
// time, which is the server's.
func Sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + ".")) // a hash takes all bytes
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// happened makes the callback of something that happened to a payment.
func (p *provider) happened(kind string, payment Payment, amount int64) *Callback {
	b := p.set.of(payment.Card)
	seq := len(p.books.callbacks) + 1
	e := event{fmt.Sprintf("evt_%d", seq), kind, payment.PaymentID, payment.Reference, payment.Intent, amount, payment.Currency}
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and a number
	}
	p.books.callbacks = append(p.books.callbacks, Callback{
		Seq: seq, EventID: e.EventID, Type: kind, PaymentID: payment.PaymentID, Card: payment.Card, Body: body,
		Due: b.Callbacks == AtOnce, Lost: b.Callbacks == Lost, Copies: b.Copies, Reversed: b.Reversed, AtMS: p.now(),
	})
	return &p.books.callbacks[seq-1]
}

// cross makes a callback that tells of one order's payment as if it were
// another's. p.mu is held.
func (p *provider) cross(x Crossing) error {
	i, other := p.books.latest(x.Card), p.books.latest(x.Other)
	if i < 0 || other < 0 {
		return fmt.Errorf("cross: cards %s and %s must have a payment each; look at the ledger first", x.Card, x.Other)
	}
	payment := p.books.payments[i]
	kind := map[string]string{Captured: PaymentCaptured, Declined: PaymentDeclined}[payment.Status]
	if kind == "" {
		return fmt.Errorf("cross: payment %s of card %s is pending; decide on it first", payment.PaymentID, x.Card)
	}
	payment.Reference, payment.Intent = p.books.payments[other].Reference, p.books.payments[other].Intent
	c := p.happened(kind, payment, payment.answer().Amount)
	c.Due, c.Lost, c.Crossed = true, false, true
	return nil
}

// release decides on a card's pending payments and makes its held callbacks
// due; "*" is every card. p.mu is held.
func (p *provider) release(card string) {
	for i := range p.books.payments { // those that settle adds are decided
		if q := p.books.payments[i]; q.Status == Pending && (card == "*" || q.Card == card) {
			p.settle(i, "")
		}
	}
	for i := range p.books.callbacks {
		if c := &p.books.callbacks[i]; !c.Lost && (card == "*" || c.Card == card) {
			c.Due = true
		}
	}
}
