package telescope

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
)

// slotCalls reads the calls on slots from a record: writes, reads of slots,
// and of account pages what they say of slots that the member tried to book.
// They are known by method and path, whatever their kind. Slots are taken to
// be open and free when the record begins.
//
// Left out is what says nothing of a slot and certainly had no effect: requests
// that were never sent, refusals of which nothing is stored, an exceeded quota.
// 5xx and no answer are of unknown outcome; an answer that can't be read counts
// as none. Slots that were imported and nothing else are no history.
func slotCalls(rec harness.Record) ([]linear.Call, error) {
	b := callsBuilder{facts: factsOf(rec), sent: invocations(rec), tried: map[string]bool{}, acted: map[string]bool{}, claimed: map[string]bool{}, depends: map[string]bool{}}
	for _, l := range logicalWrites(rec, b.sent) {
		if err := b.write(l); err != nil {
			return nil, err
		}
	}
	for _, op := range rec.History.Operations {
		b.read(op)
	}
	b.guess()
	return slices.DeleteFunc(b.calls, func(c linear.Call) bool { return !b.acted[c.Key] }), nil
}

// A callsBuilder makes the model's calls of operations.
type callsBuilder struct {
	facts   facts
	sent    map[string]time.Duration
	calls   []linear.Call
	tried   map[string]bool // member and slot of each booking
	acted   map[string]bool // slots of calls that are no import
	claimed map[string]bool // bookings that were answered with 201
	depends map[string]bool // member and slot of answers that depend on whose a booking is
}

func slotKey(id int64) string { return fmt.Sprintf("slot %d", id) }

// write makes the calls of one logical write: one, or one for each slot of an import.
func (b *callsBuilder) write(l logical) error {
	op := l.first
	if l.decided != nil {
		op = *l.decided
	}
	in := slotInput{Do: operationType(op)}
	switch in.Do {
	case kindBook:
		in.Member = op.Caller
		b.tried[op.Caller+" "+slotKey(slotOf(op))] = true
	case kindImport:
		b.imports(l, op)
		return nil
	case kindCancel, "resolve":
		return b.onBooking(l, op, in)
	}
	b.add(l, op, slotOf(op), in)
	return nil
}

// onBooking makes the call of a write that names a booking and not its slot.
func (b *callsBuilder) onBooking(l logical, op harness.Operation, in slotInput) error {
	if in.Do == "resolve" {
		if in.Do = resolutionOf(op); in.Do == "" {
			return nil // the server can't have understood it
		}
	}
	path := strings.TrimSuffix(op.Path, "/resolution")
	in.Booking = path[strings.LastIndex(path, "/")+1:]
	id, known := b.facts.slot[in.Booking]
	switch {
	case known:
		b.add(l, op, id, in)
	case l.decided == nil && in.Do != "keep":
		return fmt.Errorf("operation %s (%s %s) has no answer, and no other says of which slot that booking is", op.ID, op.Method, op.Path)
	}
	return nil
}

// resolutionOf is what staff decided of a flagged reservation: release, keep,
// or "" for what is neither.
func resolutionOf(op harness.Operation) string {
	var body struct {
		Decision string `json:"decision"`
	}
	if err := json.Unmarshal(op.Input, &body); err != nil || body.Decision != "release" && body.Decision != "keep" {
		return ""
	}
	return body.Decision
}

// imports makes a call for each slot of an import. That it is one transaction
// is not looked at here.
func (b *callsBuilder) imports(l logical, op harness.Operation) {
	for _, s := range importedSlots(op) {
		b.add(l, op, s.SlotID, slotInput{Do: kindImport, State: s.State})
	}
}

// refusals are the stored refusals that say something of the slot.
var refusals = []string{"slot-taken", "slot-closed", "already-cancelled", "already-closed", "already-open"}

// add makes a call of a logical write on one slot.
func (b *callsBuilder) add(l logical, op harness.Operation, slot int64, in slotInput) {
	c := linear.Call{ID: op.ID, Process: op.Process, Key: slotKey(slot), Input: in, Call: l.sent, Outcome: harness.Info}
	if l.copies > 1 {
		c.Process = -1 // of whoever sent a copy
	}
	if l.decided != nil {
		out, says := answerOf(op, in)
		if !says {
			return
		}
		if in.Do == kindBook && out.Told == toldDone {
			b.claimed[out.Booking] = true
		} else if in.Do == kindBook {
			in.Member = "" // whoever it is, a refusal says the same
			c.Input = in
		}
		c.Output, c.Return, c.Outcome = out, op.Answered, op.Outcome
	}
	if in.Do != kindImport {
		b.acted[c.Key] = true
	}
	c.Text = writeText(op, in, c.Output, l.copies)
	b.calls = append(b.calls, c)
}

// answerOf reads the answer that decided a write; says is false when it says
// nothing of the slot.
func answerOf(op harness.Operation, in slotInput) (out slotAnswer, says bool) {
	if op.Status >= 400 {
		out.Told = problemType(op)
		return out, slices.Contains(refusals, out.Told)
	}
	out.Told = toldDone
	body, _ := decisionOf(op)
	switch in.Do {
	case kindBook:
		out.Booking = body.Booking
	case kindClose:
		out.Booking = body.one
	case kindImport:
		for _, id := range body.many {
			out.Booking += id + ","
		}
	}
	return out, true
}

// read makes the calls of a read of a slot or an account page.
func (b *callsBuilder) read(op harness.Operation) {
	if op.Method != "GET" || op.Status != 200 || op.Answered == 0 {
		return
	}
	if op.Path == "/telescope/account/reservations" {
		b.account(op)
		return
	}
	var body struct {
		State    string  `json:"state"`
		Reserved bool    `json:"reserved"`
		Mine     bool    `json:"mine"`
		Booking  *string `json:"booking_id"`
	}
	id := slotOf(op)
	if id == 0 || op.Decode(&body) != nil {
		return
	}
	in, out := slotInput{Do: kindRead}, slotAnswer{Told: toldDone, State: body.State, Reserved: body.Reserved, Mine: body.Mine}
	who := "somebody"
	if body.Booking != nil {
		out.Booking, who = *body.Booking, brief(*body.Booking)
	}
	if body.Reserved && !body.Mine {
		in.Member = op.Caller
		b.depends[op.Caller+" "+slotKey(id)] = true
	}
	text := fmt.Sprintf("read by %s -> %s and ", op.Caller, body.State)
	if body.Reserved {
		text += "held by " + who
	} else {
		text += "free"
	}
	b.observe(op, id, in, out, text)
}

// account makes a call for each slot that the member ever tried to book.
func (b *callsBuilder) account(op harness.Operation) {
	var body struct {
		Reservations []struct {
			Booking string `json:"booking_id"`
			Slot    int64  `json:"slot_id"`
			State   string `json:"state"`
		} `json:"reservations"`
	}
	if op.Decode(&body) != nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(b.tried)) {
		member, name, _ := strings.Cut(key, " ")
		if member != op.Caller {
			continue
		}
		in, out := slotInput{Do: kindAccount, Member: op.Caller}, slotAnswer{Told: toldDone}
		text := fmt.Sprintf("account of %s -> has no booking of it", op.Caller)
		for _, r := range body.Reservations {
			if slotKey(r.Slot) == name {
				in.Member, out.Booking, out.State = "", r.Booking, "open"
				if r.State == "flagged" {
					out.State = "closed"
				}
				text = fmt.Sprintf("account of %s -> has %s, %s", op.Caller, brief(r.Booking), r.State)
			}
		}
		b.depends[key] = true
		id := slotOf(harness.Operation{Path: "/telescope/slots/" + strings.TrimPrefix(name, "slot ")})
		b.observe(op, id, in, out, text)
	}
}

func (b *callsBuilder) observe(op harness.Operation, slot int64, in slotInput, out slotAnswer, text string) {
	key := slotKey(slot)
	b.acted[key] = true
	b.calls = append(b.calls, linear.Call{
		ID: op.ID, Process: op.Process, Key: key, Input: in, Output: out, Call: b.sent[op.ID], Return: op.Answered, Outcome: op.Outcome, Text: text,
	})
}

// guess gives bookings of unknown outcome the ids that they may have, and
// forgets their members where no answer depends on them: the fewer differ, the
// quicker the search.
func (b *callsBuilder) guess() {
	for i, c := range b.calls {
		in := c.Input.(slotInput)
		if c.Outcome != harness.Info || in.Do != kindBook {
			continue
		}
		for _, id := range b.facts.named[c.Key] {
			if owner := b.facts.owner[id]; !b.claimed[id] && (owner == "" || in.Member == "" || owner == in.Member) {
				in.IDs += id + ","
			}
		}
		if !b.depends[in.Member+" "+c.Key] {
			in.Member = ""
		}
		b.calls[i].Input = in
	}
}

// writeText says what was asked and answered.
func writeText(op harness.Operation, in slotInput, output any, copies int) string {
	what := in.Do
	switch {
	case in.Booking != "":
		what += " of " + brief(in.Booking)
	case in.Do == kindImport:
		what += " as " + in.State
	}
	answer := word(op)
	if op.Status == 0 {
		answer = "no answer"
	}
	if out, ok := output.(slotAnswer); ok && out.Told == toldDone {
		switch {
		case in.Do == kindBook:
			answer += " " + brief(out.Booking)
		case in.Do == kindClose && out.Booking == "":
			answer += ", nobody had it"
		case in.Do == kindClose:
			answer += ", " + brief(out.Booking) + " flagged"
		}
	}
	text := fmt.Sprintf("%s by %s -> %s", what, op.Caller, answer)
	if copies > 1 {
		text += fmt.Sprintf(" (%d copies)", copies)
	}
	return text
}
