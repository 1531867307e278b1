package payments

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/overbook/overbook/stubs/double"
)

// charge is the body of POST /charges.
type charge struct {
	Reference string `json:"reference"`
	Intent    string `json:"intent"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Card      string `json:"card"`
}

func (c charge) sound() bool {
	return plainReference.MatchString(c.Reference) && c.Intent != "" && c.Amount > 0 && plainCurrency.MatchString(c.Currency) && c.Card != ""
}

// answer is a payment as callers see it.
type answer struct {
	PaymentID string `json:"payment_id"`
	Reference string `json:"reference"`
	Intent    string `json:"intent"`
	Amount    int64  `json:"amount"` // what was captured, else what was asked for
	Currency  string `json:"currency"`
	Status    string `json:"status"`
}

func (p Payment) answer() answer {
	a := answer{p.PaymentID, p.Reference, p.Intent, p.Amount, p.Currency, p.Status}
	if p.Status == Captured {
		a.Amount = p.Captured
	}
	return a
}

// charges takes a charge: half the card's latency, the decision, the other half.
func (p *provider) charges(r *http.Request, body []byte) outcome {
	key := keyOf(r)
	var c charge
	if !read(body, &c) || key == "" || !c.sound() {
		return told(double.Refuse(http.StatusBadRequest, "bad_request"))
	}
	k, b, reply := p.beginCharge(key, c)
	if reply != nil {
		return told(*reply)
	}
	latency := double.Millis(b.LatencyMS)
	double.Wait(latency / 2)
	o := p.accept(key, k, b)
	double.Wait(latency - latency/2)
	p.endCharge(k)
	return o
}

// beginCharge looks at the key. A reply ends the call; without one the call is
// the first of its key, and is worked on.
func (p *provider) beginCharge(key string, c charge) (*keyed[charge], Behaviour, *double.Reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, no := known(p.chargeKeys, key, c)
	if k == nil {
		k = &keyed[charge]{call: c, working: true, posts: 1, payment: -1}
		p.chargeKeys[key] = k
		return k, p.set.of(c.Card), nil
	}
	if k.payment >= 0 {
		p.books.payments[k.payment].Posts = k.posts
	}
	if no != nil {
		return k, Behaviour{}, no
	}
	payment := p.books.payments[k.payment]
	return k, Behaviour{}, &double.Reply{Status: http.StatusOK, Word: payment.Status, Body: payment.answer()}
}

// accept makes the payment and decides on it, unless decisions are held.
func (p *provider) accept(key string, k *keyed[charge], b Behaviour) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.payment = p.addPayment(Payment{
		Reference: k.call.Reference, Intent: k.call.Intent, Amount: k.call.Amount, Currency: k.call.Currency, Card: k.call.Card, Key: key, Posts: k.posts,
	})
	if b.Decide == AtOnce {
		p.settle(k.payment, "")
	}
	shown := p.books.payments[k.payment]
	if b.Answer == Pending {
		shown.Status = Pending
	}
	o := outcome{double.Reply{Status: http.StatusCreated, Word: shown.Status, Body: shown.answer()}, Final}
	if b.Answer == Reset || b.Answer == Silent {
		o.answer = b.Answer
	}
	return o
}

func (p *provider) endCharge(k *keyed[charge]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.working = false
}

// addPayment stores a payment that is pending, and gives its index.
func (p *provider) addPayment(payment Payment) int {
	i := len(p.books.payments)
	payment.PaymentID, payment.Status, payment.CreatedMS = fmt.Sprintf("pay_%d", i+1), Pending, p.now()
	p.books.payments = append(p.books.payments, payment)
	p.books.byPayment[payment.PaymentID] = i
	if len(p.books.byReference[payment.Reference]) == 0 {
		p.books.references = append(p.books.references, payment.Reference)
	}
	p.books.byReference[payment.Reference] = append(p.books.byReference[payment.Reference], i)
	return i
}

// settle decides on a pending payment, and makes the further attempts that
// follow at once. Without an outcome it is the one of the card's Attempts.
func (p *provider) settle(i int, result string) {
	p.decideOn(i, result)
	more := p.set.of(p.books.payments[i].Card).AttemptsAtOnce
	for more {
		more = p.again(p.books.payments[i].Reference, "")
	}
}

// again makes the next attempt under a reference, if one is left.
func (p *provider) again(reference, result string) bool {
	list := p.books.byReference[reference]
	last := p.books.payments[list[len(list)-1]]
	if len(list) >= len(p.set.of(last.Card).Attempts) {
		return false
	}
	last.Captured, last.DecidedMS, last.Key, last.Posts = 0, 0, "", 0
	p.decideOn(p.addPayment(last), result)
	return true
}

// decideOn decides on one payment, which makes its callback.
func (p *provider) decideOn(i int, result string) {
	payment := &p.books.payments[i]
	b := p.set.of(payment.Card)
	if result == "" {
		nth := slices.Index(p.books.byReference[payment.Reference], i)
		result = b.Attempts[min(nth, len(b.Attempts)-1)]
	}
	payment.Status, payment.DecidedMS = result, p.now()
	kind := PaymentDeclined
	if result == Captured {
		kind, payment.Captured = PaymentCaptured, payment.Amount
		if b.CaptureAmount > 0 {
			payment.Captured = b.CaptureAmount
		}
	}
	p.happened(kind, *payment, payment.answer().Amount)
}

// decide does a decision of a configuration. p.mu is held.
func (p *provider) decide(d Decision) error {
	done := false
	for _, reference := range slices.Clone(p.books.references) {
		list := p.books.byReference[reference]
		if d.Reference != "" && reference != d.Reference || d.Card != "" && p.books.payments[list[0]].Card != d.Card {
			continue
		}
		done = p.decideReference(reference, d.Outcome) || done
	}
	if !done {
		return fmt.Errorf("decide: no payment of %s%s is pending, and no attempt is left; look at the ledger first", d.Reference, d.Card)
	}
	return nil
}

// decideReference decides on what is pending under a reference, else makes the
// next attempt; it says whether there was anything to do.
func (p *provider) decideReference(reference, result string) bool {
	pending := p.pendingOf(reference)
	for _, i := range pending {
		p.settle(i, result)
	}
	return len(pending) > 0 || p.again(reference, result)
}

// pendingOf gives the indices of the payments that are pending.
func (p *provider) pendingOf(reference string) (pending []int) {
	for _, i := range p.books.byReference[reference] {
		if p.books.payments[i].Status == Pending {
			pending = append(pending, i)
		}
	}
	return pending
}

// ask gives all payments under a reference, oldest first.
func (p *provider) ask(r *http.Request, _ []byte) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	reference := r.PathValue("reference")
	list := p.books.byReference[reference]
	if len(list) == 0 {
		return told(double.Refuse(http.StatusNotFound, "unknown"))
	}
	payments := make([]answer, len(list))
	for i, n := range list {
		payments[i] = p.books.payments[n].answer()
	}
	return told(double.Reply{Status: http.StatusOK, Word: "known", Body: map[string]any{"reference": reference, "payments": payments}})
}
