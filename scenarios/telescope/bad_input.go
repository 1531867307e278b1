package telescope

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/scenarios/answers"
)

// A bad request is one that must change nothing, and what its sender is told.
type bad struct {
	name string
	want string // in the words of word()
	make func(b badWorld) harness.Request
}

// badWorld is what there is to ask badly about.
type badWorld struct {
	open    slot   // free and in the future
	past    slot   // has begun
	booking string // of member 9
}

const (
	badKey     = "bad"
	bodyLimit  = 64 << 10
	hugeBody   = 1 << 20
	keyTooLong = 129
)

// changed takes a request and changes it.
func changed(r harness.Request, change func(*harness.Request)) harness.Request {
	change(&r)
	return r
}

// header changes one header field; "" takes it away.
func header(r harness.Request, name, value string) harness.Request {
	h := map[string]string{}
	for k, v := range r.Header {
		if k != name {
			h[k] = v
		}
	}
	if value != "" {
		h[name] = value
	}
	r.Header = h
	return r
}

// withBody gives the request another body, which need not be good JSON for the
// call but must be JSON, as it is kept in the history.
func withBody(r harness.Request, body string) harness.Request {
	r.Body = json.RawMessage(body)
	return r
}

func importBody(body string) harness.Request {
	return harness.Request{
		Method: http.MethodPost, Path: "/telescope/maintenance-imports", Caller: staff(0), Header: signed(staff(0), badKey), Body: json.RawMessage(body),
	}
}

func good(w badWorld) harness.Request { return book(0, member(0), w.open.ID, badKey) }

func badAsk(path string) func(badWorld) harness.Request {
	return func(badWorld) harness.Request {
		return harness.Request{Method: http.MethodGet, Path: path, Caller: member(0), Header: bearer(member(0))}
	}
}

// badKeys are requests whose key can't be used.
var badKeys = []bad{
	{"key-missing", "400 key-missing", func(w badWorld) harness.Request { return header(good(w), "Idempotency-Key", "") }},
	{"key-too-long", "400 key-invalid", func(w badWorld) harness.Request {
		return header(good(w), "Idempotency-Key", strings.Repeat("k", keyTooLong))
	}},
	{"key-with-a-space", "400 key-invalid", func(w badWorld) harness.Request { return header(good(w), "Idempotency-Key", "two words") }},
	{"key-not-ascii", "400 key-invalid", func(w badWorld) harness.Request { return header(good(w), "Idempotency-Key", "schlüssel") }},
	{"key-twice", "400 key-invalid", func(w badWorld) harness.Request { return header(good(w), "idempotency-key", badKey) }}, // beside the one in its usual writing
	{"key-twice-other", "400 key-invalid", func(w badWorld) harness.Request { return header(good(w), "idempotency-key", "another") }},
	{"key-missing-on-cancel", "400 key-missing", func(w badWorld) harness.Request {
		return header(cancel(0, member(9), w.booking, badKey), "Idempotency-Key", "")
	}},
	{"key-missing-on-import", "400 key-missing", func(badWorld) harness.Request {
		return header(importBody(`{"slots":[]}`), "Idempotency-Key", "")
	}},
}

// badTokens are requests of somebody who may not do it.
var badTokens = []bad{
	{"no-token", "401 unauthorized", func(w badWorld) harness.Request { return withToken(good(w), "") }},
	{"unknown-token", "401 unauthorized", func(w badWorld) harness.Request { return withToken(good(w), "student-1") }},
	{"token-of-another-scheme", "401 unauthorized", func(w badWorld) harness.Request {
		return header(withToken(good(w), ""), "Authorization", "Basic bWVtYmVyLTE6")
	}},
	{"expired-token", "401 token-expired", func(w badWorld) harness.Request { return withToken(good(w), expiredToken(member(0))) }},
	{"expired-before-anything-else", "401 token-expired", func(badWorld) harness.Request {
		return withToken(header(book(0, member(0), 1, badKey), "Idempotency-Key", ""), expiredToken(member(0)))
	}},
	{"staff-books", "403 forbidden", func(w badWorld) harness.Request { return withToken(good(w), staff(0)) }},
	{"member-closes", "403 forbidden", func(w badWorld) harness.Request { return closeSlot(0, member(0), w.open.ID, badKey) }},
	{"member-imports", "403 forbidden", func(badWorld) harness.Request { return withToken(importBody(`{"slots":[]}`), member(0)) }},
	{"member-sees-flagged", "403 forbidden", badAsk("/telescope/staff/flagged")},
}

// badTargets are requests about what is not there, or not theirs.
var badTargets = []bad{
	{"unknown-slot", "404 unknown-slot", func(badWorld) harness.Request { return book(0, member(0), 1, badKey) }},
	{"slot-that-is-no-number", "404 unknown-slot", func(w badWorld) harness.Request {
		return changed(good(w), func(r *harness.Request) { r.Path = "/telescope/slots/one/reservations" })
	}},
	{"slot-out-of-range", "404 unknown-slot", func(w badWorld) harness.Request {
		return changed(good(w), func(r *harness.Request) { r.Path = "/telescope/slots/99999999999999999999/reservations" })
	}},
	{"past-slot", "422 slot-past", func(w badWorld) harness.Request { return book(0, member(0), w.past.ID, badKey) }},
	{"foreign-booking", "404 unknown-booking", func(w badWorld) harness.Request { return cancel(0, member(0), w.booking, badKey) }},
	{"unknown-booking", "404 unknown-booking", func(badWorld) harness.Request {
		return cancel(0, member(0), "00000000-0000-4000-8000-000000000000", badKey)
	}},
	{"booking-that-is-no-id", "404 unknown-booking", func(badWorld) harness.Request { return cancel(0, member(0), "mine", badKey) }},
	{"close-unknown-slot", "404 unknown-slot", func(badWorld) harness.Request { return closeSlot(0, staff(0), 1, badKey) }},
	{"reopen-unknown-slot", "404 unknown-slot", func(badWorld) harness.Request { return reopenSlot(0, staff(0), 1, badKey) }},
	{"unknown-operation", "404 unknown-operation", badAsk("/telescope/operations/nothing?type=book")},
	{"operation-of-no-type", "400 bad-request", badAsk("/telescope/operations/nothing?type=nonsense")},
	{"read-unknown-slot", "404 unknown-slot", badAsk("/telescope/slots/1")},
	{"day-that-is-none", "400 bad-request", badAsk("/telescope/days/2026-02-30/slots")},
}

// badBodies are requests that can't be read.
var badBodies = []bad{
	{"body-with-a-stranger", "400 bad-request", func(w badWorld) harness.Request { return withBody(good(w), `{"slot":1}`) }},
	{"malformed-json", "400 bad-request", func(w badWorld) harness.Request { return withBody(good(w), `{"slot":`) }},
	{"malformed-json-import", "400 bad-request", func(badWorld) harness.Request { return importBody(`{"slots":[{]}`) }},
	{"no-json-at-all", "400 bad-request", func(badWorld) harness.Request { return importBody("\x00\xff slots") }},
	{"two-json-values", "400 bad-request", func(badWorld) harness.Request { return importBody(`{"slots":[]}{}`) }},
	{"body-that-is-a-list", "400 bad-request", func(w badWorld) harness.Request { return withBody(good(w), `[]`) }},
	{"wrong-content-type", "415 unsupported-media-type", func(w badWorld) harness.Request {
		return header(withBody(good(w), `{}`), "Content-Type", "text/plain")
	}},
	{"huge-body", "413 too-large", func(w badWorld) harness.Request {
		return withBody(good(w), `{"note":"`+strings.Repeat("x", hugeBody)+`"}`)
	}},
	{"body-over-the-limit", "413 too-large", func(w badWorld) harness.Request {
		return withBody(good(w), `{"note":"`+strings.Repeat("x", bodyLimit)+`"}`)
	}},
	{"import-of-nothing", "400 bad-request", func(badWorld) harness.Request { return importBody(`{"slots":[]}`) }},
	{"import-of-a-word", "400 bad-request", func(badWorld) harness.Request { return importBody(`{"slots":"all"}`) }},
	{"import-without-a-body", "400 bad-request", func(badWorld) harness.Request { return importBody(``) }},
	{"import-of-a-state", "400 bad-request", func(badWorld) harness.Request {
		return importBody(`{"slots":[{"slot_id":5,"starts_at":"2036-12-24T08:00:00Z","state":"broken"}]}`)
	}},
	{"import-off-the-half-hour", "400 bad-request", func(badWorld) harness.Request {
		return importBody(`{"slots":[{"slot_id":5,"starts_at":"2036-12-24T08:10:00Z","state":"open"}]}`)
	}},
	{"import-of-a-slot-twice", "400 bad-request", func(badWorld) harness.Request {
		one := `{"slot_id":5,"starts_at":"2036-12-24T08:00:00Z","state":"open"}`
		return importBody(`{"slots":[` + one + `,` + one + `]}`)
	}},
	{"import-of-too-many", "400 bad-request", func(badWorld) harness.Request { return importBody(tooMany()) }},
}

// tooMany is the body of an import of one slot more than allowed.
func tooMany() string {
	list := make([]string, importMost+1)
	for i := range list {
		list[i] = fmt.Sprintf(`{"slot_id":%d,"starts_at":"2036-12-24T08:00:00Z","state":"open"}`, i+1)
	}
	return `{"slots":[` + strings.Join(list, ",") + `]}`
}

func badRequests() []bad {
	var all []bad
	for _, part := range [][]bad{badKeys, badTokens, badTargets, badBodies} {
		all = append(all, part...)
	}
	return all
}

func badInput() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/bad-input",
		Title: "requests that can't be read, that nobody may make, or about what is not there",
		Doc: `Every request of a long list is sent, a few at once: without a key, with two, with one that is no key; without a token, with an expired one, with that of the
wrong sort of person; about slots and bookings that are not there, past or somebody else's; with bodies that are too large, of another type or of
another shape. Each is answered with its status and problem type, without a trace of the server's inside, and no row is written.`,
		Sources: []string{"T-I7", "T-M8", "T-M18"},
		Params:  []harness.Param{paramReplicas},
		Choose: func(rng *rand.Rand, _ harness.Params) (any, error) {
			c := choices{Slots: slotsOfOneMonth(rng, 3), Orders: [][]int{rng.Perm(len(badRequests()))}}
			c.Slots[1].Month = -1 - rng.IntN(12) // has begun
			return c, nil
		},
		Drive: driveBad,
		Checks: func(harness.Params) []harness.Check {
			want := tallies{}
			for _, b := range badRequests() {
				want["bad "+b.name] = map[string]int{b.want: 1}
			}
			return append(served(),
				words("answers", "each is told what is wrong with its request", byKind, fixed(want)),
				noInsides(),
				happened("nothing but what was there before is in the history", map[string]int{"CREATED": 3, "BOOKED": 1}),
				rowsOf("rows", "no row was written", map[string]int{"observing_slots": 3, "active_reservations": 1, "member_quotas": 1, "booking_operations": 2, "outbox": 4}))
		},
	}, nil)
}

func driveBad(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	w := badWorld{open: c.Slots[0], past: c.Slots[1]}
	if w.booking, err = booked(ctx, env, book(9, member(9), c.Slots[2].ID, "book")); err != nil {
		return err
	}
	all := badRequests()
	var requests []harness.Request
	for process, i := range c.Orders[0] {
		r := all[i].make(w)
		r.Kind, r.Process = "bad "+all[i].name, process
		requests = append(requests, r)
	}
	ops := env.DoAll(ctx, requests, 8)
	told := 0
	for _, op := range ops {
		told += int(count(op.Status != 0))
	}
	env.Witness("answered", float64(len(all)), float64(told), "bad requests that were answered")
	return nil
}

// noInsides: a refusal is a problem document, and says nothing of the server's inside.
func noInsides() harness.Check { return answers.Problems(where + "/bad_input.go") }

// rowsOf compares the numbers of stored rows by table.
func rowsOf(id, doc string, want map[string]int) harness.Check {
	return funcCheck(id, doc, "bad_input.go", true, func(rec harness.Record) harness.Verdict {
		got := map[string]int{}
		for table := range want {
			rows, ok := rec.Find("table:" + table)
			if !ok {
				return harness.Undecided(harness.ReasonEnvironment, "%s could not be read", table)
			}
			got[table] = len(rows.Rows)
		}
		for table, n := range want {
			if got[table] != n {
				return harness.Violated([]harness.Evidence{{Text: "got " + tallyText(got) + "; want " + tallyText(want)}}, "%s: %s has %d rows, want %d", doc, table, got[table], n)
			}
		}
		return harness.Passed("%s: %s", doc, tallyText(got))
	})
}
