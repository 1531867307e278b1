package telescope

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
)

// operationType is the type of the operation that a write is, as the server
// scopes its keys; "" for reads.
func operationType(op harness.Operation) string {
	switch {
	case op.Method == "DELETE":
		return "cancel"
	case op.Method != "POST":
		return ""
	case strings.HasSuffix(op.Path, "/reservations"):
		return "book"
	case strings.HasSuffix(op.Path, "/closure"):
		return "close"
	case strings.HasSuffix(op.Path, "/reopening"):
		return "reopen"
	case strings.HasSuffix(op.Path, "/maintenance-imports"):
		return "import"
	case strings.HasSuffix(op.Path, "/resolution"):
		return "resolve"
	}
	return ""
}

// clockMoves are the instants at which the servers' time was moved. What holds
// for copies of a request holds between two of them; what becomes of a key
// after hours and days is for the scenarios that move the time.
func clockMoves(rec harness.Record) []time.Duration {
	var at []time.Duration
	for _, e := range rec.History.Events {
		if e.Kind == harness.EventFault && e.Subject == "clock" {
			at = append(at, e.At)
		}
	}
	return at
}

// scope names the key that a write was sent with: whose, for what, and between
// which moves of the clock. "" for what has none.
func scope(op harness.Operation, moves []time.Duration) string {
	kind := operationType(op)
	if op.Key == "" || op.Caller == "" || kind == "" {
		return ""
	}
	return fmt.Sprintf("%s %s %s %d", op.Caller, kind, op.Key, epoch(op, moves))
}

// epoch is how often the clock was moved before the request.
func epoch(op harness.Operation, moves []time.Duration) int {
	n := 0
	for _, at := range moves {
		if at <= op.Intended {
			n++
		}
	}
	return n
}

// stored reports whether an answer is one that the server keeps for its key.
func stored(op harness.Operation) bool {
	if op.Status == 409 {
		t := problemType(op)
		return t != "in-progress" && t != "retry-window-over"
	}
	return op.Status >= 200 && op.Status < 300
}

// sameAnswers is T-I3: whatever is retried is told the same, byte for byte.
// Answers that decide nothing (in progress, busy) may come between. Where
// nothing was told twice it holds idly; demanded, it is then Unknown.
func sameAnswers(demanded bool) harness.Check {
	const doc = "every copy of a request is told the same, status and body, byte for byte"
	return funcCheck("T-I3", doc, "keys.go", false, func(rec harness.Record) harness.Verdict {
		moves := clockMoves(rec)
		first := map[string]harness.Operation{} // the answer that was stored, by request
		answers := 0
		var wrong []harness.Evidence
		for _, op := range rec.History.Operations {
			if scope(op, moves) == "" || !stored(op) {
				continue
			}
			answers++
			request := scope(op, moves) + " " + op.Path + " " + string(op.Input)
			one, seen := first[request]
			if !seen {
				first[request] = op
			} else if one.Status != op.Status || one.Output != op.Output {
				wrong = append(wrong, differ(one, op))
			}
		}
		for _, op := range rec.History.Operations { // a key that has its answer has no other
			one, seen := first[scope(op, moves)+" "+op.Path+" "+string(op.Input)]
			decided := op.Status == 400 || op.Status == 404 || op.Status == 422 // 401, 403, 413 and 415 come before any key is looked at
			if seen && decided && op.Sent > one.Answered && one.Answered != 0 {
				wrong = append(wrong, differ(one, op))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d answers differ from the first", doc, len(wrong), answers)
		case answers == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no write with a key was answered")
		case demanded && answers == len(first):
			return harness.Undecided(harness.ReasonVacuous, "%d requests were answered, none of them repeatedly", answers)
		case answers == len(first):
			return harness.Passed("%s: %d answers to %d requests, none repeated", doc, answers, len(first))
		}
		return harness.Passed("%s: %d answers to %d requests", doc, answers, len(first))
	})
}

func differ(one, other harness.Operation) harness.Evidence {
	e := about(one, "one copy")
	e.Text += "\n" + about(other, "another").Text
	e.Ops = append(e.Ops, other.ID)
	return e
}

// oneEffect is the other side of T-I3: of all requests with one key at most one
// left its mark in the history.
func oneEffect() harness.Check {
	const doc = "a key has its effect once, however often it is sent"
	return funcCheck("T-I3.effect", doc, "keys.go", true, func(rec harness.Record) harness.Verdict {
		history, ok := rec.Find("table:audit_history")
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the history could not be read")
		}
		moves := clockMoves(rec)
		scopes := map[string]string{} // of each operation
		for _, op := range rec.History.Operations {
			if s := scope(op, moves); s != "" {
				scopes[op.ID] = s
			}
		}
		by := map[string]string{} // scope -> the operation that the history names
		var wrong []harness.Evidence
		for _, r := range history.Rows {
			op := text(r, "overbook_op")
			s, known := scopes[op]
			if !known {
				continue
			}
			if other, seen := by[s]; seen && other != op {
				wrong = append(wrong, harness.Evidence{Text: fmt.Sprintf("the key of %s: %s and %s both changed something", s, other, op), Ops: []string{other, op}})
			}
			by[s] = op
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d did not", doc, len(wrong))
		case len(by) == 0:
			return harness.Undecided(harness.ReasonVacuous, "the history names no operation with a key")
		}
		return harness.Passed("%s: %d keys", doc, len(by))
	})
}

// answeredIsStored is T-I4: what a client was told is in the database, in the
// history for ever and as the result of its key. Where nobody was answered 201
// it holds idly; demanded, it is then Unknown.
func answeredIsStored(demanded bool) harness.Check {
	const doc = "each 201 that a client was answered has its BOOKED in the history and is stored as its key's result"
	return funcCheck("T-I4", doc, "keys.go", true, func(rec harness.Record) harness.Verdict {
		history, ok := rec.Find("table:audit_history")
		results, ok2 := rec.Find("table:booking_operations")
		if !ok || !ok2 {
			return harness.Undecided(harness.ReasonEnvironment, "the history or the results could not be read")
		}
		made, bodies := map[string]bool{}, map[string]string{}
		for _, r := range history.Rows {
			if r["event"] == "BOOKED" {
				made[fmt.Sprintf("%v %v %v", r["booking_id"], r["member"], r["slot_id"])] = true
			}
		}
		for _, r := range results.Rows {
			bodies[fmt.Sprintf("%v %v %v %v", r["principal"], r["type"], r["key"], r["status"])] = bytea(text(r, "body"))
		}
		moved := len(clockMoves(rec)) > 0 // then results may be gone, or be those of a key's second life
		var wrong []harness.Evidence
		answered := 0
		for _, op := range rec.History.Operations {
			if operationType(op) != "book" || op.Status != 201 {
				continue
			}
			answered++
			var b booking
			err := op.Decode(&b)
			body, kept := bodies[fmt.Sprintf("%s book %s 201", op.Caller, op.Key)]
			switch {
			case err != nil || !made[fmt.Sprintf("%s %s %v", b.BookingID, op.Caller, float64(b.SlotID))]:
				wrong = append(wrong, about(op, "not in the history"))
			case !kept && !moved:
				wrong = append(wrong, about(op, "no stored result"))
			case body != op.Output && !moved:
				wrong = append(wrong, about(op, "stored is another answer, "+body))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d have not", doc, len(wrong), answered)
		case answered == 0 && len(rec.History.Operations) == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody was answered")
		case answered == 0 && demanded:
			return harness.Undecided(harness.ReasonVacuous, "nobody was answered 201")
		case answered == 0:
			return harness.Passed("%s: nobody was answered 201", doc)
		}
		return harness.Passed("%s: %d", doc, answered)
	})
}

// bytea reads Postgres' text form of bytes; what is none reads as nothing.
func bytea(text string) string {
	b, err := hex.DecodeString(strings.TrimPrefix(text, `\x`))
	if err != nil {
		return ""
	}
	return string(b)
}
