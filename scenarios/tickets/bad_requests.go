package tickets

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
	"github.com/overbook/overbook/stubs/payments"
)

const (
	signature = "Payments-Signature"
	nowhere   = "00000000-0000-4000-8000-000000000000"
	bodyLimit = 64 << 10
	mostSeats = 2000
)

// captureOf is a callback that would sell the held seat, if it were true.
func (w badWorld) captureOf() json.RawMessage {
	p := payments.Payment{PaymentID: "pay-of-nobody", Reference: nowhere, Intent: w.held.HoldID, Amount: w.held.Amount, Currency: w.held.Currency}
	return event(payments.PaymentCaptured, p, nil)
}

// badCallbacks are of somebody who can't sign, or about what is not so.
var badCallbacks = []bad{
	{"callback-not-signed", "401 signature-invalid", func(w badWorld) harness.Request {
		return answers.WithHeader(w.delivery(w.captureOf()), signature, "")
	}},
	{"callback-forged", "401 signature-invalid", func(w badWorld) harness.Request {
		return callback(0, w.captureOf(), payments.Sign("a secret of somebody else", w.now, w.captureOf()))
	}},
	{"callback-signature-of-other-bytes", "401 signature-invalid", func(w badWorld) harness.Request {
		return callback(0, w.captureOf(), payments.Sign(secret, w.now, []byte(`{}`)))
	}},
	{"callback-cut-off", "401 signature-invalid", func(w badWorld) harness.Request {
		return callback(0, w.captureOf()[:60], payments.Sign(secret, w.now, w.captureOf()))
	}},
	{"callback-of-another-time", "401 signature-invalid", func(w badWorld) harness.Request { // the time is signed, too
		_, mac, _ := strings.Cut(payments.Sign(secret, w.now.Add(-time.Hour), w.captureOf()), ",")
		return callback(0, w.captureOf(), fmt.Sprintf("t=%d,%s", w.now.Unix(), mac))
	}},
	{"callback-signature-without-a-mac", "401 signature-invalid", func(w badWorld) harness.Request {
		return callback(0, w.captureOf(), fmt.Sprintf("t=%d", w.now.Unix()))
	}},
	{"callback-signature-that-is-none", "401 signature-invalid", func(w badWorld) harness.Request { return callback(0, w.captureOf(), "t=now,v1=zz") }},
	{"callback-replayed", "401 signature-expired", func(w badWorld) harness.Request {
		return callback(0, w.captureOf(), payments.Sign(secret, w.now.Add(-2*callbackWindow), w.captureOf()))
	}},
	{"callback-of-the-future", "401 signature-expired", func(w badWorld) harness.Request {
		return callback(0, w.captureOf(), payments.Sign(secret, w.now.Add(2*callbackWindow), w.captureOf()))
	}},
	{"callback-no-json", "400 bad-request", func(w badWorld) harness.Request { return w.delivery(json.RawMessage(`captured!`)) }},
	{"callback-of-another-shape", "400 bad-request", func(w badWorld) harness.Request { return w.delivery(json.RawMessage(`{"event_id":7}`)) }},
	{"callback-of-nothing", "400 bad-request", func(w badWorld) harness.Request {
		return w.delivery(event(payments.PaymentCaptured, w.bought, map[string]any{"amount": 0}))
	}},
	{"callback-of-less-than-nothing", "400 bad-request", func(w badWorld) harness.Request {
		return w.delivery(event(payments.PaymentCaptured, w.bought, map[string]any{"amount": -1}))
	}},
	{"callback-of-half-a-cent", "400 bad-request", func(w badWorld) harness.Request {
		return w.delivery(event(payments.PaymentCaptured, w.bought, map[string]any{"amount": 0.5}))
	}},
	{"callback-unknown-type", "422 unknown-event", func(w badWorld) harness.Request {
		return w.delivery(event("payment.disputed", w.bought, nil))
	}},
	{"callback-unknown-order", "404 unknown-payment", func(w badWorld) harness.Request {
		return w.delivery(event(payments.PaymentCaptured, w.bought, map[string]any{"intent": nowhere, "payment_id": "pay-of-nobody"}))
	}},
	{"callback-order-that-is-no-id", "404 unknown-payment", func(w badWorld) harness.Request {
		return w.delivery(event(payments.PaymentCaptured, w.bought, map[string]any{"intent": "order-1", "payment_id": "pay-of-nobody"}))
	}},
	{"callback-refund-of-an-unknown-payment", "404 unknown-payment", func(w badWorld) harness.Request {
		return w.delivery(event(payments.PaymentRefunded, w.bought, map[string]any{"payment_id": "pay-of-nobody"}))
	}},
	{"callback-refund-of-a-sold-seat", "409 not-refundable", func(w badWorld) harness.Request {
		return w.delivery(event(payments.PaymentRefunded, w.bought, nil))
	}},
	{"callback-too-large", "413 too-large", func(w badWorld) harness.Request {
		return w.delivery(event(payments.PaymentCaptured, w.bought, map[string]any{"note": strings.Repeat("x", bodyLimit)}))
	}},
}

func refundOf(p func(badWorld) payments.Payment, by int64) func(badWorld) harness.Request {
	return func(w badWorld) harness.Request {
		return refundNow(0, staff(1), p(w).PaymentID, p(w).Captured+by)
	}
}

func waiting(w badWorld) payments.Payment { return w.waiting }
func bought(w badWorld) payments.Payment  { return w.bought }

// badRefunds are of money that nobody is owed.
var badRefunds = []bad{
	{"refund-too-large", "422 refund-too-large", refundOf(waiting, 1)},
	{"refund-partial", "422 refund-partial", refundOf(waiting, -1)},
	{"refund-of-a-sold-seat", "409 not-refundable", refundOf(bought, 0)},
	{"refund-of-an-unknown-payment", "404 unknown-payment", func(badWorld) harness.Request { return refundNow(0, staff(0), "pay-of-nobody", 1) }},
	{"refund-of-half-a-cent", "400 bad-request", func(w badWorld) harness.Request {
		return answers.WithBody(refundNow(0, staff(0), w.waiting.PaymentID, 1), fmt.Sprintf(`{"payment_id":%q,"amount":%d.5}`, w.waiting.PaymentID, w.waiting.Captured))
	}},
	{"refund-by-a-member", "403 forbidden", func(w badWorld) harness.Request {
		return refundNow(0, member(7), w.waiting.PaymentID, w.waiting.Captured)
	}},
}

// stranger is a member who has nothing.
var stranger = member(1)

func (w badWorld) claimOf(seat string) harness.Request { return claim(0, stranger, w.show.ID, seat) }

func claimBody(body string) func(badWorld) harness.Request {
	return func(w badWorld) harness.Request { return answers.WithBody(w.claimOf(w.free), body) }
}

// badClaims are of seats that can't be had.
var badClaims = []bad{
	{"claim-of-a-sold-seat", "409 seat-taken", func(w badWorld) harness.Request { return w.claimOf(w.sold.Seat) }},
	{"claim-of-a-held-seat", "409 seat-taken", func(w badWorld) harness.Request { return w.claimOf(w.held.Seat) }},
	{"claim-of-an-unknown-seat", "404 unknown-seat", func(w badWorld) harness.Request { return w.claimOf("Q-1") }},
	{"claim-of-another-shows-seat", "404 unknown-seat", func(w badWorld) harness.Request { return w.claimOf(w.other.Seats[0]) }},
	{"claim-in-an-unknown-show", "404 unknown-show", func(w badWorld) harness.Request { return claim(0, stranger, 7, w.free) }},
	{"claim-in-a-show-that-is-no-number", "404 unknown-show", func(w badWorld) harness.Request {
		r := w.claimOf(w.free)
		r.Path = "/tickets/shows/one/holds"
		return r
	}},
	{"claim-before-the-sale", "409 not-on-sale", func(w badWorld) harness.Request { return claim(0, stranger, w.other.ID, w.other.Seats[0]) }},
	{"claim-of-the-best-before-the-sale", "409 not-on-sale", func(w badWorld) harness.Request { return claimBest(0, stranger, w.other.ID) }},
	{"claim-beside-a-checkout", "409 checkout-active", func(w badWorld) harness.Request { return claim(0, member(9), w.show.ID, w.free) }},
	{"claim-of-the-best-beside-a-checkout", "409 checkout-active", func(w badWorld) harness.Request { return claimBest(0, member(9), w.show.ID) }},
	{"claim-of-two-things", "400 bad-request", claimBody(`{"seat":"A-4","best_available":true}`)},
	{"claim-of-nothing", "400 bad-request", claimBody(`{}`)},
	{"claim-of-not-the-best", "400 bad-request", claimBody(`{"best_available":false}`)},
	{"claim-of-a-number", "400 bad-request", claimBody(`{"seat":4}`)},
	{"seats-of-an-unknown-show", "404 unknown-show", func(badWorld) harness.Request { return seats(0, stranger, 7) }},
}

// badStrangers are requests about holds and orders of others, or of nobody, and
// about those that are over.
var badStrangers = []bad{
	{"release-of-anothers-hold", "404 unknown-hold", func(w badWorld) harness.Request { return release(0, stranger, w.held.HoldID) }},
	{"charge-of-anothers-hold", "404 unknown-hold", func(w badWorld) harness.Request { return charge(0, stranger, w.held.HoldID, "card-1") }},
	{"order-of-another", "404 unknown-order", func(w badWorld) harness.Request { return order(0, stranger, w.held.HoldID) }},
	{"release-of-no-hold", "404 unknown-hold", func(badWorld) harness.Request { return release(0, stranger, nowhere) }},
	{"charge-of-no-hold", "404 unknown-hold", func(badWorld) harness.Request { return charge(0, stranger, nowhere, "card-1") }},
	{"order-of-nobody", "404 unknown-order", func(badWorld) harness.Request { return order(0, staff(0), nowhere) }},
	{"release-of-what-is-no-id", "404 unknown-hold", func(badWorld) harness.Request { return release(0, stranger, "mine") }},
	{"order-of-what-is-no-id", "404 unknown-order", func(badWorld) harness.Request { return order(0, stranger, "mine") }},
	{"release-of-a-released-hold", "409 hold-over", func(w badWorld) harness.Request { return release(0, member(7), w.over.HoldID) }},
	{"charge-of-a-released-hold", "409 hold-over", func(w badWorld) harness.Request { return charge(0, member(7), w.over.HoldID, "card-1") }},
	{"release-of-a-sold-seat", "409 hold-over", func(w badWorld) harness.Request { return release(0, member(8), w.sold.HoldID) }},
	{"charge-of-a-sold-seat", "409 hold-over", func(w badWorld) harness.Request { return charge(0, member(8), w.sold.HoldID, "card-1") }},
	{"charge-of-no-card", "400 bad-request", func(w badWorld) harness.Request {
		return answers.WithBody(charge(0, member(9), w.held.HoldID, ""), `{}`)
	}},
	{"charge-of-a-card-that-is-a-number", "400 bad-request", func(w badWorld) harness.Request {
		return answers.WithBody(charge(0, member(9), w.held.HoldID, ""), `{"card":4111}`)
	}},
}

// badTokens are requests of somebody who may not do it.
var badTokens = []bad{
	{"no-token", "401 unauthorized", func(w badWorld) harness.Request { return answers.WithToken(w.claimOf(w.free), "") }},
	{"no-token-before-anything-else", "401 unauthorized", func(badWorld) harness.Request {
		return answers.WithToken(order(0, stranger, "mine"), "")
	}},
	{"unknown-token", "401 unauthorized", func(w badWorld) harness.Request { return answers.WithToken(w.claimOf(w.free), "student-1") }},
	{"expired-token", "401 token-expired", func(w badWorld) harness.Request {
		return answers.WithToken(w.claimOf(w.free), stranger+".1000000000")
	}},
	{"staff-claims", "403 forbidden", func(w badWorld) harness.Request { return claim(0, staff(0), w.show.ID, w.free) }},
	{"staff-charges", "403 forbidden", func(w badWorld) harness.Request { return charge(0, staff(0), w.held.HoldID, "card-1") }},
	{"staff-releases", "403 forbidden", func(w badWorld) harness.Request { return release(0, staff(0), w.held.HoldID) }},
	{"member-makes-a-show", "403 forbidden", func(w badWorld) harness.Request { return answers.WithToken(badShow(w, nil), stranger) }},
	{"member-reads-desync", "403 forbidden", func(badWorld) harness.Request { return answers.WithToken(desync(), stranger) }},
}

// badShow is the request for a show that would be good but for the change.
func badShow(w badWorld, change map[string]any) harness.Request {
	doc := map[string]any{"show_id": w.show.ID + 7, "on_sale_at": w.now.Format(time.RFC3339Nano), "price": 4500, "currency": "EUR", "seats": []string{"A-1"}}
	maps.Copy(doc, change)
	return post(kindCreate, 0, staff(0), "/tickets/shows", doc)
}

func showWith(field string, value any) func(badWorld) harness.Request {
	return func(w badWorld) harness.Request { return badShow(w, map[string]any{field: value}) }
}

// manySeats is one more than a show may have.
func manySeats() []string {
	list := make([]string, mostSeats+1)
	for i := range list {
		list[i] = fmt.Sprintf("S-%d", i)
	}
	return list
}

// badBodies are requests that can't be read.
var badBodies = []bad{
	{"show-that-is-there", "409 show-exists", func(w badWorld) harness.Request { return badShow(w, map[string]any{"show_id": w.show.ID}) }},
	{"show-for-nothing", "400 bad-request", showWith("price", 0)},
	{"show-for-half-a-cent", "400 bad-request", showWith("price", 45.5)},
	{"show-for-too-much", "400 bad-request", showWith("price", 100_000_001)},
	{"show-without-a-currency", "400 bad-request", showWith("currency", "euro")},
	{"show-without-seats", "400 bad-request", showWith("seats", []string{})},
	{"show-with-a-seat-twice", "400 bad-request", showWith("seats", []string{"A-1", "A-2", "A-1"})},
	{"show-with-too-many-seats", "400 bad-request", showWith("seats", manySeats())},
	{"show-of-no-policy", "400 bad-request", showWith("policy", "hope")},
	{"show-without-an-id", "400 bad-request", showWith("show_id", 0)},
	{"show-without-a-time", "400 bad-request", showWith("on_sale_at", "soon")},
	{"malformed-json", "400 bad-request", claimBody(`{"seat":`)},
	{"body-with-a-stranger", "400 bad-request", claimBody(`{"seat":"A-4","price":1}`)},
	{"two-json-values", "400 bad-request", claimBody(`{"seat":"A-4"}{}`)},
	{"body-that-is-a-list", "400 bad-request", claimBody(`["A-4"]`)},
	{"no-body", "400 bad-request", claimBody(``)},
	{"wrong-content-type", "415 unsupported-media-type", func(w badWorld) harness.Request {
		return answers.WithHeader(w.claimOf(w.free), "Content-Type", "text/plain")
	}},
	{"body-over-the-limit", "413 too-large", claimBody(`{"seat":"` + strings.Repeat("x", bodyLimit) + `"}`)},
	{"unknown-path", "404 not-found", func(badWorld) harness.Request { return ask("", 0, stranger, http.MethodGet, "/tickets/nothing") }},
}
