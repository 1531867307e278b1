package telescope

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// chooseSlots decides n slots of one month.
func chooseSlots(n int) func(*rand.Rand, harness.Params) (any, error) {
	return func(rng *rand.Rand, _ harness.Params) (any, error) {
		return choices{Slots: slotsOfOneMonth(rng, n)}, nil
	}
}

// copiesOf gives n copies of a request, each sent by a client of its own.
func copiesOf(r harness.Request, n int) []harness.Request {
	list := make([]harness.Request, n)
	for i := range list {
		list[i] = r
		list[i].Process = r.Process + i
	}
	return list
}

// lateCopies is how many copies come when everything is long over.
const lateCopies = 5

func sameKeyRetries() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/same-key-retries",
		Title: "one booking is sent in twenty identical copies at once, and again later",
		Doc: `One member's booking arrives in copies with the same key at one barrier, as from a client that retries without waiting; when all
are answered, five more come, and the operation is looked up by its key. There is one booking, and every copy gets the same 201, byte for byte. None is told in-progress:
the first one is over long before the lock timeout.`,
		Sources: []string{"T-I1", "T-I3", "T-I4", "T-M6", "T-M7", "T-M23"},
		Params:  []harness.Param{paramCopies, paramReplicas},
		Choose:  chooseSlots(1),
		Drive: func(ctx context.Context, env harness.Env) error {
			c, err := chosen(ctx, env)
			if err != nil {
				return err
			}
			return sendCopies(ctx, env, book(0, member(0), c.Slots[0].ID, "again"), nil)
		},
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("copies")
			return append(servedRetried(), lookupTells(),
				words("answers", "every copy is answered 201", byBurst, fixed(tallies{"copies": {"201": n}, "late": {"201": lateCopies}})),
				happened("the slot is booked once", map[string]int{"CREATED": 1, "BOOKED": 1}))
		},
	}, nil)
}

// sendCopies releases the copies at one barrier, does what is to be done
// meanwhile, and releases the late ones.
func sendCopies(ctx context.Context, env harness.Env, r harness.Request, meanwhile func() error) error {
	report, _, err := env.Burst(ctx, harness.Burst{Name: "copies", Requests: copiesOf(r, env.Params().Int("copies"))})
	if err != nil {
		return err
	}
	witnessOverlap(env, report)
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return err
		}
	}
	if _, _, err = env.Burst(ctx, harness.Burst{Name: "late", Requests: copiesOf(r, lateCopies)}); err != nil {
		return err
	}
	env.Do(ctx, lookup(r.Process, r.Caller, r.Header["Idempotency-Key"], "book"))
	return nil
}

// lookupTells is the other way to an answer that was lost: the operation, asked
// for by its key, is what its request was answered with.
func lookupTells() harness.Check {
	const doc = "the operation that is looked up by its key has the status and the body that its request was answered with"
	return funcCheck("T-I4.lookup", doc, "retries.go", false, func(rec harness.Record) harness.Verdict {
		answers := map[string]harness.Operation{}
		for _, op := range rec.History.Operations {
			if kind := operationType(op); kind != "" && stored(op) {
				answers[op.Caller+" /telescope/operations/"+op.Key+"?type="+kind] = op
			}
		}
		judged := 0
		var wrong []harness.Evidence
		for _, op := range rec.History.OfKind(kindLookup) {
			answer, known := answers[op.Caller+" "+op.Path]
			if op.Answered == 0 || op.Status >= 500 || !known {
				continue
			}
			judged++
			var o struct {
				Status int             `json:"status"`
				Body   json.RawMessage `json:"body"`
			}
			if op.Status != http.StatusOK || op.Decode(&o) != nil || o.Status != answer.Status || strings.TrimSpace(string(o.Body)) != strings.TrimSpace(answer.Output) {
				wrong = append(wrong, differ(answer, op))
			}
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d have not", doc, len(wrong), judged)
		case judged == 0:
			return harness.Undecided(harness.ReasonUndelivered, "no look at an answered operation was answered")
		}
		return harness.Passed("%s: %d", doc, judged)
	})
}

func sameKeyRefused() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/same-key-retries@refused",
		Title: "twenty copies of a booking that lost; then the slot becomes free, and the copies stay refused",
		Doc: `Somebody else has the slot when the copies come: every one is told 409 slot-taken. Then the holder cancels. A copy that comes now
could be booked, but its key has had its answer: it is told the same 409, byte for byte, and nothing is booked. With a
key of its own the same member then gets the slot.`,
		Sources: []string{"T-I3", "T-M6", "T-M7"},
		Params:  []harness.Param{paramCopies, paramReplicas},
		Choose:  chooseSlots(1),
		Drive: func(ctx context.Context, env harness.Env) error {
			c, err := chosen(ctx, env)
			if err != nil {
				return err
			}
			id, holder, loser := c.Slots[0].ID, member(0), member(1)
			held, err := booked(ctx, env, as("hold", book(500, holder, id, "hold")))
			if err != nil {
				return err
			}
			err = sendCopies(ctx, env, book(0, loser, id, "again"), func() error {
				if op := env.Do(ctx, cancel(500, holder, held, "leave")); op.Status != 200 {
					return fmt.Errorf("the holder's cancellation: got %d %s %s, want 200", op.Status, op.Err, op.Output)
				}
				return nil
			})
			if err != nil {
				return err
			}
			env.Do(ctx, as("fresh", book(0, loser, id, "fresh")))
			return nil
		},
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("copies")
			return append(servedRetried(), lookupTells(),
				words("answers", "every copy is told that the slot is taken", byBurst, fixed(tallies{"copies": {"409 slot-taken": n}, "late": {"409 slot-taken": lateCopies}})),
				words("answers.fresh", "with another key the free slot is booked", byKind, fixed(tallies{"fresh": {"201": 1}})),
				happened("booked, cancelled, booked", map[string]int{"CREATED": 1, "BOOKED": 2, "CANCELLED": 1}))
		},
	}, nil)
}

func sameKeyDifferentBody() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/same-key-different-body",
		Title: "one key is used for two different requests",
		Doc: `A key belongs to one request. Half of the copies at the barrier book one slot, half of them another, all with the same key of one
member: one slot is booked, its copies are told 201, all the others 422 key-reused. Afterwards, one by one: the used key on a third slot
(book and, by staff, close), and an import that lists other slots than the one that its key was first used for. 422 each, nothing is
changed, and the first answers stand.`,
		Sources: []string{"T-I3", "T-M5", "T-M7"},
		Params:  []harness.Param{paramCopies, paramReplicas},
		Choose:  chooseSlots(4),
		Drive:   driveDifferentBody,
		Checks: func(p harness.Params) []harness.Check {
			return append(servedRetried(), oneOfTwo(p.Int("copies")), lookupTells(),
				words("answers.other", "a used key on another target is refused", byKind, fixed(tallies{
					"other-book": {"422 key-reused": 1}, "other-close": {"422 key-reused": 1}, "other-import": {"422 key-reused": 1},
					"first-close": {"200": 2}, "first-import": {"200": 2}, kindLookup: {"200": 2},
				})),
				happened("one slot is booked, one closed by each way", map[string]int{"CREATED": 4, "BOOKED": 1, "CLOSED": 2}))
		},
	}, nil)
}

func driveDifferentBody(ctx context.Context, env harness.Env) error {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	now, err := create(ctx, env, c.Slots)
	if err != nil {
		return err
	}
	n, me, boss := env.Params().Int("copies"), member(0), staff(1)
	b := harness.Burst{Name: "copies"}
	for i := range n {
		b.Requests = append(b.Requests, book(i, me, c.Slots[i%2].ID, "reused"))
	}
	report, _, err := env.Burst(ctx, b)
	if err != nil {
		return err
	}
	witnessOverlap(env, report)
	// The third slot is closed, the fourth by an import; both are tried on the
	// other's with the same key, and then again as they were first.
	first := closeSlot(staffProcess, boss, c.Slots[2].ID, "close")
	whole := importOf(staffProcess, boss, c.Slots[3:], now, "closed", "import")
	for _, r := range []harness.Request{
		as("other-book", book(0, me, c.Slots[2].ID, "reused")),
		as("first-close", first),
		as("other-close", closeSlot(staffProcess, boss, c.Slots[3].ID, "close")),
		as("first-import", whole),
		as("other-import", importOf(staffProcess, boss, c.Slots[2:], now, "open", "import")),
		as("first-close", first),
		as("first-import", whole),
		lookup(staffProcess, boss, "close", "close"),
		lookup(staffProcess, boss, "import", "import"),
	} {
		env.Do(ctx, r)
	}
	return nil
}

// oneOfTwo: of the copies for two slots with one key, those for one slot are
// answered 201 and those for the other 422.
func oneOfTwo(copies int) harness.Check {
	const doc = "the copies for one slot are answered 201, those for the other 422 key-reused"
	return funcCheck("answers", doc, "retries.go", false, func(rec harness.Record) harness.Verdict {
		bySlot := map[int64][]harness.Operation{}
		answered := 0
		for _, op := range rec.History.Operations {
			if op.Burst == "copies" && op.Answered != 0 {
				bySlot[slotOf(op)] = append(bySlot[slotOf(op)], op)
				answered++
			}
		}
		won := 0
		var wrong []harness.Evidence
		for id, ops := range bySlot {
			got := told(ops)
			switch {
			case got["201"] == len(ops):
				won++
			case got["422 key-reused"] != len(ops):
				e := harness.Evidence{Text: fmt.Sprintf("slot %d: %s", id, tallyText(got))}
				for _, op := range ops[:min(4, len(ops))] {
					e.Text += "\n  " + check.Line(op)
					e.Ops = append(e.Ops, op.ID)
				}
				wrong = append(wrong, e)
			}
		}
		switch {
		case (len(wrong) > 0 || won > 1) && check.Broken(rec):
			return harness.Undecided(harness.ReasonEnvironment, "not every copy was told so, in an environment that broke")
		case len(wrong) > 0:
			return harness.Violated(wrong, "%s: %s", doc, wrong[0].Text)
		case won > 1:
			return harness.Violated(nil, "%s: both slots were booked", doc)
		case answered < copies:
			return harness.Undecided(harness.ReasonUndelivered, "%d of %d copies were answered", answered, copies)
		case won == 0:
			return harness.Violated(nil, "%s: no slot was booked", doc)
		}
		return harness.Passed("%s: %d copies", doc, answered)
	})
}
