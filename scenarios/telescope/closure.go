package telescope

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// The two serial orders of a booking and a closure.
const (
	bookingFirst = "booking first"
	closureFirst = "closure first"
)

// pairsAtOnce is how many pairs are released at one barrier: all pairs at once
// would wait for a database connection and not for each other.
const pairsAtOnce = 20

// bothOrdersFrom is the number of races from which on both orders are
// demanded; with fewer it may be chance.
const bothOrdersFrom = 200

func bookingVersusClosure() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/booking-versus-closure",
		Title: "a member books a slot while staff close it, many slots at once",
		Doc: `Of each pair one request books the slot and the other closes it, at one barrier; the seed says which of the two is handed to the
kernel first. Each pair must have gone as one of the two serial orders. Booking first: 201, the slot is closed, the reservation flagged and
named in the closure's answer. Closure first: 409 slot-closed, nothing is booked or flagged. How many went each way is measured; of 200
races both orders must be seen (--set rounds=200).`,
		Sources: []string{"T-I2", "T-I10", "T-M2", "T-M3"},
		Params:  []harness.Param{with(paramRounds, "20"), paramReplicas},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int("rounds")
			c := choices{Slots: slotsOfOneMonth(rng, n)}
			for range n {
				c.Orders = append(c.Orders, rng.Perm(2))
			}
			return c, nil
		},
		Drive: driveFreePairs,
		Checks: func(harness.Params) []harness.Check {
			return append(served(), serialOrders(bookingFirst, closureFirst))
		},
	}, nil)
}

func driveFreePairs(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	first, overlapped := map[string]int{}, 0
	for from := 0; from < len(c.Slots); from += pairsAtOnce {
		b := harness.Burst{Name: fmt.Sprintf("pairs-%d", from/pairsAtOnce+1)}
		for i := from; i < min(len(c.Slots), from+pairsAtOnce); i++ {
			pair := []harness.Request{
				book(i, member(i), c.Slots[i].ID, "book"),
				closeSlot(staffProcess+i, staff(i), c.Slots[i].ID, "close"),
			}
			for _, n := range c.Orders[i] {
				b.Requests = append(b.Requests, pair[n])
			}
		}
		_, ops, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		for pair := range slices.Chunk(ops, 2) {
			overlapped += max(0, overlapping(pair)-1)
			for _, op := range pair {
				if op.Kind == kindBook && op.Status == 201 {
					first[bookingFirst]++
				} else if op.Kind == kindBook && op.Status == 409 {
					first[closureFirst]++
				}
			}
		}
	}
	env.Measure("booking_first", float64(first[bookingFirst]))
	env.Measure("closure_first", float64(first[closureFirst]))
	env.Witness("overlapping_pairs", float64(max(1, len(c.Slots)/2)), float64(overlapped), "pairs of which both requests were sent before either was answered")
	if len(c.Slots) >= bothOrdersFrom {
		env.Witness("booking_first", 1, float64(first[bookingFirst]), "pairs in which the booking came first")
		env.Witness("closure_first", 1, float64(first[closureFirst]), "pairs in which the closure came first")
	}
	return nil
}

// forcedOrder is the race with its order decided by us.
func forcedOrder(order string) harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/booking-versus-closure@" + strings.ReplaceAll(order, " ", "-"),
		Title: "a booking and a closure wait for the same slot, " + order,
		Doc: `A session of ours holds the slot's row. The first request is sent and seen waiting for the row, then the second one, then the row
is let go: Postgres hands it on in the order in which they came, so the answers are known beforehand. (A session that waits is one
for which pg_blocking_pids names ours, or one that waits for ours.)`,
		Sources: []string{"T-I2", "T-M2", "T-M3"},
		Params:  []harness.Param{with(paramRounds, "3"), paramReplicas},
		Rounds:  rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			return choices{Slots: slotsOfOneMonth(rng, p.Int("rounds"))}, nil
		},
		Drive: func(ctx context.Context, env harness.Env) error { return driveForcedPairs(ctx, env, order) },
		Checks: func(harness.Params) []harness.Check {
			return append(served(), serialOrders(order))
		},
	}, nil)
}

func driveForcedPairs(ctx context.Context, env harness.Env, order string) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	queued := 0
	for i, s := range c.Slots {
		pair := []harness.Request{book(i, member(i), s.ID, "book"), closeSlot(staffProcess+i, staff(i), s.ID, "close")}
		if order == closureFirst {
			slices.Reverse(pair)
		}
		n, err := inOrder(ctx, env, s.ID, pair)
		if err != nil {
			return err
		}
		queued += n
	}
	env.Witness("queued", float64(2*len(c.Slots)), float64(queued), "requests that were seen waiting for the slot's row, one after the other, while we held it")
	return nil
}

// inOrder sends the requests while we hold the slot's row, each when the one
// before is seen waiting, and lets the row go. It gives how many were seen.
func inOrder(ctx context.Context, env harness.Env, id int64, requests []harness.Request) (queued int, err error) {
	session, err := holdSlot(ctx, env, id)
	if err != nil {
		return 0, err
	}
	done := make(chan struct{}, len(requests))
	sent := 0
	for _, r := range requests {
		go func() {
			defer func() { done <- struct{}{} }()
			env.Do(ctx, r)
		}()
		sent++
		if err = awaitBlocked(ctx, env, session.PID(), sent); err != nil {
			break
		}
		queued++
	}
	err = errors.Join(err, session.End())
	for range sent { // each call has its deadline
		<-done
	}
	return queued, err
}

// holdSlot locks the slot's row in a session of our own, until that is ended.
func holdSlot(ctx context.Context, env harness.Env, id int64) (harness.DatabaseSession, error) {
	return hold(ctx, env, "select from observing_slots where slot_id = $1 for update", id)
}

// hold opens a session of our own, executes the statement in a transaction and
// leaves it open.
func hold(ctx context.Context, env harness.Env, sql string, args ...any) (harness.DatabaseSession, error) {
	session, err := env.Database().Session(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = session.Exec(ctx, "begin"); err == nil {
		var n int64
		if n, err = session.Exec(ctx, sql, args...); err == nil && n != 1 {
			err = fmt.Errorf("%s: got %d rows, want the one to hold", sql, n)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hold a row: %w", err), session.End())
	}
	return session, nil
}

// blockedSQL counts the server sessions that wait for what the backend $1
// holds: for itself, or behind others who wait for it. Postgres names the second
// in a row's queue as blocked by the first. Who waits for somebody else's lock,
// as a background worker may, does not count.
const blockedSQL = `with recursive waiting as materialized (
  select pid, pg_blocking_pids(pid) as blockers from pg_stat_activity
  where datname = current_database() and application_name <> 'overbook' and cardinality(pg_blocking_pids(pid)) > 0
), behind (pid) as (
  select $1::integer
  union
  select w.pid from waiting w join behind b on b.pid = any (w.blockers)
) select count(*) - 1 as n from behind`

// blockedBy asks how many server sessions wait for what the backend holds.
func blockedBy(ctx context.Context, env harness.Env, backend int) (int, error) {
	rows, err := env.Database().Query(ctx, blockedSQL, backend)
	if err != nil {
		return 0, fmt.Errorf("ask who waits for the backend %d: %w", backend, err)
	}
	n, _ := rows[0]["n"].(float64)
	return int(n), nil
}

// awaitBlocked waits until so many server sessions wait for what the backend holds.
func awaitBlocked(ctx context.Context, env harness.Env, backend, n int) error {
	return env.Await(ctx, fmt.Sprintf("%d sessions wait for what we hold", n), patience, func(ctx context.Context) (bool, string, error) {
		got, err := blockedBy(ctx, env, backend)
		return got >= n, fmt.Sprintf("%d of %d", got, n), err
	})
}

// serialOrders is T-I2 for pairs of one booking and one closure on a slot of
// their own: answers and rows of each are those of one of the allowed orders.
func serialOrders(allowed ...string) harness.Check {
	doc := "each pair went as " + strings.Join(allowed, " or ")
	return funcCheck("T-I2.serial", doc, "closure.go", true, func(rec harness.Record) harness.Verdict {
		stands, ok := standing(rec)
		if !ok {
			return harness.Undecided(harness.ReasonEnvironment, "the slots could not be read")
		}
		seen := map[string]int{}
		var wrong []harness.Evidence
		missing := 0
		for _, s := range planned(rec).Slots {
			made, closed := answeredOn(rec, s.ID, kindBook), answeredOn(rec, s.ID, kindClose)
			if made == nil || closed == nil {
				missing++
				continue
			}
			order := orderOf(*made, *closed, stands[s.ID])
			if !slices.Contains(allowed, order) {
				wrong = append(wrong, pairEvidence(order, stands[s.ID], *made, *closed))
			}
			seen[order]++
		}
		switch {
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d of %d did not", doc, len(wrong), len(planned(rec).Slots))
		case missing > 0:
			return harness.Undecided(harness.ReasonUndelivered, "%d pairs were not answered whole", missing)
		}
		return harness.Passed("%s: %d booking first, %d closure first", doc, seen[bookingFirst], seen[closureFirst])
	})
}

// answeredOn gives the one answered operation of this kind on the slot.
func answeredOn(rec harness.Record, id int64, kind string) *harness.Operation {
	for i, op := range rec.History.Operations {
		if op.Kind == kind && op.Answered != 0 && slotOf(op) == id {
			return &rec.History.Operations[i]
		}
	}
	return nil
}

// pairEvidence shows what a pair was told and what is stored of its slot.
func pairEvidence(problem string, s *stand, ops ...harness.Operation) harness.Evidence {
	e := harness.Evidence{Text: problem}
	if s != nil {
		e.Text += fmt.Sprintf("; the slot is %s, history %s, active %q flag %q", s.State, strings.Join(s.History, " "), s.Holder, s.FlagState)
	}
	for _, op := range ops {
		e.Text += "\n  " + check.Line(op)
		e.Ops = append(e.Ops, op.ID)
	}
	return e
}

// orderOf says as which serial order a booking and a closure went, or what is
// wrong when it is none.
func orderOf(made, closed harness.Operation, s *stand) string {
	var b booking
	var c struct {
		State   string  `json:"state"`
		Flagged *string `json:"flagged"`
	}
	if word(closed) != "200" || closed.Decode(&c) != nil || c.State != "closed" || s == nil || s.State != "closed" {
		return "the slot was not closed"
	}
	switch word(made) {
	case "201":
		if made.Decode(&b) != nil || b.BookingID == "" || c.Flagged == nil || *c.Flagged != b.BookingID || s.Holder != b.BookingID || s.FlagState != "open" ||
			!slices.Equal(s.History, []string{"CREATED", "BOOKED", "CLOSED", "FLAGGED"}) {
			return "booked, and not flagged by the closure"
		}
		return bookingFirst
	case "409 slot-closed":
		if c.Flagged != nil || s.Holder != "" || !slices.Equal(s.History, []string{"CREATED", "CLOSED"}) {
			return "refused, and there is a reservation"
		}
		return closureFirst
	}
	return "the booking was told " + word(made)
}
