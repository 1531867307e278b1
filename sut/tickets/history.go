package tickets

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// What a transition is of.
const (
	subjectHold   = "hold"
	subjectCharge = "charge"
	subjectRefund = "refund"
	subjectSeat   = "seat"
)

// A change is one transition, to be written down.
type change struct {
	subject, id      string
	from, to, reason string // from is "" when it began
	by               cause
}

// note keeps a transition for [order.writeHistory].
func (o *order) note(subject, id, from, to, reason string, by cause) {
	o.changes = append(o.changes, change{subject, id, from, to, reason, by})
}

// writeHistory gives every transition of the transaction the order's next
// number, an audit row and an event for those outside, both with that number.
func (o *order) writeHistory(ctx context.Context) error {
	n := len(o.changes)
	if n == 0 {
		return nil
	}
	now := o.cfg.Clock.Now()
	seqs := make([]int32, n)
	columns := make([][]string, 7) // subject, id, from, to, reason, actor, op
	types, payloads := make([]string, n), make([]string, n)
	for i, c := range o.changes {
		o.hold.version++
		seqs[i] = o.hold.version
		for at, v := range []string{c.subject, c.id, c.from, c.to, c.reason, c.by.actor, c.by.op} {
			columns[at] = append(columns[at], v)
		}
		types[i] = c.subject + "." + strings.ToLower(c.to)
		payload, err := o.payload(c)
		if err != nil {
			return err
		}
		payloads[i] = payload
	}
	o.changes = nil
	if err := o.one(ctx, "count its transitions", sqlVersion, o.hold.id, o.hold.version); err != nil {
		return err
	}
	if _, err := o.tx.Exec(ctx, sqlAudit, o.hold.id, now, seqs, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6]); err != nil {
		return fmt.Errorf("order %s: write its audit rows: %w", o.hold.id, err)
	}
	if _, err := o.tx.Exec(ctx, sqlEvents, o.hold.id, now, seqs, types, payloads); err != nil {
		return fmt.Errorf("order %s: write its events: %w", o.hold.id, err)
	}
	return nil
}

// payload is what an event tells those outside.
func (o *order) payload(c change) (string, error) {
	doc, err := json.Marshal(struct {
		Hold        string `json:"hold_id"`
		Show        int64  `json:"show_id"`
		Seat        string `json:"seat"`
		Login       string `json:"login"`
		Subject     string `json:"subject"`
		ID          string `json:"subject_id"`
		From        string `json:"from"`
		To          string `json:"to"`
		Reason      string `json:"reason"`
		Actor       string `json:"actor"`
		Traceparent string `json:"traceparent"`
		Op          string `json:"op"`
	}{o.hold.id.String(), o.hold.show, o.hold.seat, o.hold.login, c.subject, c.id, c.from, c.to, c.reason, c.by.actor, c.by.traceparent, c.by.op})
	return string(doc), err
}
