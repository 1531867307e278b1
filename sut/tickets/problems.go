package tickets

import (
	"net/http"

	"github.com/overbook/overbook/sut/httpapi"
)

var shortly = http.Header{"Retry-After": {"1"}}

func problem(status int, kind, title, detail string) *httpapi.Problem {
	return &httpapi.Problem{Type: kind, Title: title, Status: status, Detail: detail}
}

func passing(kind, title, detail string) *httpapi.Problem {
	p := problem(http.StatusServiceUnavailable, kind, title, detail)
	p.Header = shortly
	return p
}

// Nothing of that name, or not the caller's.
var (
	unknownShow    = problem(http.StatusNotFound, "unknown-show", "No such show", "there is no show with this id")
	unknownSeat    = problem(http.StatusNotFound, "unknown-seat", "No such seat", "the show has no seat of this name")
	unknownHold    = problem(http.StatusNotFound, "unknown-hold", "No such hold", "there is no hold with this id for you")
	unknownOrder   = problem(http.StatusNotFound, "unknown-order", "No such order", "there is no order with this id for you")
	unknownPayment = problem(http.StatusNotFound, "unknown-payment", "No such payment", "there is no such payment of that order here")
)

// Refusals of a claim.
var (
	showExists     = problem(http.StatusConflict, "show-exists", "The show is there already", "a show with this id was made before; nothing was changed")
	notOnSale      = problem(http.StatusConflict, "not-on-sale", "Not on sale yet", "come back when the sale begins, see Retry-After")
	checkoutActive = problem(http.StatusConflict, "checkout-active", "One checkout at a time", "you hold a seat already: pay for it or release it, in this tab or the other")
	seatTaken      = problem(http.StatusConflict, "seat-taken", "The seat is not free", "choose another seat")
	soldOut        = problem(http.StatusConflict, "sold-out", "No seat is free", "a seat may come back when a hold ends")
)

// Refusals and ends of a charge or a release.
var (
	holdOver           = problem(http.StatusConflict, "hold-over", "The hold has ended", "it can be neither paid nor released any more, see its state")
	chargeInFlight     = problem(http.StatusConflict, "charge-in-flight", "A payment is under way", "wait for what becomes of it before you pay again; the order tells")
	paymentRefunded    = problem(http.StatusConflict, "payment-refunded", "The money goes back", "the payment succeeded too late or beside another one: it is being refunded")
	paymentDeclined    = problem(http.StatusPaymentRequired, "payment-declined", "The payment was declined", "the seat is still yours until the hold ends: pay with another card")
	paymentUnavailable = passing("payment-unavailable", "The payment provider can't be reached", "nothing was taken; try again in a moment")
	outcomeUnknown     = passing("outcome-unknown", "It is not known whether this was done", "the database did not say whether it was stored; ask for the seat again, or look at the order, to find out")
)

// Refusals of callbacks and refunds.
var (
	signatureInvalid = problem(http.StatusUnauthorized, "signature-invalid", "The signature does not fit", "sign the bytes that are sent: Payments-Signature: t=<unix seconds>,v1=<hex>")
	signatureExpired = problem(http.StatusUnauthorized, "signature-expired", "The signature is of another time", "sign each delivery anew")
	unknownEvent     = problem(http.StatusUnprocessableEntity, "unknown-event", "No such type of event", "payment.captured, payment.declined and payment.refunded are taken")
	notRefundable    = problem(http.StatusConflict, "not-refundable", "Nothing to refund", "the payment was not captured, or it pays for a seat")
	alreadyRefunded  = problem(http.StatusConflict, "already-refunded", "It went back before", "the payment was refunded; nothing was changed")
	refundTooLarge   = problem(http.StatusUnprocessableEntity, "refund-too-large", "More than was captured", "a refund is of exactly what was captured")
	refundPartial    = problem(http.StatusUnprocessableEntity, "refund-partial", "Less than was captured", "a refund is of exactly what was captured")
)
