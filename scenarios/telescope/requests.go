package telescope

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// The kinds of operations, as reports and checks know them. Others are given
// to requests that a check must tell from these.
const (
	kindBook     = "book"
	kindCancel   = "cancel"
	kindClose    = "close"
	kindReopen   = "reopen"
	kindRead     = "read" // of one slot, authoritative
	kindAccount  = "account"
	kindSchedule = "schedule"
	kindLookup   = "lookup" // of an operation
	kindImport   = "import"
)

// staffProcess is the first client of staff; members have the ones before it.
const staffProcess = 100_000

func member(n int) string { return "member-" + strconv.Itoa(n+1) }

func staff(n int) string { return "staff-" + strconv.Itoa(n+1) }

func bearer(token string) map[string]string { return answers.Bearer(token) }

// signed is the header of a write.
func signed(token, key string) map[string]string {
	h := bearer(token)
	h["Idempotency-Key"] = key
	return h
}

func slotPath(id int64) string { return fmt.Sprintf("/telescope/slots/%d", id) }

// book is the request that the races are about.
func book(process int, who string, id int64, key string) harness.Request {
	return harness.Request{
		Kind: kindBook, Process: process, Caller: who, Method: http.MethodPost, Path: slotPath(id) + "/reservations", Header: signed(who, key),
	}
}

func cancel(process int, who, booking, key string) harness.Request {
	return harness.Request{
		Kind: kindCancel, Process: process, Caller: who, Method: http.MethodDelete, Path: "/telescope/reservations/" + booking, Header: signed(who, key),
	}
}

func closeSlot(process int, who string, id int64, key string) harness.Request {
	return harness.Request{
		Kind: kindClose, Process: process, Caller: who, Method: http.MethodPost, Path: slotPath(id) + "/closure", Header: signed(who, key),
	}
}

func reopenSlot(process int, who string, id int64, key string) harness.Request {
	return harness.Request{
		Kind: kindReopen, Process: process, Caller: who, Method: http.MethodPost, Path: slotPath(id) + "/reopening", Header: signed(who, key),
	}
}

func readSlot(process int, who string, id int64) harness.Request {
	return harness.Request{Kind: kindRead, Process: process, Caller: who, Method: http.MethodGet, Path: slotPath(id), Header: bearer(who)}
}

func account(process int, who string) harness.Request {
	return harness.Request{
		Kind: kindAccount, Process: process, Caller: who, Method: http.MethodGet, Path: "/telescope/account/reservations", Header: bearer(who),
	}
}

// lookup asks for the outcome of an earlier operation of the caller's.
func lookup(process int, who, key, operation string) harness.Request {
	return harness.Request{
		Kind: kindLookup, Process: process, Caller: who, Method: http.MethodGet,
		Path: "/telescope/operations/" + key + "?type=" + operation, Header: bearer(who),
	}
}

// as gives the request another kind, for checks that must tell it from others.
func as(kind string, r harness.Request) harness.Request { return answers.As(kind, r) }

// A booking is what the answer to a booking says.
type booking struct {
	BookingID string `json:"booking_id"`
	SlotID    int64  `json:"slot_id"`
	Member    string `json:"member"`
	StartsAt  string `json:"starts_at"`
	State     string `json:"state"`
}

// bookingOf reads a 201.
func bookingOf(op harness.Operation) (booking, error) {
	var b booking
	if op.Status != http.StatusCreated {
		return b, fmt.Errorf("%s of %s: got %d %s %s, want 201", op.Kind, op.Caller, op.Status, op.Err, op.Output)
	}
	return b, op.Decode(&b)
}

// booked makes a booking that is not part of the race and gives its id.
func booked(ctx context.Context, env harness.Env, r harness.Request) (string, error) {
	b, err := bookingOf(env.Do(ctx, r))
	return b.BookingID, err
}

// word is what a client was told, in one word or two ("409 slot-taken"); "none" without an answer.
func word(op harness.Operation) string { return answers.Word(op) }

// problemType is the last part of a problem's type, "" when the answer is none.
func problemType(op harness.Operation) string { return answers.ProblemType(op) }

// slotOf is the slot that an operation's path names; 0 when it names none.
func slotOf(op harness.Operation) int64 {
	rest, ok := strings.CutPrefix(op.Path, "/telescope/slots/")
	if !ok {
		return 0
	}
	text, _, _ := strings.Cut(rest, "/")
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// witnessOverlap records how many of a burst were in flight at once.
func witnessOverlap(env harness.Env, r harness.BurstReport) { answers.WitnessOverlap(env, r) }

// overlapping counts the most operations that were under way at one instant.
func overlapping(ops []harness.Operation) int { return answers.Overlapping(ops) }

// count is the witness of something that took place once or not at all.
func count(tookPlace bool) float64 { return answers.Once(tookPlace) }
