package telescope

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check/linear"
)

// A clerk is a second telling of the contract, for making records: it serves
// one request after the other.
type clerk struct {
	closed        bool
	holder, owner string
	made          int
	of            map[string]string // member of each booking
	results       map[string]result // by caller, type and key
}

type result struct {
	status int
	body   string
}

// serve answers a request, out of the stored results if its key is known.
func (c *clerk) serve(r harness.Request) result {
	op := harness.Operation{Method: r.Method, Path: r.Path}
	scope := fmt.Sprint(r.Caller, operationType(op), r.Header["Idempotency-Key"])
	if old, ok := c.results[scope]; ok && operationType(op) != "" {
		return old
	}
	answer := c.decide(r, operationType(op))
	if answer.status != 404 && operationType(op) != "" {
		c.results[scope] = answer
	}
	return answer
}

func problem(status int, name string) result {
	return result{status, fmt.Sprintf(`{"type":"/problems/%s"}`, name)}
}

func (c *clerk) decide(r harness.Request, kind string) result {
	state := map[bool]string{true: "closed", false: "open"}[c.closed]
	switch kind {
	case "book":
		switch {
		case c.closed:
			return problem(409, "slot-closed")
		case c.holder != "":
			return problem(409, "slot-taken")
		}
		c.made++
		c.holder, c.owner = fmt.Sprintf("b%d", c.made), r.Caller
		c.of[c.holder] = r.Caller
		return result{201, fmt.Sprintf(`{"booking_id":%q,"slot_id":4,"member":%q}`, c.holder, c.owner)}
	case "cancel":
		id := r.Path[len("/telescope/reservations/"):]
		switch {
		case c.of[id] != r.Caller:
			return problem(404, "unknown-booking")
		case c.holder != id:
			return problem(409, "already-cancelled")
		}
		c.holder, c.owner = "", ""
		return result{200, fmt.Sprintf(`{"booking_id":%q,"slot_id":4,"state":"cancelled"}`, id)}
	case "close":
		if c.closed {
			return problem(409, "already-closed")
		}
		c.closed = true
		if c.holder == "" {
			return result{200, `{"slot_id":4,"state":"closed","flagged":null}`}
		}
		return result{200, fmt.Sprintf(`{"slot_id":4,"state":"closed","flagged":%q}`, c.holder)}
	case "reopen":
		if !c.closed {
			return problem(409, "already-open")
		}
		c.closed = false
		return result{200, `{"slot_id":4,"state":"open"}`}
	case "import":
		flagged := ""
		if !c.closed && c.holder != "" {
			flagged = `"` + c.holder + `"`
		}
		c.closed = true
		return result{200, `{"flagged":[` + flagged + `]}`}
	}
	if r.Kind == kindAccount {
		mine := ""
		if c.owner == r.Caller {
			mine = fmt.Sprintf(`{"booking_id":%q,"slot_id":4,"state":%q}`, c.holder, map[bool]string{true: "flagged", false: "active"}[c.closed])
		}
		return result{200, `{"reservations":[` + mine + `]}`}
	}
	id := "null"
	if c.holder != "" && (c.owner == r.Caller || r.Caller[0] == 's') {
		id = `"` + c.holder + `"`
	}
	return result{200, fmt.Sprintf(`{"slot_id":4,"state":%q,"reserved":%v,"mine":%v,"booking_id":%s}`, state, c.holder != "", c.holder != "" && c.owner == r.Caller, id)}
}

// day makes a record of members and staff who ask the clerk, each one request
// after the other; requests are served at instants of their own, some answers
// are lost, and what was lost is often sent again under the same key.
func day(rng *rand.Rand, members, staffs, steps int, length int64, lost float64) harness.Record {
	type turn struct {
		client, n       int
		from, when, end time.Duration
	}
	var turns []turn
	for client := range members + staffs {
		at := time.Duration(1)
		for n := range steps {
			from := at + time.Duration(rng.Int64N(20))
			took := rng.Int64N(length) + 1
			turns = append(turns, turn{client, n, from, from + time.Duration(rng.Int64N(took+1)), from + time.Duration(took)})
			at = from + time.Duration(took) + 1
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.when, b.when) })
	c := &clerk{of: map[string]string{}, results: map[string]result{}}
	again, known := map[int]harness.Request{}, map[int]string{}
	var rec harness.Record
	for _, t := range turns {
		r, retried := again[t.client]
		if !retried || rng.IntN(3) == 0 {
			r = draw(rng, t.client, members, t.n, known[t.client])
		}
		delete(again, t.client)
		op := harness.Operation{
			ID: fmt.Sprintf("op-%d-%d", t.client, t.n), Process: t.client, Kind: r.Kind, Caller: r.Caller, Key: r.Header["Idempotency-Key"], Method: r.Method,
			Path: r.Path, Input: r.Body, Intended: t.from, Sent: t.from + 1, Answered: t.end, Outcome: harness.OK,
		}
		if rng.Float64() < lost {
			op.Answered, op.Outcome = 0, harness.Info
			if rng.IntN(2) == 0 {
				c.serve(r)
			}
			if r.Method != "GET" {
				again[t.client] = r
			}
		} else {
			answer := c.serve(r)
			op.Status, op.Output = answer.status, answer.body
			if answer.status >= 400 {
				op.Outcome = harness.Fail
			}
			if b, err := bookingOf(op); err == nil {
				known[t.client] = b.BookingID
			}
		}
		rec.History.Operations = append(rec.History.Operations, op)
	}
	return rec
}

func draw(rng *rand.Rand, client, members, n int, booking string) harness.Request {
	key := fmt.Sprintf("key-%d", n)
	if client >= members {
		who := staff(client - members)
		return []harness.Request{
			closeSlot(client, who, 4, key), reopenSlot(client, who, 4, key), reopenSlot(client, who, 4, key), readSlot(client, who, 4),
			importOf(client, who, []slot{{ID: 4}}, time.Unix(0, 0), "closed", key),
		}[rng.IntN(5)]
	}
	who := member(client)
	list := []harness.Request{book(client, who, 4, key), book(client, who, 4, key), readSlot(client, who, 4), account(client, who)}
	if booking != "" {
		list = append(list, cancel(client, who, booking, key), cancel(client, who, booking, key), cancel(client, who, booking, key))
	}
	return list[rng.IntN(len(list))]
}

// spoilRecord gives one answer to somebody else who asked for the same.
func spoilRecord(rng *rand.Rand, rec harness.Record) {
	ops := rec.History.Operations
	a := &ops[rng.IntN(len(ops))]
	for range 20 {
		b := &ops[rng.IntN(len(ops))]
		if a.Answered != 0 && b.Answered != 0 && a.Kind == b.Kind && a.Output != b.Output {
			a.Status, a.Output, a.Outcome = b.Status, b.Output, b.Outcome
			return
		}
	}
}

// oneMore tells the n-th who was told that the slot was taken that he has it.
func oneMore(rec harness.Record, n int) {
	for i, op := range rec.History.Operations {
		if problemType(op) == "slot-taken" {
			if n--; n < 0 {
				op.Status, op.Outcome, op.Output = 201, harness.OK, `{"booking_id":"one-more","slot_id":4}`
				rec.History.Operations[i] = op
				return
			}
		}
	}
}

// plainly asks porcupine, which knows none of the rules of package linear.
func plainly(calls []linear.Call) bool {
	type unknown struct{}
	m := slotModel()
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.Init("")} },
		Step: func(state, input, output any) []any {
			if _, ok := output.(unknown); ok {
				return append(m.Step(state, input, nil, false), state)
			}
			return m.Step(state, input, output, true)
		},
	}
	var ops []porcupine.Operation
	for i, c := range calls {
		op := porcupine.Operation{ClientId: i, Input: c.Input, Call: int64(c.Call), Output: c.Output, Return: int64(c.Return)}
		if c.Outcome == harness.Info {
			op.Output, op.Return = unknown{}, math.MaxInt64
		}
		ops = append(ops, op)
	}
	return porcupine.CheckOperations(nm.ToModel(), ops)
}

func TestModelAgreesWithPorcupine(t *testing.T) {
	const records = 1500
	tally := map[harness.Status]int{}
	for seed := range uint64(records) {
		rng := rand.New(rand.NewPCG(seed, 5))
		rec := day(rng, 2+rng.IntN(2), 1, 2+rng.IntN(3), 1+rng.Int64N(60), []float64{0, 0.25}[rng.IntN(2)])
		v := linearizable().Judge(rec)
		if v.Status != harness.Pass && v.Reason != harness.ReasonVacuous {
			t.Fatalf("seed %d: a clerk who works is %v: %s\n%v", seed, v.Status, v.Summary, listed(rec))
		}
		for range rng.IntN(3) {
			spoilRecord(rng, rec)
		}
		calls, err := slotCalls(rec)
		if err != nil { // the one answer that named a booking was spoiled
			continue
		}
		got := linear.Check(context.Background(), slotModel(), calls, time.Minute)
		if want := plainly(calls); got.Reason == "" && (got.Status == harness.Pass) != want {
			t.Fatalf("seed %d: %v (%s), porcupine says %v\n%v", seed, got.Status, got.Sentence, want, listed(rec))
		}
		tally[got.Status]++
	}
	t.Logf("%d records, seeds 0 to %d: %v", records, records-1, tally)
	if tally[harness.Pass] < records/10 || tally[harness.Failed] < records/10 {
		t.Errorf("%v is no fair mixture", tally)
	}
}

func listed(rec harness.Record) string {
	text := ""
	for _, op := range rec.History.Operations {
		text += fmt.Sprintf("%s %s %s %s key %q [%d %d] -> %d %s\n", op.ID, op.Caller, op.Method, op.Path, op.Key, op.Intended, op.Answered, op.Status, op.Output)
	}
	return text
}

// Long days with many clients: right, and with one more winner.
func TestLongDaysAreDecided(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 6))
		rec := day(rng, 40, 10, 40, 1000, []float64{0, 0.02, 0.1}[seed%3])
		for _, spoiled := range []bool{false, true} {
			if spoiled {
				oneMore(rec, 100+int(seed))
			}
			calls, err := slotCalls(rec)
			if err != nil {
				t.Fatal(err)
			}
			got := linear.Check(context.Background(), slotModel(), calls, time.Minute)
			t.Logf("seed %d, %d calls, spoiled %v: %v, %d states, %v: %.200s", seed, len(calls), spoiled, got.Status, got.States, got.Took.Round(time.Millisecond), got.Sentence)
			if want := map[bool]harness.Status{false: harness.Pass, true: harness.Failed}[spoiled]; got.Status != want || got.States > 300_000 {
				t.Errorf("seed %d: %v %s", seed, got.Status, got.Sentence)
			}
		}
	}
}
