package payments

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/overbook/overbook/harness"
)

// What became of a payment.
const (
	Pending  = "pending"
	Captured = "captured"
	Declined = "declined"
)

// Types of callbacks.
const (
	PaymentCaptured = "payment.captured"
	PaymentDeclined = "payment.declined"
	PaymentRefunded = "payment.refunded"
)

// A Payment is one attempt to take money. Several may have one reference.
// Amounts are minor units, times are milliseconds since the double was made.
type Payment struct {
	PaymentID string  `json:"payment_id"` // "pay_1" and so on, in the order in which they were accepted
	Reference string  `json:"reference"`
	Intent    string  `json:"intent"`
	Amount    int64   `json:"amount"` // that was asked for
	Currency  string  `json:"currency"`
	Card      string  `json:"card"`
	Status    string  `json:"status"`   // Pending, Captured or Declined
	Captured  int64   `json:"captured"` // that was taken; 0 unless Captured
	CreatedMS float64 `json:"created_ms"`
	DecidedMS float64 `json:"decided_ms"` // 0 while pending
	Key       string  `json:"key"`        // Idempotency-Key; empty for an attempt of the provider's own
	Posts     int     `json:"posts"`      // calls under that key and with that body that were looked at; 0 for an attempt of the provider's own
}

// A Refund is money that went back: one row a payment, however often it was asked for.
type Refund struct {
	RefundID  string   `json:"refund_id"` // "re_1" and so on
	PaymentID string   `json:"payment_id"`
	Amount    int64    `json:"amount"`
	Currency  string   `json:"currency"`
	Keys      []string `json:"keys"`     // distinct Idempotency-Keys of the calls that were accepted, in order of arrival
	Posts     int      `json:"posts"`    // calls for this payment that were looked at, whatever they were answered
	Accepted  int      `json:"accepted"` // of these, decided as succeeded: the first and its repetitions
	AtMS      float64  `json:"at_ms"`
}

// A Callback is one event that the provider has to tell. Whoever delivers it
// signs these bytes anew each time, see [Sign].
type Callback struct {
	Seq       int             `json:"seq"` // from 1, in the order in which the events happened
	EventID   string          `json:"event_id"`
	Type      string          `json:"type"`
	PaymentID string          `json:"payment_id"`
	Card      string          `json:"card"` // of the payment
	Body      json.RawMessage `json:"body"` // the exact bytes
	Due       bool            `json:"due"`  // to be delivered now; stays so
	Lost      bool            `json:"lost"` // never to be delivered
	Copies    int             `json:"copies"`
	Reversed  bool            `json:"reversed"` // deliver this card's callbacks newest first
	Crossed   bool            `json:"crossed"`  // tells another order's intent and reference
	AtMS      float64         `json:"at_ms"`    // when it happened
}

// A Ledger is the double's truth, each list in the order of events.
//
// As JSON it is one list of plain rows, as every ledger of a double: first the
// payments, then the refunds, then the callbacks, each with its kind in "row"
// ("payment", "refund", "callback").
type Ledger struct {
	Payments  []Payment
	Refunds   []Refund
	Callbacks []Callback
}

type (
	paymentRow struct {
		Row string `json:"row"`
		Payment
	}
	refundRow struct {
		Row string `json:"row"`
		Refund
	}
	callbackRow struct {
		Row string `json:"row"`
		Callback
	}
)

// MarshalJSON writes the ledger as rows.
func (l Ledger) MarshalJSON() ([]byte, error) {
	rows := make([]any, 0, len(l.Payments)+len(l.Refunds)+len(l.Callbacks))
	for _, p := range l.Payments {
		rows = append(rows, paymentRow{"payment", p})
	}
	for _, r := range l.Refunds {
		rows = append(rows, refundRow{"refund", r})
	}
	for _, c := range l.Callbacks {
		rows = append(rows, callbackRow{"callback", c})
	}
	return json.Marshal(rows)
}

// anyRow has the fields of all kinds of rows, so that a ledger is read in one
// pass: who delivers callbacks reads it often.
type anyRow struct {
	Row       string          `json:"row"`
	PaymentID string          `json:"payment_id"`
	Reference string          `json:"reference"`
	Intent    string          `json:"intent"`
	Amount    int64           `json:"amount"`
	Currency  string          `json:"currency"`
	Card      string          `json:"card"`
	Status    string          `json:"status"`
	Captured  int64           `json:"captured"`
	CreatedMS float64         `json:"created_ms"`
	DecidedMS float64         `json:"decided_ms"`
	Key       string          `json:"key"`
	Posts     int             `json:"posts"`
	RefundID  string          `json:"refund_id"`
	Keys      []string        `json:"keys"`
	Accepted  int             `json:"accepted"`
	AtMS      float64         `json:"at_ms"`
	Seq       int             `json:"seq"`
	EventID   string          `json:"event_id"`
	Type      string          `json:"type"`
	Body      json.RawMessage `json:"body"`
	Due       bool            `json:"due"`
	Lost      bool            `json:"lost"`
	Copies    int             `json:"copies"`
	Reversed  bool            `json:"reversed"`
	Crossed   bool            `json:"crossed"`
}

// UnmarshalJSON reads what GET /__double/ledger answers. The bodies of the
// callbacks come out byte for byte.
func (l *Ledger) UnmarshalJSON(text []byte) error {
	var rows []anyRow
	if err := json.Unmarshal(text, &rows); err != nil {
		return fmt.Errorf("read the ledger of payments: %w", err)
	}
	*l = Ledger{}
	for i, r := range rows {
		switch r.Row {
		case "payment":
			l.Payments = append(l.Payments, Payment{
				r.PaymentID, r.Reference, r.Intent, r.Amount, r.Currency, r.Card, r.Status, r.Captured, r.CreatedMS, r.DecidedMS, r.Key, r.Posts,
			})
		case "refund":
			l.Refunds = append(l.Refunds, Refund{r.RefundID, r.PaymentID, r.Amount, r.Currency, r.Keys, r.Posts, r.Accepted, r.AtMS})
		case "callback":
			l.Callbacks = append(l.Callbacks, Callback{
				r.Seq, r.EventID, r.Type, r.PaymentID, r.Card, r.Body, r.Due, r.Lost, r.Copies, r.Reversed, r.Crossed, r.AtMS,
			})
		default:
			return fmt.Errorf("read the ledger of payments, row %d: %q is none of payment, refund, callback", i+1, r.Row)
		}
	}
	return nil
}

// LedgerOf reads the ledger from a run's stored rows ("ledger:payments"). The
// bodies of callbacks say the same there, but no longer in the same bytes.
func LedgerOf(rows []harness.Row) (l Ledger, err error) {
	text, err := json.Marshal(rows)
	if err != nil {
		return l, fmt.Errorf("read the ledger of payments: %w", err)
	}
	err = l.UnmarshalJSON(text)
	return l, err
}

// books are the ledger as the double keeps it, with the ways to find a row.
type books struct {
	payments    []Payment
	refunds     []Refund
	callbacks   []Callback
	byReference map[string][]int // indices of payments, oldest first
	references  []string         // in order of their first payment
	byPayment   map[string]int   // payment id -> index of payments
	refundOf    map[string]int   // payment id -> index of refunds
}

func newBooks() books {
	return books{byReference: map[string][]int{}, byPayment: map[string]int{}, refundOf: map[string]int{}}
}

// ledger gives rows that later events don't change.
func (b *books) ledger() Ledger {
	return Ledger{slices.Clone(b.payments), slices.Clone(b.refunds), slices.Clone(b.callbacks)}
}

// clone gives books that can be gone back to.
func (b *books) clone() books {
	byReference := make(map[string][]int, len(b.byReference))
	for reference, list := range b.byReference {
		byReference[reference] = slices.Clone(list)
	}
	return books{
		slices.Clone(b.payments), slices.Clone(b.refunds), slices.Clone(b.callbacks),
		byReference, slices.Clone(b.references), maps.Clone(b.byPayment), maps.Clone(b.refundOf),
	}
}
