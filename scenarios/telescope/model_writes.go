package telescope

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// A logical write is all copies of one request: same caller, type, key, path
// and body. The server decides it once, so it takes effect at most once: after
// the first copy was sent, and before the first answer that decides it came.
// What the other copies were told is not looked at here, nor whether the key
// had a second effect: that is T-I3's business.
type logical struct {
	first   harness.Operation
	decided *harness.Operation // its answer came first of those that decide it; nil: unknown outcome
	sent    time.Duration      // no copy was sent earlier
	copies  int                // those that may have taken effect, or tell what it was
}

// logicalWrites sorts the writes of a record into logical ones, in the order
// of their first copies. A copy that certainly had no effect and tells nothing
// (401, 404, in progress) is no part of any. Between moves of the clock a key is
// good for one request; what a later copy was answered in the same words is the
// stored answer of the earlier one.
func logicalWrites(rec harness.Record, sent map[string]time.Duration) []logical {
	moves := clockMoves(rec)
	var list []logical
	at := map[string]int{}
	for _, op := range rec.History.Operations {
		decides := decidesWrite(op)
		if operationType(op) == "" || neverSent(op) || !decides && !mayHaveActed(op) {
			continue
		}
		name := op.ID
		if s := scope(op, moves); s != "" {
			name = fmt.Sprintf("%s %s %s", s, op.Path, op.Input)
		}
		i, seen := at[name]
		if !seen {
			i = len(list)
			at[name] = i
			list = append(list, logical{first: op, sent: sent[op.ID]})
		}
		l := &list[i]
		l.copies++
		l.sent = min(l.sent, sent[op.ID])
		if decides && (l.decided == nil || op.Answered < l.decided.Answered) {
			l.decided = &op
		}
	}
	told := map[string]bool{}
	return slices.DeleteFunc(list, func(l logical) bool {
		if l.decided == nil || l.decided.Key == "" {
			return false
		}
		op := l.decided
		answer := fmt.Sprintf("%s %s %s %s %s %d %s", op.Caller, operationType(*op), op.Key, op.Path, op.Input, op.Status, op.Output)
		replayed := told[answer]
		told[answer] = true
		return replayed
	})
}

func neverSent(op harness.Operation) bool { return op.Outcome == harness.Fail && op.Status == 0 }

// mayHaveActed: nobody knows, or the answer says that it was done long ago.
func mayHaveActed(op harness.Operation) bool {
	return op.Status == 0 || op.Status >= 500 || op.Status >= 200 && op.Status < 400 || problemType(op) == "retry-window-over"
}

// decidesWrite says whether the answer is one that the server keeps, and can be read.
func decidesWrite(op harness.Operation) bool {
	if !stored(op) || op.Answered == 0 {
		return false
	}
	_, ok := decisionOf(op)
	return ok
}

// A decisionBody is what the answers to writes say of bookings.
type decisionBody struct {
	Booking string          `json:"booking_id"`
	Flagged json.RawMessage `json:"flagged"`

	one  string   // flagged by a closure
	many []string // flagged by an import
}

// decisionOf reads an answer that decides a write; ok is false when it says
// that something was done and not what.
func decisionOf(op harness.Operation) (body decisionBody, ok bool) {
	if op.Status >= 400 {
		return body, problemType(op) != ""
	}
	if op.Decode(&body) != nil {
		return body, false
	}
	switch operationType(op) {
	case kindBook:
		return body, body.Booking != ""
	case kindClose:
		return body, len(body.Flagged) > 0 && json.Unmarshal(body.Flagged, &body.one) == nil
	case kindImport:
		return body, len(body.Flagged) > 0 && json.Unmarshal(body.Flagged, &body.many) == nil
	}
	return body, true
}

// invocations gives the instant before which nothing of an operation can have
// reached the server. Sent will not do, as it may be the instant after the
// system call. Intended will, but for a client that was late: it had its
// previous answer first. A handler behind HTTP/2 may start before the release of
// its burst; there, only the client's previous answer is certain.
func invocations(rec harness.Record) map[string]time.Duration {
	early := map[string]bool{}
	for _, b := range rec.History.Bursts {
		early[b.Name] = strings.HasPrefix(b.Technique, "h2")
	}
	answered := map[int][]time.Duration{}
	for _, op := range rec.History.Operations {
		if op.Answered != 0 {
			answered[op.Process] = append(answered[op.Process], op.Answered)
		}
	}
	for _, list := range answered {
		slices.Sort(list)
	}
	from := map[string]time.Duration{}
	for _, op := range rec.History.Operations {
		before := answered[op.Process]
		n, _ := slices.BinarySearchFunc(before, op.Sent, func(a, b time.Duration) int { return cmp.Or(cmp.Compare(a, b), -1) })
		previous := time.Duration(0)
		if n > 0 && before[n-1] != op.Answered {
			previous = before[n-1]
		}
		if op.Burst != "" && early[op.Burst] {
			from[op.ID] = previous
		} else {
			from[op.ID] = max(op.Intended, previous)
		}
	}
	return from
}

// importedSlots reads what an import asked for.
func importedSlots(op harness.Operation) []imported {
	var body struct {
		Slots []imported `json:"slots"`
	}
	if json.Unmarshal(op.Input, &body) != nil {
		return nil
	}
	return body.Slots
}

// facts are what answers tell of bookings beside what became of them.
type facts struct {
	slot  map[string]int64    // of a booking
	owner map[string]string   // of a booking, where an answer says it
	named map[string][]string // bookings by slot key, in order
}

// factsOf reads every answer of a record, whatever it is the answer to.
func factsOf(rec harness.Record) facts {
	f := facts{slot: map[string]int64{}, owner: map[string]string{}, named: map[string][]string{}}
	for _, op := range rec.History.Operations {
		var body any
		if op.Status < 200 || op.Status >= 300 || json.Unmarshal([]byte(op.Output), &body) != nil {
			continue
		}
		own := op.Path == "/telescope/account/reservations" || operationType(op) == kindCancel
		f.walk(body, op.Caller, own)
	}
	for id, slot := range f.slot {
		f.named[slotKey(slot)] = append(f.named[slotKey(slot)], id)
	}
	for _, op := range rec.History.Operations { // what an import flagged is of one of its slots
		body, _ := decisionOf(op)
		for _, id := range body.many {
			if _, known := f.slot[id]; known {
				continue
			}
			for _, s := range importedSlots(op) {
				f.named[slotKey(s.SlotID)] = append(f.named[slotKey(s.SlotID)], id)
			}
		}
	}
	for key, ids := range f.named {
		slices.Sort(ids)
		f.named[key] = slices.Compact(ids)
	}
	return f
}

// walk notes what the objects in an answer say of bookings. own: they are the caller's.
func (f facts) walk(v any, caller string, own bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			f.walk(e, caller, own)
		}
	case map[string]any:
		slot, _ := v["slot_id"].(float64)
		for _, field := range []string{"booking_id", "flagged"} {
			if id, ok := v[field].(string); ok && slot != 0 {
				f.slot[id] = int64(slot)
			}
		}
		if id, ok := v["booking_id"].(string); ok {
			if member, ok := v["member"].(string); ok {
				f.owner[id] = member
			} else if own || v["mine"] == true {
				f.owner[id] = caller
			}
		}
		for _, e := range v {
			f.walk(e, caller, own)
		}
	}
}
