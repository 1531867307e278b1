package telescope

import (
	"context"
	"maps"
	"net/http"
	"strings"

	"github.com/overbook/overbook/harness"
)

func foreignKey() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/foreign-key",
		Title: "strangers use a member's key, look its outcome up and cancel its booking",
		Doc: `A member has booked. At one barrier, beside the member's own retries: other members replay the key on the same slot, look the operation
up by its key, cancel the booking by its id (with a key of theirs and with the member's), read the slot; somebody without a token, somebody with the
member's expired token, and staff do the same. Each is told what a stranger may know, nobody learns a name or a booking, and the booking stands.`,
		Sources: []string{"T-I3", "T-I7", "T-M4", "T-M8", "T-M18"},
		Params:  []harness.Param{with(paramUsers, "5"), paramReplicas},
		Choose:  chooseSlots(1),
		Drive:   driveStrangers,
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			return append(served(), words("answers", "strangers are told what strangers may know", byKind, fixed(tallies{
				kindBook:         {"201": n + 1}, // the member's own, and its retries
				kindLookup:       {"200": 1},
				"foreign-replay": {"409 slot-taken": n}, "foreign-lookup": {"404 unknown-operation": n},
				"foreign-cancel": {"404 unknown-booking": 2 * n}, "foreign-read": {"200": n},
				"nobody": {"401 unauthorized": 3}, "expired": {"401 token-expired": 3}, "staff": {"403 forbidden": 2},
			})), strangersSee(), happened("the booking stands", map[string]int{"CREATED": 1, "BOOKED": 1}))
		},
	}, nil)
}

// expiredToken is a token of the member that has expired long ago.
func expiredToken(who string) string { return who + ".1000000000" }

// withToken is the request with another token, or with none. Whoever sends it
// is nobody that a check would let see something.
func withToken(r harness.Request, token string) harness.Request {
	h := maps.Clone(r.Header)
	delete(h, "Authorization")
	if token != "" {
		maps.Copy(h, bearer(token))
	}
	r.Caller, r.Header = "", h
	return r
}

func driveStrangers(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	const key = "owned"
	id, owner := c.Slots[0].ID, member(0)
	mine := book(0, owner, id, key)
	held, err := booked(ctx, env, mine)
	if err != nil {
		return err
	}
	b := harness.Burst{Name: "strangers"}
	add := func(kind string, r harness.Request) {
		r.Kind, r.Process = kind, len(b.Requests)
		b.Requests = append(b.Requests, r)
	}
	add(kindLookup, lookup(0, owner, key, "book"))
	for i := range env.Params().Int("users") {
		add(kindBook, mine)
		add("foreign-replay", book(0, member(3*i+1), id, key))
		add("foreign-lookup", lookup(0, member(3*i+2), key, "book")) // who has sent nothing with that key
		add("foreign-cancel", cancel(0, member(3*i+3), held, "other"))
		add("foreign-cancel", cancel(0, member(3*i+3), held, key))
		add("foreign-read", readSlot(0, member(3*i+3), id))
	}
	calls := []harness.Request{mine, cancel(0, owner, held, key), lookup(0, owner, key, "book")}
	for _, r := range calls {
		add("nobody", withToken(r, ""))
		add("expired", withToken(r, expiredToken(owner)))
	}
	for _, r := range calls[:2] { // staff have operations of their own to look up
		add("staff", withToken(r, staff(0)))
	}
	report, _, err := env.Burst(ctx, b)
	if err != nil {
		return err
	}
	witnessOverlap(env, report)
	env.Do(ctx, account(0, owner))
	env.Do(ctx, account(1, member(1)))
	return nil
}

// strangersSee: a stranger who reads the slot sees that it is reserved, and
// nothing else; the owner's lookup gives the stored answer; accounts hold what
// is their member's.
func strangersSee() harness.Check {
	const doc = "a stranger sees that the slot is reserved and not by whom; lookup and account are the member's own"
	return funcCheck("T-I7.view", doc, "strangers.go", false, func(rec harness.Record) harness.Verdict {
		judged := 0
		var wrong []harness.Evidence
		for _, op := range rec.History.Operations {
			if op.Status != http.StatusOK {
				continue
			}
			switch op.Kind {
			case "foreign-read":
				judged++
				var s struct {
					Reserved  bool    `json:"reserved"`
					Mine      bool    `json:"mine"`
					BookingID *string `json:"booking_id"`
				}
				if op.Decode(&s) != nil || !s.Reserved || s.Mine || s.BookingID != nil {
					wrong = append(wrong, about(op, "want reserved, not mine, without a booking"))
				}
			case kindAccount:
				judged++
				var a struct {
					Reservations []booking `json:"reservations"`
				}
				if want := int(count(op.Caller == member(0))); op.Decode(&a) != nil || len(a.Reservations) != want {
					wrong = append(wrong, about(op, "another number of reservations than the member's"))
				}
			case kindLookup:
				judged++
				if !strings.Contains(op.Output, member(0)) {
					wrong = append(wrong, about(op, "without the stored answer"))
				}
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d are not", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody's look was answered")
		}
		return harness.Passed("%s: %d looks", doc, judged)
	})
}
