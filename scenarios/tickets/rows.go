package tickets

import (
	"fmt"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/payments"
)

// text is a text column, "" when it is null.
func text(r harness.Row, column string) string {
	s, _ := r[column].(string)
	return s
}

// whole is a whole number, 0 when it is null: amounts are minor units and far
// below what a float64 holds exactly.
func whole(r harness.Row, column string) int64 {
	n, _ := r[column].(float64)
	return int64(n)
}

// money is an amount of a currency, in minor units.
type money struct {
	amount   int64
	currency string
}

func (m money) String() string { return fmt.Sprintf("%d %s", m.amount, m.currency) }

func moneyOf(r harness.Row, amount, currency string) money {
	return money{whole(r, amount), text(r, currency)}
}

// A ledgers is both sides of the money: the provider's ledger, and our rows.
type ledgers struct {
	provider payments.Ledger
	holds    map[string]harness.Row // by hold id
	seats    map[string]harness.Row // by the hold that has it
	charges  []harness.Row
	byID     map[string]harness.Row // charges
	paid     map[string]harness.Row // charges, by payment id
	returned map[string]payments.Refund
}

// ledgersOf reads both sides from a record; what could not be read is said.
func ledgersOf(rec harness.Record) (l ledgers, missing string) {
	for _, query := range []string{"ledger:" + payments.Name, "table:holds", "table:seats", "table:charges", "table:refunds"} {
		if _, ok := rec.Find(query); !ok {
			return l, query + " could not be read"
		}
	}
	rows := func(name string) []harness.Row { found, _ := rec.Find(name); return found.Rows }
	var err error
	if l.provider, err = payments.LedgerOf(rows("ledger:" + payments.Name)); err != nil {
		return l, err.Error()
	}
	l.holds, l.seats, l.byID, l.paid, l.returned = map[string]harness.Row{}, map[string]harness.Row{}, map[string]harness.Row{}, map[string]harness.Row{}, map[string]payments.Refund{}
	for _, r := range rows("table:holds") {
		l.holds[text(r, "hold_id")] = r
	}
	for _, r := range rows("table:seats") {
		if id := text(r, "hold_id"); id != "" {
			l.seats[id] = r
		}
	}
	l.charges = rows("table:charges")
	for _, r := range l.charges {
		l.byID[text(r, "charge_id")] = r
		if id := text(r, "payment_id"); id != "" {
			l.paid[id] = r
		}
	}
	for _, r := range l.provider.Refunds {
		l.returned[r.PaymentID] = r
	}
	return l, ""
}

// bought says whether the payment bought a seat: its charge has won a confirmed
// hold, whose seat is sold to it, for exactly what was captured.
func (l ledgers) bought(p payments.Payment) bool {
	c, known := l.paid[p.PaymentID]
	if !known {
		return false
	}
	h := l.holds[text(c, "hold_id")]
	s := l.seats[text(c, "hold_id")]
	return text(h, "winning_charge") == text(c, "charge_id") && text(h, "state") == "CONFIRMED" && text(s, "state") == "SOLD" &&
		moneyOf(h, "amount", "currency") == money{p.Captured, p.Currency}
}

// opOf is the operation that made the charge of a payment, as evidence.
func (l ledgers) opOf(paymentID string) []string {
	if op := text(l.paid[paymentID], "overbook_op"); op != "" {
		return []string{op}
	}
	return nil
}
