package telescope

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/stubs/email"
)

// mailSubject marks the note of the mail that a crash struck.
const mailSubject = "mail"

// eventOf is the event id in the body of a call of the provider.
func eventOf(c harness.UpstreamCall) string {
	var body struct {
		EventID string `json:"event_id"`
	}
	if json.Unmarshal([]byte(c.Request), &body) != nil {
		return ""
	}
	return body.EventID
}

// mailRules say what a scenario does to mails.
type mailRules struct {
	refused  string // kind that is answered 422 for good: its events are parked
	attempts int    // that a refused one has
	forgets  bool   // events may be lost that the provider had taken (asynchronous replication)
}

// owed are the events whose member is told by mail.
var owed = []string{"BOOKED", "CANCELLED", "FLAGGED"}

// A letter is one event with what became of its mail.
type letter struct {
	id, kind, to, booking string
	slot, seq             float64
	delivered, parked     bool
	entry                 harness.Row // of the provider's ledger, nil for none
	message               string      // that we know of, "" for none
	calls                 int
}

// lettersOf joins our events with the provider's ledger and our rows of what
// it has taken; strangers are entries of the ledger without an event.
func lettersOf(rec harness.Record) (list []*letter, strangers []harness.Row, ok bool) {
	outbox, ok1 := rec.Find("table:outbox")
	known, ok2 := rec.Find("table:email_deliveries")
	ledger, ok3 := rec.Find("ledger:" + email.Name)
	if !ok1 || !ok2 || !ok3 {
		return nil, nil, false
	}
	byID := map[string]*letter{}
	for _, r := range outbox.Rows {
		payload, _ := r["payload"].(map[string]any)
		l := &letter{id: text(r, "event_id"), delivered: r["delivered_at"] != nil, parked: r["parked_at"] != nil}
		l.slot, _ = r["slot_id"].(float64)
		l.seq, _ = r["seq"].(float64)
		l.kind, l.to, l.booking = text(payload, "event"), text(payload, "member"), text(payload, "booking_id")
		byID[l.id] = l
		list = append(list, l)
	}
	for _, r := range known.Rows {
		if l := byID[text(r, "event_id")]; l != nil {
			l.message = text(r, "message_id")
		}
	}
	for _, r := range ledger.Rows {
		if l := byID[text(r, "event_id")]; l != nil {
			l.entry = r
		} else {
			strangers = append(strangers, r)
		}
	}
	for _, c := range rec.Calls(email.Name, "POST", "/messages") {
		if l := byID[eventOf(c)]; l != nil && c.Forwarded != 0 {
			l.calls++
		}
	}
	return list, strangers, true
}

// everyEventMailed is T-I8, joined from our events, the provider's ledger and
// our own rows of deliveries.
func everyEventMailed(rules mailRules) harness.Check {
	const doc = "every event that owes a mail reached the provider under its id, as what it says, and nothing else did"
	return funcCheck("T-I8", doc, "email_checks.go", true, func(rec harness.Record) harness.Verdict {
		letters, strangers, ok := lettersOf(rec)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the events, the deliveries or the provider's ledger could not be read")
		}
		var wrong []harness.Evidence
		sent, parked, repeated := 0, 0, 0
		for _, l := range letters {
			if problem := rules.problemOf(l); problem != "" {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %s, %s of slot %.0f: %s", l.id, l.kind, l.slot, problem)})
			}
			if l.entry != nil {
				sent++
				if n, _ := l.entry["deliveries"].(float64); n > 1 {
					repeated++
				}
			}
			if l.parked {
				parked++
			}
		}
		for _, r := range strangers {
			if !rules.forgets {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("the provider has a mail under %v, and there is no such event: %v", r["event_id"], r)})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d differ; %s", doc, len(wrong), wrong[0].Text)
		case sent == 0:
			return harness.Undecided(harness.ReasonVacuous, "no mail was sent")
		}
		return harness.Passed("%s: %d sent, %d of them more than once; %d parked", doc, sent, repeated, parked)
	})
}

// problemOf says what is wrong with an event, "" for nothing.
func (r mailRules) problemOf(l *letter) string {
	switch {
	case !slices.Contains(owed, l.kind):
		switch {
		case l.entry != nil || l.calls > 0:
			return "a mail was sent that nobody is owed"
		case !l.delivered:
			return "it is not marked as delivered"
		}
		return ""
	case l.kind == r.refused:
		switch {
		case l.delivered || l.entry != nil:
			return "the provider refuses it, and it counts as delivered"
		case !l.parked:
			return "the provider refuses it, and it is not parked"
		case l.calls != r.attempts:
			return fmt.Sprintf("it was sent %d times before it was parked, want %d", l.calls, r.attempts)
		}
		return ""
	case l.parked:
		return "it is parked"
	case l.entry == nil && l.delivered:
		return "it is marked as delivered, and the provider never had it"
	case l.entry == nil:
		return "the provider never had it"
	case !l.delivered:
		return "the provider has it, and it is not marked as delivered"
	case l.message != text(l.entry, "message_id"):
		return fmt.Sprintf("stored is the message %q, the provider's is %q", l.message, text(l.entry, "message_id"))
	case text(l.entry, "to") != l.to || text(l.entry, "kind") != l.kind || l.entry["slot_id"] != l.slot || text(l.entry, "booking_id") != l.booking:
		return fmt.Sprintf("the mail says something else: %v", l.entry)
	}
	return ""
}

// waitingSubject marks the note that events were left after a long wait.
const waitingSubject = "events are left"

// parkedInTime is the other side of T-I8, which no rest has to be waited for:
// there is none as long as an event is tried for ever, or waits behind one
// that is parked.
func parkedInTime(refused string, attempts int) harness.Check { //nolint:unparam // which kind is refused is the scenario's word
	const doc = "an event that the provider refuses is given up after its attempts, and the later ones of its slot wait for it no longer"
	return funcCheck("T-I8.parked", doc, "email_checks.go", false, func(rec harness.Record) harness.Verdict {
		letters, _, ok := lettersOf(rec)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the events, the deliveries or the provider's ledger could not be read")
		}
		waited := slices.ContainsFunc(rec.History.Events, func(e harness.Event) bool { return e.Kind == harness.EventNote && e.Subject == waitingSubject })
		parked := map[float64]*letter{} // by slot
		for _, l := range letters {
			if l.parked {
				parked[l.slot] = l
			}
		}
		var wrong []harness.Evidence
		for _, l := range letters {
			problem, before := "", parked[l.slot]
			if l.kind == refused && l.calls > attempts {
				problem = fmt.Sprintf("it was sent %d times, at most %d are allowed", l.calls, attempts)
			} else if waited && before != nil && before.seq < l.seq && !l.delivered && !l.parked && l.calls == 0 {
				problem = fmt.Sprintf("it was never sent, behind the parked %s", before.kind)
			}
			if problem != "" {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("event %s, %s of slot %.0f: %s", l.id, l.kind, l.slot, problem)})
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d are not so; %s", doc, len(wrong), wrong[0].Text)
		case len(parked) == 0 || waited:
			return harness.Undecided(harness.ReasonVacuous, "%d slots have a parked event; more was to come, or be left: %t", len(parked), waited)
		}
		return harness.Passed("%s: %d parked", doc, len(parked))
	})
}

// mailsInOrder: the mails of one slot reached the provider in the order of its
// history. The ledger is in the order of the first deliveries.
func mailsInOrder() harness.Check {
	const doc = "the mails of one slot reached the provider in the order of its history"
	return funcCheck("T-I8.order", doc, "email_checks.go", true, func(rec harness.Record) harness.Verdict {
		letters, _, ok := lettersOf(rec)
		ledger, _ := rec.Find("ledger:" + email.Name)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the events or the provider's ledger could not be read")
		}
		byID := map[string]*letter{}
		for _, l := range letters {
			byID[l.id] = l
		}
		last := map[float64]*letter{}
		var wrong []harness.Evidence
		pairs := 0
		for _, r := range ledger.Rows {
			l := byID[text(r, "event_id")]
			if l == nil {
				continue
			}
			if before := last[l.slot]; before != nil {
				pairs++
				if before.seq > l.seq {
					wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("slot %.0f: %s, its number %.0f, arrived after %s, its number %.0f", l.slot, l.kind, l.seq, before.kind, before.seq)})
				}
			}
			last[l.slot] = l
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d did not", doc, len(wrong))
		case pairs == 0:
			return harness.Undecided(harness.ReasonVacuous, "no slot had two mails")
		}
		return harness.Passed("%s: %d that came after another", doc, pairs)
	})
}

// sentTwice is the price of at least once: the mail that was struck is in the
// ledger with two deliveries or more under one id, as one message.
func sentTwice() harness.Check {
	const doc = "the mail that the crash made uncertain was sent again under its id, and is one message"
	return funcCheck("T-I8.twice", doc, "email_checks.go", true, func(rec harness.Record) harness.Verdict {
		i := slices.IndexFunc(rec.History.Events, func(e harness.Event) bool { return e.Kind == harness.EventNote && e.Subject == mailSubject })
		letters, _, ok := lettersOf(rec)
		switch {
		case i < 0:
			return harness.Undecided(harness.ReasonVacuous, "no mail was struck")
		case !ok:
			return harness.Undecided(harness.ReasonEnvironment, "the events, the deliveries or the provider's ledger could not be read")
		}
		note := rec.History.Events[i].Attrs
		at := slices.IndexFunc(letters, func(l *letter) bool { return l.id == note["event"] })
		var problems []string
		deliveries := 0.0
		switch {
		case at < 0:
			problems = append(problems, "it is no event of ours")
		case letters[at].entry == nil:
			problems = append(problems, "the provider does not have it")
		default:
			if deliveries, _ = letters[at].entry["deliveries"].(float64); deliveries < 2 {
				problems = append(problems, fmt.Sprintf("the provider took it %.0f times, want 2 or more", deliveries))
			}
		}
		if note["known"] != "false" {
			problems = append(problems, "it counted as sent before the provider's answer was there")
		}
		if len(problems) > 0 {
			return harness.Violated([]harness.Evidence{{Text: fmt.Sprintf("event %s: %s", note["event"], strings.Join(problems, "; "))}}, "%s: %s", doc, problems[0])
		}
		return harness.Passed("%s: %.0f deliveries, %s", doc, deliveries, letters[at].message)
	})
}
