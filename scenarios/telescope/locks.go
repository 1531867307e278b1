package telescope

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/overbook/overbook/harness"
	"github.com/overbook/overbook/harness/check"
)

// lockTimeout is what the server gets where somebody holds a lock for ever,
// and lockSlack what a client may wait beyond it: a busy machine answers late,
// but nobody waits for the holder.
const (
	lockTimeout = 700 * time.Millisecond
	lockSlack   = 1500 * time.Millisecond
	crowdSlack  = 3 * time.Second // where clients wait for a database connection, too
)

// A holding is a row that a session of ours holds, and what it does to clients.
type holding struct {
	suffix, title string
	doc           string
	sql           func(slot, time.Time) (string, []any)
	request       func(i int, c choices) harness.Request // of the i-th client that has to wait
	blocked       string                                 // what each of them is told
	again         func(n int) map[string]int             // and what they are told when it is let go
	crowd         bool                                   // there are more of them than database connections
}

// holdings are the rows on which a booking may have to wait, in the order of
// its locks: the key, the member's quota, the slot.
var holdings = []holding{
	{
		suffix: "", title: "a slot's row stays locked by somebody else beyond the lock timeout",
		doc: "the slot's row; the members who book it are told 503 busy. When it is let go, one of them gets it",
		sql: func(s slot, _ time.Time) (string, []any) {
			return "select from observing_slots where slot_id = $1 for update", []any{s.ID}
		},
		request: func(i int, c choices) harness.Request { return book(i, member(i), c.Slots[0].ID, "book") },
		blocked: "503 busy",
		again:   func(n int) map[string]int { return map[string]int{"201": 1, "409 slot-taken": n - 1} },
	},
	{
		suffix: "@crowd", title: "more members wait for a locked slot than the server has database connections",
		doc: "the slot's row, and more members book it than there are database connections; each is told 503 busy, those who never got a connection, too. When it is let go, one of them gets it",
		sql: func(s slot, _ time.Time) (string, []any) {
			return "select from observing_slots where slot_id = $1 for update", []any{s.ID}
		},
		request: func(i int, c choices) harness.Request { return book(i, member(i), c.Slots[0].ID, "book") },
		blocked: "503 busy",
		again:   func(n int) map[string]int { return map[string]int{"201": 1, "409 slot-taken": n - 1} },
		crowd:   true,
	},
	{
		suffix: "@quota", title: "a member's quota row stays locked by somebody else beyond the lock timeout",
		doc: "a new quota row of a member; its bookings of different slots in that month are told 503 busy. When it is let go, two of them succeed",
		sql: func(s slot, now time.Time) (string, []any) {
			return "insert into member_quotas (member, month) values ($1, $2)", []any{member(0), s.start(now).In(observatory).Format("2006-01")}
		},
		request: func(i int, c choices) harness.Request {
			return book(i, member(0), c.Slots[i].ID, keyOf("book", i))
		},
		blocked: "503 busy",
		again: func(n int) map[string]int {
			return map[string]int{"201": min(n, quotaOfMonth), "409 quota-exceeded": max(0, n-quotaOfMonth)}
		},
	},
	{
		suffix: "@key", title: "the operation of a key stays under way beyond the lock timeout",
		doc: "the row of an operation's key, as a first copy would that never ends; the other copies are told 409 in-progress. When it is gone, the copies are answered as ever",
		sql: func(slot, time.Time) (string, []any) {
			return "insert into booking_operations (principal, type, key, fingerprint, created_at) values ($1, 'book', 'book', '', clock_timestamp())", []any{member(0)}
		},
		request: func(i int, c choices) harness.Request { return book(i, member(0), c.Slots[0].ID, "book") },
		blocked: "409 in-progress",
		again:   func(n int) map[string]int { return map[string]int{"201": n} },
	},
}

// crowdPool is the pool of the server that a crowd meets; some of its
// connections work for nobody in particular.
const crowdPool = 8

func blockedLock(h holding) harness.Scenario {
	server := map[string]string{"TELESCOPE_LOCK_TIMEOUT": lockTimeout.String()}
	users := harness.Param{Name: "users", Kind: harness.IntParam, Default: "10", Min: 2, Max: 15, Doc: "clients who have to wait, and as many who have not"}
	slack, others := lockSlack, " Members who\nbook other slots at the same barrier notice nothing."
	if h.crowd {
		server["POOL_SIZE"] = strconv.Itoa(crowdPool)
		users.Default, users.Min, users.Max, users.Doc = "20", 2*crowdPool, 30, "clients who have to wait"
		slack, others = crowdSlack, ""
	}
	return scenario(harness.Scenario{
		Name:  "telescope/blocked-lock" + h.suffix,
		Title: h.title,
		Doc: `A session of ours holds ` + h.doc + `. Meanwhile nobody may wait for us: each is answered soon after the lock timeout, with Retry-After.` + others + ` A retry
with the same key then does what the first one could not.`,
		Sources: []string{"T-I3", "T-I11", "T-M14"},
		Params:  []harness.Param{users, paramReplicas},
		Latency: kindBlocked,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			n := p.Int("users") * 2
			return choices{Slots: slotsOfOneMonth(rng, n), Orders: [][]int{rng.Perm(n)}}, nil
		},
		Drive: func(ctx context.Context, env harness.Env) error { return driveBlocked(ctx, env, h) },
		Checks: func(p harness.Params) []harness.Check {
			n := p.Int("users")
			want := tallies{kindBlocked: {h.blocked: n}, kindBook: {"201": n}, "again": h.again(n)}
			if h.crowd {
				delete(want, kindBook)
			}
			return append(always(), boundedWait(h.blocked, slack),
				words("answers", "who has to wait is told so, the others are served, a retry goes through", byKind, fixed(want)))
		},
	}, server)
}

// kindBlocked are the requests that have to wait for what we hold.
const kindBlocked = "blocked"

func driveBlocked(ctx context.Context, env harness.Env, h holding) error {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	now, err := create(ctx, env, c.Slots)
	if err != nil {
		return err
	}
	n := env.Params().Int("users")
	b, again := harness.Burst{Name: "burst"}, harness.Burst{Name: "again"}
	for _, i := range c.Orders[0] {
		if i >= n { // the second half of the slots is nobody's business but their own
			if !h.crowd {
				b.Requests = append(b.Requests, book(i, member(1000+i), c.Slots[i].ID, "book"))
			}
			continue
		}
		r := h.request(i, c)
		b.Requests, again.Requests = append(b.Requests, as(kindBlocked, r)), append(again.Requests, as("again", r))
	}
	sql, args := h.sql(c.Slots[0], now)
	session, err := hold(ctx, env, sql, args...)
	if err != nil {
		return err
	}
	least := n
	if h.crowd { // each of its connections that serves clients
		least = crowdPool / 2
	}
	waiting, err := burstWhileHeld(ctx, env, session.PID(), b, least)
	if err = errors.Join(err, session.End()); err != nil {
		return err
	}
	env.Witness("waiting_for_lock", float64(least), float64(waiting), "sessions that were seen waiting at one instant for what we held")
	_, _, err = env.Burst(ctx, again)
	return err
}

// burstWhileHeld releases the burst and looks meanwhile how many sessions wait
// for what the holder's backend holds; want of them is what it looks for.
func burstWhileHeld(ctx context.Context, env harness.Env, holder int, b harness.Burst, want int) (most int, err error) {
	over := make(chan error, 1)
	go func() {
		_, _, err := env.Burst(ctx, b)
		over <- err
	}()
	ended := false
	look := env.Await(ctx, "sessions wait for what we hold", patience, func(ctx context.Context) (bool, string, error) {
		n, err := blockedBy(ctx, env, holder)
		if err != nil {
			return false, "", err
		}
		most = max(most, n)
		select {
		case err = <-over:
			ended = true
		default:
		}
		return ended || most >= want, fmt.Sprintf("%d of %d", most, want), err
	})
	if !ended {
		look = errors.Join(look, <-over) // each call of the burst has its deadline
	}
	return most, look
}

// boundedWait is T-I11: who had to wait for a lock was answered within the
// deadline, and told when to come again; who had not was answered before.
func boundedWait(blocked string, slack time.Duration) harness.Check {
	const doc = "nobody waits for a lock longer than its timeout, and who needs none waits for nothing"
	return funcCheck("T-I11", doc, "locks.go", false, func(rec harness.Record) harness.Verdict {
		var wrong []harness.Evidence
		waited, longest := 0, time.Duration(0)
		for _, op := range rec.History.Operations {
			switch {
			case op.Answered == 0:
				if op.Kind == kindBlocked && op.Sent != 0 && len(rec.Trouble) == 0 {
					wrong = append(wrong, about(op, "never answered, "+op.Err))
				}
			case op.Kind == kindBlocked:
				waited++
				longest = max(longest, op.ResponseTime())
				if op.ResponseTime() > lockTimeout+slack {
					wrong = append(wrong, about(op, fmt.Sprintf("waited %s, at most %s allowed", op.ResponseTime(), lockTimeout+slack)))
				}
				if word(op) == blocked && op.Header["Retry-After"] == "" {
					wrong = append(wrong, about(op, "does not say when to come again"))
				}
			case op.Kind == kindBook && op.ResponseTime() > lockTimeout:
				wrong = append(wrong, about(op, fmt.Sprintf("waited %s for nothing", op.ResponseTime())))
			}
		}
		switch {
		case len(wrong) > 0 && check.Broken(rec): // who waited may have waited for that
			return harness.Undecided(harness.ReasonEnvironment, "%d waited too long or were told too little, in an environment that broke", len(wrong))
		case len(wrong) > 0:
			return harness.Violated(few(wrong), "%s: %d did", doc, len(wrong))
		case waited == 0:
			return harness.Undecided(harness.ReasonUndelivered, "nobody who had to wait was answered")
		}
		return harness.Passed("%s: %d waited, at most %s", doc, waited, longest.Round(time.Millisecond))
	})
}

func deadlock() harness.Scenario {
	return scenario(harness.Scenario{
		Name:  "telescope/deadlock",
		Title: "imports of the same slots in opposite orders, many at once, while members book in between",
		Doc: `In each round several imports list the same slots at one barrier, half of them upwards and half downwards, some to close and some to open, and members
book some of the slots. Who locks in the order of the list meets somebody who holds what it needs. Nobody may fail: slots are locked in the
order of their ids, and a deadlock that Postgres finds all the same is tried again. Who books what is imported has it, or is told that it is
taken or closed; who books another slot, at the same barrier, has it.`,
		Sources: []string{"T-I2", "T-I10", "T-I11", "T-M20"},
		Params: []harness.Param{
			with(paramRounds, "5"), with(paramSlots, "30"), paramReplicas,
			{Name: "imports", Kind: harness.IntParam, Default: "6", Min: 2, Max: 40, Doc: "imports at once"},
		},
		Rounds: rounds,
		Choose: func(rng *rand.Rand, p harness.Params) (any, error) {
			c := choices{Slots: slotsOfOneMonth(rng, p.Int("slots")+p.Int("rounds"))} // the last ones are not imported
			for range p.Int("rounds") {
				c.Orders = append(c.Orders, rng.Perm(p.Int("slots")))
			}
			return c, nil
		},
		Drive: driveDeadlock,
		Checks: func(p harness.Params) []harness.Check {
			return append(served(),
				words("answers", "every import is answered 200, and 201 who books a slot that is not imported", byKind, fixed(tallies{
					kindImport: {"200": p.Int("rounds") * p.Int("imports")}, kindBeside: {"201": p.Int("rounds")},
				})),
				toldAmong("answers.booked", "a booking is answered 201, or that the slot is taken or closed", map[string][]string{"book": bookedOrNot}))
		},
	}, nil)
}

// bookersPerRound are the members who book while imports run.
const bookersPerRound = 4

// kindBeside is a booking of a slot that nobody else acts on.
const kindBeside = "beside"

func driveDeadlock(ctx context.Context, env harness.Env) error {
	var c choices
	if err := env.Plan().Decode(&c); err != nil {
		return err
	}
	now, err := create(ctx, env, c.Slots)
	if err != nil {
		return err
	}
	shared := c.Slots[:len(c.Slots)-len(c.Orders)]
	for round, order := range c.Orders {
		b := harness.Burst{Name: roundName(round)}
		for i := range env.Params().Int("imports") {
			list := reordered(shared, i%2 == 1)
			b.Requests = append(b.Requests, importOf(staffProcess+i, staff(i), list, now, []string{"closed", "open"}[i/2%2], keyOf("import", round)))
		}
		for i := range min(bookersPerRound, len(order)) {
			b.Requests = append(b.Requests, book(i, roundMember(round, i), shared[order[i]].ID, "book"))
		}
		alone := c.Slots[len(shared)+round].ID
		b.Requests = append(b.Requests, as(kindBeside, book(bookersPerRound, roundMember(round, bookersPerRound), alone, "book")))
		report, _, err := env.Burst(ctx, b)
		if err != nil {
			return err
		}
		witnessOverlap(env, report)
	}
	return nil
}

// reordered gives the slots upwards or downwards.
func reordered(slots []slot, down bool) []slot {
	list := make([]slot, len(slots))
	for i, s := range slots {
		if down {
			i = len(slots) - 1 - i
		}
		list[i] = s
	}
	return list
}

// injections are the errors that the Postgres wire gives instead of an answer.
var injections = []harness.Fault{
	{Action: harness.ActionError, Code: "40001", At: harness.BeforeStatement, Match: "insert into active_reservations", Nth: 1},
	{Action: harness.ActionError, Code: "40P01", At: harness.BeforeStatement, Match: "observing_slots.*for update", Nth: 1},
	{Action: harness.ActionError, Code: "40001", At: harness.BeforeCommit, Match: "insert into active_reservations", Nth: 1},
	{Action: harness.ActionError, Code: "40P01", At: harness.BeforeCommit, Match: "insert into active_reservations", Nth: 1},
}

func deadlockInjected() harness.Scenario {
	s := scenario(harness.Scenario{
		Name:  "telescope/deadlock@injected",
		Title: "Postgres answers a booking with a deadlock or a serialization failure, at a statement and at its COMMIT",
		Doc: `The Postgres wire answers a statement, or a COMMIT that Postgres never sees, with 40P01 or 40001. Nothing of that transaction is left, so it is tried again as a
whole: the member is answered 201, and there is one reservation, one BOOKED, one event and one result.`,
		Sources: []string{"T-I3", "T-I6", "T-M20"},
		Params:  []harness.Param{paramReplicas},
		Choose:  chooseSlots(len(injections)),
		Drive:   driveInjected,
		Checks: func(harness.Params) []harness.Check {
			n := len(injections)
			return append(served(), words("answers", "every booking is answered 201", byKind, fixed(tallies{kindBook: {"201": n}})),
				happened("each slot is booked once", map[string]int{"CREATED": n, "BOOKED": n}))
		},
	}, nil)
	s.Topology = func(p harness.Params) harness.Topology {
		t := topology(p, nil)
		t.PostgresWire = true
		return t
	}
	s.Tags = append(s.Tags, "fault")
	return s
}

func driveInjected(ctx context.Context, env harness.Env) error {
	c, err := chosen(ctx, env)
	if err != nil {
		return err
	}
	var struck []string
	for i, f := range injections {
		injected := env.Inject(f)
		env.Do(ctx, book(i, member(i), c.Slots[i].ID, "book"))
		for _, strike := range injected.Strikes() {
			struck = append(struck, fmt.Sprintf("%s at %s", f.Code, strike.What))
		}
		injected.Heal()
	}
	env.Witness("injected", float64(len(injections)), float64(len(struck)), "errors that were given: "+strings.Join(struck, "; "))
	return nil
}
