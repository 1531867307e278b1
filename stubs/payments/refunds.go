package payments

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/overbook/overbook/stubs/double"
)

// refund is the body of POST /refunds.
type refund struct {
	PaymentID string `json:"payment_id"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
}

// refundAnswer is a refund as callers see it.
type refundAnswer struct {
	RefundID  string `json:"refund_id"`
	PaymentID string `json:"payment_id"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Status    string `json:"status"`
}

// refunds gives a payment back: half the latency, the decision, the other half.
func (p *provider) refunds(r *http.Request, body []byte) outcome {
	key := keyOf(r)
	var c refund
	if !read(body, &c) || key == "" || c.PaymentID == "" || c.Amount < 1 || !plainCurrency.MatchString(c.Currency) {
		return told(double.Refuse(http.StatusBadRequest, "bad_request"))
	}
	k, latency, again := p.beginRefund(key, c)
	if again != nil {
		return *again
	}
	double.Wait(latency / 2)
	o := p.giveBackLocked(key, c)
	double.Wait(latency - latency/2)
	p.endRefund(key, k, o.Status < http.StatusBadRequest)
	return o
}

// beginRefund looks at the key. An outcome ends the call; without one the call
// is the first of its key, and is worked on.
func (p *provider) beginRefund(key string, c refund) (*keyed[refund], time.Duration, *outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refundPosts[c.PaymentID]++
	if i, done := p.books.refundOf[c.PaymentID]; done {
		p.books.refunds[i].Posts = p.refundPosts[c.PaymentID]
	}
	k, no := known(p.refundKeys, key, c)
	switch {
	case k == nil:
		k = &keyed[refund]{call: c, working: true}
		p.refundKeys[key] = k
		return k, p.set.refundLatency, nil
	case no != nil:
		o := told(*no)
		return k, 0, &o
	default:
		o := p.giveBack(key, c)
		return k, 0, &o
	}
}

// endRefund keeps a key that stands for a refund; a call that was refused may
// come again, with another body too.
func (p *provider) endRefund(key string, k *keyed[refund], accepted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.working = false
	if !accepted {
		delete(p.refundKeys, key)
	}
}

func (p *provider) giveBackLocked(key string, c refund) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.giveBack(key, c)
}

// giveBack decides on a refund. p.mu is held.
func (p *provider) giveBack(key string, c refund) outcome {
	n, is := p.books.byPayment[c.PaymentID]
	if !is {
		return told(double.Refuse(http.StatusNotFound, "unknown_payment"))
	}
	payment := p.books.payments[n]
	switch {
	case payment.Status != Captured:
		return told(double.Refuse(http.StatusConflict, "not_captured"))
	case c.Amount > payment.Captured:
		return told(double.Refuse(http.StatusUnprocessableEntity, "amount_too_large"))
	case c.Currency != payment.Currency:
		return told(double.Refuse(http.StatusBadRequest, "bad_request"))
	}
	status := http.StatusOK
	i, done := p.books.refundOf[c.PaymentID]
	if !done {
		status, i = http.StatusCreated, len(p.books.refunds)
		p.books.refunds = append(p.books.refunds, Refund{
			RefundID: fmt.Sprintf("re_%d", i+1), PaymentID: c.PaymentID, Amount: c.Amount, Currency: c.Currency, Posts: p.refundPosts[c.PaymentID], AtMS: p.now(),
		})
		p.books.refundOf[c.PaymentID] = i
		p.happened(PaymentRefunded, payment, c.Amount)
	}
	row := &p.books.refunds[i]
	row.Accepted++
	if !slices.Contains(row.Keys, key) {
		row.Keys = append(slices.Clip(row.Keys), key)
	}
	body := refundAnswer{row.RefundID, row.PaymentID, row.Amount, row.Currency, "succeeded"}
	return outcome{double.Reply{Status: status, Word: "succeeded", Body: body}, p.nextRefundAnswer()}
}

// nextRefundAnswer takes one of the answers that RefundFirst counts.
func (p *provider) nextRefundAnswer() string {
	left := p.set.refundFirst
	if left > 0 {
		p.set.refundFirst--
	}
	if left == 0 {
		return Final
	}
	return p.set.refundAnswer
}
